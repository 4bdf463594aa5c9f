//! Staging: memory where pages stand between a region and its store.
//!
//! `segments` has the memory and who owns which part; `moves` has the ways of a page into a segment
//! and back. Lock: the list of free segments, a leaf.

mod moves;
mod segments;

pub use segments::{Segment, Staging};
