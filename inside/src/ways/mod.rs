//! The two ways of a page: out of the program's memory, and back.
//!
//! ```text
//!   out    bring
//!     `--> engine <--'   <-- inherit: of a forked child
//!   trays, store, leaving, trials, worth
//! ```

mod bring;
mod engine;
mod inherit;
mod leaving;
mod out;
mod store;
mod trays;
mod trials;
mod worth;

pub(crate) use bring::{Came, WINDOW_MAX};
pub(crate) use engine::{Engine, State};
pub(crate) use out::Staged;
pub(crate) use store::Store;
pub(crate) use trays::Trays;
pub(crate) use trials::Trials;
pub(crate) use worth::Worth;
