//! The two ways of a page: out of the program's memory, and back.
//!
//! ```text
//!   out    bring
//!     `--> engine <--'   <-- inherit: of a forked child
//!   trays, store, leaving, trials, worth
//!            |--> doubles: slots that a fork shares
//!            `--> writer, written, order, windows: pages on a disk
//! ```

mod bring;
mod doubles;
mod engine;
mod inherit;
mod leaving;
mod order;
mod out;
mod store;
#[cfg(test)]
mod tests;
mod trays;
mod trials;
mod windows;
mod worth;
mod writer;
mod written;

pub(crate) use bring::{Came, WINDOW_MAX};
pub(crate) use engine::{Engine, State};
pub(crate) use out::Staged;
pub(crate) use store::Store;
pub(crate) use trays::Trays;
pub(crate) use trials::Trials;
pub(crate) use worth::Worth;
pub(crate) use writer::Writer;
pub(crate) use written::Pick;
