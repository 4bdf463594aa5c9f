//! The backing disk: pages that leave memory go to it and come back from it.
//!
//! `blocks` says which blocks are in use, with their checksums, and `place` where a page is.
//! `sealed` reads the disk, and is what other rooms see. The room stands on the terms of the crate
//! alone and knows no cell.

mod blocks;
mod place;
mod sealed;

pub(crate) use blocks::Blocks;
pub(crate) use place::Place;
pub use sealed::BdStat;
pub(crate) use sealed::{Backing, offset_of};
