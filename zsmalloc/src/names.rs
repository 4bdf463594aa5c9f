//! Names for objects, as clients have them: cells of their tables, owned handles, boxes, and raw
//! numbers.

mod cell;
mod drain;
mod free;
mod handle;
mod pool_box;
mod raw;
mod slots;

pub use cell::{CellGuard, Content};
pub use drain::DrainedCell;
pub use handle::{Handle, ReadGuard};
pub use pool_box::PoolBox;
pub use raw::RawHandle;
pub use slots::{LeafPart, Slots, leaf_parts, split};
