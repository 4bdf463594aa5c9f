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

use host::sync::atomic::Ordering;

use crate::pool::Pool;

impl Pool {
    /// Compacts the pool if objects were freed and nothing changed since the last call. False while
    /// it is in use.
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
        // This comes before the compaction, because a free during it asks for the next one. Release
        // pairs with the Acquire in `is_settled`, so that a thread that sees this sees the pool
        // settling.
        rest.stirred.store(false, Ordering::Release);
        self.compact_all();
        // Nobody met for a while. relaxed: a hint.
        self.spread.store(self.spread_asked, Ordering::Relaxed);
        // Release pairs with the Acquire in `is_settled`, so that a thread that sees this sees the
        // pool compacted.
        rest.settling.store(false, Ordering::Release);
        true
    }
}
