//! zswap in user space: a compressed cache of pages in front of a disk.
//!
//! ```text
//!   store 4096 bytes -> same-filled? -> compress -> object in memory --write-back--> disk
//!                            | word         |            |                            |
//!   load  4096 bytes <-------'--------------'------------'----------------------------'
//!                             the page is then the caller's again
//! ```
//!
//! Words: an *area* is a sparse array of pages, an *entry* what is stored for one of them, a
//! *group* entries with a limit of their own. Pages come in by [`Area::store`] and go back by
//! [`Area::load`], which takes the entry out.

#![forbid(unsafe_code)]

mod algorithms;
mod area;
mod backing;
mod batch;
mod check;
mod config;
mod counters;
mod detached;
mod entry;
mod error;
mod groups;
mod keeper;
mod load;
mod order;
mod refaults;
mod shrink;
mod stat;
mod store;
mod turn;
mod write_back;
mod zswap;

pub use area::{Area, Free};
pub use backing::Found;
pub use check::{CheckError, CheckReport};
pub use config::{Incompressible, Limit, ZswapConfig};
pub use error::{AlgorithmError, LoadError, StoreError, ZswapError};
pub use groups::{GroupId, GroupStat};
pub use keeper::AreaStat;
pub use load::Loaded;
pub use order::Order;
pub use stat::Stat;
pub use write_back::WroteBack;
pub use zswap::Zswap;
// What the public items above are made of.
pub use codec::{Algorithm, Codec};
pub use disk::{Disk, DiskError};
pub use zsmalloc::{Memory, MemoryConfig, Rule};
