//! Figures of a run that only grow.
//!
//! Invariant: the order of the words is that of the fields. Lock: none.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many figures of a slot only grow.
pub(super) const COUNTS: usize = 9;

/// Figures that only grow: of one process, or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunCounts {
    /// Pages that went to the store.
    pub pages_out: u64,
    /// Pages that came from the store.
    pub pages_in: u64,
    /// Faults on pages of the store.
    pub stored_faults: u64,
    /// Faults on pages that were on their way out.
    pub staged_faults: u64,
    /// First touches, and first writes to what forks share, that were faults.
    pub first_touches: u64,
    /// Nanoseconds for which faults waited until there was room.
    pub stall_ns: u64,
    /// Pages that went to the disk.
    pub disk_out: u64,
    /// Pages that were read from the disk.
    pub disk_in: u64,
    /// Pages that the disk refused, and that stayed in memory.
    pub disk_refused: u64,
}

impl RunCounts {
    /// The sums of two.
    #[must_use]
    pub fn plus(&self, other: &RunCounts) -> RunCounts {
        RunCounts {
            pages_out: self.pages_out + other.pages_out,
            pages_in: self.pages_in + other.pages_in,
            stored_faults: self.stored_faults + other.stored_faults,
            staged_faults: self.staged_faults + other.staged_faults,
            first_touches: self.first_touches + other.first_touches,
            stall_ns: self.stall_ns + other.stall_ns,
            disk_out: self.disk_out + other.disk_out,
            disk_in: self.disk_in + other.disk_in,
            disk_refused: self.disk_refused + other.disk_refused,
        }
    }
}

impl From<[u64; COUNTS]> for RunCounts {
    /// In the order of `Slot::counted`.
    fn from(words: [u64; COUNTS]) -> RunCounts {
        let [pages_out, pages_in, stored_faults, staged_faults, first_touches, others @ ..] = words;
        let [stall_ns, disk_out, disk_in, disk_refused] = others;
        RunCounts {
            pages_out,
            pages_in,
            stored_faults,
            staged_faults,
            first_touches,
            stall_ns,
            disk_out,
            disk_in,
            disk_refused,
        }
    }
}

/// What the words were a moment ago.
pub(super) fn counts(words: [&AtomicU64; COUNTS]) -> RunCounts {
    // relaxed: figures that stand alone.
    RunCounts::from(words.map(|word| word.load(Ordering::Relaxed)))
}
