//! Where each page of a region is, and in what order groups leave memory.
//!
//! ```text
//!   Chunks    2 MiB each: is it registered with the system?      runs: what that costs in mappings
//!     `-- Group    64 pages: a bit of a word for each place      bits: a word's runs
//!           `-- Trials    which neighbours of a fault were wanted
//!   Splits    the mappings that closed pages make, where there is no userfaultfd
//!   Queue     the order in which groups leave
//! ```
//!
//! It stands on `terms`. Nothing here moves a page or knows the store. A group says where its pages
//! are, and the rooms above move them.

mod bits;
mod chunk;
mod group;
mod queue;
mod runs;
mod splits;
mod trials;

pub(crate) use bits::{bits, blocks_of, runs};
pub(crate) use chunk::Chunks;
pub(crate) use group::{Group, Place};
pub(crate) use queue::Queue;
pub(crate) use runs::Mappings;
#[cfg(test)]
pub(crate) use trials::MEMORY;
pub(crate) use trials::{QUAD_PAGES, STRETCH_PAGES, Tally, Trials, TrialsOf};
