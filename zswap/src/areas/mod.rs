//! Areas: pages by number, and what is done to them.
//!
//! `store` and `load` are the two directions of a page. `batch` and `keeper` are other entrances:
//! for many pages, and for a client that can neither wait nor free. `detached` takes whole leaves
//! out. `forget` empties one cell; with the feature `study` the file of that name does. The room
//! stands on what all areas share.

mod area;
mod batch;
mod detached;
#[cfg(not(feature = "study"))]
mod forget;
mod keeper;
mod load;
mod store;
#[cfg(feature = "study")]
mod study;

pub use area::Area;
pub(crate) use area::AreaInner;
pub use detached::FreeWhen;
pub use keeper::AreaStat;
pub use load::Loaded;
