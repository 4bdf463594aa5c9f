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
//! - I2 who holds the lock of a cell and finds its leaf in the root (again) has the slot of its
//!   page; anything else is a leaf that was taken out meanwhile: look again.
//! - I3 a table that shares its pool is empty when it is dropped.
//!
//! Pages and root entries are the table's: those past its end panic. Its leaves are freed by
//! the thread that took them out of the root. If a leaf were freed and still named, a thread that
//! wants a slot of it would wait.
//!
//! Lock: a cell's.

use host::Table;
use host::sync::atomic::{AtomicU32, Ordering};
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

/// Who else stores in the pool of a table.
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
        let (index, cell) = split(page);
        loop {
            let leaf = self.leaf(index)?;
            if let Some(guard) = self.lock_in(index, leaf, cell) {
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
            if let Some(guard) = self.lock_in(index, leaf, cell) {
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
        // AcqRel pairs with the exchange in `add_leaf` and the loads in `leaf`: who reads the
        // root after locking a cell that was drained finds another number.
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
        // Acquire pairs with the exchanges in `add_leaf` and `detach`.
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

    fn lock_in(&self, index: usize, leaf: LeafId, cell: usize) -> Option<CellGuard<'_>> {
        let guard = self.pool.cell(leaf, cell).ok()?;
        // I2: without this look, a write that read the root before a discard would go into a leaf
        // that is being emptied, or is somebody else's by now.
        (self.leaf(index) == Some(leaf)).then_some(guard)
    }

    fn add_leaf(&self, index: usize) -> Result<LeafId, AllocError> {
        let leaf = self.pool.alloc_leaf()?;
        self.root.touch(index..index + 1);
        // Release pairs with the Acquire in `leaf`: the leaf's cells are empty to who finds it.
        // Acquire: to find the other thread's leaf as it left it.
        let entry = &self.root[index];
        match entry.compare_exchange(0, leaf.get(), Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(leaf),
            Err(other) => {
                let freed = self.pool.free_leaf(leaf, |_| {});
                debug_assert!(freed.is_ok(), "nobody else knew the leaf");
                // Non-zero, as the exchange failed; a stale number only makes the caller retry.
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
