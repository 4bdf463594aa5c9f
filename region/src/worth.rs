//! What bringing in neighbours is worth, as dense as touches are.
//!
//! ```text
//!   a fault with its page = overhead + page
//!   wanted:  saves a fault, costs a page           even where density = page / (overhead + page)
//!   not:     costs a page; with a limit, also      and with a limit, where
//!            paging it out again                   density = again / (overhead + again),
//!                                                  again = page + out
//! ```
//!
//! The overhead is measured for a pager's first region (module `overhead`). What a page costs,
//! decoding and putting it in place, and paging it out again, depends on algorithm and contents:
//! each is a mean of the latest. Pages tell that come by themselves in groups that are watched, less
//! the call, which others would share, and all that come together; and the first of each group that
//! goes.
//!
//! | | overhead | page | even at | with a limit, out 5600 |
//! |---|---|---|---|---|
//! | AMD EPYC in a virtual machine, signals | 4000 | 2700 | 41 % | 68 % |
//!
//! With t for this per cent and d for the density, N pages at once cost 1 + (N - 1) t faults, and
//! are 1 + (N - 1) d wanted pages. A fault brings in the page, its quad or its stretch, whichever
//! costs least for a wanted page; but no neighbours unless they save 15 %, since what is not wanted
//! takes memory as well, and the density is that of what was touched before:
//!
//! ```text
//!   t = 27 %                         quad's d    costs    stretch's d    costs
//!   everything, in any order            100 %     0.45          100 %     0.32
//!   half of all pages                    38 %     0.85           47 %     0.63
//!   of four quads one, at random        100 %     0.45           32 %     0.87
//!   a tenth of all pages                  5 %     1.57            6 %     2.66
//! ```

use crate::FaultCosts;
use crate::overhead::Overhead;
use crate::trials::{QUAD_PAGES, STRETCH_PAGES};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What a page costs until one was measured, and paging one out.
const PAGE_NS: u32 = 2500;
const OUT_NS: u32 = 6000;
/// What a wanted page may cost at most where neighbours come with it, in per cent of a fault.
const AT_MOST: u32 = 85;
/// Each of the latest pages counts so much of a mean; one that took longer than so many times the
/// mean waited for something else, and counts as that.
const LATEST_DIVISOR: i64 = 32;
const OUTLIER: u32 = 4;

/// What is known of a region's costs, in nanoseconds.
#[derive(Debug)]
pub(crate) struct Worth {
    overhead_ns: u32,
    /// The part of the overhead that is spent on bringing pages in.
    call: Duration,
    page: Mean,
    out: Mean,
    is_fixed: bool,
}

/// What the latest took, in nanoseconds.
#[derive(Debug)]
struct Mean(AtomicU32);

impl Mean {
    fn ns(&self) -> u32 {
        // relaxed: a hint.
        self.0.load(Ordering::Relaxed)
    }

    /// Each of so many took so long.
    fn hear(&self, took: Duration, count: u32) {
        // Of two at once, one may not be heard.
        let mean = self.ns();
        let took = whole_ns(took).min(mean.saturating_mul(OUTLIER));
        let weight = i64::from(count).min(LATEST_DIVISOR / 2);
        let more = (i64::from(took) - i64::from(mean)) * weight / LATEST_DIVISOR;
        let mean = (i64::from(mean) + more).clamp(1, u32::MAX.into()) as u32;
        // relaxed: a hint.
        self.0.store(mean, Ordering::Relaxed);
    }
}

fn whole_ns(time: Duration) -> u32 {
    u32::try_from(time.as_nanos()).unwrap_or(u32::MAX)
}

impl Worth {
    /// Where a fault has this overhead; what pages take is learnt.
    pub(crate) fn measured(Overhead { way, call }: Overhead) -> Worth {
        Worth { is_fixed: false, call, ..Worth::new(whole_ns(way + call), PAGE_NS, OUT_NS) }
    }

    /// With costs that stay.
    pub(crate) fn fixed(FaultCosts { overhead, page, page_out }: FaultCosts) -> Worth {
        Worth::new(whole_ns(overhead), whole_ns(page), whole_ns(page_out))
    }

    fn new(overhead_ns: u32, page_ns: u32, out_ns: u32) -> Worth {
        let mean = |ns| Mean(AtomicU32::new(ns));
        let (page, out) = (mean(page_ns), mean(out_ns));
        Worth { overhead_ns, call: Duration::ZERO, page, out, is_fixed: true }
    }

    pub(crate) fn costs(&self) -> FaultCosts {
        let [overhead, page, page_out] = [self.overhead_ns, self.page.ns(), self.out.ns()]
            .map(|ns| Duration::from_nanos(ns.into()));
        FaultCosts { overhead, page, page_out }
    }

    /// So many pages were decoded and put in place together.
    pub(crate) fn pages_took(&self, pages: u32, took: Duration) {
        if !self.is_fixed && pages > 0 {
            self.page.hear(took.saturating_sub(self.call) / pages, pages);
        }
    }

    /// A page was compressed and stored.
    pub(crate) fn out_took(&self, took: Duration) {
        if !self.is_fixed {
            self.out.hear(took, 1);
        }
    }

    /// How many aligned pages around it a fault is to bring in, where so many per cent of those
    /// beside it are wanted, of its quad and of its stretch, and where there is a limit or is not.
    pub(crate) fn pages_at_once(&self, density: [u32; 2], limited: bool) -> usize {
        cheapest(self.per_cent(limited), density)
    }

    /// The per cent at which what is not wanted costs what is wanted saves, rounded up: what a page
    /// costs that comes beside one, in faults.
    fn per_cent(&self, limited: bool) -> u32 {
        let out = if limited { self.out.ns() } else { 0 };
        let costs = u64::from(self.page.ns()) + u64::from(out);
        // Where nothing costs anything, it pays.
        (100 * costs).div_ceil((costs + u64::from(self.overhead_ns)).max(1)) as u32
    }
}

/// The same, where a page that comes beside one costs so many per cent of a fault.
pub(crate) fn cheapest(cost: u32, [quads, stretches]: [u32; 2]) -> usize {
    let of = |pages: usize, density: u32| {
        let beside = pages as u32 - 1;
        (pages, 100 + beside * cost, 100 + beside * density)
    };
    let all = [of(QUAD_PAGES, quads), of(STRETCH_PAGES, stretches)];
    // Fractions are compared with both sides multiplied by what they are over.
    let cheaper = |best: (usize, u32, u32), next: (usize, u32, u32)| {
        if next.1 * best.2 <= best.1 * next.2 { next } else { best }
    };
    all.into_iter().fold((1, AT_MOST, 100), cheaper).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_even_where_the_head_says() {
        let even = |overhead, page, out| {
            let [overhead, page, page_out] = [overhead, page, out].map(Duration::from_nanos);
            let worth = Worth::fixed(FaultCosts { overhead, page, page_out });
            worth.pages_took(1, Duration::from_secs(1));
            worth.out_took(Duration::from_secs(1));
            [false, true].map(|limited| worth.per_cent(limited))
        };
        assert_eq!(even(4000, 2700, 5600), [41, 68]);
        assert_eq!(even(6900, 2500, 6000), [27, 56]);
        // A page that takes no time always pays, and one beside faults that take none never.
        assert_eq!(
            [even(6900, 0, 1), even(0, 2500, 1), even(0, 0, 1)].map(|at| at[0]),
            [0, 100, 0]
        );
    }

    #[test]
    fn the_mean_follows_what_pages_take() {
        let [way, call] = [6000, 900].map(Duration::from_nanos);
        let worth = Worth::measured(Overhead { way, call });
        (0..200).for_each(|_| worth.pages_took(1, Duration::from_micros(10)));
        assert_eq!(worth.per_cent(false), 57, "9.1 of 16");
        (0..50).for_each(|_| worth.pages_took(16, Duration::from_nanos(900 + 16 * 4000)));
        assert_eq!(worth.costs().page.as_micros(), 4, "each of 16, without the call");
        (0..200).for_each(|_| worth.pages_took(1, Duration::from_micros(10)));
        worth.pages_took(1, Duration::from_secs(100));
        assert!(worth.page.ns() < 12_000, "{worth:?}: preempted once");
        (0..2000).for_each(|_| worth.pages_took(1, Duration::ZERO));
        assert_eq!(worth.per_cent(false), 1, "not nothing");
        // An algorithm that compresses slowly: what is paged out in vain costs more.
        let limited = worth.per_cent(true);
        (0..200).for_each(|_| worth.out_took(Duration::from_micros(60)));
        assert_eq!((limited, worth.per_cent(true)), (47, 90));
    }

    #[test]
    fn what_is_brought_in_costs_least() {
        let (signal, signal_limited) = (27, 56);
        let as_in_the_head = [([100, 100], 16), ([38, 47], 16), ([100, 32], 4), ([5, 6], 1)];
        for (density, pages) in as_in_the_head {
            assert_eq!(cheapest(signal, density), pages, "{density:?}");
        }
        assert_eq!(cheapest(signal_limited, [38, 47]), 1);
        // At these a page wanted costs 0.45 with its quad, and 0.46 and 0.44 with its stretch.
        assert_eq!([67, 70].map(|stretch| cheapest(signal, [100, stretch])), [4, 16]);
        // And at these 0.86 and 0.85.
        assert_eq!([37, 38].map(|quad| cheapest(signal, [quad, 0])), [1, 4]);
        assert_eq!([32, 33].map(|stretch| cheapest(signal, [0, stretch])), [1, 16]);
    }
}
