//! Taking pages out: to staging in one move, from there to the store.
//!
//! ```text
//!   region   ########----##   --MOVE-->   staging ########....##   --compress-->   store
//!                                            `--- one MADV_DONTNEED for the segment
//! ```
//!
//! A page that is touched between the two steps is copied back, and not compressed.
//!
//! The group's lock is held for one move, and for one page's compression at a time: a thread that
//! faults in the same group waits for one page, not for 64.

use crate::counters::{add, sub};
use crate::folded::Folded;
use crate::group::{Group, bits, runs};
use crate::{GROUP_PAGES, RegionError};
use host::{LockGuard, Segment, Stop};
use std::ops::Range;
use std::time::Duration;

/// How long to wait for others to give staging up, at a time.
const WAIT: Duration = Duration::from_micros(100);

/// What paging out came to, in pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PageOut {
    /// Out of memory, in the store.
    pub stored: u64,
    /// Still in memory: pinned, in use by the system, or shared with a forked child.
    pub busy: u64,
    /// Still in memory: the store had no room.
    pub refused: u64,
}

impl std::ops::AddAssign for PageOut {
    fn add_assign(&mut self, other: PageOut) {
        self.stored += other.stored;
        self.busy += other.busy;
        self.refused += other.refused;
    }
}

impl Folded {
    /// Pages out what is resident of `pages`.
    pub(crate) fn page_out(&self, pages: &Range<usize>) -> Result<PageOut, RegionError> {
        let mut out = PageOut::default();
        for index in self.groups_of(pages) {
            let all = self.chunks.pages_of(index);
            let (start, end) = (pages.start.max(all.start), pages.end.min(all.end));
            let wanted = bits(start - all.start, end - start);
            out += self.page_out_group(index, wanted)?;
        }
        Ok(out)
    }

    /// Pages out `wanted` of a group.
    pub(crate) fn page_out_group(&self, index: usize, wanted: u64) -> Result<PageOut, RegionError> {
        let (staged, busy) = self.stage(index, wanted)?;
        let mut out = self.compress(index);
        out.busy += busy;
        debug_assert!(staged >= out.refused || out.stored > 0, "what was staged went somewhere");
        Ok(out)
    }

    /// Moves what is resident of `wanted` to staging; how many pages, and how many could not be.
    pub(crate) fn stage(&self, index: usize, wanted: u64) -> Result<(u64, u64), RegionError> {
        self.chunks.register(index, &self.span)?;
        let segment = self.free_segment();
        let mut group = self.lock(index)?;
        let movable = group.resident & wanted;
        if group.pins > 0 || movable == 0 {
            return Ok((0, u64::from(if group.pins > 0 { movable.count_ones() } else { 0 })));
        }
        // A segment may have dead copies where pages are to go; what it has alive goes first.
        if group.segment.is_some() {
            drop(group);
            self.compress(index);
            group = self.lock(index)?;
        }
        if group.segment.is_some() {
            // Another thread took this group out meanwhile.
            return Ok((0, 0));
        }
        Ok(self.move_out(index, &mut group, segment, wanted))
    }

    fn move_out(
        &self,
        index: usize,
        group: &mut LockGuard<'_, Group>,
        mut segment: Segment,
        wanted: u64,
    ) -> (u64, u64) {
        let mut todo = group.resident & wanted;
        let (mut moved, mut busy) = (0, 0);
        while let Some((at, count)) = runs(todo).next() {
            let first = index * GROUP_PAGES + at;
            let transfer = self.span.move_out(first, count, &mut segment, at);
            let done = bits(at, transfer.pages);
            moved |= done;
            todo &= !done;
            if let Some(stop) = transfer.stop {
                let next = bits(at + transfer.pages, 1);
                todo &= !next;
                if stop == Stop::Hole {
                    // Taken away by other means: it reads as zeros, as if untouched.
                    group.resident &= !next;
                    sub(&self.counters.resident, 1);
                } else {
                    busy += 1;
                }
            }
        }
        group.stage(moved);
        if moved != 0 {
            group.segment = Some(segment);
        }
        let count = u64::from(moved.count_ones());
        sub(&self.counters.resident, count);
        add(&self.counters.staged, count);
        add(&self.counters.pages_out, count);
        add(&self.counters.busy, busy);
        (count, busy)
    }

    /// A free segment; where there is none, the group that has been in staging longest gives its
    /// own up.
    fn free_segment(&self) -> Segment {
        loop {
            if let Some(segment) = self.shared.staging.take() {
                return segment;
            }
            let oldest = self.queue.lock().pop_staged();
            match oldest {
                Some(oldest) => drop(self.compress(oldest as usize)),
                // Second chances leave two segments, which are others' on their way out.
                None => std::thread::sleep(WAIT),
            }
        }
    }

    /// Compresses what a group has in staging, and gives its segment back.
    pub(crate) fn compress(&self, index: usize) -> PageOut {
        let mut out = PageOut::default();
        while let Some(mut group) = self.lock_known(index) {
            if group.staged == 0 {
                let segment = group.segment.take();
                drop(group);
                // The system is asked with no lock held.
                drop(segment);
                break;
            }
            let at = group.staged.trailing_zeros() as usize;
            if self.compress_page(index, &mut group, at) {
                out.stored += 1;
            } else {
                out.refused += self.put_back(index, &mut group);
            }
        }
        out
    }

    /// False: the store did not take the page.
    fn compress_page(&self, index: usize, group: &mut Group, at: usize) -> bool {
        let page = index * GROUP_PAGES + at;
        let data = group.segment.as_ref().and_then(|segment| segment.page(at));
        let Some(data) = data else { return false };
        if self.store.write(page, data).is_err() {
            return false;
        }
        let dead_before = group.dead_copies();
        group.keep(bits(at, 1));
        let revived = dead_before & !group.dead_copies();
        sub(&self.counters.dead_copies, u64::from(revived.count_ones()));
        sub(&self.counters.staged, 1);
        add(&self.counters.stored, 1);
        true
    }

    /// Copies what is left in staging back: the store is full. How many pages.
    fn put_back(&self, index: usize, group: &mut LockGuard<'_, Group>) -> u64 {
        let mut refused = 0;
        for (at, count) in runs(group.staged) {
            refused += self.put_back_run(index, group, at, count);
        }
        add(&self.counters.refused, refused);
        self.list(index, group);
        refused
    }

    fn put_back_run(&self, index: usize, group: &mut Group, at: usize, count: usize) -> u64 {
        let mut done = 0;
        while done < count {
            let Some(segment) = &group.segment else { break };
            let page = index * GROUP_PAGES + at + done;
            let transfer = self.span.fill_from(page, count - done, segment, at + done);
            done += transfer.pages;
            match transfer.stop {
                None => {}
                Some(Stop::Present) => done += 1,
                // The system has no memory to put it back either: it stays in staging, which is
                // memory too, and is tried again.
                Some(_) => std::thread::sleep(WAIT),
            }
        }
        group.arrive(bits(at, done));
        sub(&self.counters.staged, done as u64);
        add(&self.counters.resident, done as u64);
        done as u64
    }
}
