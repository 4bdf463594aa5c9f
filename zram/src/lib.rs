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
//! this by itself to hold a target.
//!
//! Semantics, names and formats are those of the kernel's driver, with these differences:
//! - A page is huge when its compressed length exceeds the watermark itself. This is 8 bytes later
//!   than in the kernel, because objects have no header here.
//! - Over the limit is "no space", and out of memory is "no memory".
//! - The limit is compared with touched object bytes.
//! - A discard that does not cover whole pages zeroes the rest of the range.

#![forbid(unsafe_code)]

mod ages;
mod backing;
mod block;
mod block_state;
mod blocks;
mod candidates;
mod check;
mod control;
mod counters;
mod detached;
mod device;
mod entries;
mod error;
mod fetch;
mod free;
mod hold;
mod idle;
mod page;
mod pages;
mod policy;
mod post;
mod recompress;
mod settings;
mod slot_flags;
#[cfg(all(test, not(loom)))]
mod small;
mod stat;
mod sums;
mod trouble;
mod unreached;
mod values;
mod write_back;
mod written_back;

pub use backing::BdStat;
pub use block_state::BlockState;
pub use check::{CheckError, CheckReport};
pub use control::{
    Attribute, AttributeError, BlockStates, Device, DeviceDefaults, Devices, Errno, Opened,
    PathGuard,
};
pub use device::{Zram, ZramConfig};
pub use error::ZramError;
pub use free::Free;
pub use hold::HoldStat;
pub use policy::{Policy, PolicyConfig};
pub use post::{
    Idle, PostError, Recompress, RecompressKind, RecompressReport, Selection, WriteBack,
    WriteBackReport,
};
pub use stat::{IoStat, Metadata, MmStat, Stat};
pub use trouble::TroubleStat;
pub use unreached::Unreached;
// What the public items above are made of.
pub use codec::{Algorithm, Codec};
pub use disk::{Disk, DiskError};
pub use zsmalloc::{Memory, MemoryConfig, Rule};
