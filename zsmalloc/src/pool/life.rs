//! Where a pool is in its life: whether there may be something to compact, and whether it is only
//! waiting to be dropped.
//!
//! ```text
//!   settled <--- compacted at rest --- stirred        a free stirs it, and tells the worker once
//!   in use  ---- retire ------------> retired         its leaves end with it
//! ```
//!
//! Invariant: a pool with a free that no compaction followed is stirred, and the worker was told.
//!
//! Lock: the list of leaves that end with the pool, a leaf lock. Nothing is called under it.

use crate::numbers::LeafId;
use host::sync::atomic::Ordering;

use super::Pool;
use super::marks::Rest;

impl Pool {
    /// Tells the worker, once, that there may be something to compact.
    pub(crate) fn stir(&self) {
        let stirred = &self.rest.stirred;
        // relaxed: a hint. A free that reads an old value is followed by the worker's second look.
        if !stirred.load(Ordering::Relaxed) && !stirred.swap(true, Ordering::Relaxed) {
            self.memory.worker.notice_stirred(&self.memory);
        }
    }

    /// True when no object was freed since the worker compacted the pool, and it has done so.
    pub fn is_settled(&self) -> bool {
        let Rest { stirred, settling, .. } = &self.rest;
        // Acquire, twice: each pairs with a Release in `compact_at_rest`, so that a thread that
        // sees nothing stirred sees the worker at it. A thread that sees the worker done sees what
        // it did.
        !stirred.load(Ordering::Acquire) && !settling.load(Ordering::Acquire)
    }

    /// Gives leaves up with everything in them, for a store that is done with all it has. They go
    /// back when the pool is dropped. That is at once, unless the memory's worker or a deferred job
    /// is at it; both hurry from now on. The caller does not use the leaves again.
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
}
