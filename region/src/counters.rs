//! What a region counts: where its pages are, and what faults have cost.

use crate::stats::RegionStats;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Each is a sum of its own; places move under the lock of the group whose pages move.
#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) resident: AtomicU64,
    pub(crate) staged: AtomicU64,
    pub(crate) stored: AtomicU64,
    pub(crate) dead_copies: AtomicU64,
    pub(crate) faults: AtomicU64,
    pub(crate) first_touches: AtomicU64,
    pub(crate) staged_faults: AtomicU64,
    pub(crate) stored_faults: AtomicU64,
    pub(crate) pages_in: AtomicU64,
    pub(crate) pages_out: AtomicU64,
    pub(crate) busy: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) waits: AtomicU64,
    pub(crate) stall_ns: AtomicU64,
}

pub(crate) fn add(counter: &AtomicU64, pages: u64) {
    // relaxed: a sum that nothing else is read by.
    counter.fetch_add(pages, Ordering::Relaxed);
}

pub(crate) fn sub(counter: &AtomicU64, pages: u64) {
    // relaxed: as above.
    counter.fetch_sub(pages, Ordering::Relaxed);
}

pub(crate) fn read(counter: &AtomicU64) -> u64 {
    // relaxed: as above.
    counter.load(Ordering::Relaxed)
}

impl Counters {
    pub(crate) fn stalled(&self, time: Duration) {
        add(&self.stall_ns, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn stats(&self) -> RegionStats {
        RegionStats {
            resident_pages: read(&self.resident),
            staged_pages: read(&self.staged),
            stored_pages: read(&self.stored),
            dead_copies: read(&self.dead_copies),
            faults: read(&self.faults),
            first_touches: read(&self.first_touches),
            staged_faults: read(&self.staged_faults),
            stored_faults: read(&self.stored_faults),
            pages_in: read(&self.pages_in),
            pages_out: read(&self.pages_out),
            busy: read(&self.busy),
            refused: read(&self.refused),
            waits: read(&self.waits),
            stall_ns: read(&self.stall_ns),
            ..RegionStats::default()
        }
    }
}
