//! zram in user space: a block device whose pages live compressed in memory.
//!
//! ```text
//!   4096 bytes -> same-filled? -> compress -> size class -> zspage -> frames
//!        ^            | word          |
//!        |            v               v
//!      slot 37 of the table: a cell, 8 bytes: word | object | nothing
//! ```
//!
//! Words
//! - *page*: 4096 bytes of the disk; *slot*: its entry in the table
//! - *huge*: a page that is stored uncompressed, because its compressed form is longer than the
//!   largest class that shares frames
//! - *same-filled*: a page that repeats one 8-byte word
//!
//! Stored pages may be marked idle, recompressed with further algorithms, and written back to
//! another disk: [`Zram::mark_idle`], [`Zram::recompress`], [`Zram::write_back`]. A [`Policy`] does
//! this by itself to hold a target. [`Tiers`] keep unused pages denser, by their age.
//!
//! Semantics, names and formats are those of the kernel's driver, with these differences:
//! - A page is huge when its compressed length exceeds the watermark itself. This is 8 bytes later
//!   than in the kernel, because objects have no header here.
//! - A write over the limit fails with "no space", and a write without memory with "no memory".
//! - The limit is compared with touched object bytes.
//! - A discard that does not cover whole pages zeroes the rest of the range.

#![cfg_attr(
    not(feature = "study"),
    doc = "
Discarded pages are freed in one way. Others are behind the feature `study`:

```compile_fail
use ramfold_zram::study::FreeDesign;
```"
)]
#![forbid(unsafe_code)]

// Rooms, from the top down. Each of them stands only on rooms that are named after it:
// control, attributes, access, report, post, page, device, cells, backing, terms.
mod access;
mod attributes;
mod backing;
mod cells;
mod control;
mod device;
mod page;
mod post;
mod report;
#[cfg(all(test, not(loom)))]
mod small;
mod terms;

pub use attributes::{Attribute, AttributeError, Errno};
pub use backing::BdStat;
pub use cells::{SharedStat, TroubleStat, UnitStat};
pub use control::{BlockStates, Device, DeviceDefaults, Devices, Opened, PathGuard};
pub use device::{HoldStat, Zram};
pub use post::{Policy, PolicyConfig, Tending, TierPass, Tiers};
pub use report::{BlockState, IoStat, Metadata, MmStat, ZramCheck, ZramDefect, ZramStat};
#[cfg(feature = "study")]
pub use terms::study;
pub use terms::{
    Density, Idle, PostError, Recompress, RecompressKind, RecompressReport, Selection, Tier,
    TierStat, TiersConfig, Training, Unreached, Verdict, WriteBack, WriteBackReport, ZramConfig,
    ZramError,
};
// The types that the public items above are made of.
pub use codec::{Algorithm, Codec};
pub use disk::{Disk, DiskError};
pub use zsmalloc::{Memory, MemoryConfig, Rule};
