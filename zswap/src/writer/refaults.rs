//! The cost of having written pages back: some are loaded again, and each load takes a disk's time.
//!
//! ```text
//!   load from disk    -> protection + cost of it, in decompressions        at most 64 of them
//!   shrinker counts   -> protection taken off its count, and halved
//! ```
//!
//! The kernel takes off one entry for each page that came back since it last counted. Here a page
//! that was slow to come back counts for more, by the measured time of the disk.
//!
//! Source: `zswap_shrinker_count` for the protection and its decay.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// About the time of a load from memory. It is the unit of the cost.
const MEMORY_LOAD: Duration = Duration::from_micros(2);
/// The most that one page counts for.
const COST_MAX: u64 = 64;

/// Pages that came back from the disk lately, each by its cost.
#[derive(Debug, Default)]
pub(crate) struct Refaults {
    protection: AtomicU64,
}

impl Refaults {
    /// Notes that a page came back from the disk, and how long that took.
    pub(crate) fn came_back(&self, took: Duration) {
        let cost = took.as_nanos() / MEMORY_LOAD.as_nanos();
        let cost = (cost as u64).clamp(1, COST_MAX);
        // relaxed: a statistic.
        self.protection.fetch_add(cost, Ordering::Relaxed);
    }

    /// The number of protected entries. The call halves it.
    pub(crate) fn take_protection(&self) -> u64 {
        let halve = |protection: u64| Some(protection / 2);
        // relaxed: a statistic.
        let taken = self.protection.fetch_update(Ordering::Relaxed, Ordering::Relaxed, halve);
        taken.unwrap_or_default()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn slow_pages_protect_more_and_protection_fades() {
        let refaults = Refaults::default();
        refaults.came_back(Duration::from_nanos(300));
        assert_eq!(refaults.take_protection(), 1, "at least itself");
        assert_eq!(refaults.take_protection(), 0);
        refaults.came_back(Duration::from_micros(80));
        refaults.came_back(Duration::from_secs(3));
        assert_eq!(refaults.take_protection(), 40 + COST_MAX);
        assert_eq!(refaults.take_protection(), (40 + COST_MAX) / 2);
    }
}
