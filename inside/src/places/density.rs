//! How densely memory is touched: of the pages beside one that was wanted, how many were wanted
//! too.
//!
//! ```text
//!   out        o o o o | o o o o        pages of a group that a fault could bring in
//!   wanted       x   x |                those that the program touched
//!   beside     1 of 3    nothing        a quad of which none was wanted teaches nothing
//! ```
//!
//! The system does not say which pages were touched, so a page that came beside another teaches
//! nothing. Hence one group in 16 is *watched*: its pages wait for faults of their own. Regions
//! decide in the same way.
//!
//! A page that comes beside another costs `cost` per cent of a fault. With density d, N pages at
//! once cost 1 + (N - 1) cost, and bring 1 + (N - 1) d wanted pages. A fault brings in the number
//! of pages that costs least for each wanted one.
//!
//! Invariant: of each size, `wanted` is at most `beside`. Lock: the caller's.

use super::bits::aligned;
use super::terms::{GROUP, GROUP_PAGES};

/// The numbers of aligned pages that may come together, besides one: a quad and a stretch.
const SIZES: [usize; 2] = [4, 16];
/// One in this many groups is watched.
const WATCHED_ONE_IN: u64 = 16;
/// Evidence is halved when there is so much of it, so that old times are forgotten.
const EVIDENCE_MAX: u32 = 1 << 12; // 4096
/// While nothing is known, half of the pages beside are expected to be wanted.
const YOUNG: Tally = Tally { beside: 64, wanted: 32 };

/// Whether a group is one of those that teach.
pub(crate) fn is_watched(group: usize) -> bool {
    // The multiplier is 2^64 over the golden ratio: neighbours and strides are spread alike.
    let hash = (group as u64 / GROUP as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    hash >> (u64::BITS - WATCHED_ONE_IN.ilog2()) == 0
}

/// Pages beside one that was wanted.
#[derive(Debug, Clone, Copy)]
struct Tally {
    beside: u32,
    wanted: u32,
}

/// What watched groups have taught.
#[derive(Debug)]
pub(crate) struct Density([Tally; SIZES.len()]);

impl Default for Density {
    fn default() -> Density {
        Density([YOUNG; SIZES.len()])
    }
}

impl Density {
    /// The pages `out` of a watched group were out, and of these `wanted` were touched.
    pub(crate) fn learn(&mut self, out: u64, wanted: u64) {
        for (tally, size) in self.0.iter_mut().zip(SIZES) {
            for first in (0..GROUP_PAGES).step_by(size) {
                let around = aligned(first, size);
                let touched = (wanted & out & around).count_ones();
                if touched > 0 {
                    tally.beside += (out & around).count_ones() - 1;
                    tally.wanted += touched - 1;
                }
            }
            if tally.beside > EVIDENCE_MAX {
                *tally = Tally { beside: tally.beside / 2, wanted: tally.wanted / 2 };
            }
        }
    }

    /// How many aligned pages a fault should bring in, if one that comes beside another costs
    /// `cost` per cent of a fault.
    pub(crate) fn pages_at_once(&self, cost: u32) -> usize {
        let of = |pages: usize, density: u32| {
            let beside = pages as u32 - 1;
            (pages, 100 + beside * cost, 100 + beside * density)
        };
        // Fractions are compared by multiplying both sides by the denominators.
        let cheaper = |best: (usize, u32, u32), next: (usize, u32, u32)| {
            if next.1 * best.2 <= best.1 * next.2 { next } else { best }
        };
        let all = SIZES.into_iter().zip(&self.0).map(|(size, tally)| of(size, tally.per_cent()));
        all.fold(of(1, 0), cheaper).0
    }
}

impl Tally {
    fn per_cent(self) -> u32 {
        100 * self.wanted / self.beside.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// The twin counts page by page.
        #[test]
        fn what_is_learned_is_counted_by_pages(out: u64, wanted: u64) {
            let mut density = Density([Tally { beside: 0, wanted: 0 }; 2]);
            density.learn(out, wanted);
            let has = |mask: u64, page: usize| mask >> page & 1 == 1;
            for (tally, size) in density.0.iter().zip(SIZES) {
                let (mut beside, mut touched) = (0, 0);
                for first in (0..GROUP_PAGES).step_by(size) {
                    let block = first..first + size;
                    let hit = block.clone().find(|&page| has(out, page) && has(wanted, page));
                    for page in block.filter(|&page| hit.is_some_and(|hit| hit != page)) {
                        beside += u32::from(has(out, page));
                        touched += u32::from(has(out, page) && has(wanted, page));
                    }
                }
                prop_assert_eq!((tally.beside, tally.wanted), (beside, touched));
            }
        }
    }

    #[test]
    fn what_comes_costs_least() {
        let density = |[quads, stretches]: [u32; 2]| {
            Density([quads, stretches].map(|wanted| Tally { beside: 100, wanted }))
        };
        for (known, cost, pages) in [
            ([100, 100], 27, 16),
            ([38, 47], 27, 16),
            ([100, 32], 27, 4),
            ([5, 6], 27, 1),
            ([38, 47], 56, 1),
            ([20, 20], 15, 16),
        ] {
            assert_eq!(density(known).pages_at_once(cost), pages, "{known:?} at {cost}");
        }
    }

    #[test]
    fn old_times_are_forgotten() {
        let mut density = Density::default();
        (0..1000).for_each(|_| density.learn(u64::MAX, 1));
        assert_eq!(density.pages_at_once(27), 1);
        (0..1000).for_each(|_| density.learn(u64::MAX, u64::MAX));
        assert_eq!(density.pages_at_once(27), 16);
    }

    #[test]
    fn one_group_in_sixteen_is_watched_whatever_the_stride() {
        for stride in 1..100 {
            let watched = (0..1600).filter(|number| is_watched(number * stride * GROUP)).count();
            assert!((80..=120).contains(&watched), "{watched} of 1600 in steps of {stride}");
        }
    }
}
