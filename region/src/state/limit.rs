//! How many pages of a region may be in memory, and whether that can be kept.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// No limit.
const UNLIMITED: u64 = u64::MAX;

/// The limit of a region.
pub(crate) struct Limit {
    pages: AtomicU64,
    /// The pager could not bring the region below its limit, so no thread should wait for that.
    stuck: AtomicBool,
}

impl Limit {
    pub(super) fn none() -> Limit {
        Limit { pages: AtomicU64::new(UNLIMITED), stuck: AtomicBool::new(false) }
    }

    /// The most pages that may be in memory or staging.
    pub(crate) fn pages(&self) -> Option<u64> {
        // relaxed: an independent value.
        Some(self.pages.load(Ordering::Relaxed)).filter(|&limit| limit != UNLIMITED)
    }

    pub(crate) fn set(&self, pages: Option<u64>) {
        // relaxed: an independent value.
        self.pages.store(pages.unwrap_or(UNLIMITED), Ordering::Relaxed);
    }

    /// Whether waiting for the limit is of no use.
    pub(crate) fn is_stuck(&self) -> bool {
        // relaxed: a hint.
        self.stuck.load(Ordering::Relaxed)
    }

    pub(crate) fn set_stuck(&self, stuck: bool) {
        // relaxed: a hint.
        self.stuck.store(stuck, Ordering::Relaxed);
    }
}
