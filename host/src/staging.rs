//! Staging: memory where pages stand between a region and its store.
//!
//! `segments` has the memory and its owners. `moves` has the ways of a page into a segment and
//! back. Invariants: G1 and G2 of `segments`. Lock: the list of free segments, a leaf.

mod moves;
mod segments;

pub use segments::{Segment, Staging};
