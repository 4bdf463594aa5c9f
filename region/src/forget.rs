//! What concerns all groups of a region, or many: forgetting, learning, limiting, checking.
//!
//! Locks: a group's, for what concerns its pages, and no two at a time.

use crate::GROUP_PAGES;
use crate::RegionError;
use crate::counters::Count;
use crate::density::is_watched;
use crate::folded::Folded;
use crate::group::{Group, bits, runs};
use crate::trials::Tally;
use std::ops::Range;

impl Folded {
    /// The content of `pages` is gone from memory; it goes from staging and the store too. The
    /// caller keeps the client from touching them.
    pub(crate) fn forget(&self, pages: &Range<usize>) {
        for index in self.groups_of(pages) {
            let all = self.chunks.pages_of(index);
            let (start, end) = (pages.start.max(all.start), pages.end.min(all.end));
            let which = bits(start - all.start, end - start);
            if let Some(mut group) = self.lock_unfetched(index, which) {
                self.forget_in(index, &mut group, which);
            }
        }
    }

    fn forget_in(&self, index: usize, group: &mut Group, pages: u64) {
        let count = |place: u64| u64::from((place & pages).count_ones());
        self.counters.sub(Count::Resident, count(group.resident));
        self.counters.sub(Count::Staged, count(group.staged));
        self.counters.sub(Count::Stored, count(group.stored));
        self.counters.sub(Count::DeadCopies, count(group.dead_copies()));
        let first = index * GROUP_PAGES;
        runs(group.copies & pages).for_each(|(at, n)| self.store.discard(first + at, n));
        self.around.density.spoil(index, &mut group.trials, pages);
        group.forget(pages);
        group.copies &= !pages;
    }

    /// Says of `pages` whether they are given back. Nothing is brought in there from then on.
    pub(crate) fn mark_gone(&self, pages: &Range<usize>, gone: bool) {
        for index in self.groups_of(pages) {
            let all = self.chunks.pages_of(index);
            let (start, end) = (pages.start.max(all.start), pages.end.min(all.end));
            let which = bits(start - all.start, end - start);
            let mut group = self.chunks.get_or_add(index).lock();
            group.gone = if gone { group.gone | which } else { group.gone & !which };
        }
    }

    /// Registers the whole region, and enters what is resident in the queue.
    pub(crate) fn learn_all(&self) -> Result<(), RegionError> {
        (0..self.chunks.groups()).try_for_each(|index| self.lock(index).map(drop))
    }

    /// Sets the limit. The whole region is registered first: from then on no page arrives unseen.
    pub(crate) fn limit_to(&self, pages: Option<u64>) -> Result<(), RegionError> {
        if pages.is_some() {
            self.learn_all()?;
        }
        self.set_limit(pages);
        // Without a limit nobody would empty staging of second chances.
        while pages.is_none() && self.compress_oldest() {}
        self.shared.work.raise();
        Ok(())
    }

    /// What is not as the invariants say. Counters are compared when nobody works on the region;
    /// each group is exact by itself.
    pub(crate) fn check(&self) -> Vec<String> {
        let mut defects = Vec::new();
        let mut sums = [0u64; 4];
        let mut trials = [Tally::default(); 2];
        for (index, group) in self.chunks.known() {
            defects.extend(group.defect().map(|defect| format!("group {index}: {defect}")));
            let there = self.span.resident(self.chunks.pages_of(index));
            if group.known && there & !(group.resident | group.gone) != 0 {
                defects.push(format!("group {index}: a page is in memory that should be out"));
            }
            let told = group.trials.tally();
            if told != [Tally::default(); 2] && !is_watched(index) {
                defects.push(format!("group {index}: it has trials (G7)"));
            }
            for (sum, told) in trials.iter_mut().zip(told) {
                sum.beside += told.beside;
                sum.wanted += told.wanted;
            }
            let places = [group.resident, group.staged, group.stored, group.dead_copies()];
            sums.iter_mut().zip(places).for_each(|(sum, place)| {
                *sum += u64::from(place.count_ones());
            });
        }
        let counts = [Count::Resident, Count::Staged, Count::Stored, Count::DeadCopies];
        for (count, found) in counts.into_iter().zip(sums) {
            let counted = self.counters.read(count);
            if counted != found {
                defects.push(format!("{count:?}: counted {counted}, found {found}"));
            }
        }
        let running = self.around.density.running();
        if running != trials {
            defects.push(format!("trials: counted {running:?}, found {trials:?} (D1)"));
        }
        defects
    }
}
