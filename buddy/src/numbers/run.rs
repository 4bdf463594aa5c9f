//! A run of frames that is given back.

use super::pfn::Pfn;
use super::state::Warm;

/// A run for [`Zone::free_runs`](crate::Zone::free_runs).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FreedRun {
    /// Its head.
    pub pfn: Pfn,
    /// Its length.
    pub frames: u32,
    /// Whether some of it may still be backed by memory.
    pub warm: Warm,
}

impl FreedRun {
    /// Whether `next` starts where this ends, and is as warm.
    pub(crate) fn is_followed_by(&self, next: FreedRun) -> bool {
        self.pfn.plus(self.frames) == next.pfn && self.warm == next.warm
    }
}
