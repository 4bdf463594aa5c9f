//! Leaves of cells: the memory's table of words that say where objects are, and which pool owns
//! which part of it.
//!
//! A leaf belongs to one pool and one use. Cells are locked by a bit of their word. Free entries
//! are chained through their cells.

mod chain;
mod leaf;
mod lock;
mod sums;

pub(crate) use chain::chain;
pub(crate) use leaf::{LeafUse, Leaves, OwnedLeaves, POOL_ID_MAX};
pub use sums::{LeafSums, LeafTally};
