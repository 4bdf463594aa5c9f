//! Staging: memory where pages stand between a region and its store.
//!
//! `segments` has the memory and its owners. `moves` has the ways of a page into a segment and
//! back. Invariants: G1 and G2 of `segments`. Lock: the list of free segments, a leaf.

#[expect(unsafe_code, reason = "moves pages between a span and a segment")]
mod moves;
#[expect(unsafe_code, reason = "lends pages that only their owner discards")]
mod segments;

pub use segments::{Segment, Staging};
