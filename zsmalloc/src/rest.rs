//! Pools at rest: how the worker learns of frees, and when it compacts.
//!
//! ```text
//!   settled ---- free ----> stirred ---- tick ----> looked at ---- tick, unchanged ----> compacted
//!                              ^                        |                                    |
//!                              |                        `-- changed: looked at again         |
//!                              `---------------- a free meanwhile <--------------------------'
//! ```
//!
//! Invariant: a pool with a free that no compaction followed is stirred, and the worker was told.
//!
//! Lock: the turn to compact.

use host::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::pool::Pool;

/// What is known about a pool's rest.
#[derive(Default)]
pub(crate) struct Rest {
    /// Set by the first free after a compaction by the worker.
    stirred: AtomicBool,
    /// Set during that compaction.
    settling: AtomicBool,
    /// Operations at the worker's last look.
    looked_at: AtomicU32,
}

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
        // Acquire, twice: pairs with the Releases in `compact_at_rest`. Who sees that nothing is
        // stirred sees that the worker is at it, and who sees that it is not any more sees what it
        // did.
        !stirred.load(Ordering::Acquire) && !settling.load(Ordering::Acquire)
    }

    /// Compacts the pool if objects were freed and nothing changed since the last call; false
    /// while it is in use.
    pub(crate) fn compact_at_rest(&self) -> bool {
        if self.is_settled() {
            return true;
        }
        self.flush_deferred();
        let (rest, operations) = (&self.rest, self.operations());
        // relaxed: the worker alone looks.
        if rest.looked_at.swap(operations, Ordering::Relaxed) != operations {
            return false;
        }
        let Some(_turn) = self.turn_to_compact() else { return false };
        // relaxed: published by the next store.
        rest.settling.store(true, Ordering::Relaxed);
        // Before the compaction: a free during it asks for the next. Pairs with `is_settled`.
        rest.stirred.store(false, Ordering::Release);
        self.compact_all();
        // Nobody met for a while. relaxed: a hint.
        self.spread.store(self.spread_asked, Ordering::Relaxed);
        // Pairs with the Acquire in `is_settled`.
        rest.settling.store(false, Ordering::Release);
        true
    }
}
