//! Whether bringing in neighbours pays, given how densely a region is touched.
//!
//! ```text
//!   a fault with its page = overhead + page
//!   wanted:  saves a fault, costs a page           pays where density > page / (overhead + page)
//!   not:     costs a page; with a limit, also      and with a limit, where
//!            paging it out again                   density > again / (overhead + again),
//!                                                  again = page + out
//! ```
//!
//! The overhead is measured for a pager's first region (module `overhead`). The cost of a page
//! depends on algorithm and contents, so it is a mean over the latest pages. Decoding a page and
//! putting it in place is measured on pages that come alone in watched groups. Paging out is
//! measured on the first page of each group that leaves.
//!
//! | | overhead | page | pays, signal | with a limit, out 6000 |
//! |---|---|---|---|---|
//! | AMD EPYC in a virtual machine | 6900, by a message 11500 | 2500 | 27 % | 56 % |
//! | Intel Xeon in a virtual machine | 1250, by a message 10000 | 2900 | 70 % | 88 % |
//!
//! Let t be these per cent and d the density. N pages at once cost 1 + (N - 1) t faults, and bring
//! 1 + (N - 1) d wanted pages. A fault brings in the page, its quad or its stretch: the one that
//! costs least for each wanted page.
//!
//! ```text
//!   t = 27 %                         quad's d    costs    stretch's d    costs
//!   everything, in any order            100 %     0.45          100 %     0.32
//!   half of all pages                    38 %     0.85           47 %     0.63
//!   of four quads one, at random        100 %     0.45           32 %     0.87
//!   a tenth of all pages                  5 %     1.57            6 %     2.66
//! ```
//!
//! Invariant: costs that the caller gave never change. A measured mean stays above 0, and one
//! measurement raises it by less than a quarter. Any thread may note one without a lock.

use crate::places::{QUAD_PAGES, STRETCH_PAGES};
use crate::terms::FaultCosts;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The cost of a page, and of paging one out, until one was measured.
const PAGE_NS: u32 = 2500;
const OUT_NS: u32 = 6000;
/// The latest page counts 1/this of a mean. A page that took more than `OUTLIER` times the mean
/// waited for something else, and counts as `OUTLIER` times the mean.
const LATEST_DIVISOR: i64 = 16;
const OUTLIER: u32 = 4;

/// What is known of a region's costs, in nanoseconds.
#[derive(Debug)]
pub(crate) struct Worth {
    overhead_ns: u32,
    page: Mean,
    out: Mean,
    is_fixed: bool,
}

/// A mean of the latest measurements, in nanoseconds.
#[derive(Debug)]
struct Mean(AtomicU32);

impl Mean {
    fn ns(&self) -> u32 {
        // relaxed: a hint.
        self.0.load(Ordering::Relaxed)
    }

    fn hear(&self, took: Duration) {
        // If two threads do this at once, one measurement may be lost.
        let mean = self.ns();
        let took = whole_ns(took).min(mean.saturating_mul(OUTLIER));
        let more = (i64::from(took) - i64::from(mean)) / LATEST_DIVISOR;
        let mean = (i64::from(mean) + more).clamp(1, u32::MAX.into()) as u32;
        // relaxed: a hint.
        self.0.store(mean, Ordering::Relaxed);
    }
}

fn whole_ns(time: Duration) -> u32 {
    u32::try_from(time.as_nanos()).unwrap_or(u32::MAX)
}

impl Worth {
    /// A fault has this overhead. The costs of pages are measured later.
    pub(crate) fn measured(overhead: Duration) -> Worth {
        Worth { is_fixed: false, ..Worth::new(whole_ns(overhead), PAGE_NS, OUT_NS) }
    }

    /// Costs that stay as they are given.
    pub(crate) fn fixed(FaultCosts { overhead, page, page_out }: FaultCosts) -> Worth {
        Worth::new(whole_ns(overhead), whole_ns(page), whole_ns(page_out))
    }

    fn new(overhead_ns: u32, page_ns: u32, out_ns: u32) -> Worth {
        let mean = |ns| Mean(AtomicU32::new(ns));
        Worth { overhead_ns, page: mean(page_ns), out: mean(out_ns), is_fixed: true }
    }

    pub(crate) fn costs(&self) -> FaultCosts {
        let [overhead, page, page_out] = [self.overhead_ns, self.page.ns(), self.out.ns()]
            .map(|ns| Duration::from_nanos(ns.into()));
        FaultCosts { overhead, page, page_out }
    }

    /// Notes how long a page took to be decoded and put in place by itself.
    pub(crate) fn page_took(&self, took: Duration) {
        if !self.is_fixed {
            self.page.hear(took);
        }
    }

    /// Notes how long a page took to be compressed and stored.
    pub(crate) fn out_took(&self, took: Duration) {
        if !self.is_fixed {
            self.out.hear(took);
        }
    }

    /// How many aligned pages around it a fault brings in. `density` has the per cent of the pages
    /// beside it that are wanted, in its quad and in its stretch. `limited` says whether the region
    /// has a limit.
    pub(crate) fn pages_at_once(&self, density: [u32; 2], limited: bool) -> usize {
        cheapest(self.per_cent_to_pay(limited), density)
    }

    /// The per cent at which unwanted pages cost as much as wanted ones save, rounded up.
    fn per_cent_to_pay(&self, limited: bool) -> u32 {
        let out = if limited { self.out.ns() } else { 0 };
        let costs = u64::from(self.page.ns()) + u64::from(out);
        // If nothing costs anything, it pays.
        (100 * costs).div_ceil((costs + u64::from(self.overhead_ns)).max(1)) as u32
    }
}

/// As `pages_at_once`, if a page that comes beside another costs `cost` per cent of a fault.
pub(super) fn cheapest(cost: u32, [quads, stretches]: [u32; 2]) -> usize {
    let of = |pages: usize, density: u32| {
        let beside = pages as u32 - 1;
        (pages, 100 + beside * cost, 100 + beside * density)
    };
    let all = [of(1, 0), of(QUAD_PAGES, quads), of(STRETCH_PAGES, stretches)];
    // Fractions are compared by multiplying both sides by the denominators.
    let cheaper = |best: (usize, u32, u32), next: (usize, u32, u32)| {
        if next.1 * best.2 <= best.1 * next.2 { next } else { best }
    };
    all.into_iter().fold(of(1, 0), cheaper).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_pays_as_the_head_says() {
        let pays = |overhead, page| {
            let [overhead, page, page_out] = [overhead, page, 6000].map(Duration::from_nanos);
            let worth = Worth::fixed(FaultCosts { overhead, page, page_out });
            worth.page_took(Duration::from_secs(1));
            worth.out_took(Duration::from_secs(1));
            [false, true].map(|limited| worth.per_cent_to_pay(limited))
        };
        assert_eq!((pays(6900, 2500), pays(11500, 2500)), ([27, 56], [18, 43]));
        assert_eq!(pays(1250, 2900), [70, 88]);
        // A page that takes no time always pays. If faults take no time, a page beside one never
        // pays.
        assert_eq!((pays(6900, 0)[0], pays(0, 2500)[0], pays(0, 0)[0]), (0, 100, 0));
    }

    #[test]
    fn the_mean_follows_what_pages_take() {
        let worth = Worth::measured(Duration::from_nanos(6900));
        (0..200).for_each(|_| worth.page_took(Duration::from_micros(10)));
        assert_eq!(worth.per_cent_to_pay(false), 60, "10 of 16.9, a little below");
        worth.page_took(Duration::from_secs(100));
        assert!(worth.page.ns() < 12_000, "{worth:?}: preempted once");
        (0..2000).for_each(|_| worth.page_took(Duration::ZERO));
        assert_eq!(worth.per_cent_to_pay(false), 1, "not nothing");
        // With an algorithm that compresses slowly, paging a page out in vain costs more.
        let limited = worth.per_cent_to_pay(true);
        (0..200).for_each(|_| worth.out_took(Duration::from_micros(60)));
        assert_eq!((limited, worth.per_cent_to_pay(true)), (47, 90));
    }

    #[test]
    fn what_is_brought_in_costs_least() {
        let (signal, signal_limited) = (27, 56);
        let as_in_the_head = [([100, 100], 16), ([38, 47], 16), ([100, 32], 4), ([5, 6], 1)];
        for (density, pages) in as_in_the_head {
            assert_eq!(cheapest(signal, density), pages, "{density:?}");
        }
        assert_eq!(cheapest(signal_limited, [38, 47]), 1);
        // At these densities a wanted page costs 0.45 with its quad, and 0.46 and 0.44 with its
        // stretch.
        assert_eq!([67, 70].map(|stretch| cheapest(signal, [100, stretch])), [4, 16]);
        assert_eq!([26, 27].map(|quad| cheapest(signal, [quad, 0])), [1, 4]);
        assert_eq!([26, 27].map(|stretch| cheapest(signal, [0, stretch])), [1, 16]);
    }
}
