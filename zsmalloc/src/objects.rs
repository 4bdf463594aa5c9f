//! Objects: storing them, and giving them up, one by one, in batches and later.
//!
//! Names for objects (cells, handles) are a room further up. Here an object is a slot, and an entry
//! where a handle is to name it.

mod batch;
mod fetch;
mod free;
mod guest;
mod later;
mod next_door;
mod object;
mod places;
mod store;
mod teardown;
mod write;

pub(crate) use batch::BATCH;
pub use object::Object;
