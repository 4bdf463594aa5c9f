//! Pageblocks that nobody can allocate from, while they are emptied or given back.
//!
//! ```text
//!              isolate: no run in it is pinned             each free block moves to Isolate
//!    in use  ---------------------------------->  isolated  <--- frees land on Isolate
//!            <----------------------------------     |
//!              undo_isolation                        |  offline, when all of it is free
//!                                                    v
//! ```
//!
//! What is done meanwhile is the caller's: moving runs away, releasing memory. A pageblock knows
//! the type it had, and returns to it.

use crate::numbers::{
    AllocatedRun, IsolateError, Kind, Migratetype, PAGEBLOCK_FRAMES, PageblockIndex, Role,
};
use crate::zone::Zone;

impl Zone {
    /// Isolates a pageblock: the kernel's `set_migratetype_isolate`. Refused while a run in it
    /// cannot be made to leave, as `has_unmovable_pages` decides there.
    pub fn isolate(&mut self, index: PageblockIndex) -> Result<(), IsolateError> {
        if self.online_type(index)? == Migratetype::Isolate {
            return Err(IsolateError::AlreadyIsolated(index));
        }
        if let Some(run) = self.pinned_run(index) {
            return Err(IsolateError::Pinned { index, pfn: run.pfn });
        }
        self.directory.keep_type(index);
        self.retype(index, Migratetype::Isolate);
        Ok(())
    }

    /// Gives an isolated pageblock the type it had: the kernel's `unset_migratetype_isolate`. What
    /// is free in it can be allocated again, and merges.
    pub fn undo_isolation(&mut self, index: PageblockIndex) -> Result<(), IsolateError> {
        if self.online_type(index)? != Migratetype::Isolate {
            return Err(IsolateError::NotIsolated(index));
        }
        self.retype(index, self.directory.own_type(index));
        Ok(())
    }

    /// Adds to `found` the runs of which a frame lies in a pageblock, lowest first: 512 at most.
    /// Adds nothing if it is offline.
    pub fn runs_in(&self, index: PageblockIndex, found: &mut Vec<AllocatedRun>) {
        if self.is_online(index) && self.directory.used(index).free() < PAGEBLOCK_FRAMES {
            self.for_each_run(index, |run| found.push(run));
        }
    }

    /// Visits the runs of an online pageblock that is not wholly free.
    pub(crate) fn for_each_run(&self, index: PageblockIndex, mut visit: impl FnMut(AllocatedRun)) {
        let mut at = self.run_into(index).unwrap_or_else(|| self.first_head(index));
        while at.pageblock() <= index {
            let frames = self.frames_from(at);
            if let Some(Role::Allocated(migratetype)) = self.directory.role(at) {
                visit(AllocatedRun { pfn: at, frames, migratetype });
            }
            at = at.plus(frames);
        }
    }

    /// A run that cannot be made to leave: not moved, not dropped, and not on its way back.
    fn pinned_run(&self, index: PageblockIndex) -> Option<AllocatedRun> {
        let mut pinned = None;
        if self.directory.used(index).of(Kind::Fixed) > 0 {
            self.for_each_run(index, |run| {
                if !run.migratetype.can_leave() {
                    pinned = pinned.or(Some(run));
                }
            });
        }
        pinned
    }

    fn online_type(&self, index: PageblockIndex) -> Result<Migratetype, IsolateError> {
        if !self.directory.contains(index) {
            return Err(IsolateError::OutOfRange(index));
        }
        if !self.is_online(index) {
            return Err(IsolateError::Offline(index));
        }
        Ok(self.directory.migratetype(index))
    }
}
