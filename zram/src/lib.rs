//! zram in user space: a block device whose pages live compressed in memory.
//!
//! ```text
//!   4096 bytes -> same-filled? -> compress -> size class -> zspage -> frames
//!        ^            | word          |
//!        |            v               v
//!      slot 37 of the table: a cell, 8 bytes: word | object | nothing
//! ```
//!
//! Words: a *page* is 4096 bytes of the disk, a *slot* its entry in the table, *huge* a page stored
//! uncompressed because its compressed form is longer than the largest class that shares frames,
//! *same-filled* a page that repeats one 8-byte word.
//!
//! Semantics, names and formats are those of the kernel's driver. Differences: a page is huge when
//! its compressed length exceeds the watermark itself (objects have no header here, so 8 bytes
//! later); over the limit is "no space", out of memory is "no memory"; the limit is compared with
//! touched object bytes; a discard that does not cover whole pages zeroes the rest of the range.

#![forbid(unsafe_code)]

mod block;
mod check;
mod counters;
mod detached;
mod device;
mod entries;
mod error;
mod free;
mod page;
mod pages;
mod stat;
mod sums;

pub use check::{CheckError, CheckReport};
pub use device::{Zram, ZramConfig};
pub use error::ZramError;
pub use free::Free;
pub use stat::{IoStat, Metadata, MmStat, Stat};
// What the public items above are made of.
pub use codec::{Algorithm, Codec};
pub use disk::DiskError;
pub use zsmalloc::{Memory, MemoryConfig, Rule};
