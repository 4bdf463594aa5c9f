//! Free entries chained through their cells, and the generations of raw ones.
//!
//! ```text
//!   first --> | CHAINED, next | --> | CHAINED, next | --> 0
//! ```
//!
//! Invariant: a chained cell's word has the tag `CHAINED`, and the number of the next entry as its
//! value, 0 at the end.
//!
//! Lock: none here. A chain belongs to a class or to a stock, whose lock orders its words.

use std::hash::{BuildHasher, RandomState};

use host::sync::atomic::{AtomicU64, Ordering};

use super::leaf::{LeafUse, Leaves};
use crate::numbers::{CellNumber, LEAF_CELLS, LeafId, PoolDefect, Word};

/// Tag of a chained cell's value.
const CHAINED: u8 = 1;

impl Leaves {
    /// Adds the entries of a chain to `found`, which is to have `len` of them, and no more.
    pub(crate) fn walk(
        &self,
        first: CellNumber,
        len: u32,
        found: &mut Vec<CellNumber>,
    ) -> Result<(), PoolDefect> {
        let mut entry = first;
        for at in 0..len {
            // relaxed: the chain's lock orders chained words.
            let word = self.cell(entry).map_or(0, |cell| cell.load(Ordering::Relaxed));
            let (tag, next) = Word(word).value();
            if entry == CellNumber::NONE || tag != CHAINED {
                let what =
                    format!("a chain of {len} entries: {entry}, number {at}, is not chained");
                return Err(PoolDefect(what));
            }
            found.push(entry);
            entry = CellNumber::new(next as u32);
        }
        let longer = || PoolDefect(format!("a chain of {len} entries goes on with {entry}"));
        if entry == CellNumber::NONE { Ok(()) } else { Err(longer()) }
    }

    /// The entry that follows a chained one, while the chain's lock is held.
    #[inline]
    pub(crate) fn chained(&self, entry: CellNumber) -> CellNumber {
        // relaxed: the chain's lock orders chained words.
        let word = self.cell(entry).map_or(0, |cell| cell.load(Ordering::Relaxed));
        let (tag, next) = Word(word).value();
        debug_assert_eq!(tag, CHAINED, "the chain leads through chained cells");
        CellNumber::new(next as u32)
    }

    pub(crate) fn chain(&self, entry: CellNumber, next: CellNumber) {
        if let Some(cell) = self.cell(entry) {
            chain(cell, next);
        }
    }
}

/// Chains the cell of a free entry.
#[inline]
pub(crate) fn chain(cell: &AtomicU64, next: CellNumber) {
    let word = Word::default().with_value(CHAINED, u64::from(next.get()));
    // relaxed: the chain's lock orders chained words, and nobody has a handle to the cell.
    cell.store(word.0, Ordering::Relaxed);
}

impl Leaves {
    /// Gives the entries of a new leaf generations that no earlier life of the leaf had but by
    /// chance.
    pub(crate) fn seed_generations(&self, leaf: LeafId) {
        // Under loom every iteration has to be like the one before.
        let random = if cfg!(loom) { 0 } else { RandomState::new().hash_one(leaf) };
        let cells = (1..LEAF_CELLS).step_by(LeafUse::Raw.stride() as usize);
        for cell in cells.filter_map(|index| self.cell(leaf.cell(index)?)) {
            // relaxed: published with the leaf's entries, by the lock of the stock.
            cell.store(random & u64::from(u32::MAX), Ordering::Relaxed);
        }
    }
}
