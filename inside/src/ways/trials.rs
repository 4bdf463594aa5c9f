//! Watched groups of which pages are in the store, or were never touched: which these were when the
//! program came to the group, and which it touched since then.
//!
//! ```text
//!   first fault   out = all such pages of the group              each page waits for its own fault
//!   later faults  touched                                        what a walk brings is not counted
//!   it leaves     the density learns both
//! ```
//!
//! Invariant: what was touched was out. Lock: the caller's.

use crate::places::{Density, bits};
use std::collections::HashMap;

/// More groups than this are not followed: their memory may be gone without a word.
const TRIALS_MAX: usize = 1 << 12; // 4096

#[derive(Debug, Default, Clone, Copy)]
struct Trial {
    out: u64,
    touched: u64,
}

/// Trials that run, by group.
#[derive(Debug, Default)]
pub(crate) struct Trials(HashMap<usize, Trial>);

impl Trials {
    /// A page was touched while pages of its group were in the store, or new, and `came` came.
    pub(crate) fn touched(&mut self, group: usize, such: u64, page: usize, came: u64) {
        if self.0.len() >= TRIALS_MAX {
            self.0.clear();
        }
        let trial = self.0.entry(group).or_insert(Trial { out: such, touched: 0 });
        trial.touched |= bits(page, 1) & trial.out;
        trial.out &= !came | trial.touched;
    }

    /// A group leaves.
    pub(crate) fn end(&mut self, group: usize, density: &mut Density) {
        if let Some(Trial { out, touched }) = self.0.remove(&group) {
            density.learn(out, touched);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_walk_brings_teaches_nothing() {
        let mut trials = Trials::default();
        trials.touched(7, bits(0, 8), 0, bits(0, 1));
        trials.touched(7, bits(1, 7), 1, bits(1, 3));
        let Trial { out, touched } = trials.0[&7];
        assert_eq!((out, touched), (bits(0, 2) | bits(4, 4), bits(0, 2)));
        trials.end(7, &mut Density::default());
        assert!(trials.0.is_empty());
        (0..2 * TRIALS_MAX).for_each(|group| trials.touched(group, 1, 0, 1));
        assert!(trials.0.len() <= TRIALS_MAX);
    }
}
