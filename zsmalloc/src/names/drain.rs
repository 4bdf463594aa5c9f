//! Draining a leaf: everything in its cells is freed together, sorted by class.
//!
//! ```text
//!   cells      | a | b |   | c | ...          each locked, and its content noted
//!   by lock    a c .. | b ..                  one hold of a class lock for all of a class
//!              cells emptied and unlocked, zspages back to the zone
//! ```
//!
//! Source: the drain of study S3, which sorts a buffer of handles; here the buffer is the leaf.
//!
//! Invariants
//! - I1 the cells of the objects being freed are locked: no other thread reads or moves them.
//! - I2 a thread that drains waits for cells while it has locked others of the same leaf. No circle
//!   closes, because any other thread holds one cell at a time, and one thread drains a leaf.
//!
//! Locks: cells, then one class after the other. The client's closure is called with the cells
//! locked, because it may read their bytes. It takes only locks after `Cell`, which debug builds
//! assert, and so it cannot wait for a cell.

use host::sync::atomic::Ordering;
use host::{HeldRank, Rank};

use crate::leaves::LeafUse;
use crate::names::Content;
use crate::numbers::{CellNumber, LEAF_CELLS, LOCKED, LeafId, Place, StaleLeaf, Word};
use crate::pool::Pool;

/// A cell that is about to be emptied.
#[derive(Clone, Copy)]
pub struct DrainedCell<'p> {
    pool: &'p Pool,
    number: CellNumber,
    word: Word,
}

impl DrainedCell<'_> {
    /// The cell's number.
    pub fn number(&self) -> CellNumber {
        self.number
    }

    /// The client's bits.
    pub fn client(&self) -> u8 {
        self.word.client()
    }

    /// What the cell holds.
    pub fn content(&self) -> Content {
        self.pool.content_of(self.word)
    }

    /// The bytes of the object, in place; `None` when the cell holds none.
    pub fn bytes(&self) -> Option<&[u8]> {
        self.word.place().map(|place| self.pool.bytes_at(place))
    }
}

impl std::fmt::Debug for DrainedCell<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DrainedCell({:?})", self.content())
    }
}

/// Cells whose objects are freed, and which are emptied and unlocked, when this is dropped: also
/// when the client's closure panics.
struct Locked<'p> {
    pool: &'p Pool,
    numbers: [CellNumber; LEAF_CELLS],
    places: [Place; LEAF_CELLS],
    len: usize,
    /// Stands for all of them.
    _held: HeldRank,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.pool.free_places(&self.places[..self.len]);
        for &number in &self.numbers[..self.len] {
            self.pool.empty(number);
        }
    }
}

/// A leaf whose drain was begun, and ends when this is dropped.
struct Draining<'p> {
    pool: &'p Pool,
    leaf: LeafId,
}

impl Drop for Draining<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.pool.drain(self.leaf, |_| {});
        }
        self.pool.memory.leaves.end_drain(self.leaf, LeafUse::Cells);
        // relaxed: a total.
        self.pool.counters.leaves.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pool {
    /// Frees everything in a leaf's cells and gives the leaf back. `visit` sees each cell that is
    /// not empty before it is cleared. If `visit` panics, the other cells are freed unseen. From
    /// the start of the call, the leaf's cells cannot be locked.
    ///
    /// # Errors
    ///
    /// [`StaleLeaf`] when it is not this pool's, or another thread is freeing it.
    pub fn free_leaf(
        &self,
        leaf: LeafId,
        visit: impl FnMut(&DrainedCell<'_>),
    ) -> Result<(), StaleLeaf> {
        if !self.memory.leaves.begin_drain(leaf, self.id, LeafUse::Cells) {
            return Err(StaleLeaf);
        }
        let _draining = Draining { pool: self, leaf };
        self.drain(leaf, visit);
        Ok(())
    }

    fn drain(&self, leaf: LeafId, mut visit: impl FnMut(&DrainedCell<'_>)) {
        let nothing = Place::default();
        let held = HeldRank::enter(Rank::Cell);
        let (numbers, places) = ([CellNumber::NONE; LEAF_CELLS], [nothing; LEAF_CELLS]);
        let mut locked = Locked { pool: self, numbers, places, len: 0, _held: held };
        for number in (0..LEAF_CELLS).filter_map(|index| leaf.cell(index)) {
            let cell = self.handle_cell(number);
            let word = self.memory.leaves.lock_word(number, cell);
            let place = word.place().unwrap_or(nothing);
            if place == nothing && word.0 == LOCKED {
                self.empty(number);
                continue;
            }
            locked.numbers[locked.len] = number;
            locked.places[locked.len] = place;
            locked.len += 1;
            visit(&DrainedCell { pool: self, number, word });
        }
    }

    /// Empties a locked cell and unlocks it.
    fn empty(&self, number: CellNumber) {
        if let Some(cell) = self.memory.leaves.cell(number) {
            self.memory.leaves.unlock_word(number, cell, Word::default());
        }
    }
}
