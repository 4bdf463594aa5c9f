//! The pages of each group by ring, and its evictions. CPUs count in different cache lines.
//!
//! ```text
//!   group 0                                    group 1
//!   | small main evictions | small main - | .. | small main evictions | ..     128 bytes each
//!     stripe 0               stripe 1            stripe 0
//! ```
//!
//! A thread counts in the stripe of its CPU. A sum over the stripes is exact while no thread
//! changes anything. Otherwise it may be below 0 for a moment.

use host::sync::atomic::{AtomicU64, Ordering};
use host::{Table, cpu};
use zsmalloc::MemoryError;

use super::word::Which;
use crate::terms::GroupId;

/// Stripes of a group. A CPU uses the one whose number is its own modulo this.
const STRIPES: usize = if cfg!(loom) { 1 } else { 8 };
/// Words of a stripe: two cache lines, because the next line is fetched with the first.
const STRIPE_WORDS: usize = 16; // 128 bytes
const EVICTIONS: usize = 2;
const _: () = assert!(EVICTIONS < STRIPE_WORDS && Which::BOTH.len() <= EVICTIONS, "three counts");

/// The counts of all groups.
pub(super) struct Counts {
    stripes: Table<[AtomicU64; STRIPE_WORDS]>,
}

impl Counts {
    pub(super) fn reserve() -> Result<Counts, MemoryError> {
        let groups = if cfg!(loom) { 2 } else { GroupId::COUNT };
        Ok(Counts { stripes: Table::reserve(groups * STRIPES)? })
    }

    /// Takes the group's counts in use.
    pub(super) fn open(&self, group: GroupId) {
        let first = group.index() * STRIPES;
        self.stripes.touch(first..first + STRIPES);
    }

    /// Counts pages that entered or left the group's rings.
    pub(super) fn change(&self, group: GroupId, change: [i16; 2]) {
        let stripe = &self.stripes[group.index() * STRIPES + cpu::current_hint() % STRIPES];
        for which in Which::BOTH {
            let pages = i64::from(change[which as usize]);
            if pages != 0 {
                // relaxed: a sum. The cell's word is what says that a page entered or left.
                stripe[which as usize].fetch_add(pages as u64, Ordering::Relaxed);
            }
        }
    }

    /// Pages in the group's small and main ring.
    pub(super) fn pages(&self, group: GroupId) -> [u64; 2] {
        let first = group.index() * STRIPES;
        let stripes = self.stripes.slice(first..first + STRIPES);
        Which::BOTH.map(|which| {
            // relaxed: as in `change`.
            let count = |stripe: &[AtomicU64; _]| stripe[which as usize].load(Ordering::Relaxed);
            let sum = stripes.iter().map(count).fold(0, u64::wrapping_add);
            (sum as i64).max(0) as u64
        })
    }

    /// Counts an eviction. Returns how many there were before.
    pub(super) fn evict(&self, group: GroupId) -> u32 {
        // relaxed: a clock of evictions. A missed tick misjudges the place of one page.
        self.stripes[group.index() * STRIPES][EVICTIONS].fetch_add(1, Ordering::Relaxed) as u32
    }

    /// Evictions so far, modulo 2^32.
    pub(super) fn evictions(&self, group: GroupId) -> u32 {
        // relaxed: as in `evict`.
        self.stripes[group.index() * STRIPES][EVICTIONS].load(Ordering::Relaxed) as u32
    }

    pub(super) fn bytes(&self) -> u64 {
        self.stripes.held_bytes() + self.stripes.heap_bytes()
    }
}
