//! How a change of a slot is entered in the counts: the word of its leaf, and the counters.
//!
//! ```text
//!   the leaf is in the root      its word and the counters change
//!   it was detached before       its word and what is pending change
//! ```
//!
//! The word of a leaf holds the sums of its slots. So a discard of 2 MiB changes the counters at
//! once and looks at no cell.
//!
//! Invariant: the sums are those of the cells, as `check` recounts them; see [`LeafSums`].
//!
//! Lock: that of the slot's cell, which the caller has.

use zsmalloc::{CellGuard, LeafSums, LeafTally};

use super::counters::{Change, Counters};
use super::stored::Stored;

/// Enters in the counts that a slot was given other content than `before`. The slot is still
/// locked.
pub(crate) fn enter(counters: &Counters, slot: &CellGuard<'_>, before: Stored) {
    let (before, after) = (before.tally(), Stored::in_cell(slot).tally());
    if LeafSums(slot.leaf_word()).replace(before, after) {
        counters.replace(before, after);
    } else {
        counters.replace_pending(before, after);
    }
}

/// Slots that were emptied one after the other. They are entered in the counters
/// together when this is dropped.
///
/// Entered one by one, they would cost a discard and a drain more than the rest of the work.
pub(crate) struct Emptied<'c> {
    change: &'c Change<'c>,
    /// The content that was emptied of slots in leaves of the root, and of slots in detached
    /// leaves.
    gone: LeafTally,
    late: LeafTally,
}

impl<'c> Emptied<'c> {
    /// No slot yet, of a request.
    pub(crate) fn new(change: &'c Change<'c>) -> Emptied<'c> {
        let (gone, late) = (LeafTally::default(), LeafTally::default());
        Emptied { change, gone, late }
    }

    /// Adds a slot that held `before` and was emptied. It is still locked.
    pub(crate) fn add(&mut self, slot: &CellGuard<'_>, before: Stored) {
        let before = before.tally();
        let in_root = LeafSums(slot.leaf_word()).replace(before, LeafTally::default());
        if in_root { &mut self.gone } else { &mut self.late }.add(before);
    }
}

impl Drop for Emptied<'_> {
    fn drop(&mut self) {
        self.change.emptied(self.gone, self.late);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use codec::same::Same;
    use host::PAGE_SIZE;
    use host::sync::atomic::AtomicU64;
    use proptest::prelude::*;
    use zsmalloc::LEAF_CELLS;

    use crate::backing::Place;

    fn stored() -> impl Strategy<Value = Stored> {
        let blob = |len| Stored::Blob { priority: 0, len };
        prop_oneof![
            Just(Stored::Nothing),
            Just(Stored::Same(Same::ZERO)),
            Just(Stored::Disk { priority: 0, at: Place { block: 9, len: 77 } }),
            (1..=PAGE_SIZE).prop_map(blob),
            Just(blob(PAGE_SIZE)),
        ]
    }

    proptest! {
        /// Compares with a twin that keeps the contents, also at the extremes of every field.
        #[test]
        fn sums_are_those_of_the_contents(
            changes in prop::collection::vec((0..LEAF_CELLS, stored()), 0..2000),
            full in stored(),
        ) {
            let word = AtomicU64::new(0);
            let (sums, mut twin) = (LeafSums(&word), vec![Stored::Nothing; LEAF_CELLS]);
            let everywhere = (0..LEAF_CELLS).map(|slot| (slot, full));
            for (slot, new) in changes.into_iter().chain(everywhere) {
                let old = std::mem::replace(&mut twin[slot], new);
                prop_assert!(sums.replace(old.tally(), new.tally()));
            }
            let mut expected = LeafTally::default();
            twin.iter().for_each(|stored| expected.add(stored.tally()));
            prop_assert_eq!(sums.detach(), expected);
            prop_assert_eq!(sums.tally(), expected, "the flag is none of them");
            prop_assert!(!sums.replace(full.tally(), LeafTally::default()), "detached");
        }
    }
}
