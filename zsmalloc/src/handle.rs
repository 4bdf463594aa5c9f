//! Single handles: for programs that keep objects in structures of their own.
//!
//! A [`Handle`] owns one object. Behind it is a cell like any other, taken from leaves that the
//! pool keeps for this purpose; free cells are chained through their words.
//!
//! ```text
//!   first free --> | value: next | --> | value: next | --> 0
//! ```
//!
//! Invariant: a cell of a handle leaf is in the chain, or one `Handle` names it.
//!
//! Lock: the chain's, rank HandleShard; it is held to take or give one cell.

use std::sync::Arc;

use host::sync::atomic::Ordering;
use host::{Lock, Rank};

use crate::cell::{CellGuard, Content};
use crate::error::{AllocError, ForeignHandle};
use crate::leaf::{LEAF_CELLS, LeafId, LeafUse};
use crate::pool::Pool;
use crate::word::{LOCKED, Word};

/// Tag of a chained cell's value.
const CHAINED: u8 = 1;

/// An owned object of a pool. Not `Copy`, consumed by [`Pool::free_handle`]; a handle that is
/// dropped instead leaves its object in the pool until the pool is dropped.
#[derive(Debug)]
#[must_use = "dropping a handle leaves its object in the pool"]
pub struct Handle {
    entry: u32,
    pool: PoolName,
}

/// Which pool a handle is of: the address of a byte that the pool and its handles keep alive, so
/// that no other pool, of whatever memory, ever has the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct PoolName(Arc<u8>);

impl PartialEq for PoolName {
    fn eq(&self, other: &PoolName) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// The free cells of a pool's handle leaves.
pub(crate) struct HandleList {
    first: Lock<Chain>,
}

#[derive(Default)]
struct Chain {
    first: u32,
    leaves: Vec<LeafId>,
}

impl HandleList {
    pub(crate) fn new() -> HandleList {
        HandleList { first: Lock::new(Rank::HandleShard, Chain::default()) }
    }

    /// Gives the leaves of a pool back that is being dropped; its objects are gone.
    pub(crate) fn drain(&self, pool: &Pool) {
        for leaf in std::mem::take(&mut self.first.lock().leaves) {
            if pool.memory.leaves.begin_drain(leaf, pool.id, LeafUse::Handles) {
                for index in 0..LEAF_CELLS {
                    if let Some(cell) = pool.memory.leaves.cell(entry_of(leaf, index)) {
                        // relaxed: the pool is being dropped; only a lock bit may be somebody's.
                        cell.fetch_and(LOCKED, Ordering::Relaxed);
                    }
                }
                pool.memory.leaves.end_drain(leaf);
            }
        }
    }
}

impl Pool {
    /// Stores `bytes` under a handle.
    ///
    /// # Errors
    ///
    /// [`AllocError`]; nothing is stored then.
    pub fn alloc(&self, bytes: &[u8]) -> Result<Handle, AllocError> {
        let object = self.store(bytes)?;
        let entry = self.take_entry()?;
        let mut cell = self.handle_cell(entry);
        cell.put(object);
        drop(cell);
        Ok(Handle { entry, pool: self.name.clone() })
    }

    /// The object of a handle, in place. Others that want the same object wait meanwhile; its
    /// neighbours do not, and the object cannot move.
    ///
    /// A thread may hold one [`ReadGuard`] at a time, and must drop it before it allocates or frees
    /// handles: it would wait for itself, or for a thread that waits for it. Debug builds panic.
    ///
    /// # Errors
    ///
    /// [`ForeignHandle`] when it is another pool's.
    pub fn read<'p>(&'p self, handle: &'p Handle) -> Result<ReadGuard<'p>, ForeignHandle<()>> {
        if handle.pool != self.name {
            return Err(ForeignHandle(()));
        }
        Ok(ReadGuard { cell: self.handle_cell(handle.entry) })
    }

    /// Frees the object of a handle.
    ///
    /// # Errors
    ///
    /// [`ForeignHandle`] with the handle when it is another pool's.
    pub fn free_handle(&self, handle: Handle) -> Result<(), ForeignHandle<Handle>> {
        if handle.pool != self.name {
            return Err(ForeignHandle(handle));
        }
        let mut cell = self.handle_cell(handle.entry);
        cell.clear();
        drop(cell);
        self.give_entry(handle.entry);
        Ok(())
    }

    fn handle_cell(&self, entry: u32) -> CellGuard<'_> {
        let leaf = LeafId::new(entry / LEAF_CELLS as u32).expect("a handle's entry is in a leaf");
        self.owned_cell(leaf, entry as usize % LEAF_CELLS, LeafUse::Handles)
            .expect("a handle leaf stays its pool's for the pool's life")
    }

    fn take_entry(&self) -> Result<u32, AllocError> {
        let mut chain = self.handles.first.lock();
        if chain.first == 0 {
            self.extend_chain(&mut chain)?;
        }
        let entry = chain.first;
        chain.first = self.memory.leaves.chained(entry);
        Ok(entry)
    }

    fn give_entry(&self, entry: u32) {
        let mut chain = self.handles.first.lock();
        self.memory.leaves.chain(entry, chain.first);
        chain.first = entry;
    }

    fn extend_chain(&self, chain: &mut Chain) -> Result<(), AllocError> {
        let leaf = self.memory.leaves.alloc(self.id, LeafUse::Handles)?;
        // relaxed: a total.
        self.counters.handle_leaves.fetch_add(1, Ordering::Relaxed);
        chain.leaves.push(leaf);
        for index in (0..LEAF_CELLS).rev() {
            let entry = entry_of(leaf, index);
            self.memory.leaves.chain(entry, chain.first);
            chain.first = entry;
        }
        Ok(())
    }
}

impl crate::leaf::Leaves {
    /// The entry that follows a chained one; the chain's lock is held.
    fn chained(&self, entry: u32) -> u32 {
        // relaxed: the chain's lock orders chained words.
        let word = self.cell(entry).map_or(0, |cell| cell.load(Ordering::Relaxed));
        let (tag, next) = Word(word).value();
        debug_assert_eq!(tag, CHAINED, "the chain leads through chained cells");
        next as u32
    }

    fn chain(&self, entry: u32, next: u32) {
        let word = Word::default().with_value(CHAINED, u64::from(next));
        if let Some(cell) = self.cell(entry) {
            // The lock bit stays as it is: somebody with a made-up number may be holding it.
            // relaxed: the chain's lock orders chained words.
            let _ = cell.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |old| {
                Some(word.0 | old & LOCKED)
            });
        }
    }
}

fn entry_of(leaf: LeafId, index: usize) -> u32 {
    leaf.entry(index).expect("a leaf that was handed out has its entries")
}

/// An object, readable in place until dropped.
#[derive(Debug)]
pub struct ReadGuard<'p> {
    cell: CellGuard<'p>,
}

impl std::ops::Deref for ReadGuard<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        debug_assert!(matches!(self.cell.content(), Content::Object { .. }));
        self.cell.bytes().unwrap_or(&[])
    }
}
