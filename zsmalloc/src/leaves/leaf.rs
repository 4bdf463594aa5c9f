//! Leaves: pages of 512 cells, the unit in which a store takes and gives back table space.
//!
//! ```text
//!   cells    | leaf 0: unused | leaf 1: 512 cells | leaf 2 | ...     number = leaf * 512 + index
//!   owners   | -              | pool id           | 0      | ...     0 = nobody's
//!   words    | -              | the client's      | -      | ...     one for the whole leaf, on a
//! ```                                                                  cache line of its own
//!
//! ```text
//!   31         30 29    28                0
//!  +----------+--------+-------------------+
//!  | draining |  use   |     pool id 29    |   an owner word; 0 = nobody's
//!  |    1     |   2    |                   |
//!  +----------+--------+-------------------+
//! ```
//!
//! A leaf is named by its number, which any code may write down and none can misuse. Every access
//! goes through the owner word, so a number that is stale or made up is refused.
//!
//! Invariants
//! - I1 a cell of a leaf without an owner is all zero, unless the leaf was abandoned and is not
//!   wiped yet. A lock bit may be set, which a thread with a stale number is about to clear.
//! - I2 the owner word leaves a pool's id before the pool drains the cells. A thread that locks a
//!   cell and then finds the pool's id was ahead of the drain, which will see the cell's content.
//! - I3 a leaf's page is discarded only while the discarder holds all 512 locks: a lock bit that
//!   vanished under its owner would let two threads write one cell.
//! - I4 a word is wiped by an exchange of one that is not locked. If it were stored over, it could
//!   come back when a thread with a stale number unlocks it.
//! - I5 a leaf has the same use for ever. So a number that is made up is refused before the lock
//!   bit of a handle's cell is set; the mover alone sets those, under the class lock.
//!
//! Locks: the free list is a leaf lock. Cell locks are ranked above the class lock.

use std::sync::Arc;

use host::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use host::{BitLockWaiters, FailureInjector, HostError, Lock, Rank, Table};

use crate::numbers::{AllocError, CellNumber, LEAF_CELLS, LOCKED, LeafId, StaleLeaf};

/// Free leaves kept touched before they are returned to the system together.
const FREE_LEAVES_HELD: usize = 64; // 256 KiB
/// Words of a cache line, of which the first is a leaf's: threads that work in different leaves
/// would hand the line to each other with every page.
const LINE_WORDS: usize = if cfg!(loom) { 1 } else { 8 }; // 64 bytes
/// Bits of an owner word for the pool's id, the leaf's use, and whether the pool drains the leaf.
const POOL_BITS: u32 = 29;
const USE_BITS: u32 = 2;
const DRAINING_BITS: u32 = 1;
const USE_SHIFT: u32 = POOL_BITS; // 29
const USE_MASK: u32 = ((1 << USE_BITS) - 1) << USE_SHIFT; // 0x6000_0000
const DRAINING_SHIFT: u32 = USE_SHIFT + USE_BITS; // 31
const DRAINING: u32 = 1 << DRAINING_SHIFT; // 0x8000_0000
/// The largest id of a pool.
pub(crate) const POOL_ID_MAX: u32 = (1 << POOL_BITS) - 1; // 536870911

const _: () = assert!(cfg!(loom) || LEAF_CELLS * 8 == host::PAGE_SIZE, "a leaf is a page");
const _: () = assert!(DRAINING_SHIFT + DRAINING_BITS == u32::BITS, "the fields fill the word");
const _: () = assert!(USES <= 1 << USE_BITS, "every use fits its field");

/// Which cells a leaf is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeafUse {
    /// Cells of a client's table.
    Cells,
    /// Cells behind handles.
    Handles,
    /// Cells behind raw handles, each followed by a word with its generation.
    Raw,
}

/// Number of uses.
const USES: usize = 3;

impl LeafUse {
    /// Cells per entry.
    pub(crate) fn stride(self) -> u32 {
        match self {
            LeafUse::Cells | LeafUse::Handles => 1,
            LeafUse::Raw => 2,
        }
    }
}

/// All cells of one memory.
pub(crate) struct Leaves {
    cells: Table<[AtomicU64; LEAF_CELLS]>,
    owners: Table<AtomicU32>,
    words: Table<[AtomicU64; LINE_WORDS]>,
    free: Lock<FreeLeaves>,
    /// Where threads wait for a cell's lock bit.
    pub(crate) waiters: BitLockWaiters,
}

#[derive(Default)]
struct FreeLeaves {
    /// By use: free and touched; free and returned to the system.
    held: [Vec<LeafId>; USES],
    returned: [Vec<LeafId>; USES],
    /// Abandoned: free and touched, with words in their cells. For clients' cells.
    unwiped: Vec<LeafId>,
    /// The lowest leaf never used.
    fresh: u32,
}

/// What tells leaves of one pool, and of one use.
#[derive(Clone, Copy)]
pub(crate) struct OwnedLeaves<'a> {
    owners: &'a [AtomicU32],
    word: u32,
}

impl OwnedLeaves<'_> {
    /// Whether it is one of them: a moment ago, or for good while one of its cells is locked (I2).
    #[inline(always)]
    pub(crate) fn has(&self, leaf: LeafId) -> bool {
        self.has_at(leaf.table_index())
    }

    /// Whether a cell is of one of them; the same holds for it.
    #[inline(always)]
    pub(crate) fn has_cell(&self, cell: CellNumber) -> bool {
        self.has_at(cell.leaf_table_index())
    }

    #[inline(always)]
    fn has_at(&self, index: usize) -> bool {
        // Acquire pairs with the Release in `alloc`, so that a thread that sees the owner sees the
        // leaf empty. It pairs with `begin_drain` through the lock of a cell, so that I2 holds.
        let owner = self.owners.get(index).map(|owner| owner.load(Ordering::Acquire));
        owner == Some(self.word)
    }
}

impl Leaves {
    /// Room for `leaves` leaves; nothing is touched yet.
    pub(crate) fn reserve(
        leaves: usize,
        faults: Option<Arc<FailureInjector>>,
    ) -> Result<Leaves, HostError> {
        let free = FreeLeaves { fresh: 1, ..FreeLeaves::default() };
        Ok(Leaves {
            cells: Table::in_steps(leaves + 1, faults.clone())?,
            owners: Table::in_steps(leaves + 1, faults.clone())?,
            words: Table::in_steps(leaves + 1, faults)?,
            free: Lock::new(Rank::Leaf, free),
            waiters: BitLockWaiters::new(),
        })
    }

    /// An empty leaf for `pool`.
    pub(crate) fn alloc(&self, pool: u32, purpose: LeafUse) -> Result<LeafId, AllocError> {
        self.cells.extend().map_err(|_| AllocError::OutOfCells)?;
        let leaf = self.take_free(purpose)?;
        let index = leaf.table_index();
        if self.open(index).is_err() {
            self.free.lock().returned[purpose as usize].push(leaf);
            return Err(AllocError::NotOpened);
        }
        self.cells.touch(index..index + 1);
        self.owners.touch(index..index + 1);
        self.words.touch(index..index + 1);
        // relaxed: published with the owner.
        self.words[index][0].store(0, Ordering::Relaxed);
        // Release pairs with the Acquire in `has_at`, so that a thread that sees the owner sees the
        // leaf empty.
        self.owners[index].store(owner_word(pool, purpose), Ordering::Release);
        Ok(leaf)
    }

    fn open(&self, leaf: usize) -> Result<(), HostError> {
        self.cells.open(leaf..leaf + 1)?;
        self.owners.open(leaf..leaf + 1)?;
        self.words.open(leaf..leaf + 1)
    }

    /// A leaf that is nobody's and whose cells are empty.
    fn take_free(&self, purpose: LeafUse) -> Result<LeafId, AllocError> {
        let (mut free, kind) = (self.free.lock(), purpose as usize);
        if let Some(leaf) = free.held[kind].pop() {
            return Ok(leaf);
        }
        if purpose == LeafUse::Cells
            && let Some(leaf) = free.unwiped.pop()
        {
            drop(free);
            self.wipe(leaf);
            return Ok(leaf);
        }
        if let Some(leaf) = free.returned[kind].pop() {
            return Ok(leaf);
        }
        if free.fresh as usize >= self.cells.len() {
            return Err(AllocError::OutOfCells);
        }
        let fresh = LeafId::new(free.fresh).ok_or(AllocError::OutOfCells);
        free.fresh += 1;
        fresh
    }

    /// Takes the leaf away from its owner so that it can be drained. Refused if it is not `pool`'s,
    /// or is being drained already.
    pub(crate) fn begin_drain(&self, leaf: LeafId, pool: u32, purpose: LeafUse) -> bool {
        let word = owner_word(pool, purpose);
        self.owners.get(leaf.table_index()).is_some_and(|owner| {
            // AcqRel pairs with the load in `has_at` through the lock of each cell, which the drain
            // takes next, so that a thread that locks a cell after the drain unlocked it finds the
            // pool's id gone.
            let drain = || {
                owner
                    .compare_exchange(word, word | DRAINING, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok() // relaxed: the failure touches nothing
            };
            // A number that was made up may be of a leaf that is not open: it is only looked at.
            // relaxed: a guess, confirmed by the exchange.
            owner.load(Ordering::Relaxed) == word && drain()
        })
    }

    /// Puts a drained leaf back; every cell is empty.
    pub(crate) fn end_drain(&self, leaf: LeafId, purpose: LeafUse) {
        // Release pairs with the Acquire in `has_at`, so that no thread that sees the last owner
        // sees the leaf's next life.
        self.owners[leaf.table_index()].store(0, Ordering::Release);
        let mut free = self.free.lock();
        free.held[purpose as usize].push(leaf);
        if free.held[purpose as usize].len() > FREE_LEAVES_HELD {
            self.return_held(&mut free);
        }
    }

    /// Puts the leaves of clients' cells back that are `pool`'s. The pool is gone with all its
    /// objects, so no thread looks at their words again. True if so many are free that they should
    /// go back to the system.
    pub(crate) fn abandon(&self, leaves: &[LeafId], pool: u32) -> bool {
        let mut free = self.free.lock();
        for &leaf in leaves {
            if self.begin_drain(leaf, pool, LeafUse::Cells) {
                // Release pairs with the Acquire in `has_at`, so that no thread that sees the last
                // owner sees the leaf's next life.
                self.owners[leaf.table_index()].store(0, Ordering::Release);
                free.unwiped.push(leaf);
            }
        }
        free.unwiped.len() > FREE_LEAVES_HELD
    }

    /// Empties the cells of an abandoned leaf.
    fn wipe(&self, leaf: LeafId) {
        for (index, cell) in self.cells[leaf.table_index()].iter().enumerate() {
            let key = leaf.table_index() * LEAF_CELLS + index;
            while !replace_unlocked(cell, 0) {
                // relaxed: only decides whether to go on waiting.
                let locked = || cell.load(Ordering::Relaxed) & LOCKED != 0;
                self.waiters.wait_while(key, locked);
            }
        }
    }

    /// Empties the cells of a leaf that nobody uses any more.
    pub(crate) fn clear(&self, leaf: LeafId) {
        for cell in &self.cells[leaf.table_index()] {
            // relaxed: published with the leaf's next owner, by the lock of the free leaves.
            cell.store(0, Ordering::Relaxed);
        }
    }

    /// The use of the leaf that a cell lies in; only the owner of the cell may rely on it.
    #[inline]
    pub(crate) fn use_of(&self, number: CellNumber) -> LeafUse {
        let owner = self.owners.get(number.leaf_table_index());
        // relaxed: constant while the cell is in use.
        let word = owner.map_or(0, |owner| owner.load(Ordering::Relaxed));
        use_in(word)
    }

    /// Returns the free leaves to the system.
    pub(crate) fn release(&self) {
        self.return_held(&mut self.free.lock());
        while self.return_unwiped() {}
    }

    /// Returns abandoned leaves, as many as are handled in one hold of the lock. False if there are
    /// no more, or if some are in use.
    fn return_unwiped(&self) -> bool {
        let mut free = self.free.lock();
        let from = free.unwiped.len().saturating_sub(FREE_LEAVES_HELD);
        let (locked, busy): (Vec<LeafId>, Vec<LeafId>) =
            free.unwiped.split_off(from).into_iter().partition(|&leaf| self.lock_all(leaf));
        let some = !locked.is_empty();
        self.discard(locked, &mut free.returned[LeafUse::Cells as usize]);
        let go_on = some && busy.is_empty();
        free.unwiped.extend(busy);
        go_on
    }

    /// The client's word of the leaf that a cell lies in.
    pub(crate) fn word_of(&self, number: CellNumber) -> &AtomicU64 {
        &self.words[number.leaf_table_index()][0]
    }

    /// The cell of an entry that a handle names, or a chain.
    ///
    /// # Panics
    ///
    /// When the memory has no such entry.
    #[inline]
    pub(crate) fn handle_cell(&self, entry: CellNumber) -> &AtomicU64 {
        self.cell(entry).expect("a handle's entry is in a leaf")
    }

    /// The cell, by number; `None` outside the table.
    #[inline]
    pub(crate) fn cell(&self, number: CellNumber) -> Option<&AtomicU64> {
        self.cells().get(number.table_index())
    }

    /// Every cell, by number.
    #[inline]
    pub(crate) fn cells(&self) -> &[AtomicU64] {
        self.cells.slice(0..self.cells.len()).as_flattened()
    }

    /// Checks that `leaf` is `pool`'s. Meaningful while one of its cells is locked (I2).
    #[inline]
    pub(crate) fn owned(&self, leaf: LeafId, pool: u32, purpose: LeafUse) -> Result<(), StaleLeaf> {
        if self.owned_by(pool, purpose).has(leaf) { Ok(()) } else { Err(StaleLeaf) }
    }

    /// What tells leaves of a pool that it uses so.
    #[inline]
    pub(crate) fn owned_by(&self, pool: u32, purpose: LeafUse) -> OwnedLeaves<'_> {
        let owners = self.owners.slice(0..self.owners.len());
        OwnedLeaves { owners, word: owner_word(pool, purpose) }
    }

    /// Cells of all leaves there can be.
    pub(crate) fn cells_max(&self) -> usize {
        self.cells.len() * LEAF_CELLS
    }

    /// Bytes held for cells and their owner words.
    pub(crate) fn held_bytes(&self) -> u64 {
        let free = self.free.lock();
        let lists = free.held.iter().chain(&free.returned).chain([&free.unwiped]);
        let lists = lists.map(Vec::capacity).sum::<usize>();
        let tables = self.cells.heap_bytes() + self.owners.heap_bytes() + self.words.heap_bytes();
        let heap = tables + self.waiters.heap_bytes();
        self.mapped_bytes() + heap + (lists * size_of::<LeafId>()) as u64
    }

    /// The part of [`Leaves::held_bytes`] that lies in the tables.
    pub(crate) fn mapped_bytes(&self) -> u64 {
        self.cells.held_bytes() + self.owners.held_bytes() + self.words.held_bytes()
    }

    /// The address ranges reserved.
    pub(crate) fn ranges(&self) -> [std::ops::Range<usize>; 3] {
        [self.cells.range(), self.owners.range(), self.words.range()]
    }

    fn return_held(&self, free: &mut FreeLeaves) {
        for (held, returned) in free.held.iter_mut().zip(&mut free.returned) {
            let (locked, busy): (Vec<LeafId>, Vec<LeafId>) =
                std::mem::take(held).into_iter().partition(|&leaf| self.lock_all(leaf));
            *held = busy;
            self.discard(locked, returned);
        }
    }

    /// Discards the pages of leaves whose every cell is locked.
    fn discard(&self, mut locked: Vec<LeafId>, returned: &mut Vec<LeafId>) {
        if locked.is_empty() {
            return;
        }
        locked.sort_unstable();
        for run in locked.chunk_by(|a, b| a.get() + 1 == b.get()) {
            let first = run[0].table_index();
            let refused = self.cells.discard(first..first + run.len()).is_err();
            // If the system refuses, the pages stay held, and are zero once they are unlocked.
            // Under loom, where a leaf is no page, the same stands for the discard.
            if refused || cfg!(loom) {
                run.iter().for_each(|&leaf| self.unlock_first(leaf, LEAF_CELLS));
            }
        }
        returned.append(&mut locked);
        // Whoever waited for a cell with a stale number waited for a lock that is gone.
        self.waiters.wake_all();
    }

    /// Locks every cell of a free leaf, and empties it if it was abandoned. If a cell is in use,
    /// none is locked, and this is false.
    fn lock_all(&self, leaf: LeafId) -> bool {
        for (index, cell) in self.cells[leaf.table_index()].iter().enumerate() {
            if !replace_unlocked(cell, LOCKED) {
                self.unlock_first(leaf, index);
                return false;
            }
        }
        true
    }

    /// Unlocks the first `count` cells of a free leaf.
    fn unlock_first(&self, leaf: LeafId, count: usize) {
        for cell in &self.cells[leaf.table_index()][..count] {
            // SeqCst pairs with the re-check in `BitLockWaiters::wait_while`, so that a waiter sees
            // the bit cleared, or is woken below. A free cell is zero except for the lock bit.
            cell.swap(0, Ordering::SeqCst);
        }
        self.waiters.wake_all();
    }
}

/// Gives a cell of a free leaf a new word. False if it is locked.
fn replace_unlocked(cell: &AtomicU64, word: u64) -> bool {
    // relaxed: a guess, confirmed by the exchange.
    let old = cell.load(Ordering::Relaxed) & !LOCKED;
    // Acquire pairs with the unlocking in `CellGuard`, so that the cell's last holder has left it.
    // relaxed: a failure reads nothing.
    cell.compare_exchange(old, word, Ordering::Acquire, Ordering::Relaxed).is_ok()
}

fn owner_word(pool: u32, purpose: LeafUse) -> u32 {
    pool | (purpose as u32) << USE_SHIFT
}

/// The use in an owner word.
#[inline]
fn use_in(word: u32) -> LeafUse {
    match (word & USE_MASK) >> USE_SHIFT {
        0 => LeafUse::Cells,
        1 => LeafUse::Handles,
        _ => LeafUse::Raw,
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_owner_word_has_its_fields_back(pool in 1..=POOL_ID_MAX, drained: bool) {
            for purpose in [LeafUse::Cells, LeafUse::Handles, LeafUse::Raw] {
                let draining = if drained { DRAINING } else { 0 };
                let word = owner_word(pool, purpose) | draining;
                prop_assert_eq!((word & POOL_ID_MAX, use_in(word)), (pool, purpose));
                prop_assert_eq!(word & DRAINING != 0, drained);
                prop_assert_eq!(word == owner_word(pool, purpose), !drained, "not the owner's");
            }
        }
    }
}
