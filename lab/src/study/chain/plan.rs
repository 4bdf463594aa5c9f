//! Which page goes into which slot: the same for every store of a run.

use crate::ground::Rng;

/// Below this a half or a tenth is not one.
pub(super) const PAGES_MIN: usize = 20;

/// The pages that are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Fill {
    /// A random half of the corpus, a tenth of it then overwritten with other pages.
    Half,
    /// Every page once, in order.
    Whole,
}

impl Fill {
    pub(super) fn name(self) -> &'static str {
        match self {
            Fill::Half => "half",
            Fill::Whole => "whole",
        }
    }
}

/// The writes of one run.
pub(super) struct Plan {
    /// How they were drawn.
    pub(super) fill: Fill,
    /// Pages of the corpus that were drawn from.
    pub(super) pages: usize,
    /// The page first written to slot `i`.
    pub(super) first: Vec<u32>,
    /// Slots written again, and the page they get.
    pub(super) again: Vec<(u32, u32)>,
}

const SEED: u64 = 0x5331;

impl Plan {
    /// The plan of run `run`: a function of its arguments alone.
    pub(super) fn new(fill: Fill, pages: usize, run: u32) -> Plan {
        if fill == Fill::Whole {
            return Plan { fill, pages, first: (0..pages as u32).collect(), again: Vec::new() };
        }
        let mut rng = Rng::new(SEED, u64::from(run));
        let mut first = rng.permutation(pages);
        first.truncate(pages / 2);
        let mut slots = rng.permutation(first.len());
        slots.truncate(first.len() / 10);
        let again = slots.into_iter().map(|slot| (slot, rng.below(pages) as u32)).collect();
        Plan { fill, pages, first, again }
    }

    pub(super) fn slots(&self) -> usize {
        self.first.len()
    }

    /// The page every slot holds once all writes are done.
    pub(super) fn last(&self) -> Vec<u32> {
        let mut pages = self.first.clone();
        for &(slot, page) in &self.again {
            pages[slot as usize] = page;
        }
        pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_half_is_half_of_the_pages_each_once() {
        let plan = Plan::new(Fill::Half, 1000, 3);
        let distinct: HashSet<u32> = plan.first.iter().copied().collect();
        assert_eq!((plan.slots(), distinct.len(), plan.again.len()), (500, 500, 50));
        assert!(distinct.iter().all(|&page| page < 1000));
        let slots: HashSet<u32> = plan.again.iter().map(|&(slot, _)| slot).collect();
        assert_eq!(slots.len(), 50, "a slot is overwritten twice");
    }

    #[test]
    fn runs_differ_and_can_be_repeated() {
        let first = |run| Plan::new(Fill::Half, 1000, run).first;
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
    }

    #[test]
    fn the_last_write_counts() {
        let plan = Plan { fill: Fill::Half, pages: 9, first: vec![4, 5, 6], again: vec![(1, 8)] };
        assert_eq!(plan.last(), [4, 8, 6]);
        assert_eq!(Plan::new(Fill::Whole, 3, 0).last(), [0, 1, 2]);
    }
}
