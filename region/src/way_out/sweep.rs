//! Sweep: the store discards copies of pages that came back.
//!
//! A fault leaves such a copy where it is, because freeing it could allocate.
//!
//! Locks: one group's after the other.

use crate::places::runs;
use crate::resources::Count;
use crate::state::Folded;
use crate::terms::GROUP_PAGES;

impl Folded {
    /// Discards copies in the store that no thread will read.
    pub(crate) fn sweep(&self) {
        self.dirty.take().for_each(|index| self.sweep_group(index));
    }

    fn sweep_group(&self, index: usize) {
        let Some(lock) = self.chunks.get(index) else { return };
        let mut group = lock.lock();
        let dead = group.drop_dead_copies();
        let first = index * GROUP_PAGES;
        runs(dead).for_each(|(at, count)| self.store.drop_copies(first + at, count));
        self.counters.sub(Count::DeadCopies, u64::from(dead.count_ones()));
    }
}
