//! The counts of a region: where its pages are, and what faults have cost.
//!
//! ```text
//!   CPU 0   | resident | staged | ... | stall |      each has cache lines of its own: threads that
//!   CPU 1   | resident | staged | ... | stall |      fault on different CPUs share none
//! ```
//!
//! Invariant: a count is the sum of its column. One line's part may wrap, because a page can arrive
//! on one CPU and leave on another.
//!
//! Lock: none; each count is an atomic of one CPU.

use crate::terms::{LastRefusal, RegionStats};
use host::cpu;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The quantities that are counted; see [`RegionStats`].
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
/// Lines of counts. If there are more CPUs, some share a line.
const SHARDS: usize = 8;

/// Two cache lines, because processors fetch them in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Shard([AtomicU64; COUNTS]);

/// The sums of a region. A page's place is counted under the lock of its group.
#[derive(Default)]
pub(crate) struct Counters {
    shards: [Shard; SHARDS],
    /// Why the store last refused a page.
    pub(crate) refusal: LastRefusal,
}

impl Counters {
    pub(crate) fn add(&self, count: Count, number: u64) {
        if number == 0 {
            return;
        }
        let shard = &self.shards[cpu::current_hint() % SHARDS];
        // relaxed: a sum that publishes nothing else.
        shard.0[count as usize].fetch_add(number, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, count: Count, number: u64) {
        self.add(count, number.wrapping_neg());
    }

    /// The sum. It is exact when no thread works on the region.
    pub(crate) fn read(&self, count: Count) -> u64 {
        // relaxed: as above.
        let part = |shard: &Shard| shard.0[count as usize].load(Ordering::Relaxed);
        let sum = self.shards.iter().map(part).fold(0, u64::wrapping_add);
        // While a page moves, the sum may show that it left and not yet that it arrived.
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
