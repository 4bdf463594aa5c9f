//! Groups that have dead copies in the store: copies of pages that came back.

use crate::places::runs;
use std::sync::atomic::{AtomicU64, Ordering};

const WORD_GROUPS: usize = u64::BITS as usize;

/// A bit for each group that has dead copies in the store.
pub(crate) struct Dirty(Box<[AtomicU64]>);

impl Dirty {
    /// The bits of `groups` groups. None of them is dirty.
    pub(super) fn new(groups: usize) -> Dirty {
        Dirty((0..groups.div_ceil(WORD_GROUPS)).map(|_| AtomicU64::new(0)).collect())
    }

    /// A group, whose lock the caller holds, now has dead copies. If it had some before, its bit is
    /// still set, or the sweeper that took the bit is about to lock the group.
    pub(crate) fn mark(&self, group: usize) {
        // relaxed: a note for the sweeper, which looks at the group under its lock.
        self.0[group / WORD_GROUPS].fetch_or(1 << (group % WORD_GROUPS), Ordering::Relaxed);
    }

    /// Takes the notes, word by word. Returns the groups that they name.
    pub(crate) fn take(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(word, bits)| {
            // relaxed: as in `mark`. The load keeps the sweep of a clean region cheap.
            let dirty = match bits.load(Ordering::Relaxed) {
                0 => 0,
                // relaxed: as in `mark`.
                _ => bits.swap(0, Ordering::Relaxed),
            };
            let groups = runs(dirty).flat_map(|(first, count)| first..first + count);
            groups.map(move |bit| word * WORD_GROUPS + bit)
        })
    }

    /// Bytes of heap.
    pub(super) fn heap_bytes(&self) -> u64 {
        size_of_val(&*self.0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_that_was_marked_is_taken_once() {
        let dirty = Dirty::new(200);
        let marked = [0, 63, 64, 130, 131, 199];
        marked.iter().chain(&marked).for_each(|&group| dirty.mark(group));
        assert_eq!(dirty.take().collect::<Vec<_>>(), marked);
        dirty.mark(64);
        assert_eq!(dirty.take().collect::<Vec<_>>(), [64]);
        assert_eq!(dirty.take().count(), 0);
    }
}
