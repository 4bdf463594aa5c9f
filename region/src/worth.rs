//! What bringing in neighbours is worth, as dense as touches are.
//!
//! When it pays (nanoseconds of the machine in docs/region.md):
//!
//! ```text
//!   a fault, with its page: a signal 9400, a message 14000
//!   a page with it 2500     paging it out again 6000
//!                                         signal                     message
//!   wanted:  saves a fault          9400 - 2500 = 6900         14000 - 2500 = 11500
//!   not:     costs a page           density > 2500 /  9400     2500 / 14000 = 18 %
//!                                             = 27 %
//!            and, with a limit,     density > 8500 / 15400     8500 / 20000 = 43 %
//!            a page out, 8500                 = 56 %
//! ```
//!
//! With t for these per cent and d for the density, N pages at once cost 1 + (N - 1) t faults, and
//! are 1 + (N - 1) d wanted pages. A fault brings in the page, its quad or its stretch, whichever
//! costs least for a wanted page:
//!
//! ```text
//!   signal, no limit: t = 27 %       quad's d    costs    stretch's d    costs
//!   everything, in any order            100 %     0.45          100 %     0.32
//!   half of all pages                    38 %     0.85           47 %     0.63
//!   of four quads one, at random        100 %     0.45           32 %     0.87
//!   a tenth of all pages                  5 %     1.57            6 %     2.66
//! ```

use crate::trials::{QUAD_PAGES, STRETCH_PAGES};
use host::FaultMode;

const SIGNAL_NS: u32 = 9400;
const MESSAGE_NS: u32 = 14000;
const PAGE_NS: u32 = 2500;
const PAGE_OUT_NS: u32 = 6000;

/// Per cent of the pages beside that have to be wanted: without a limit, and with one.
const PAYS_SIGNAL: [u32; 2] = per_cent_to_pay(SIGNAL_NS);
const PAYS_MESSAGE: [u32; 2] = per_cent_to_pay(MESSAGE_NS);

const AS_IN_THE_HEAD: bool = matches!((PAYS_SIGNAL, PAYS_MESSAGE), ([27, 56], [18, 43]));
const _: () = assert!(AS_IN_THE_HEAD, "as the head of this file says");

/// The per cent at which what is not wanted costs what is wanted saves.
const fn per_cent_to_pay(fault_ns: u32) -> [u32; 2] {
    let saved = fault_ns - PAGE_NS;
    let (page, page_again) = (PAGE_NS, PAGE_NS + PAGE_OUT_NS);
    [(100 * page).div_ceil(page + saved), (100 * page_again).div_ceil(page_again + saved)]
}

/// How many aligned pages around it a fault is to bring in, where so many per cent of those beside
/// it are wanted, of its quad and of its stretch; with what a fault costs in this mode, and where
/// there is a limit.
pub(crate) fn pages_at_once(density: [u32; 2], (mode, limited): (FaultMode, bool)) -> usize {
    let pays = if mode == FaultMode::Signal { &PAYS_SIGNAL } else { &PAYS_MESSAGE };
    cheapest(pays[usize::from(limited)], density)
}

/// The same, where a page that comes beside one costs so many per cent of a fault.
fn cheapest(cost: u32, [quads, stretches]: [u32; 2]) -> usize {
    let of = |pages: usize, density: u32| {
        let beside = pages as u32 - 1;
        (pages, 100 + beside * cost, 100 + beside * density)
    };
    let all = [of(1, 0), of(QUAD_PAGES, quads), of(STRETCH_PAGES, stretches)];
    // Fractions are compared with both sides multiplied by what they are over.
    let cheaper = |best: (usize, u32, u32), next: (usize, u32, u32)| {
        if next.1 * best.2 <= best.1 * next.2 { next } else { best }
    };
    all.into_iter().fold(of(1, 0), cheaper).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_brought_in_costs_least() {
        let [signal, signal_limited] = PAYS_SIGNAL;
        let as_in_the_head = [([100, 100], 16), ([38, 47], 16), ([100, 32], 4), ([5, 6], 1)];
        for (density, pages) in as_in_the_head {
            assert_eq!(cheapest(signal, density), pages, "{density:?}");
        }
        assert_eq!(cheapest(signal_limited, [38, 47]), 1);
        // At these a page wanted costs 0.45 with its quad, and 0.46 and 0.44 with its stretch.
        assert_eq!([67, 70].map(|stretch| cheapest(signal, [100, stretch])), [4, 16]);
        assert_eq!([26, 27].map(|quad| cheapest(signal, [quad, 0])), [1, 4]);
        assert_eq!([26, 27].map(|stretch| cheapest(signal, [0, stretch])), [1, 16]);
    }
}
