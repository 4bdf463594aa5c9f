//! What a leaf holds, in the leaf's word: so that a discard of 2 MiB changes the counters at once
//! and looks at no cell.
//!
//! ```text
//!   LeafSums   detached | written back | huge | same | stored | bytes of objects
//! ```
//!
//! Invariant: the sums are those of the cells, as `check` recounts them; see [`LeafSums`].

use zsmalloc::sync::atomic::AtomicU64;
use zsmalloc::{CellGuard, Content, LeafSums, LeafTally};

use crate::counters::{Counters, Tally};

/// The sums of one leaf.
#[derive(Clone, Copy)]
pub(crate) struct Sums<'a>(pub(crate) &'a AtomicU64);

impl Sums<'_> {
    /// A slot's content changed; false when the leaf was detached before.
    pub(crate) fn replace(self, old: Tally, new: Tally) -> bool {
        LeafSums(self.0).replace(counted(old), counted(new))
    }

    /// The leaf is out of the root; gives what it holds.
    pub(crate) fn detach(self) -> Tally {
        tally(LeafSums(self.0).detach())
    }

    /// The sums now.
    pub(crate) fn tally(self) -> Tally {
        tally(LeafSums(self.0).tally())
    }
}

/// Enters in the books that a slot, which is locked still, was given other content than `before`.
pub(crate) fn enter(counters: &Counters, slot: &CellGuard<'_>, before: Content) {
    let (before, after) = (Tally::of(before), Tally::of(slot.content()));
    if Sums(slot.leaf_word()).replace(before, after) {
        counters.replace(before, after);
    } else {
        counters.replace_pending(before, after);
    }
}

/// Slots emptied, or marked, one after the other: entered in the counters together, when dropped.
///
/// Entered one by one, they would take more of who discards and who drains than the rest of the
/// work: the counters' cache lines would go to and fro between the two.
pub(crate) struct Emptied<'c> {
    counters: &'c Counters,
    /// What slots held in leaves of the root, and in detached ones.
    gone: Tally,
    late: Tally,
    /// Bytes of objects whose slots were marked, and lost their marks.
    marked: u64,
    unmarked: u64,
}

impl<'c> Emptied<'c> {
    /// None yet.
    pub(crate) fn new(counters: &'c Counters) -> Emptied<'c> {
        let (gone, late) = (Tally::default(), Tally::default());
        Emptied { counters, gone, late, marked: 0, unmarked: 0 }
    }

    /// A slot, which is locked still, was emptied that held `before`.
    pub(crate) fn add(&mut self, slot: &CellGuard<'_>, before: Content) {
        let before = Tally::of(before);
        let in_root = Sums(slot.leaf_word()).replace(before, Tally::default());
        if in_root { &mut self.gone } else { &mut self.late }.add(before);
    }

    /// A slot with this content was marked.
    pub(crate) fn marked(&mut self, content: Content) {
        self.marked += Tally::of(content).compressed_bytes;
    }

    /// A slot with this content lost its mark.
    pub(crate) fn unmarked(&mut self, content: Content) {
        self.unmarked += Tally::of(content).compressed_bytes;
    }
}

impl Drop for Emptied<'_> {
    fn drop(&mut self) {
        self.counters.replace_marked(self.unmarked, self.marked);
        self.counters.replace(self.gone, Tally::default());
        self.counters.replace_pending(self.late, Tally::default());
    }
}

fn counted(tally: Tally) -> LeafTally {
    let Tally { stored, same, huge, written_back, compressed_bytes } = tally;
    LeafTally { counts: [stored, same, huge, written_back], bytes: compressed_bytes }
}

fn tally(sums: LeafTally) -> Tally {
    let [stored, same, huge, written_back] = sums.counts;
    Tally { stored, same, huge, written_back, compressed_bytes: sums.bytes }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use zsmalloc::{LEAF_CELLS, PAGE_SIZE};

    use crate::written_back::WrittenBack;

    fn written_back() -> Content {
        let (tag, value) = WrittenBack { block: 9, len: 77 }.to_cell();
        Content::Value { tag, value }
    }

    fn content() -> impl Strategy<Value = Content> {
        prop_oneof![
            Just(Content::Empty),
            Just(Content::Value { tag: 1, value: 7 }),
            Just(written_back()),
            (1..=PAGE_SIZE).prop_map(|len| Content::Object { len }),
            Just(Content::Object { len: PAGE_SIZE }),
        ]
    }

    proptest! {
        /// Against a twin that keeps the contents, at the extremes of every field too.
        #[test]
        fn sums_are_those_of_the_contents(
            changes in prop::collection::vec((0..LEAF_CELLS, content()), 0..2000),
            full in content(),
        ) {
            let word = AtomicU64::new(0);
            let (sums, mut twin) = (Sums(&word), vec![Content::Empty; LEAF_CELLS]);
            let everywhere = (0..LEAF_CELLS).map(|slot| (slot, full));
            for (slot, content) in changes.into_iter().chain(everywhere) {
                let old = std::mem::replace(&mut twin[slot], content);
                prop_assert!(sums.replace(Tally::of(old), Tally::of(content)));
            }
            let mut expected = Tally::default();
            twin.iter().for_each(|&content| expected.add(Tally::of(content)));
            prop_assert_eq!(sums.detach(), expected);
            prop_assert_eq!(sums.tally(), expected, "the flag is none of them");
            prop_assert!(!sums.replace(Tally::of(full), Tally::default()), "detached");
        }
    }
}
