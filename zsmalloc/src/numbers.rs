//! The ground of the allocator: sizes and shapes of classes, numbers of cells, the words that say
//! where objects are, and what can go wrong. It stands on nothing else of this crate.

mod cell;
mod error;
mod geometry;
mod word;

pub use cell::{CellNumber, LEAF_CELLS, LeafId};
pub(crate) use error::expect_equal;
pub use error::{AllocError, ForeignHandle, MemoryError, PoolDefect, StaleHandle, StaleLeaf};
pub use geometry::{
    CLASSES, ChainSize, ClassIndex, Geometry, OBJECTS_MAX, Rule, SHARDS_MAX, SIZE_MAX, SIZE_MIN,
    Shape,
};
pub use word::VALUE_BITS;
pub(crate) use word::{LOCKED, PFN_BITS, PIN, PINS_MAX, Place, SLACK_BITS, Slot, Word};
