//! Stage: the pages of a group are moved out of the region, all by one call.
//!
//! Invariant: a page leaves the region only while its group is locked and has no pins (G4). It goes
//! to a fresh segment, so nothing there is overwritten. Words and counters follow the move in the
//! same hold of the lock.
//!
//! Locks: the group's, for one move.

use crate::places::{Group, bits, blocks_of, runs};
use crate::resources::Count;
use crate::state::Folded;
use crate::terms::{GROUP_PAGES, RegionError};
use host::{GONE, LockGuard, Segment, Stop, Transfer};
use std::time::Duration;

/// How long to wait at a time for other groups to give staging up.
const WAIT: Duration = Duration::from_micros(100);

impl Folded {
    /// Moves the resident ones of `wanted` to staging. Returns how many pages it moved, and how
    /// many could not be moved.
    pub(super) fn stage(&self, index: usize, wanted: u64) -> Result<(u64, u64), RegionError> {
        loop {
            // The group is looked at anew each time, because pages come and pins are taken while
            // the lock is not held.
            let mut group = self.lock(index)?;
            // If mappings are scarce, whole blocks leave, because closed neighbours share one.
            let wanted = blocks_of(wanted, self.block());
            let movable = group.resident() & wanted;
            if group.is_pinned() || movable == 0 {
                let pinned = if group.is_pinned() { movable.count_ones() } else { 0 };
                return Ok((0, u64::from(pinned)));
            }
            if group.segment().is_some() {
                // The segment may have dead copies where pages must go, so its live pages go to the
                // store first.
                drop(group);
                self.compress(index);
            } else if let Some(segment) = self.shared.staging.take()? {
                return Ok(self.move_out(index, &mut group, segment, wanted));
            } else {
                drop(group);
                self.make_staging_free();
            }
        }
    }

    fn move_out(
        &self,
        index: usize,
        group: &mut LockGuard<'_, Group>,
        mut segment: Segment,
        wanted: u64,
    ) -> (u64, u64) {
        let mut todo = group.resident() & wanted;
        let (mut moved, mut busy) = (0, 0);
        while let Some((at, count)) = runs(todo).next() {
            let first = index * GROUP_PAGES + at;
            let transfer = self.move_run(first, count, &mut segment, at);
            let done = bits(at, transfer.pages);
            moved |= done;
            todo &= !done;
            if let Some(stop) = transfer.stop {
                let next = bits(at + transfer.pages, 1);
                todo &= !next;
                if stop == Stop::Hole {
                    let page = first + transfer.pages;
                    self.end(GONE, page);
                }
                busy += 1;
            }
        }
        self.around.density.end(index, group.trials_mut(), moved);
        let before = group.resident();
        group.stage(moved, segment);
        self.chunks.changed(index, before, group.resident());
        let count = u64::from(moved.count_ones());
        self.counters.sub(Count::Resident, count);
        self.counters.add(Count::Staged, count);
        self.counters.add(Count::PagesOut, count);
        self.counters.add(Count::Busy, busy);
        (count, busy)
    }

    fn move_run(&self, first: usize, count: usize, segment: &mut Segment, at: usize) -> Transfer {
        #[cfg(test)]
        let count = match self.probe.free_from(at) {
            0 => return Transfer { pages: 0, stop: Some(Stop::Busy) },
            free => count.min(free),
        };
        self.span.move_out(first, count, segment, at)
    }

    /// Makes some group give its segment up: the one of this region that has been in staging
    /// longest. If there is none, one of another region that no thread is about to change.
    fn make_staging_free(&self) {
        if self.compress_oldest() {
            return;
        }
        let gave = self.shared.alive().any(|other| match other.try_enter() {
            Some(_gate) => other.compress_oldest(),
            None => false,
        });
        if !gave {
            // All of staging is on its way out, and becomes free by itself.
            std::thread::sleep(WAIT);
        }
    }
}
