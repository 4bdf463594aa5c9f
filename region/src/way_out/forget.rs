//! Forget: the content of a range is dropped, wherever it was.
//!
//! Invariant: a forgotten page is in no place, the store has no copy of it, and no counter counts
//! it. All three change in one hold of the group's lock. A page that the system did not close is
//! still in memory, and stays counted as resident.
//!
//! Locks: one group's after the other.

use crate::places::{Chunks, Group, bits, runs};
use crate::resources::Count;
use crate::state::Folded;
use crate::terms::{GROUP_PAGES, RegionError};
use std::ops::Range;

impl Folded {
    /// Forgets the content of `pages`, which `discard` discards in memory. If that fails, nothing
    /// has changed.
    pub(crate) fn discard(
        &self,
        pages: &Range<usize>,
        discard: impl FnOnce() -> Result<(), RegionError>,
    ) -> Result<(), RegionError> {
        self.alone(|| {
            // This comes first, so that a late message does not bring back what is forgotten next.
            self.mark_gone(pages, true);
            let discarded = discard();
            if discarded.is_ok() {
                self.forget(pages);
            }
            self.mark_gone(pages, false);
            discarded
        })?
    }

    /// The content of `pages` is gone from memory. This drops it from staging and the store too.
    /// The caller has marked the pages as gone. Otherwise a late message about a page would bring
    /// it back, although no client waits for it any more.
    pub(crate) fn forget(&self, pages: &Range<usize>) {
        for (index, which) in self.chunks.parts_of(pages) {
            if let Some(mut group) = self.lock_unfetched(index, which) {
                self.forget_in(index, &mut group, which);
            }
        }
    }

    fn forget_in(&self, index: usize, group: &mut Group, pages: u64) {
        let (before, pages) = (group.resident(), self.close_discarded(index, group, pages));
        let count = |place: u64| u64::from((place & pages).count_ones());
        self.counters.sub(Count::Resident, count(group.resident()));
        self.counters.sub(Count::Staged, count(group.staged()));
        self.counters.sub(Count::Stored, count(group.stored()));
        self.counters.sub(Count::DeadCopies, count(group.dead_copies()));
        let first = index * GROUP_PAGES;
        runs(group.copies() & pages).for_each(|(at, n)| self.store.discard(first + at, n));
        self.around.density.spoil(index, group.trials_mut(), pages);
        group.forget(pages);
        self.chunks.changed(index, before, group.resident());
    }

    /// Makes the next touches of discarded pages faults again. Returns the pages of which nothing
    /// is in memory then: without those that the system does not close.
    fn close_discarded(&self, index: usize, group: &Group, pages: u64) -> u64 {
        let first = index * GROUP_PAGES;
        runs(group.resident() & pages).fold(pages, |forgotten, (at, n)| {
            let closed = self.span.close(first + at..first + at + n);
            if closed { forgotten } else { forgotten & !bits(at, n) }
        })
    }

    /// Makes the chunks of pages that are given back, because the chunks remember that they are.
    pub(crate) fn add_chunks(&self, pages: &Range<usize>) {
        for index in Chunks::groups_of(pages) {
            self.chunks.get_or_add(index);
        }
    }

    /// Marks `pages` as gone, or as no longer gone. No page is brought in while it is marked. The
    /// caller is alone, so no chunk appears meanwhile. If there is no chunk, no page ever left.
    pub(crate) fn mark_gone(&self, pages: &Range<usize>, gone: bool) {
        for (index, which) in self.chunks.parts_of(pages) {
            // A registered group learns what is in memory before that is discarded. Otherwise
            // nobody would know which of the pages are open.
            let known = self.lock_known(index);
            let Some(mut group) = known.or_else(|| Some(self.chunks.get(index)?.lock())) else {
                continue;
            };
            if gone {
                group.mark_gone(which);
            } else {
                group.unmark_gone(which);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        FaultMode, Memory, MemoryConfig, Pager, PagerConfig, Region, RegionConfig, RegionError,
    };
    use host::fault::{Asker, Served, Server};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    const PAGE: usize = 4096;

    fn region() -> Option<Region> {
        let memory = Memory::new(MemoryConfig::for_disk(4 << 20)).expect("a memory");
        // Other ways have no messages, and refuse them.
        let config = PagerConfig { fault_mode: Some(FaultMode::Signal), ..Default::default() };
        let pager = Pager::new(memory, &config);
        let pager = pager.inspect_err(|error| eprintln!("skipped: needs {error}")).ok()?;
        Some(Region::map(&pager, 4 << 20, &RegionConfig::default()).expect("a region"))
    }

    /// The late messages are like one that was read before its page came with a neighbour, and is
    /// answered after the page left again.
    #[test]
    fn what_is_discarded_stays_so_whatever_messages_come_late() {
        let Some(mut region) = region() else { return };
        let (folded, control) = (Arc::clone(&region.folded), region.control());
        let address = region.as_slice()[5 * PAGE..].as_ptr().addr();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // relaxed: it only asks the other thread to end.
                while !stop.load(Ordering::Relaxed) {
                    assert_ne!(
                        folded.serve(address, Asker::Message { thread: 1 }),
                        Served::Foreign
                    );
                }
            });
            let found = (0..2000).find(|_| {
                region.as_mut_slice()[5 * PAGE] = 7;
                control.page_out(0..8 * PAGE).expect("out");
                region.discard(5 * PAGE..6 * PAGE).expect("discarded");
                region.as_slice()[5 * PAGE] != 0
            });
            // relaxed: as above.
            stop.store(true, Ordering::Relaxed);
            assert_eq!(found, None, "the round whose content came back");
        });
        assert_eq!(control.check().expect("there"), [""; 0]);
    }

    #[test]
    fn a_message_of_a_region_that_was_here_before_is_nobodys() {
        let Some(mut region) = region() else { return };
        let address = |region: &Region, page: usize| region.folded.span.range().start + page * PAGE;
        let late = |region: &Region, page| {
            region.folded.serve(address(region, page), Asker::Message { thread: 1 })
        };
        assert_eq!(late(&region, 0), Served::Present, "nothing is registered");
        region.unmap(600 * PAGE..601 * PAGE).expect("given back");
        assert_eq!(late(&region, 602), Served::Present, "known, and not registered");
        region.control().page_out(0..PAGE).expect("registered");
        assert_eq!(late(&region, 1), Served::Filled, "it could be of this one");
        assert_eq!(region.control().check().expect("there"), [""; 0]);
    }

    #[test]
    fn a_region_that_ends_is_not_looked_at_any_more() {
        let Some(mut region) = region() else { return };
        region.folded.close();
        assert!(matches!(region.control().check(), Err(RegionError::Gone)));
        assert!(matches!(region.control().cold(0..PAGE), Err(RegionError::Gone)));
        assert!(matches!(region.discard(0..PAGE), Err(RegionError::Gone)));
    }
}
