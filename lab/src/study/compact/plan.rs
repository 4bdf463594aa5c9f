//! Which pages are discarded: the same for every store of a run.

use crate::ground::{LabError, Rng};

const SEED: u64 = 0x636F_6D70;

/// The pages of one run, sorted by what becomes of them.
pub(super) struct Plan {
    pub(super) pages: usize,
    pub(super) percent: u32,
    /// Pages that stay, ascending.
    pub(super) live: Vec<u32>,
    /// Pages that are discarded, ascending.
    pub(super) gone: Vec<u32>,
}

impl Plan {
    /// A function of its arguments alone.
    pub(super) fn new(pages: usize, percent: u32, run: u32) -> Result<Plan, LabError> {
        let mut gone = Rng::new(SEED, u64::from(run)).permutation(pages);
        let mut live = gone.split_off(pages * percent as usize / 100);
        if gone.is_empty() || live.is_empty() {
            let what = format!("{percent} % of {pages} pages leaves nothing to compact");
            return Err(LabError::Usage(what));
        }
        gone.sort_unstable();
        live.sort_unstable();
        Ok(Plan { pages, percent, live, gone })
    }

    /// The pages discarded as runs of adjacent ones: first page and length.
    pub(super) fn ranges(&self) -> impl Iterator<Item = (usize, usize)> {
        let adjacent = |a: &u32, b: &u32| a + 1 == *b;
        self.gone.chunk_by(adjacent).map(|run| (run[0] as usize, run.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_drawn_anew_for_every_run() {
        let plan = Plan::new(1000, 90, 1).unwrap();
        assert_eq!((plan.live.len(), plan.gone.len()), (100, 900));
        assert_eq!(plan.gone, Plan::new(1000, 90, 1).unwrap().gone);
        assert_ne!(plan.gone, Plan::new(1000, 90, 2).unwrap().gone);
        let mut all = [plan.live, plan.gone].concat();
        all.sort_unstable();
        assert_eq!(all, (0..1000).collect::<Vec<u32>>(), "a page is both or neither");
    }

    #[test]
    fn ranges_are_the_pages_gone() {
        let plan =
            Plan { pages: 9, percent: 50, live: vec![0, 3, 6], gone: vec![1, 2, 4, 5, 7, 8] };
        assert_eq!(plan.ranges().collect::<Vec<_>>(), [(1, 2), (4, 2), (7, 2)]);
        assert!(Plan::new(10, 5, 0).is_err(), "half a page is none");
    }
}
