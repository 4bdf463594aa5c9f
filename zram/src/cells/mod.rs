//! The content of cells, and what is noted beside it: sums, words, blocks, and times of access.
//!
//! `stored` and `flags` are the two places that know the bits of a cell: its content, and what a
//! device notes about a page. `counters`, `sums` and `troubles` count. `values` has what a cell
//! stands for, `sharing` the objects that several cells name, and `hints` where equal pages may be.
//! `units` has pages that are stored as one frame, and `unit` what is known of one. `ages` has when
//! a page was used. The room stands on the backing disk, because a cell may name a place there, and
//! on the terms of the crate.

mod ages;
mod counters;
pub(crate) mod flags;
mod hints;
mod sharing;
pub(crate) mod stored;
mod sums;
pub(crate) mod totals;
mod troubles;
pub(crate) mod unit;
mod units;
mod values;

pub(crate) use ages::Ages;
pub(crate) use counters::{Change, Counters, Pending};
pub(crate) use hints::PageSum;
pub use sharing::SharedStat;
pub(crate) use sharing::{Sharing, Uses as SharedUses};
pub(crate) use stored::{Stored, kind};
pub(crate) use sums::{Emptied, enter};
pub(crate) use totals::{bump, read};
pub use troubles::TroubleStat;
pub use units::UnitStat;
pub(crate) use units::Units;
pub(crate) use values::Values;
