//! Free entries: the cells behind handles that nobody has, chained in blocks.
//!
//! ```text
//!   class    first --> | next | --> | next | --> 0        at most a block
//!            spare --> a whole block, or nothing
//!   stock    [ block, block, ... ]                        the pool's, cut from leaves
//! ```
//!
//! A handle needs a slot and an entry, and both are taken and given in one hold of the class lock.
//! Whole blocks move between the classes and the stock, so that no class keeps more than two. Where
//! there can be no new leaf, a class without entries gets the chain of another one.
//!
//! Invariant: an entry of these leaves is in one chain, or a handle names it, or a thread brings it
//! to another chain, which the pool counts as in transit.
//!
//! Locks: a class's chains are under the class lock; each part of the stock has its own, rank
//! Stock, taken under a class lock once for a block. One of either at a time.

use host::sync::atomic::{AtomicU64, Ordering};
use host::{Lock, LockGuard, Rank};

use crate::check::PoolDefect;
use crate::class::{Class, State as ClassState};
use crate::error::AllocError;
use crate::leaf::{LEAF_CELLS, LeafId, LeafUse, Leaves};
use crate::pool::Pool;
use crate::word::Word;

/// Entries in a block: few, as each class that is in use has one and a half to spare.
const BLOCK: u32 = if cfg!(loom) { 1 } else { 16 };
/// Tag of a chained cell's value.
const CHAINED: u8 = 1;
const _: () = assert!(LEAF_CELLS.is_multiple_of(BLOCK as usize * 2), "a leaf is whole blocks");

/// The free entries of one class and one use.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    first: u32,
    count: u32,
    spare: u32,
}

impl Entries {
    /// Walks both chains: adds their entries to `found`.
    pub(crate) fn check(&self, leaves: &Leaves, found: &mut Vec<u32>) -> Result<(), PoolDefect> {
        leaves.walk(self.first, self.count, found)?;
        leaves.walk(self.spare, if self.spare == 0 { 0 } else { BLOCK }, found)
    }

    /// Takes an entry; 0 where the class has none.
    #[inline]
    fn take(&mut self, leaves: &Leaves) -> u32 {
        if self.first == 0 {
            if self.spare == 0 {
                return 0;
            }
            (self.first, self.count) = (std::mem::take(&mut self.spare), BLOCK);
        }
        let entry = self.first;
        self.first = leaves.chained(entry);
        self.count -= 1;
        if let Some(next) = leaves.cell(self.first) {
            host::prefetch(next);
        }
        entry
    }

    /// Gets a block from the stock; there is none here.
    fn restock(&mut self, stock: &Stock, leaves: &Leaves) -> Result<(), AllocError> {
        self.spare = stock.take(leaves)?;
        Ok(())
    }

    /// Takes a chain as a whole; nothing where there is none.
    fn take_chain(&mut self) -> Option<Chain> {
        if self.first == 0 {
            (self.first, self.count) = (std::mem::take(&mut self.spare), BLOCK);
        }
        let chain = Chain { first: std::mem::take(&mut self.first), len: self.count };
        self.count = 0;
        (chain.first != 0).then_some(chain)
    }

    /// Gives an entry and its cell back; to the stock, a block at a time, what the class need not
    /// keep.
    #[inline(always)]
    pub(crate) fn give(&mut self, entry: u32, cell: &AtomicU64, stock: &Stock) {
        chain(cell, self.first);
        self.first = entry;
        self.count += 1;
        if self.count == BLOCK {
            self.count = 0;
            let full = std::mem::take(&mut self.first);
            match std::mem::replace(&mut self.spare, full) {
                0 => {}
                surplus => stock.give(surplus),
            }
        }
    }
}

/// Entries on their way from one class to another.
#[must_use = "these entries belong in a class"]
struct Chain {
    first: u32,
    len: u32,
}

impl ClassState {
    /// Takes an entry for a handle of the given kind; 0 where the class has none.
    #[inline]
    pub(crate) fn take_entry(&mut self, kind: LeafUse, pool: &Pool) -> u32 {
        let entry = self.entries_of(kind).take(&pool.memory.leaves);
        let handles = u32::from(entry != 0 && kind == LeafUse::Handles);
        self.handles = self.handles.wrapping_add(handles);
        entry
    }

    /// Gives an entry back.
    pub(crate) fn give_entry(&mut self, entry: u32, pool: &Pool) {
        let leaves = &pool.memory.leaves;
        if leaves.use_of(entry) == LeafUse::Raw {
            return self.raw_entries.give(entry, pool.handle_cell(entry), &pool.raw_handles);
        }
        self.give_handle(entry, pool.handle_cell(entry), pool);
    }

    /// The free entries for handles of the given kind.
    #[inline]
    fn entries_of(&mut self, kind: LeafUse) -> &mut Entries {
        if kind == LeafUse::Raw { &mut self.raw_entries } else { &mut self.entries }
    }

    /// Enters the entries of another class.
    fn adopt_entries(&mut self, chain: Chain, kind: LeafUse, pool: &Pool) {
        let leaves = &pool.memory.leaves;
        let stock = if kind == LeafUse::Raw { &pool.raw_handles } else { &pool.handles };
        let mut next = chain.first;
        for _ in 0..chain.len {
            // Read before the entry gets a new neighbour.
            let after = leaves.chained(next);
            let entry = std::mem::replace(&mut next, after);
            self.entries_of(kind).give(entry, pool.handle_cell(entry), stock);
        }
    }

    /// Gives the entry of an owned handle back.
    #[inline(always)]
    pub(crate) fn give_handle(&mut self, entry: u32, cell: &AtomicU64, pool: &Pool) {
        self.entries.give(entry, cell, &pool.handles);
        self.handles = self.handles.wrapping_sub(1);
    }
}

impl Pool {
    /// Takes an entry for a class that has none: of the stock, or of another class.
    #[cold]
    pub(crate) fn fetch_entry<'p>(
        &'p self,
        class: &'p Class,
        mut state: LockGuard<'p, ClassState>,
        kind: LeafUse,
    ) -> Result<(LockGuard<'p, ClassState>, u32), AllocError> {
        let stock = if kind == LeafUse::Raw { &self.raw_handles } else { &self.handles };
        if let Err(error) = state.entries_of(kind).restock(stock, &self.memory.leaves) {
            drop(state);
            state = self.fetch_entries(class, kind).ok_or(error)?;
        }
        let entry = state.take_entry(kind, self);
        Ok((state, entry))
    }

    /// Brings free entries of the given kind to a class that has none, which is locked then;
    /// nothing where no class has any. Waits for each class that is in use, one at a time, with no
    /// lock held.
    fn fetch_entries<'p>(
        &'p self,
        class: &'p Class,
        kind: LeafUse,
    ) -> Option<LockGuard<'p, ClassState>> {
        let take = |mut state: LockGuard<'_, ClassState>| {
            let chain = state.entries_of(kind).take_chain();
            if chain.is_some() {
                // Before the lock is given up: the entries are now in no chain.
                state.departs();
                state.operated(1);
            }
            chain
        };
        let mut busy = Vec::new();
        let idle = self.classes().iter().find_map(|other| match self.try_lock(other) {
            Some(state) => take(state),
            None => {
                busy.push(other);
                None
            }
        });
        let found = idle.or_else(|| busy.into_iter().find_map(|other| take(self.lock(other))));
        let chain = found?;
        let mut state = self.lock(class);
        state.adopt_entries(chain, kind, self);
        // Not here, where they did not depart: a recount could see this class before that one.
        self.arrived(1);
        Some(state)
    }
}

/// The free entries of one use that no class has: a part for each shard, so that two CPUs do not
/// hand its lock to each other for every block.
pub(crate) struct Stock {
    purpose: LeafUse,
    pool: u32,
    parts: Box<[Part]>,
}

/// On cache lines of its own.
#[repr(align(128))]
struct Part(Lock<State>);

#[derive(Default)]
struct State {
    /// First entries of whole blocks.
    blocks: Vec<u32>,
    leaves: Vec<LeafId>,
}

impl Stock {
    pub(crate) fn new(purpose: LeafUse, pool: u32, parts: usize) -> Stock {
        let part = |_| Part(Lock::new(Rank::Stock, State::default()));
        Stock { purpose, pool, parts: (0..parts).map(part).collect() }
    }

    /// A block of this CPU's part, or of another one; cut from a new leaf where none is left.
    fn take(&self, leaves: &Leaves) -> Result<u32, AllocError> {
        let here = self.here();
        let (before, after) = self.parts.split_at(here);
        let pop = |part: &Part| {
            let blocks = &mut part.0.lock().blocks;
            let block = blocks.pop()?;
            // The next one's first cell is in no cache, most likely, and will be read at once.
            if let Some(next) = blocks.last().and_then(|&next| leaves.cell(next)) {
                host::prefetch(next);
            }
            Some(block)
        };
        let found = after.iter().chain(before).find_map(pop);
        if let Some(block) = found {
            return Ok(block);
        }
        let leaf = leaves.alloc(self.pool, self.purpose)?;
        let mut state = self.parts[here].0.lock();
        state.leaves.push(leaf);
        if self.purpose == LeafUse::Raw {
            leaves.seed_generations(leaf);
        }
        self.cut(&mut state, leaves, leaf);
        Ok(state.blocks.pop().expect("a leaf is at least one block"))
    }

    #[inline(never)]
    fn give(&self, block: u32) {
        self.parts[self.here()].0.lock().blocks.push(block);
    }

    /// The part of the CPU this thread is on.
    fn here(&self) -> usize {
        host::cpu::current_hint() % self.parts.len()
    }

    /// Each part, locked, one after the other.
    fn states(&self) -> impl Iterator<Item = LockGuard<'_, State>> {
        self.parts.iter().map(|part| part.0.lock())
    }

    /// Leaves there are.
    pub(crate) fn leaves(&self) -> u64 {
        self.states().map(|state| state.leaves.len() as u64).sum()
    }

    /// Walks every block: adds their entries to `found`; gives how many entries there are in all,
    /// behind objects and in classes too.
    pub(crate) fn check(&self, leaves: &Leaves, found: &mut Vec<u32>) -> Result<u64, PoolDefect> {
        let mut all = 0;
        for state in self.states() {
            state.blocks.iter().try_for_each(|&block| leaves.walk(block, BLOCK, found))?;
            all += state.leaves.len() * LEAF_CELLS / self.purpose.stride() as usize;
        }
        Ok(all as u64)
    }

    /// Bytes of the stock's own lists.
    pub(crate) fn heap_bytes(&self) -> usize {
        let lists = |state: LockGuard<'_, State>| {
            state.blocks.capacity() * size_of::<u32>()
                + state.leaves.capacity() * size_of::<LeafId>()
        };
        self.parts.len() * size_of::<Part>() + self.states().map(lists).sum::<usize>()
    }

    /// Gives the leaves back of a pool that is being dropped; its objects are gone.
    pub(crate) fn drain(&self, leaves: &Leaves) {
        for mut state in self.states() {
            for leaf in std::mem::take(&mut *state).leaves {
                if leaves.begin_drain(leaf, self.pool, self.purpose) {
                    leaves.clear(leaf);
                    leaves.end_drain(leaf, self.purpose);
                }
            }
        }
    }

    /// Chains the entries of a new leaf, block by block, lowest first.
    fn cut(&self, state: &mut State, leaves: &Leaves, leaf: LeafId) {
        let stride = self.purpose.stride();
        let first = leaf.entry(0).expect("a leaf that was handed out has its entries");
        let entries = LEAF_CELLS as u32 / stride;
        for block in (0..entries / BLOCK).rev() {
            let mut next = 0;
            for index in (block * BLOCK..(block + 1) * BLOCK).rev() {
                let entry = first + index * stride;
                leaves.chain(entry, next);
                next = entry;
            }
            state.blocks.push(next);
        }
    }
}

impl Leaves {
    /// Adds the entries of a chain to `found`, which is to have `len` of them, and no more.
    fn walk(&self, first: u32, len: u32, found: &mut Vec<u32>) -> Result<(), PoolDefect> {
        let mut entry = first;
        for at in 0..len {
            // relaxed: the chain's lock orders chained words.
            let word = self.cell(entry).map_or(0, |cell| cell.load(Ordering::Relaxed));
            let (tag, next) = Word(word).value();
            if entry == 0 || tag != CHAINED {
                let what =
                    format!("a chain of {len} entries: {entry}, number {at}, is not chained");
                return Err(PoolDefect(what));
            }
            found.push(entry);
            entry = next as u32;
        }
        let longer = || PoolDefect(format!("a chain of {len} entries goes on with {entry}"));
        if entry == 0 { Ok(()) } else { Err(longer()) }
    }

    /// The entry that follows a chained one; the chain's lock is held.
    #[inline]
    fn chained(&self, entry: u32) -> u32 {
        // relaxed: the chain's lock orders chained words.
        let word = self.cell(entry).map_or(0, |cell| cell.load(Ordering::Relaxed));
        let (tag, next) = Word(word).value();
        debug_assert_eq!(tag, CHAINED, "the chain leads through chained cells");
        next as u32
    }

    fn chain(&self, entry: u32, next: u32) {
        if let Some(cell) = self.cell(entry) {
            chain(cell, next);
        }
    }
}

/// Chains the cell of a free entry.
#[inline]
fn chain(cell: &AtomicU64, next: u32) {
    let word = Word::default().with_value(CHAINED, u64::from(next));
    // relaxed: the chain's lock orders chained words, and nobody has a handle to the cell.
    cell.store(word.0, Ordering::Relaxed);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Memory, MemoryConfig, PoolConfig};
    use std::sync::Arc;

    /// A pool with a chain of 3 free entries in each of two classes.
    fn pool() -> Arc<Pool> {
        let config = MemoryConfig {
            arena_frames: 1 << 12,
            entries_max: 4096,
            expected_bytes: 0,
            worker: false,
        };
        let config = (Memory::new(config).expect("address space"), PoolConfig::default());
        let pool = Pool::new(config.0, PoolConfig { shards: Some(1), ..config.1 }).expect("a pool");
        for len in [100, 200] {
            let handles: Vec<_> = (0..BLOCK).map(|_| pool.alloc(&[1; 200][..len])).collect();
            let freed = handles.into_iter().take(3).map(|handle| handle.expect("room"));
            pool.free_batch(freed).expect("ours");
        }
        assert!(pool.check().is_ok());
        pool
    }

    fn state(pool: &Pool, len: usize) -> LockGuard<'_, ClassState> {
        pool.class(pool.geometry().class_of(len).expect("a class")).lock()
    }

    /// Expects that a recount finds what `break_it` did to the first class's chain.
    #[track_caller]
    fn expect(finding: &str, break_it: impl FnOnce(&mut Entries, &Leaves, (&Stock, u32))) {
        let pool = pool();
        let other = state(&pool, 200).entries.first;
        break_it(&mut state(&pool, 100).entries, &pool.memory.leaves, (&pool.handles, other));
        let defect = pool.check().expect_err("a broken chain").0;
        assert!(defect.contains(finding), "{defect:?} is not about {finding:?}");
    }

    #[test]
    fn a_recount_finds_broken_chains() {
        expect("goes on with", |entries, leaves, _| leaves.chain(entries.first, entries.first));
        expect(": 0, number 1,", |entries, leaves, _| leaves.chain(entries.first, 0));
        expect("goes on with", |entries, _, _| entries.count -= 1);
        expect(": 0, number 3,", |entries, _, _| entries.count += 1);
        expect("is not chained", |entries, leaves, _| {
            let cell = leaves.cell(entries.first).expect("there");
            cell.store(0, Ordering::Relaxed); // relaxed: one thread
        });
        expect("of 16 entries: 0, number 3,", |entries, _, _| {
            (entries.spare, entries.first, entries.count) = (entries.first, 0, 0);
        });
        expect("twice", |entries, _, (_, other)| entries.first = other);
        expect("entries of handles", |entries, _, _| *entries = Entries::default());
        expect("is not chained", |entries, leaves, (stock, _)| {
            stock.parts[0].0.lock().blocks.push(leaves.chained(entries.first));
        });
    }
}
