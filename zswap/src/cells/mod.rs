//! What cells say, and what is counted of them: by content, by algorithm and by group.
//!
//! `stored` is the one place that knows the bits of a cell. The room stands on the backing disk,
//! for the place that a cell may name, and on the terms of the crate.

mod algorithms;
mod counters;
mod groups;
pub(crate) mod stored;

pub(crate) use algorithms::Algorithms;
pub(crate) use counters::{Counters, Event, Pending};
pub use groups::GroupStat;
pub(crate) use groups::Groups;
pub(crate) use stored::{LIVE_MAX, Stored, kind};
