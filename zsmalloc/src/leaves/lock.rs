//! The lock bit of a cell.
//!
//! ```text
//!   lock_word       word -> word | LOCKED, as soon as the bit is clear
//!   try_lock        the same for the mover: at once, and only if nobody uses the object
//!   unlock_word     the bit goes, a new word comes, and the threads that wait are woken
//! ```
//!
//! Invariant: while the bit is set, only the thread that set it changes the word.
//!
//! Lock: a cell's, of rank `Cell`. The mover only tries it, because it holds a class lock.

use host::sync::atomic::{AtomicU64, Ordering};
use host::{HeldRank, Rank};

use super::leaf::{LeafUse, Leaves};
use crate::numbers::{CellNumber, LOCKED, Word};

/// A cell that is locked for as long as this lives. Afterwards it has `word`, even if a panic ended
/// this.
pub(crate) struct LockedCell<'l> {
    leaves: &'l Leaves,
    cell: &'l AtomicU64,
    number: CellNumber,
    pub(crate) word: Word,
    /// Dropped after the unlocking, which is in `Drop`.
    _held: HeldRank,
}

impl Drop for LockedCell<'_> {
    fn drop(&mut self) {
        self.leaves.unlock_word(self.number, self.cell, self.word);
    }
}

impl Leaves {
    /// Locks a cell if no thread uses its object. It is for the mover, under a class lock.
    pub(crate) fn try_lock(&self, number: CellNumber) -> Option<LockedCell<'_>> {
        let (word, cell) = (self.try_lock_word(number)?, self.cell(number)?);
        let held = HeldRank::enter_try(Rank::Cell);
        Some(LockedCell { leaves: self, cell, number, word, _held: held })
    }

    /// Sets the lock bit of a cell, and waits for it while another thread has it; gives the word.
    pub(crate) fn lock_word(&self, number: CellNumber, cell: &AtomicU64) -> Word {
        loop {
            if let Some(word) = try_lock(cell, |_| true) {
                return word;
            }
            // relaxed: only decides whether to go on waiting; `try_lock` orders.
            let locked = || cell.load(Ordering::Relaxed) & LOCKED != 0;
            self.waiters.wait_while(number.table_index(), locked);
        }
    }

    /// Sets the lock bit of a cell if no thread uses its object, and gives the word.
    pub(crate) fn try_lock_word(&self, number: CellNumber) -> Option<Word> {
        let cell = self.cell(number)?;
        match self.use_of(number) {
            LeafUse::Cells => try_lock(cell, |_| true),
            // A word that names nothing is about to be written, by the thread that stores the
            // object and that takes no lock.
            LeafUse::Handles => try_lock(cell, |word| word.place().is_some() && word.pins() == 0),
            LeafUse::Raw => try_lock(cell, |word| word.place().is_some()),
        }
    }

    /// Gives the lock bit of a cell up, and the cell a new word.
    pub(crate) fn unlock_word(&self, number: CellNumber, cell: &AtomicU64, word: Word) {
        // SeqCst pairs with the re-check in `BitLockWaiters::wait_while`, so that the waiter sees
        // the bit gone, or `wake` sees the waiter. As a Release it pairs with the Acquire in
        // `try_lock`, so that the next holder sees what this one did.
        cell.swap(word.0 & !LOCKED, Ordering::SeqCst);
        self.waiters.wake(number.table_index());
    }
}

/// Sets the lock bit if it is clear, and the word is one that `allows`.
fn try_lock(cell: &AtomicU64, allows: impl Fn(Word) -> bool) -> Option<Word> {
    // relaxed: a guess, confirmed by the exchange.
    let word = cell.load(Ordering::Relaxed) & !LOCKED;
    if !allows(Word(word)) {
        return None;
    }
    // Acquire pairs with the swap of the last unlock, so that the object the word names is seen
    // as its writer left it, and with the unpinning of its last reader. relaxed: a failure reads
    // nothing.
    cell.compare_exchange(word, word | LOCKED, Ordering::Acquire, Ordering::Relaxed)
        .ok()
        .map(|word| Word(word | LOCKED))
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use crate::{Memory, MemoryConfig, Pool, PoolConfig};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// The next reader of the object would wait for ever.
    #[test]
    fn a_mover_that_panics_leaves_no_cell_locked() {
        let config = MemoryConfig { worker: false, ..MemoryConfig::for_disk(1 << 20) };
        let memory = Memory::new(config).expect("address space");
        let pool = Pool::new(memory, PoolConfig::default()).expect("a pool");
        let handle = pool.alloc(b"stays").expect("room");
        let leaves = &pool.memory().leaves;
        let moving = AssertUnwindSafe(|| {
            let _cell = leaves.try_lock(handle.entry()).expect("nobody uses it");
            assert!(leaves.try_lock(handle.entry()).is_none(), "it is locked");
            panic!("in the middle of a move");
        });
        assert!(catch_unwind(moving).is_err());
        assert!(leaves.try_lock(handle.entry()).is_some(), "it is free again");
        assert_eq!(*pool.read(&handle).expect("ours"), b"stays"[..]);
    }
}
