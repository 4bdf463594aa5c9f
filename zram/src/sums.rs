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
