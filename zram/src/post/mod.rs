//! Work on stored pages: they are marked idle, recompressed, written back. A policy does this by
//! itself, to hold a device at its target.
//!
//! ```text
//!   policy -> hold -> recompress, write_back, idle -> candidates
//! ```
//!
//! The room stands on the device, and on `page` for decoding. Requests of clients stand above it,
//! because a write that finds no room brings memory down first.

mod candidates;
mod hold;
mod idle;
mod policy;
mod recompress;
mod write_back;

pub use policy::{Policy, PolicyConfig};
