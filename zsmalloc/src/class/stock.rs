//! The stock of free entries: those that no class has.
//!
//! ```text
//!   part of a CPU    | blocks | leaves |      a block: 16 entries in a chain
//!   a new leaf       cut into blocks, lowest entry first
//! ```
//!
//! Invariant: a block in the stock is a whole chain of `BLOCK` entries.
//!
//! Locks: each part has its own, rank Stock. It is taken under a class lock, once for a block, and
//! one part at a time.

use host::{Lock, LockGuard, Rank};

use crate::leaves::{LeafUse, Leaves};
use crate::numbers::{AllocError, CellNumber, LEAF_CELLS, LeafId, PoolDefect};

/// Entries in a block: few, because each class in use has one and a half blocks to spare.
pub(super) const BLOCK: u32 = if cfg!(loom) { 1 } else { 16 };
const _: () = assert!(LEAF_CELLS.is_multiple_of(BLOCK as usize * 2), "a leaf is whole blocks");

/// A pool's stocks: of entries for handles, and for raw ones.
pub(crate) struct Stocks {
    pub(crate) handles: Stock,
    pub(crate) raw: Stock,
}

impl Stocks {
    pub(crate) fn new(pool: u32, parts: usize) -> Stocks {
        let stock = |purpose| Stock::new(purpose, pool, parts);
        Stocks { handles: stock(LeafUse::Handles), raw: stock(LeafUse::Raw) }
    }

    /// The stock of the given use.
    pub(crate) fn of(&self, kind: LeafUse) -> &Stock {
        if kind == LeafUse::Raw { &self.raw } else { &self.handles }
    }

    /// Leaves of both.
    pub(crate) fn leaves(&self) -> u64 {
        self.handles.leaves() + self.raw.leaves()
    }

    /// Bytes of both stocks' own lists.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.handles.heap_bytes() + self.raw.heap_bytes()
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
struct Part(Lock<Blocks>);

#[derive(Default)]
struct Blocks {
    /// First entries of whole blocks.
    blocks: Vec<CellNumber>,
    leaves: Vec<LeafId>,
}

impl Stock {
    pub(crate) fn new(purpose: LeafUse, pool: u32, parts: usize) -> Stock {
        let part = |_| Part(Lock::new(Rank::Stock, Blocks::default()));
        Stock { purpose, pool, parts: (0..parts).map(part).collect() }
    }

    /// A block of this CPU's part, or of another one. If none is left, it is cut from a new leaf.
    pub(super) fn take(&self, leaves: &Leaves) -> Result<CellNumber, AllocError> {
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
    pub(super) fn give(&self, block: CellNumber) {
        self.parts[self.here()].0.lock().blocks.push(block);
    }

    /// The part of the CPU this thread is on.
    fn here(&self) -> usize {
        host::cpu::current_hint() % self.parts.len()
    }

    /// Each part, locked, one after the other.
    fn states(&self) -> impl Iterator<Item = LockGuard<'_, Blocks>> {
        self.parts.iter().map(|part| part.0.lock())
    }

    /// Leaves there are.
    pub(crate) fn leaves(&self) -> u64 {
        self.states().map(|state| state.leaves.len() as u64).sum()
    }

    /// Walks every block, and adds their entries to `found`. Returns how many entries there are in
    /// all, behind objects and in classes too.
    pub(crate) fn check(
        &self,
        leaves: &Leaves,
        found: &mut Vec<CellNumber>,
    ) -> Result<u64, PoolDefect> {
        let mut all = 0;
        for state in self.states() {
            state.blocks.iter().try_for_each(|&block| leaves.walk(block, BLOCK, found))?;
            all += state.leaves.len() * LEAF_CELLS / self.purpose.stride() as usize;
        }
        Ok(all as u64)
    }

    /// Bytes of the stock's own lists.
    pub(crate) fn heap_bytes(&self) -> usize {
        let lists = |state: LockGuard<'_, Blocks>| {
            state.blocks.capacity() * size_of::<CellNumber>()
                + state.leaves.capacity() * size_of::<LeafId>()
        };
        self.parts.len() * size_of::<Part>() + self.states().map(lists).sum::<usize>()
    }

    /// Gives back the leaves of a pool that is being dropped, whose objects are gone.
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
    fn cut(&self, state: &mut Blocks, leaves: &Leaves, leaf: LeafId) {
        let stride = self.purpose.stride();
        let first = leaf.cell(0).expect("a leaf that was handed out has its entries");
        let entries = LEAF_CELLS as u32 / stride;
        for block in (0..entries / BLOCK).rev() {
            let mut next = CellNumber::NONE;
            for index in (block * BLOCK..(block + 1) * BLOCK).rev() {
                let entry = first.plus(index * stride);
                leaves.chain(entry, next);
                next = entry;
            }
            state.blocks.push(next);
        }
    }
}
