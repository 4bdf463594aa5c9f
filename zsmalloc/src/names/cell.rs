//! Cells: 8-byte words of a client's table, each of which holds an object, a value, or nothing.
//!
//! A handle of the kernel's allocator is the address of a word that says where the object is. The
//! client keeps the handle in its table, so both take 16 bytes. Here the client's table *is* made
//! of those words: 8 bytes, and one cache line less on the way to an object. The mover rewrites
//! them, under the lock bit that the client takes too.
//!
//! ```text
//!             lock            put, put_value, clear            unlock (drop of the guard)
//!   unlocked -------> locked ------------------------> locked --------> unlocked
//!             CAS 0->1   the guard's copy of the word    swap in the copy
//! ```
//!
//! Invariants
//! - I1 while the lock bit is set, nobody but its owner writes the word: unlocking is a swap.
//! - I2 an object in a client's cell is read, moved and freed under the lock of that cell. So a
//!   reader may decompress in place while neighbours come and go: the mover only tries the lock and
//!   skips what is in use. (Readers of a handle's object are counted in its cell instead.)
//!
//! Locks: cell before class. The mover holds a class lock, so it only tries the cell. A thread
//! holds one cell at a time. If it took a second [`CellGuard`] while the first lives, it might wait
//! for itself, or for a thread that waits for it. Debug builds panic then.

use host::sync::atomic::{AtomicU64, Ordering};
use host::{HeldRank, Rank};

use crate::leaves::LeafUse;
use crate::numbers::{AllocError, CellNumber, LEAF_CELLS, LeafId, StaleLeaf, Word};
use crate::objects::Object;
use crate::pool::Pool;
use crate::zspages::zspage;

/// What a cell holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing.
    Empty,
    /// A value of the client's, kept in the cell itself.
    Value {
        /// Which kind of value; with `value` 0, tag 0 is an empty cell.
        tag: u8,
        /// 41 bits.
        value: u64,
    },
    /// An object.
    Object {
        /// Its length in bytes.
        len: usize,
    },
}

/// A locked cell; unlocked when dropped.
#[must_use = "the cell is unlocked when the guard is dropped"]
pub struct CellGuard<'p> {
    pool: &'p Pool,
    cell: &'p AtomicU64,
    number: CellNumber,
    word: Word,
    /// Dropped after the unlocking, which is in `Drop`.
    _held: HeldRank,
}

impl Pool {
    /// A leaf of 512 empty cells.
    ///
    /// # Errors
    ///
    /// [`AllocError::OutOfCells`] when the memory's table is full.
    pub fn alloc_leaf(&self) -> Result<LeafId, AllocError> {
        let leaf = self.memory.leaves.alloc(self.id, LeafUse::Cells)?;
        // relaxed: a total.
        self.counters.leaves.fetch_add(1, Ordering::Relaxed);
        Ok(leaf)
    }

    /// Locks a cell, and waits for a thread that holds it.
    ///
    /// # Errors
    ///
    /// [`StaleLeaf`] when the leaf is not this pool's, or no longer.
    ///
    /// # Panics
    ///
    /// When `index` is not below [`LEAF_CELLS`].
    pub fn cell(&self, leaf: LeafId, index: usize) -> Result<CellGuard<'_>, StaleLeaf> {
        self.cell_of_rank(leaf, index, Rank::Cell)
    }

    /// As [`Pool::cell`], for a lock of another rank.
    pub(crate) fn cell_of_rank(
        &self,
        leaf: LeafId,
        index: usize,
        rank: Rank,
    ) -> Result<CellGuard<'_>, StaleLeaf> {
        assert!(index < LEAF_CELLS, "a leaf has {LEAF_CELLS} cells");
        // It is looked at before the lock, so that the cells of handles are never locked; and after
        // it, because the leaf may have been given back meanwhile.
        self.memory.leaves.owned(leaf, self.id, LeafUse::Cells)?;
        let guard = self.lock_cell(leaf, index, rank)?;
        self.memory.leaves.owned(leaf, self.id, LeafUse::Cells)?;
        Ok(guard)
    }

    /// As [`Pool::cell`], by number.
    ///
    /// # Errors
    ///
    /// [`StaleLeaf`] when its leaf is not this pool's, or no longer.
    pub fn numbered_cell(&self, number: CellNumber) -> Result<CellGuard<'_>, StaleLeaf> {
        self.cell(number.leaf().ok_or(StaleLeaf)?, number.index())
    }

    /// The client's word of a leaf, see [`CellGuard::leaf_word`]; `None` for a leaf that is not
    /// this pool's. If the leaf is freed meanwhile, the word may be another leaf's.
    pub fn leaf_word(&self, leaf: LeafId) -> Option<&AtomicU64> {
        self.memory.leaves.owned(leaf, self.id, LeafUse::Cells).ok()?;
        Some(self.memory.leaves.word_of(leaf.cell(0)?))
    }

    /// What a cell held a moment ago, without locking it; `None` for a leaf of another pool.
    ///
    /// # Panics
    ///
    /// When `index` is not below [`LEAF_CELLS`].
    pub fn peek(&self, leaf: LeafId, index: usize) -> Option<Content> {
        assert!(index < LEAF_CELLS, "a leaf has {LEAF_CELLS} cells");
        self.memory.leaves.owned(leaf, self.id, LeafUse::Cells).ok()?;
        let cell = self.memory.leaves.cell(leaf.cell(index)?)?;
        // relaxed: a glance at one word; nothing it names is followed.
        Some(self.content_of(Word(cell.load(Ordering::Relaxed))))
    }

    /// Starts loading the object that a cell names, as far as a glance tells.
    ///
    /// # Panics
    ///
    /// When `index` is not below [`LEAF_CELLS`].
    pub fn prefetch(&self, leaf: LeafId, index: usize) {
        assert!(index < LEAF_CELLS, "a leaf has {LEAF_CELLS} cells");
        let leaves = &self.memory.leaves;
        let Some(cell) = leaf.cell(index).and_then(|number| leaves.cell(number)) else { return };
        // relaxed: a hint; whatever the word names, nothing of it is read.
        if let Some(place) = Word(cell.load(Ordering::Relaxed)).place() {
            let shape = self.geometry().shape(place.class());
            zspage::prefetch(&self.memory.arena, shape, place.pfn(), place.object().into());
        }
    }

    pub(crate) fn content_of(&self, word: Word) -> Content {
        match (word.place(), word.value()) {
            (Some(place), _) => {
                let size = self.geometry().shape(place.class()).size;
                // A glance without the lock may meet a word of another pool's.
                Content::Object { len: usize::from(size.saturating_sub(place.slack())) }
            }
            (None, (0, 0)) => Content::Empty,
            (None, (tag, value)) => Content::Value { tag, value },
        }
    }

    fn lock_cell(
        &self,
        leaf: LeafId,
        index: usize,
        rank: Rank,
    ) -> Result<CellGuard<'_>, StaleLeaf> {
        let number = leaf.cell(index).ok_or(StaleLeaf)?;
        let cell = self.memory.leaves.cell(number).ok_or(StaleLeaf)?;
        let held = HeldRank::enter(rank);
        let word = self.memory.leaves.lock_word(number, cell);
        Ok(CellGuard { pool: self, cell, number, word, _held: held })
    }
}

impl<'p> CellGuard<'p> {
    /// What the cell holds.
    pub fn content(&self) -> Content {
        self.pool.content_of(self.word)
    }

    /// The bytes of the object, in place; `None` when the cell holds none.
    pub fn bytes(&self) -> Option<&[u8]> {
        self.word.place().map(|place| self.pool.bytes_at(place))
    }

    /// Starts loading what freeing the object will need, for a caller that reads it first. A hint.
    #[inline]
    pub fn prefetch_free(&self) {
        if let Some(place) = self.word.place() {
            self.pool.prefetch_free(place);
        }
    }

    /// The cell's number: no other cell of the memory has it while the leaf is the pool's.
    pub fn number(&self) -> CellNumber {
        self.number
    }

    /// A word of the client's for the whole leaf: 0 when the leaf was taken. It stays the leaf's
    /// while one of its cells is locked.
    pub fn leaf_word(&self) -> &AtomicU64 {
        self.pool.memory.leaves.word_of(self.number)
    }

    /// The client's bits: 6.
    pub fn client(&self) -> u8 {
        self.word.client()
    }

    /// Sets the client's bits.
    pub fn set_client(&mut self, bits: u8) {
        self.word = self.word.with_client(bits);
    }

    /// Publishes `object` here and frees what the cell held.
    ///
    /// # Panics
    ///
    /// When the object is another pool's.
    pub fn put(&mut self, object: Object<'p>) {
        assert!(std::ptr::eq(object.pool, self.pool), "the object is of the cell's pool");
        let old = self.word;
        self.word = self.word.with_place(object.publish(self.number));
        self.free(old);
    }

    /// Keeps a value in the cell and frees what it held.
    ///
    /// # Panics
    ///
    /// When `value` has more than 41 bits.
    pub fn put_value(&mut self, tag: u8, value: u64) {
        assert!(value >> crate::numbers::VALUE_BITS == 0, "a value has 41 bits");
        let old = self.word;
        self.word = self.word.with_value(tag, value);
        self.free(old);
    }

    /// Empties the cell; the client's bits stay.
    pub fn clear(&mut self) {
        self.put_value(0, 0);
    }

    /// As [`CellGuard::clear`], but an object is freed later, as by [`Pool::free_deferred`].
    pub fn clear_deferred(&mut self) {
        match self.word.place() {
            Some(place) if self.pool.free_place_deferred(place) => {
                self.word = self.word.with_value(0, 0);
            }
            _ => self.clear(),
        }
    }

    fn free(&self, old: Word) {
        if let Some(place) = old.place() {
            self.pool.free(place);
        }
    }
}

impl Drop for CellGuard<'_> {
    fn drop(&mut self) {
        self.pool.memory.leaves.unlock_word(self.number, self.cell, self.word);
    }
}

impl std::fmt::Debug for CellGuard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CellGuard({}: {:?})", self.number, self.content())
    }
}
