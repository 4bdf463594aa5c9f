//! Work on stored pages: they are marked idle, recompressed, written back. A policy does this by
//! itself, to hold a device at its target. Tiers do it by the age of pages.
//!
//! ```text
//!   policy -> hold -> recompress, write_back, idle -> candidates
//!   tiers  -> tend -> pack -> rule, recompress, write_back -'
//!          '> train -> sample, uses, bench <- tend
//! ```
//!
//! The room stands on the device, and on `page` for decoding. Requests of clients stand above it,
//! because a write that finds no room brings memory down first.

mod bench;
mod candidates;
mod hold;
mod idle;
mod pack;
mod policy;
mod recompress;
mod rule;
mod sample;
mod tend;
mod tiers;
mod train;
mod uses;
mod write_back;

pub use policy::{Policy, PolicyConfig};
pub use tend::Tending;
pub use tiers::{TierPass, Tiers};
pub(crate) use uses::Uses;
