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

use crate::memory::Memory;
use crate::pool::{AT_ONCE, Leaving, Pool};
use crate::zspages::DescriptorId;

impl Pool {
    /// Gives every zspage back, with its objects.
    fn release_all(&self) {
        let len = self.classes.iter().map(|class| class.lock().fullness.zspages().len()).sum();
        let mut all = Vec::new();
        if all.try_reserve_exact(len).is_err() {
            return self.release_by_class();
        }
        for class in self.classes.iter() {
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
        for class in self.classes.iter() {
            let state = class.lock();
            state.fullness.zspages().iter().for_each(|&id| leaving.push(&self.memory, id));
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
        // While handles are out, their leaves stay this pool's, because no later pool may own what
        // they name.
        let leaves = &self.memory.leaves;
        if !out {
            self.stocks.handles.drain(leaves);
        }
        self.stocks.raw.drain(leaves);
        let retired = std::mem::take(&mut *self.retired.leaves.lock());
        if leaves.abandon(&retired, self.id) {
            self.memory.return_leaves();
        }
    }
}
