//! What a leaf holds, in the leaf's word: so that a discard of 2 MiB changes the counters at once
//! and looks at no cell.
//!
//! ```text
//!   63         61..52         51..42   41..32   31..22     21..0
//!   detached | written back | huge   | same   | stored   | bytes of objects     of up to 512 slots
//! ```
//!
//! A slot's change is added under its lock, as the difference of two such words. The order of the
//! changes of one word decides whose business it is: what comes before the leaf is detached is in
//! the device's counters when these are reduced by the sums; what comes after belongs to the leaf
//! alone, which is drained later.
//!
//! Invariants
//! - I1 the sums are those of the cells, as `check` recounts them; so no field leaves its range.
//! - I2 a leaf is detached once, by who took it out of the root.

use zsmalloc::sync::atomic::{AtomicU64, Ordering};
use zsmalloc::{CellGuard, Content, LEAF_CELLS, PAGE_SIZE};

use crate::counters::{Counters, Tally};

const BYTES_BITS: u32 = (LEAF_CELLS * PAGE_SIZE).ilog2() + 1; // 22
const COUNT_BITS: u32 = LEAF_CELLS.ilog2() + 1; // 10
const STORED_SHIFT: u32 = BYTES_BITS; // 22
const SAME_SHIFT: u32 = STORED_SHIFT + COUNT_BITS; // 32
const HUGE_SHIFT: u32 = SAME_SHIFT + COUNT_BITS; // 42
const BACK_SHIFT: u32 = HUGE_SHIFT + COUNT_BITS; // 52
const DETACHED: u64 = 1 << 63;
const _: () = assert!(BACK_SHIFT + COUNT_BITS < 63, "the fields end below the flag");

/// The sums of one leaf.
#[derive(Clone, Copy)]
pub(crate) struct Sums<'a>(pub(crate) &'a AtomicU64);

impl Sums<'_> {
    /// A slot's content changed; false when the leaf was detached before.
    pub(crate) fn replace(self, old: Tally, new: Tally) -> bool {
        let change = pack(new).wrapping_sub(pack(old));
        // relaxed: the changes of one word have an order, which is all that is asked for.
        self.0.fetch_add(change, Ordering::Relaxed) & DETACHED == 0
    }

    /// The leaf is out of the root; gives what it holds.
    pub(crate) fn detach(self) -> Tally {
        // relaxed: as in `replace`.
        unpack(self.0.fetch_or(DETACHED, Ordering::Relaxed))
    }

    /// The sums now.
    pub(crate) fn tally(self) -> Tally {
        // relaxed: a total; exact when nobody changes a slot of the leaf.
        unpack(self.0.load(Ordering::Relaxed))
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

fn pack(tally: Tally) -> u64 {
    tally.written_back << BACK_SHIFT
        | tally.huge << HUGE_SHIFT
        | tally.same << SAME_SHIFT
        | tally.stored << STORED_SHIFT
        | tally.compressed_bytes
}

fn unpack(word: u64) -> Tally {
    let field = |shift: u32, bits: u32| (word >> shift) & ((1 << bits) - 1);
    Tally {
        stored: field(STORED_SHIFT, COUNT_BITS),
        same: field(SAME_SHIFT, COUNT_BITS),
        huge: field(HUGE_SHIFT, COUNT_BITS),
        written_back: field(BACK_SHIFT, COUNT_BITS),
        compressed_bytes: field(0, BYTES_BITS),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use zsmalloc::Content;

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
