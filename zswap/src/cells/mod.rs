//! The content of cells, and how it is counted: by kind, by algorithm and by group.
//!
//! Only `stored` knows the bits of a cell. The room stands on the backing disk, because a cell may
//! name a place there, and on the terms of the crate.

mod algorithms;
mod counters;
mod groups;
pub(crate) mod stored;

pub(crate) use algorithms::Algorithms;
pub(crate) use counters::{Counters, Event, Pending};
pub use groups::GroupStat;
pub(crate) use groups::Groups;
pub(crate) use stored::{LIVE_MAX, Stored, kind};
