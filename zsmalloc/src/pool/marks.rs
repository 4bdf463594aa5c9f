//! Marks that a pool carries: whether something was freed since its last compaction, and whether it
//! is only waiting to be dropped.
//!
//! Lock: one, of rank `Leaf`, around the list of leaves that end with the pool.

use crate::numbers::LeafId;
use host::sync::atomic::{AtomicBool, AtomicU32};
use host::{Lock, Rank};

/// What is known about a pool's rest.
#[derive(Default)]
pub(crate) struct Rest {
    /// Set by the first free after a compaction by the worker.
    pub(crate) stirred: AtomicBool,
    /// Set during that compaction.
    pub(crate) settling: AtomicBool,
    /// Operations at the worker's last look.
    pub(crate) looked_at: AtomicU32,
}

/// Leaves that end with their pool.
pub(crate) struct Retired {
    /// There are some: the pool is about to be dropped.
    pub(crate) begun: AtomicBool,
    pub(crate) leaves: Lock<Vec<LeafId>>,
}

impl Default for Retired {
    fn default() -> Retired {
        Retired { begun: AtomicBool::new(false), leaves: Lock::new(Rank::Leaf, Vec::new()) }
    }
}
