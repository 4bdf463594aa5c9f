//! Keep: a region is brought below its limit, the oldest groups first.
//!
//! Invariant: a limit is set only after the whole region is registered, so every page that arrives
//! is counted. `stuck` says that a whole pass ended at the limit and no page left for good. Only
//! this file writes the two.
//!
//! Locks: the region's gate, for one step at a time; the queue's.

use crate::resources::Count;
use crate::state::Folded;
use crate::terms::{GROUP_PAGES, RegionError};

/// Dead copies are swept while the limit is kept, if they are of more pages than this share of it.
const DEAD_SHARE: u64 = 32;

impl Folded {
    /// Sets the limit. The whole region is registered first, so that no page arrives unnoticed from
    /// then on.
    pub(crate) fn limit_to(&self, pages: Option<u64>) -> Result<(), RegionError> {
        if pages.is_some() {
            self.learn_all()?;
        }
        self.limit.set(pages);
        if pages.is_none() {
            // If this is not done here, the pager does it at its next tick.
            self.compress_staged();
        }
        self.shared.work.raise();
        Ok(())
    }

    /// Pages out the oldest groups until the region is below its limit.
    pub(crate) fn keep_limit(&self) {
        let Some(limit) = self.limit.pages() else { return };
        if self.held() < limit {
            self.limit.set_stuck(false);
            return;
        }
        let target = limit - (limit / 16).max(GROUP_PAGES as u64).min(limit / 2);
        // Each group is looked at once on its way to staging, and once on its way from there. Pages
        // that are pinned, or that the store refuses, stay.
        let steps = 2 * self.queue.lock().steps();
        let before = self.gone_for_good();
        for _ in 0..steps {
            let Ok(_gate) = self.enter() else { return };
            if self.limit.pages() != Some(limit) || self.held() <= target || !self.age() {
                break;
            }
            self.shared.room.raise();
            // While a thread walks through the region, this may go on for long, and each page that
            // comes back leaves a copy behind.
            if self.counters.read(Count::DeadCopies) > limit / DEAD_SHARE {
                self.sweep();
            }
        }
        self.limit.set_stuck(self.held() >= limit && self.gone_for_good() == before);
    }

    /// Compresses the groups that have their second chance in staging.
    pub(crate) fn compress_staged(&self) {
        while self.queue.lock().staged_len() > 0
            && self.enter().is_ok_and(|_gate| self.compress_oldest())
        {}
    }

    /// Pages that have left memory so far and were not put back because the store was full.
    fn gone_for_good(&self) -> u64 {
        self.counters.read(Count::PagesOut).wrapping_sub(self.counters.read(Count::Refused))
    }
}

#[cfg(test)]
mod tests {
    use crate::{LIMIT_MIN, Memory, MemoryConfig, Pager, PagerConfig, Quads, Region, RegionConfig};
    use std::sync::Arc;

    const PAGE: usize = 4096;
    /// Pages of the least limit, and the slack above and below it.
    const LIMIT: usize = LIMIT_MIN / PAGE; // 256
    const SLACK: usize = 64;

    /// A region whose limit is kept only by the test. The first `touched` of its pages were
    /// touched, the last one first, so that each came alone.
    fn region(pages: usize, limit: Option<usize>, touched: usize) -> Option<Region> {
        let memory = Memory::new(MemoryConfig::for_disk(64 << 20)).expect("a memory");
        let pager = Pager::new(memory, &PagerConfig::default());
        let mut pager = pager.inspect_err(|error| eprintln!("skipped: needs {error}")).ok()?;
        Arc::get_mut(&mut pager).expect("not shared yet").end_thread();
        let resident_limit = limit.map(|pages| pages * PAGE);
        let config = RegionConfig { resident_limit, quads: Quads::Never, ..Default::default() };
        let mut region = Region::map(&pager, pages * PAGE, &config).expect("a region");
        let pages = region.as_mut_slice()[..touched * PAGE].chunks_mut(PAGE).enumerate();
        pages.rev().for_each(|(number, page)| page[0] = number as u8 | 1);
        Some(region)
    }

    /// A comparison in the keeping of the limit was once off by one, and all tests passed.
    #[test]
    fn a_region_at_its_limit_is_brought_down_to_the_slack_below_it() {
        let Some(region) = region(2 * LIMIT, Some(LIMIT), LIMIT) else { return };
        assert_eq!(region.folded.held(), LIMIT as u64);
        region.folded.keep_limit();
        assert_eq!(region.folded.held(), (LIMIT - SLACK) as u64, "as a whole, and no group more");
        assert!(!region.folded.limit.is_stuck());
        region.folded.keep_limit();
        assert_eq!(region.folded.held(), (LIMIT - SLACK) as u64, "it is below");
    }

    #[test]
    fn a_region_that_stays_at_its_limit_is_stuck_until_it_is_below() {
        let Some(region) = region(2 * LIMIT, Some(LIMIT), LIMIT) else { return };
        let pinned = region.pin(0..LIMIT * PAGE).expect("pinned");
        region.folded.keep_limit();
        assert!(region.folded.limit.is_stuck(), "all of it is pinned");
        drop(pinned);
        region.control().page_out(0..PAGE).expect("out");
        region.folded.keep_limit();
        assert!(!region.folded.limit.is_stuck(), "it is below the limit");
    }

    #[test]
    fn dead_copies_are_few_when_the_limit_is_kept() {
        let Some(mut region) = region(2 * LIMIT, Some(LIMIT), LIMIT) else { return };
        assert_eq!(region.control().page_out(0..LIMIT * PAGE).expect("out").stored, LIMIT as u64);
        region.as_mut_slice()[..LIMIT * PAGE].chunks_mut(PAGE).for_each(|page| page[1] = 1);
        assert!(region.stats().dead_copies > LIMIT as u64 / 2, "all came back");
        region.folded.keep_limit();
        assert_eq!(region.folded.held(), (LIMIT - SLACK) as u64);
        assert!(region.stats().dead_copies <= (LIMIT / 32) as u64, "{:?}", region.stats());
    }

    #[test]
    fn nothing_comes_ahead_of_time_at_the_limit() {
        let Some(region) = region(2 * LIMIT, Some(LIMIT), LIMIT) else { return };
        let held = |pages: std::ops::Range<usize>| {
            region.control().prefetch(pages.start * PAGE..pages.end * PAGE).expect("tried");
            region.folded.held()
        };
        assert_eq!(region.control().page_out(0..32 * PAGE).expect("out").stored, 32);
        assert_eq!(held(0..32), LIMIT as u64, "below it, all come");
        // One page over it: one more page went out than there is room for.
        let more = std::hint::black_box(region.as_slice())[LIMIT * PAGE];
        assert_eq!(more, 0);
        assert_eq!(region.control().page_out(0..PAGE).expect("out").stored, 1);
        assert_eq!(held(0..1), LIMIT as u64, "at it, none");
    }

    #[test]
    fn a_fault_waits_for_the_limit_from_the_slack_above_it_on() {
        let Some(region) = region(2 * LIMIT, Some(LIMIT), LIMIT + SLACK) else { return };
        assert_eq!((region.folded.held(), region.stats().waits), ((LIMIT + SLACK) as u64, 0));
        let late = std::hint::black_box(region.as_slice())[(LIMIT + SLACK) * PAGE];
        assert_eq!((late, region.stats().waits), (0, 1));
    }

    #[test]
    fn staging_has_its_share_of_what_is_held() {
        let share = |held: usize| held / 32 / 64;
        assert_eq!((share(2304), share(2047)), (1, 0));
        let Some(region) = region(2304, None, 2304) else { return };
        region.folded.learn_all().expect("known");
        let staged = || {
            assert!(region.folded.age());
            region.folded.queue.lock().staged_len()
        };
        assert_eq!(
            [staged(), staged(), staged(), staged()],
            [1, 2, 1, 2],
            "one, and one on its way"
        );
    }
}
