//! The two ways of a page: out of the program's memory, and back.
//!
//! ```text
//!   out    bring
//!     `--> engine <--'
//!   trays, store
//! ```

mod bring;
mod engine;
mod out;
mod store;
mod trays;

pub(crate) use bring::WINDOW_MAX;
pub(crate) use engine::Engine;
pub(crate) use out::Staged;
pub(crate) use store::Store;
pub(crate) use trays::Trays;
