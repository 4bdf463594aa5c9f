//! A slot table: two levels, a root of leaf numbers and leaves of 512 cells. The stores keep
//! theirs in it.
//!
//! ```text
//!   page number   | root index            | cell 9 bits |
//!   root          | 0 | 17 | 0 | 3 | ...                      0: nothing stored in these 2 MiB
//!                        `--> leaf 17: 512 cells
//! ```
//!
//! A write into an empty part of the disk takes a leaf. A discard of 2 MiB that are aligned takes
//! the leaf out of the root in one exchange, and a later write takes a fresh one.
//!
//! Invariants
//! - I1 a leaf is named by at most one root entry.
//! - I2 a thread that holds the lock of a cell, and then finds the cell's leaf in the root, has the
//!   slot of its page. If the root names another leaf, this one was taken out meanwhile, and the
//!   thread begins again.
//! - I3 a table that shares its pool is empty when it is dropped.
//!
//! Pages and root entries are the table's: those past its end panic. Its leaves are freed by
//! the thread that took them out of the root. If a leaf were freed and still named, a thread that
//! wants a slot of it would wait.
//!
//! Lock: a cell's.

use host::sync::atomic::{AtomicU32, Ordering};
use host::{Rank, Table};
use std::ops::Range;
use std::sync::Arc;

use crate::names::{CellGuard, Content};
use crate::numbers::{AllocError, LEAF_CELLS, LeafId, MemoryError};
use crate::pool::Pool;

/// Root and pool of a store: a sparse table of cells.
#[derive(Debug)]
pub struct Slots {
    root: Table<AtomicU32>,
    /// Whose leaves they are.
    pub pool: Arc<Pool>,
    sharing: Sharing,
}

/// Whether other tables store in the pool of a table too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    /// Nobody: the pool ends with the table.
    Alone,
    /// Other tables.
    Shared,
}

/// Pages of a range that are of one leaf.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafPart {
    /// The leaf's root index.
    pub index: usize,
    /// The pages.
    pub pages: Range<u64>,
    /// True when they are all that the leaf has, in a table as long as was said.
    pub whole: bool,
}

/// Cuts a range of pages of a table with `len` pages into its leaves' parts.
pub fn leaf_parts(pages: Range<u64>, len: u64) -> impl Iterator<Item = LeafPart> {
    let mut page = pages.start;
    std::iter::from_fn(move || {
        if page >= pages.end {
            return None;
        }
        let (index, cell) = split(page);
        let last = page.saturating_add((LEAF_CELLS - cell) as u64).min(pages.end);
        let whole = cell == 0 && (last - page == LEAF_CELLS as u64 || last == len);
        let part = LeafPart { index, pages: page..last, whole };
        page = last;
        Some(part)
    })
}

impl Slots {
    /// An empty table of `pages` slots, which is the pool's only user: the pool's objects end with
    /// the table.
    pub fn new(pool: Arc<Pool>, pages: u64) -> Result<Slots, MemoryError> {
        Slots::with(pool, pages, Sharing::Alone)
    }

    /// An empty table of `pages` slots in a pool that other tables use too. Its leaves are to be
    /// taken out before it is dropped, see [`Slots::detach_all`].
    pub fn shared(pool: Arc<Pool>, pages: u64) -> Result<Slots, MemoryError> {
        Slots::with(pool, pages, Sharing::Shared)
    }

    fn with(pool: Arc<Pool>, pages: u64, sharing: Sharing) -> Result<Slots, MemoryError> {
        let root = pool.table(pages.div_ceil(LEAF_CELLS as u64) as usize)?;
        Ok(Slots { root, pool, sharing })
    }

    /// Locks the slot of `page`; `None` when nothing is stored in its part of the disk.
    pub fn lock(&self, page: u64) -> Option<CellGuard<'_>> {
        self.lock_of_rank(page, Rank::Cell)
    }

    /// As [`Slots::lock`], in a table whose objects are named by the cells of another one. The
    /// caller may have such a cell locked.
    pub fn lock_shared(&self, page: u64) -> Option<CellGuard<'_>> {
        self.lock_of_rank(page, Rank::SharedCell)
    }

    fn lock_of_rank(&self, page: u64, rank: Rank) -> Option<CellGuard<'_>> {
        let (index, cell) = split(page);
        loop {
            let leaf = self.leaf(index)?;
            if let Some(guard) = self.lock_in(index, leaf, cell, rank) {
                return Some(guard);
            }
        }
    }

    /// Locks the slot of `page`, taking a leaf for it if there is none.
    pub fn lock_or_add(&self, page: u64) -> Result<CellGuard<'_>, AllocError> {
        let (index, cell) = split(page);
        loop {
            let leaf = match self.leaf(index) {
                Some(leaf) => leaf,
                None => self.add_leaf(index)?,
            };
            if let Some(guard) = self.lock_in(index, leaf, cell, Rank::Cell) {
                return Ok(guard);
            }
        }
    }

    /// What the slot of `page` held a moment ago.
    pub fn peek(&self, page: u64) -> Content {
        let (index, cell) = split(page);
        let content = self.leaf(index).and_then(|leaf| self.pool.peek(leaf, cell));
        content.unwrap_or(Content::Empty)
    }

    /// Starts loading the object in the slot of `page`, if there is one: before what is to be done
    /// first, and then takes none of the time.
    pub fn prefetch(&self, page: u64) {
        let (index, cell) = split(page);
        if let Some(leaf) = self.leaf(index) {
            self.pool.prefetch(leaf, cell);
        }
    }

    /// Pages from `page` on that certainly have no leaf, up to the end of their 2 MiB.
    pub fn absent(&self, page: u64) -> u64 {
        let (index, cell) = split(page);
        if self.leaf(index).is_some() { 0 } else { (LEAF_CELLS - cell) as u64 }
    }

    /// Takes the leaf of root entry `index` out, if it has one: the caller frees it.
    pub fn detach(&self, index: usize) -> Option<LeafId> {
        self.leaf(index)?;
        // AcqRel pairs with the exchange in `add_leaf` and the loads in `leaf`, so that a thread
        // that reads the root after it locked a cell that was drained finds another number (I2).
        LeafId::new(self.root[index].swap(0, Ordering::AcqRel))
    }

    /// Takes every leaf out, and gives it to `taken`. Parts of the root that were never touched
    /// are not looked at.
    pub fn detach_all(&self, mut taken: impl FnMut(LeafId)) {
        for (index, _) in self.root.held() {
            self.detach(index).into_iter().for_each(&mut taken);
        }
    }

    /// Root entries.
    pub fn root_len(&self) -> usize {
        self.root.len()
    }

    /// The leaf of a root entry.
    pub fn leaf(&self, index: usize) -> Option<LeafId> {
        // Acquire pairs with the exchanges in `add_leaf` and `detach`, so that the leaf's cells are
        // seen as they were when it came into the root, or later.
        LeafId::new(self.root[index].load(Ordering::Acquire))
    }

    /// Bytes of the root: table pages held, and heap.
    pub fn root_bytes(&self) -> (u64, u64) {
        (self.root.held_bytes(), self.root.heap_bytes())
    }

    /// The root's addresses.
    pub fn root_range(&self) -> Range<usize> {
        self.root.range()
    }

    fn lock_in(
        &self,
        index: usize,
        leaf: LeafId,
        cell: usize,
        rank: Rank,
    ) -> Option<CellGuard<'_>> {
        let guard = self.pool.cell_of_rank(leaf, cell, rank).ok()?;
        // I2: without this look, a write that read the root before a discard would go into a leaf
        // that is being emptied, or has another owner by now.
        (self.leaf(index) == Some(leaf)).then_some(guard)
    }

    fn add_leaf(&self, index: usize) -> Result<LeafId, AllocError> {
        let leaf = self.pool.alloc_leaf()?;
        self.root.touch(index..index + 1);
        // Release pairs with the Acquire in `leaf`, so that a thread that finds the leaf finds its
        // cells empty. Acquire pairs with the same of another thread, so that its leaf is found so
        // too.
        let entry = &self.root[index];
        match entry.compare_exchange(0, leaf.get(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(leaf),
            Err(other) => {
                let freed = self.pool.free_leaf(leaf, |_| {});
                debug_assert!(freed.is_ok(), "nobody else knew the leaf");
                // It is not zero, because the exchange failed. A stale number only makes the caller
                // look again.
                Ok(LeafId::new(other).unwrap_or(leaf))
            }
        }
    }
}

impl Drop for Slots {
    /// A pool without other users ends with its leaves.
    fn drop(&mut self) {
        if self.sharing == Sharing::Shared {
            debug_assert!(self.root.held().all(|(index, _)| self.leaf(index).is_none()), "I3");
            return;
        }
        // Parts of the root that were never touched have none.
        let leaves = self.root.held().filter_map(|(index, _)| self.leaf(index));
        self.pool.retire(leaves);
    }
}

/// Root index and cell of a page.
pub fn split(page: u64) -> (usize, usize) {
    ((page / LEAF_CELLS as u64) as usize, (page % LEAF_CELLS as u64) as usize)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::{Memory, MemoryConfig, PoolConfig};

    const LEAF_PAGES: u64 = LEAF_CELLS as u64;

    fn slots(pages: u64) -> Slots {
        let config = MemoryConfig { worker: false, ..MemoryConfig::for_disk(16 << 20) };
        let memory = Memory::new(config).expect("address space");
        let pool = Pool::new(memory, PoolConfig::default()).expect("a pool");
        Slots::new(pool, pages).expect("a small root")
    }

    /// The leaf that a thread reads in the root for `page`, just before it locks the page's cell.
    fn read_root(slots: &Slots, page: u64) -> LeafId {
        drop(slots.lock_or_add(page).expect("room"));
        slots.leaf(split(page).0).expect("it was added")
    }

    /// A discard comes between the two looks. A write would go into a leaf that is being emptied,
    /// and would be lost.
    #[test]
    fn a_leaf_that_left_the_root_has_no_slot_of_the_page() {
        let slots = slots(LEAF_PAGES);
        let leaf = read_root(&slots, 7);
        assert_eq!(slots.detach(0), Some(leaf));
        assert!(slots.pool.cell(leaf, 7).is_ok(), "its cells are there until it is drained");
        assert!(slots.lock_in(0, leaf, 7, Rank::Cell).is_none(), "I2: it left the root");
        slots.pool.free_leaf(leaf, |_| {}).expect("the pool's, and in no root");
    }

    /// The discard has ended, and another part of the disk has the leaf. A write would go there.
    #[test]
    fn a_leaf_that_another_root_entry_has_has_no_slot_of_the_page() {
        let slots = slots(2 * LEAF_PAGES);
        let leaf = read_root(&slots, 7);
        assert_eq!(slots.detach(0), Some(leaf));
        slots.pool.free_leaf(leaf, |_| {}).expect("the pool's, and in no root");
        assert_eq!(read_root(&slots, LEAF_PAGES), leaf, "a free leaf is used again");
        assert!(slots.lock_in(0, leaf, 7, Rank::Cell).is_none(), "I2: it is another entry's");
        assert!(slots.lock_in(1, leaf, 7, Rank::Cell).is_some(), "the other entry has it");
    }

    #[test]
    fn a_range_is_cut_at_leaves_and_the_end_of_a_table_makes_a_part_whole() {
        let parts = |pages, len| {
            let parts = leaf_parts(pages, len).map(|part| (part.index, part.pages, part.whole));
            parts.collect::<Vec<_>>()
        };
        assert_eq!(parts(0..512, 1000), [(0, 0..512, true)]);
        assert_eq!(parts(1..512, 1000), [(0, 1..512, false)], "its first page is left out");
        assert_eq!(parts(0..511, 1000), [(0, 0..511, false)], "its last page is left out");
        assert_eq!(parts(510..1000, 1000), [(0, 510..512, false), (1, 512..1000, true)]);
        assert_eq!(parts(512..999, 1000), [(1, 512..999, false)], "the table is longer");
        assert_eq!(parts(7..7, 1000), [], "nothing");
    }

    #[test]
    fn pages_without_a_leaf_are_known_up_to_the_leafs_end() {
        let slots = slots(2 * LEAF_PAGES);
        assert_eq!((slots.absent(0), slots.absent(7)), (LEAF_PAGES, LEAF_PAGES - 7));
        read_root(&slots, 7);
        assert_eq!((slots.absent(7), slots.absent(LEAF_PAGES + 7)), (0, LEAF_PAGES - 7));
    }
}
