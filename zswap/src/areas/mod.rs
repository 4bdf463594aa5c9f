//! Areas: pages by number, and what is done to them.
//!
//! `store` and `load` are the two directions of a page. `batch` and `keeper` are other entrances:
//! for many pages, and for a client that can neither wait nor free. `detached` takes whole leaves
//! out. The room stands on what all areas share.

mod area;
mod batch;
mod detached;
mod keeper;
mod load;
mod store;

pub use area::Area;
pub(crate) use area::AreaInner;
pub use detached::FreeWhen;
pub use keeper::AreaStat;
pub use load::Loaded;
