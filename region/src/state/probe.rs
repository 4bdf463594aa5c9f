//! Values that tests set and read in the middle of a region's work.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Values that tests set and read in the middle of a region's work.
#[derive(Debug, Default)]
pub(crate) struct Probe {
    /// A bit for each page of a group that the system is assumed to use.
    pub(crate) in_use: AtomicU64,
    /// How often a page-out let faulting threads in.
    pub(crate) yields: AtomicU64,
    /// Whether the region is assumed to have been moved by other code.
    pub(crate) moved: AtomicBool,
}

impl Probe {
    /// The number of pages from `at` on that are not in use.
    pub(crate) fn free_from(&self, at: usize) -> usize {
        // relaxed: one thread.
        (self.in_use.load(Ordering::Relaxed) >> at).trailing_zeros() as usize
    }
}
