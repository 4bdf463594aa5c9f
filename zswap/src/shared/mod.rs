//! What all areas of a cache share, and how pages leave memory to make room in it.
//!
//! `core` is one structure with all of it. `write_back` takes pages to the disk, and `shrink`
//! repeats that until there is room. The room stands on the parts of which a cache is made: cells,
//! order, writer and backing disk.

mod core;
mod shrink;
mod write_back;

pub(crate) use core::Core;
pub(crate) use write_back::Whose;
pub use write_back::WroteBack;
