//! What tests set and read in the middle of a region's work.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// What tests set and read in the middle of a region's work.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    /// A bit for each page of a group that is taken to be in use by the system.
    pub(crate) in_use: AtomicU64,
    /// How often faults were let in.
    pub(crate) yields: AtomicU64,
    /// The region is taken to have been moved by other code.
    pub(crate) moved: AtomicBool,
}

impl Probe {
    /// Pages from `at` on that are not in use.
    pub(crate) fn free_from(&self, at: usize) -> usize {
        // relaxed: one thread.
        (self.in_use.load(Ordering::Relaxed) >> at).trailing_zeros() as usize
    }
}
