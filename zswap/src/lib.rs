//! zswap in user space: a compressed cache of pages in front of a disk.
//!
//! ```text
//!   store 4096 bytes -> same-filled? -> compress -> object in memory --write-back--> disk
//!                            | word         |            |                            |
//!   load  4096 bytes <-------'--------------'------------'----------------------------'
//!                             the page is then the caller's again
//! ```
//!
//! Words: an *area* is a sparse array of pages. An *entry* is what is stored for one page. A
//! *group* is a set of entries with a limit of their own. Pages are stored by [`Area::store`] and
//! come back by [`Area::load`], which takes the entry out.

#![forbid(unsafe_code)]

// Rooms, from the top down. Each of them stands only on rooms that are named after it:
// cache, areas, shared, writer, cells, order, backing, terms.
mod areas;
mod backing;
mod cache;
mod cells;
mod order;
mod shared;
mod terms;
mod writer;

pub use areas::{Area, AreaStat, FreeWhen, Loaded};
pub use backing::Found;
pub use cache::{Zswap, ZswapCheck, ZswapDefect, ZswapStat};
pub use cells::GroupStat;
pub use shared::WroteBack;
#[cfg(feature = "study")]
pub use terms::study;
pub use terms::{
    AlgorithmError, EvictionOrder, GroupId, Incompressible, Limit, LoadError, StoreError,
    ZswapConfig, ZswapError,
};
// The types that the public items above are made of.
pub use codec::{Algorithm, Codec};
pub use disk::{Disk, DiskError};
pub use zsmalloc::{Memory, MemoryConfig, Rule};
