//! Fault-around: how many pages to bring in at a fault.
//!
//! A walk:
//!
//! ```text
//!   fault at 7   8        10            14           22                32           90
//!   pages    1   2        4             8            10 of 16          16 (to 47)   1
//!            `-> next 8   `-> next 10   `-> next 14  `-> to a multiple of 16        not the next
//! ```
//!
//! A fault on the page after those brought in last says that they were wanted, and doubles the
//! number; any other fault starts again with one. Full windows are aligned, so that the end of a
//! group, where the run of pages ends, cuts none in two.
//!
//! There are several such windows, chosen by CPU, for threads that each walk their own part. They
//! are hints: two threads that mix them up bring in too few pages or too many, never wrong ones.
//!
//! Anything else: what is stored of the aligned quad of 4 pages around the one that faulted, or of
//! the stretch of 16, where the module `density` has measured that they are wanted and `worth` says
//! that this pays; one page where not. So what does not pay is not done, and costs two loads and a
//! few comparisons.

use crate::density::{Density, is_watched};
use crate::trials::QUAD_PAGES;
use crate::worth::Worth;
use crate::{AROUND_PAGES, Quads};
use host::cpu;
use std::sync::atomic::{AtomicU64, Ordering};

const WINDOWS: usize = 8;
const COUNT_BITS: u32 = 8;
const COUNT_MASK: u64 = (1 << COUNT_BITS) - 1;

const _: () = assert!(AROUND_PAGES < 1 << COUNT_BITS, "the number of pages fits its bits");

/// Two cache lines, because processors fetch them in pairs.
#[derive(Default)]
#[repr(align(128))]
struct Window(AtomicU64);

/// What a region knows of how it is touched.
pub(crate) struct Around {
    windows: [Window; WINDOWS],
    quads: Quads,
    pub(crate) density: Density,
    pub(crate) worth: Worth,
}

impl Around {
    /// Nothing known yet but costs.
    pub(crate) fn new(quads: Quads, worth: Worth) -> Around {
        let (windows, density) = Default::default();
        Around { windows, quads, density, worth }
    }

    /// How many aligned pages around it a fault in a group is to bring in, of those that are in the
    /// store; where there is a limit, or is not.
    pub(crate) fn aligned(&self, group: usize, limited: bool) -> usize {
        match self.quads {
            Quads::Never => 1,
            Quads::Always => QUAD_PAGES,
            Quads::Measured => match self.worth.pages_at_once(self.density.per_cent(), limited) {
                pages if pages > 1 && is_watched(group) => 1,
                pages => pages,
            },
        }
    }

    /// How many pages to bring in from `page` on, at most.
    pub(crate) fn ask(&self, page: usize) -> usize {
        // relaxed: a hint.
        let word = self.window().load(Ordering::Relaxed);
        let (next, count) = (word >> COUNT_BITS, (word & COUNT_MASK) as usize);
        if next == page as u64 && count > 0 { (2 * count).min(AROUND_PAGES) } else { 1 }
    }

    /// How many of `asked` pages from `page` on to bring in, so that full windows are aligned.
    pub(crate) fn cut(page: usize, asked: usize) -> usize {
        if asked < AROUND_PAGES { asked } else { AROUND_PAGES - page % AROUND_PAGES }
    }

    /// Of the pages `asked` for from `page` on, `done` were brought in.
    pub(crate) fn tell(&self, page: usize, asked: usize, done: usize) {
        let next = (page + done.max(1)) as u64;
        // relaxed: a hint.
        self.window().store(next << COUNT_BITS | asked as u64, Ordering::Relaxed);
    }

    fn window(&self) -> &AtomicU64 {
        &self.windows[cpu::current_hint() % WINDOWS].0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// The numbers of pages brought in along a walk of faults on one CPU.
    fn walk(faults: &[usize]) -> Vec<usize> {
        let around = Around::new(Quads::Never, Worth::measured(Duration::ZERO));
        let step = |&page: &usize| {
            // Whatever CPU the test moves to, its windows have seen the same.
            let asked = around.ask(page);
            let done = Around::cut(page, asked);
            around.tell(page, asked, done);
            let told = ((page + done) as u64) << COUNT_BITS | asked as u64;
            around.windows.iter().for_each(|window| window.0.store(told, Ordering::Relaxed));
            done
        };
        faults.iter().map(step).collect()
    }

    #[test]
    fn a_sequence_doubles_and_a_jump_starts_again() {
        assert_eq!(walk(&[7, 8, 10, 14, 22, 32, 48, 90, 91]), [1, 2, 4, 8, 10, 16, 16, 1, 2]);
        assert_eq!(walk(&[0, 1, 3, 7, 15, 16, 32]), [1, 2, 4, 8, 1, 16, 16]);
        assert_eq!(walk(&[5, 900, 17, 3]), [1, 1, 1, 1]);
    }
}
