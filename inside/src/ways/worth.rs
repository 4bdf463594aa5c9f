//! What a page costs that comes beside another, in per cent of a fault.
//!
//! ```text
//!   wanted:  saves a fault, costs a page
//!   not:     costs a page, and has to leave again
//!                                         page + out
//!   pays where density is more than  ---------------------
//!                                     page + out + overhead
//! ```
//!
//! The costs of a page depend on algorithm and contents, so they are means over the latest pages.
//!
//! Invariant: a mean stays above 0, and one measurement raises it by less than a quarter. Lock: the
//! caller's.

use std::time::Duration;

/// From the touch of a missing page until the thread goes on, less what the page itself takes: two
/// switches between threads and the messages between them.
const OVERHEAD_NS: u32 = 6000;
/// A page that comes back from a tray beside another is moved by the same request, and takes the
/// place of one that is colder.
pub(super) const STAGED_PER_CENT: u32 = 15;
/// What a page takes until one was measured.
const PAGE_NS: u32 = 2500;
const OUT_NS: u32 = 4000;
/// The latest page counts 1/this of a mean. A page that took more than `OUTLIER` times the mean
/// waited for something else, and counts as `OUTLIER` times the mean.
const LATEST_DIVISOR: u32 = 16;
const OUTLIER: u32 = 4;

/// Means, in nanoseconds.
#[derive(Debug)]
pub(crate) struct Worth {
    page: u32,
    out: u32,
}

impl Default for Worth {
    fn default() -> Worth {
        Worth { page: PAGE_NS, out: OUT_NS }
    }
}

impl Worth {
    /// A page was decoded and put in place.
    pub(crate) fn page_took(&mut self, took: Duration) {
        self.page = mean(self.page, took);
    }

    /// A page was compressed and stored.
    pub(crate) fn out_took(&mut self, took: Duration) {
        self.out = mean(self.out, took);
    }

    /// What a page of the store costs that comes beside another, in per cent of a fault.
    pub(crate) fn stored_per_cent(&self) -> u32 {
        let costs = u64::from(self.page) + u64::from(self.out);
        (100 * costs).div_ceil(costs + u64::from(OVERHEAD_NS)) as u32
    }
}

fn mean(mean: u32, took: Duration) -> u32 {
    let took = u32::try_from(took.as_nanos()).unwrap_or(u32::MAX);
    let took = took.min(mean.saturating_mul(OUTLIER));
    (mean - mean / LATEST_DIVISOR + took / LATEST_DIVISOR).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_follow_what_pages_take() {
        let mut worth = Worth::default();
        assert_eq!(worth.stored_per_cent(), 52, "6.5 of 12.5");
        (0..200).for_each(|_| worth.out_took(Duration::from_micros(40)));
        assert!((85..90).contains(&worth.stored_per_cent()), "{worth:?}");
        (0..200).for_each(|_| worth.out_took(Duration::ZERO));
        assert!((25..35).contains(&worth.stored_per_cent()), "{worth:?}");
        let before = worth.page;
        worth.page_took(Duration::from_secs(100));
        assert!(worth.page < before + before / 4, "preempted once");
    }
}
