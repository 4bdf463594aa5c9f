//! What a leaf holds, in the leaf's word. A client that takes the leaf out of its table can change
//! its counters at once, and looks at no cell.
//!
//! ```text
//!   63         61..52     51..42     41..32     31..22     21..0
//!   detached | counts[3] | counts[2] | counts[1] | counts[0] | bytes        of up to 512 cells
//! ```
//!
//! A cell's change is added under its lock, as the difference of two such words. The order of the
//! changes of one word decides where a change counts. A change before the leaf is detached is in
//! the client's counters when these are reduced by the sums. A change after it belongs to the leaf
//! alone, which is drained later.
//!
//! Invariants
//! - I1 the sums are those of the cells, as the client recounts them; so no field leaves its range.
//! - I2 a leaf is detached once, by the thread that took it out of its table.
//!
//! Lock: none; each change is one exchange. The caller has the lock of the cell that changed.

use host::PAGE_SIZE;
use host::sync::atomic::{AtomicU64, Ordering};

use crate::numbers::LEAF_CELLS;

/// Kinds of cells that are counted.
const KINDS: usize = 4;
const BYTES_BITS: u32 = (512 * PAGE_SIZE).ilog2() + 1; // 22
const COUNT_BITS: u32 = 512usize.ilog2() + 1; // 10
const DETACHED: u64 = 1 << 63;
const _: () = assert!(LEAF_CELLS <= 512, "a count for every cell, and its bytes");
const _: () = assert!(BYTES_BITS + KINDS as u32 * COUNT_BITS < 63, "the fields end below the flag");

/// What one cell, or many, add to the sums. Which kinds there are is the client's affair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LeafTally {
    /// Cells, by kind.
    pub counts: [u64; KINDS],
    /// Bytes, 4096 a cell at most.
    pub bytes: u64,
}

/// The sums of one leaf, in its client's word.
#[derive(Clone, Copy, Debug)]
pub struct LeafSums<'a>(
    /// The word, which is nobody else's.
    pub &'a AtomicU64,
);

impl LeafSums<'_> {
    /// A cell's content changed. False if the leaf was detached before.
    pub fn replace(self, old: LeafTally, new: LeafTally) -> bool {
        let change = new.pack().wrapping_sub(old.pack());
        // relaxed: the changes of one word have an order, which is all that is asked for.
        self.0.fetch_add(change, Ordering::Relaxed) & DETACHED == 0
    }

    /// The leaf is out of its table. Returns what it holds.
    pub fn detach(self) -> LeafTally {
        // relaxed: as in `replace`.
        LeafTally::unpack(self.0.fetch_or(DETACHED, Ordering::Relaxed))
    }

    /// True once the leaf is out of its table.
    pub fn is_detached(self) -> bool {
        // relaxed: asked with a cell of the leaf locked, it tells what the last change was told.
        self.0.load(Ordering::Relaxed) & DETACHED != 0
    }

    /// The sums now.
    pub fn tally(self) -> LeafTally {
        // relaxed: a total, which is exact while no thread changes a cell of the leaf.
        LeafTally::unpack(self.0.load(Ordering::Relaxed))
    }
}

impl LeafTally {
    /// Adds another tally.
    pub fn add(&mut self, other: LeafTally) {
        self.counts.iter_mut().zip(other.counts).for_each(|(sum, count)| *sum += count);
        self.bytes += other.bytes;
    }

    /// What was added since it was `before`, which is no more than it in any field.
    #[must_use]
    pub fn since(self, before: LeafTally) -> LeafTally {
        LeafTally {
            counts: std::array::from_fn(|kind| self.counts[kind] - before.counts[kind]),
            bytes: self.bytes - before.bytes,
        }
    }

    fn pack(self) -> u64 {
        let count = |word: u64, count: &u64| word << COUNT_BITS | count;
        self.counts.iter().rev().fold(0, count) << BYTES_BITS | self.bytes
    }

    fn unpack(word: u64) -> LeafTally {
        let shift = |kind: usize| BYTES_BITS + kind as u32 * COUNT_BITS;
        let count = |kind: usize| (word >> shift(kind)) & ((1 << COUNT_BITS) - 1);
        LeafTally { counts: std::array::from_fn(count), bytes: word & ((1 << BYTES_BITS) - 1) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cell() -> impl Strategy<Value = LeafTally> {
        let counts = prop::array::uniform4(0u64..=1);
        (counts, 0..=PAGE_SIZE as u64).prop_map(|(counts, bytes)| LeafTally { counts, bytes })
    }

    fn sum<'a>(cells: impl Iterator<Item = &'a LeafTally>) -> LeafTally {
        let mut sum = LeafTally::default();
        cells.for_each(|&cell| sum.add(cell));
        sum
    }

    proptest! {
        /// Against a twin that keeps the cells, at the extremes of every field too.
        #[test]
        fn sums_are_those_of_the_cells(
            changes in prop::collection::vec((0..LEAF_CELLS, cell()), 0..2000),
            full in cell(),
        ) {
            let word = AtomicU64::new(0);
            let (sums, mut twin) = (LeafSums(&word), vec![LeafTally::default(); LEAF_CELLS]);
            let everywhere = (0..LEAF_CELLS).map(|cell| (cell, full));
            for (cell, new) in changes.into_iter().chain(everywhere) {
                let old = std::mem::replace(&mut twin[cell], new);
                prop_assert!(sums.replace(old, new));
                prop_assert!(!sums.is_detached());
            }
            let expected = sum(twin.iter());
            prop_assert_eq!(sums.detach(), expected);
            prop_assert_eq!(sums.tally(), expected, "the flag is none of them");
            prop_assert!(sums.is_detached() && !sums.replace(full, LeafTally::default()));
        }
    }
}
