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
//! Lock: a class's chains are under the class lock.

use host::sync::atomic::AtomicU64;

use super::stock::{BLOCK, Stock};
use crate::leaves::{Leaves, chain};
use crate::numbers::{AllocError, CellNumber, PoolDefect};

/// The free entries of one class and one use.
#[derive(Debug)]
pub(crate) struct Entries {
    first: CellNumber,
    count: u32,
    spare: CellNumber,
}

impl Default for Entries {
    fn default() -> Entries {
        Entries { first: CellNumber::NONE, count: 0, spare: CellNumber::NONE }
    }
}

impl Entries {
    /// Walks both chains: adds their entries to `found`.
    pub(crate) fn check(
        &self,
        leaves: &Leaves,
        found: &mut Vec<CellNumber>,
    ) -> Result<(), PoolDefect> {
        leaves.walk(self.first, self.count, found)?;
        leaves.walk(self.spare, if self.spare == CellNumber::NONE { 0 } else { BLOCK }, found)
    }

    /// Takes an entry; `NONE` if the class has none.
    #[inline]
    pub(super) fn take(&mut self, leaves: &Leaves) -> CellNumber {
        if self.first == CellNumber::NONE {
            if self.spare == CellNumber::NONE {
                return CellNumber::NONE;
            }
            (self.first, self.count) = (self.spare.take(), BLOCK);
        }
        let entry = self.first;
        self.first = leaves.chained(entry);
        self.count -= 1;
        if let Some(next) = leaves.cell(self.first) {
            host::prefetch(next);
        }
        entry
    }

    /// Gets a block from the stock, because there is none here.
    pub(super) fn restock(&mut self, stock: &Stock, leaves: &Leaves) -> Result<(), AllocError> {
        self.spare = stock.take(leaves)?;
        Ok(())
    }

    /// Takes a chain as a whole. Nothing, if there is none.
    pub(super) fn take_chain(&mut self) -> Option<Chain> {
        if self.first == CellNumber::NONE {
            (self.first, self.count) = (self.spare.take(), BLOCK);
        }
        let chain = Chain { first: self.first.take(), len: self.count };
        self.count = 0;
        chain.first.some().map(|_| chain)
    }

    /// Enters the entries of another class.
    pub(super) fn adopt(&mut self, chain: Chain, leaves: &Leaves, stock: &Stock) {
        let mut next = chain.first;
        for _ in 0..chain.len {
            // Read before the entry gets a new neighbour.
            let after = leaves.chained(next);
            let entry = std::mem::replace(&mut next, after);
            self.give(entry, leaves.handle_cell(entry), stock);
        }
    }

    /// Gives an entry and its cell back. What the class need not keep goes to the stock, a block at
    /// a time.
    #[inline(always)]
    pub(crate) fn give(&mut self, entry: CellNumber, cell: &AtomicU64, stock: &Stock) {
        chain(cell, self.first);
        self.first = entry;
        self.count += 1;
        if self.count == BLOCK {
            self.count = 0;
            let full = self.first.take();
            if let Some(surplus) = std::mem::replace(&mut self.spare, full).some() {
                stock.give(surplus);
            }
        }
    }
}

/// Entries on their way from one class to another.
#[must_use = "these entries belong in a class"]
pub(crate) struct Chain {
    first: CellNumber,
    len: u32,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::class::State;
    use crate::{Memory, MemoryConfig, Pool, PoolConfig};
    use host::LockGuard;
    use host::sync::atomic::Ordering;
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

    fn state(pool: &Pool, len: usize) -> LockGuard<'_, State> {
        pool.class(pool.geometry().class_of(len).expect("a class")).lock()
    }

    /// Expects that a recount finds what `break_it` did to the first class's chain.
    #[track_caller]
    fn expect(finding: &str, break_it: impl FnOnce(&mut Entries, &Leaves, (&Stock, CellNumber))) {
        let pool = pool();
        let other = state(&pool, 200).entries.first;
        break_it(
            &mut state(&pool, 100).entries,
            &pool.memory.leaves,
            (&pool.stocks.handles, other),
        );
        let defect = pool.check().expect_err("a broken chain").0;
        assert!(defect.contains(finding), "{defect:?} is not about {finding:?}");
    }

    #[test]
    fn a_recount_finds_broken_chains() {
        expect("goes on with", |entries, leaves, _| leaves.chain(entries.first, entries.first));
        expect(": 0, number 1,", |entries, leaves, _| {
            leaves.chain(entries.first, CellNumber::NONE)
        });
        expect("goes on with", |entries, _, _| entries.count -= 1);
        expect(": 0, number 3,", |entries, _, _| entries.count += 1);
        expect("is not chained", |entries, leaves, _| {
            let cell = leaves.cell(entries.first).expect("there");
            cell.store(0, Ordering::Relaxed); // relaxed: one thread
        });
        expect("of 16 entries: 0, number 3,", |entries, _, _| {
            (entries.spare, entries.first, entries.count) = (entries.first, CellNumber::NONE, 0);
        });
        expect("twice", |entries, _, (_, other)| entries.first = other);
        expect("entries of handles", |entries, _, _| *entries = Entries::default());
        expect("is not chained", |entries, leaves, (stock, _)| {
            stock.give(leaves.chained(entries.first));
        });
    }
}
