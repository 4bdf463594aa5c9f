//! The backing disk: where pages go that leave memory, and come back from.
//!
//! `blocks` says which of it is in use and what each block must hold, `place` where a page is;
//! `sealed` reads the disk, and is what other rooms see. The room stands on the terms of the crate
//! alone: it knows no cell.

mod blocks;
mod place;
mod sealed;

pub(crate) use place::Place;
pub use sealed::BdStat;
pub(crate) use sealed::{Backing, offset_of};
