//! The end of a pool: what it stored goes back in bulk, not object by object.
//!
//! ```text
//!   zspages of all classes   sorted by frame -> neighbours go back to the zone as one run
//!   leaves of the client     nobody's again, unlooked at; wiped before their next use
//! ```
//!
//! Nobody else knows the pool any more, so no class lock is waited for, no cell is locked, and no
//! object is looked for: they end with their zspages.
//!
//! Invariant: a leaf is retired once, by the store whose leaf it is, after its last access to it.
//!
//! Locks: the list of retired leaves is a leaf lock; a zone's and the descriptor heap's as when
//! zspages are released.

use std::sync::Arc;

use host::sync::atomic::{AtomicBool, Ordering};
use host::{Lock, Rank};

use crate::descriptor::DescriptorId;
use crate::leaf::LeafId;
use crate::memory::Memory;
use crate::pool::Pool;
use crate::release::{AT_ONCE, Leaving};

/// Leaves that end with their pool.
pub(crate) struct Retired {
    /// There are some: the pool is about to be dropped.
    begun: AtomicBool,
    leaves: Lock<Vec<LeafId>>,
}

impl Default for Retired {
    fn default() -> Retired {
        Retired { begun: AtomicBool::new(false), leaves: Lock::new(Rank::Leaf, Vec::new()) }
    }
}

impl Pool {
    /// Gives leaves up with everything in them: for a store that is done with all it has. They go
    /// back when the pool is dropped, which is at once unless the memory's worker is at it, or a
    /// deferred job; and those hurry from now on. The caller does not use the leaves again.
    ///
    /// A leaf that is not this pool's, or named twice, is left alone.
    pub fn retire(&self, leaves: impl Iterator<Item = LeafId>) {
        // relaxed: a hint.
        self.retired.begun.store(true, Ordering::Relaxed);
        self.retired.leaves.lock().extend(leaves);
    }

    /// True when the pool is only waiting to be dropped, after [`Pool::retire`].
    pub fn is_retired(&self) -> bool {
        // relaxed: a hint.
        self.retired.begun.load(Ordering::Relaxed)
    }

    /// Gives every zspage back, with its objects.
    fn release_all(&self) {
        let len = self.classes().iter().map(|class| class.lock().fullness.zspages().len()).sum();
        let mut all = Vec::new();
        if all.try_reserve_exact(len).is_err() {
            return self.release_by_class();
        }
        for class in self.classes() {
            let with_pfn = |&id: &DescriptorId| (self.memory.descriptors.header(id).pfn(), id);
            all.extend(class.lock().fullness.zspages().iter().map(with_pfn));
        }
        all.sort_unstable_by_key(|&(pfn, _)| pfn);
        for batch in all.chunks(AT_ONCE) {
            let mut ids = [DescriptorId::NONE; AT_ONCE];
            ids.iter_mut().zip(batch).for_each(|(id, &(_, sorted))| *id = sorted);
            self.release_batch(&ids[..batch.len()]);
        }
    }

    /// The same without memory to sort them in.
    fn release_by_class(&self) {
        let mut leaving = Leaving::NONE;
        for class in self.classes() {
            let state = class.lock();
            state.fullness.zspages().iter().for_each(|&id| leaving.push(self, id));
        }
        self.release_zspages(leaving);
    }
}

impl Memory {
    /// Has the leaves returned to the system that nobody uses.
    fn return_leaves(self: &Arc<Memory>) {
        let memory = Arc::downgrade(self);
        self.defer(0, move || memory.upgrade().into_iter().for_each(|it| it.leaves.release()));
    }
}

impl Drop for Pool {
    /// Frees everything that is still stored. Leaves of clients' tables are given back by their
    /// holders, before or by [`Pool::retire`], or else lost to this memory until it is dropped
    /// itself.
    fn drop(&mut self) {
        self.flush_lagging();
        self.close_deferred();
        let handles = self.classes.iter().map(|class| class.lock().handles);
        let out = handles.fold(0, u32::wrapping_add) > 0;
        // Each iteration of a model would keep its addresses.
        if out && !cfg!(loom) {
            self.memory.handles_are_out();
        }
        self.release_all();
        // Where handles are out, their leaves stay this pool's: no later one must own what they
        // name.
        let leaves = &self.memory.leaves;
        if !out {
            self.handles.drain(leaves);
        }
        self.raw_handles.drain(leaves);
        let retired = std::mem::take(&mut *self.retired.leaves.lock());
        if leaves.abandon(&retired, self.id) {
            self.memory.return_leaves();
        }
    }
}
