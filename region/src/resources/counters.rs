//! What a region counts: where its pages are, and what faults have cost.
//!
//! ```text
//!   CPU 0   | resident | staged | ... | stall |      lines of its own: two threads that fault do
//!   not CPU 1   | resident | staged | ... | stall |      wait for each other's sums
//! ```
//!
//! Invariant: a count is the sum of its column, which may wrap in one line: a page can arrive on
//! one CPU and leave on another.

use crate::terms::{LastRefusal, RegionStats};
use host::cpu;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What is counted; see [`RegionStats`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Count {
    Resident,
    Staged,
    Stored,
    DeadCopies,
    Faults,
    FirstTouches,
    StagedFaults,
    StoredFaults,
    DiskFaults,
    PagesIn,
    PagesAround,
    PagesOut,
    Busy,
    Refused,
    Waits,
    StallNs,
}

const COUNTS: usize = Count::StallNs as usize + 1;
/// Lines: with more CPUs, some share.
const SHARDS: usize = 8;

/// Two cache lines, because processors fetch them in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Shard([AtomicU64; COUNTS]);

/// The sums of a region. Places move under the lock of the group whose pages move.
#[derive(Default)]
pub(crate) struct Counters {
    shards: [Shard; SHARDS],
    /// Why the store did not take the last page that it did not take.
    pub(crate) refusal: LastRefusal,
}

impl Counters {
    pub(crate) fn add(&self, count: Count, number: u64) {
        if number == 0 {
            return;
        }
        let shard = &self.shards[cpu::current_hint() % SHARDS];
        // relaxed: a sum that nothing else is read by.
        shard.0[count as usize].fetch_add(number, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, count: Count, number: u64) {
        self.add(count, number.wrapping_neg());
    }

    /// The sum; exact when no thread works on the region.
    pub(crate) fn read(&self, count: Count) -> u64 {
        // relaxed: as above.
        let part = |shard: &Shard| shard.0[count as usize].load(Ordering::Relaxed);
        let sum = self.shards.iter().map(part).fold(0, u64::wrapping_add);
        // While a page moves, a line may show that it left and not yet that it arrived.
        if sum > u64::MAX / 2 { 0 } else { sum }
    }

    pub(crate) fn stalled(&self, time: Duration) {
        self.add(Count::StallNs, u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn stats(&self) -> RegionStats {
        RegionStats {
            resident_pages: self.read(Count::Resident),
            staged_pages: self.read(Count::Staged),
            stored_pages: self.read(Count::Stored),
            dead_copies: self.read(Count::DeadCopies),
            faults: self.read(Count::Faults),
            first_touches: self.read(Count::FirstTouches),
            staged_faults: self.read(Count::StagedFaults),
            stored_faults: self.read(Count::StoredFaults),
            disk_faults: self.read(Count::DiskFaults),
            pages_in: self.read(Count::PagesIn),
            pages_around: self.read(Count::PagesAround),
            pages_out: self.read(Count::PagesOut),
            busy: self.read(Count::Busy),
            refused: self.read(Count::Refused),
            last_refusal: self.refusal.get(),
            waits: self.read(Count::Waits),
            stall_ns: self.read(Count::StallNs),
            ..RegionStats::default()
        }
    }
}
