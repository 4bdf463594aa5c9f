//! Which parts of a reservation are open. A part is opened when it is needed, and may be written
//! then.
//!
//! ```text
//!   reservation  | step 0 | step 1 | step 2 | step 3 | step 4 | ...
//!   open             1        1        0        0        1            one bit a step
//!                |  an extent      |                 | one    |
//! ```
//!
//! If a program locks its memory (`mlockall`), the system fills everything that may be written. So
//! only the parts in use may be written, and a little more.
//!
//! Invariants
//! - O1: a bit is set after its step was opened, and is never cleared. A thread that sees it may
//!   write.
//! - O2: an extent is a run of set bits with no set bit beside it. `extents` is their number, and
//!   the budget's number is the sum over its reservations.
//! - O3: while the budget is less than 1/16 used, a call opens ahead at most 1/8 of the extent
//!   below, and at most 64 MiB. So a part that is filled from low to high is opened by few calls.
//! - O4: an extent takes at most two mappings of the process. The more of the budget is used, the
//!   coarser the steps are. Once it is used up, a step is opened together with all steps up to the
//!   nearest extent. Only the first extent of a reservation exceeds the budget.
//!
//! Lock: the number of extents. The system is asked while it is held, so that a step is opened
//! once.

use super::bits::{mask_of, spans, word_of, words_for};
use super::error::HostDefect;
use crate::locks::{Lock, Rank};
use crate::machine::{PAGE_SIZE, max_map_count};
use crate::sync::atomic::{AtomicU64, Ordering};
use std::io;
use std::ops::Range;
// From the standard library, because a model's atomics cannot be in a static.
use std::sync::atomic::AtomicUsize;

/// The extent below, divided by this, is opened ahead,
const AHEAD_DIVISOR: usize = 8;
/// but no more pages than this.
const AHEAD_MAX: usize = (64 << 20) / PAGE_SIZE; // 16384 pages, 64 MiB
/// The budget in parts. Each time another part is used, steps double in size.
const PARTS: usize = 16;
/// The mappings that a process may have, divided by this, are for all reservations together.
const SHARE: u64 = 8;
/// Mappings that an extent takes: its own, and the one that it cuts off.
const MAPPINGS: u64 = 2;

/// The mappings that all reservations of a process use together. It is one for the process, because
/// the bound is one too (`vm.max_map_count`). So owners of reservations need not know of each
/// other.
pub(crate) static PROCESS: Budget = Budget::new(extents_max);

fn extents_max() -> usize {
    (max_map_count() / SHARE / MAPPINGS) as usize
}

/// How many extents some reservations have, and how many they should have at most.
#[derive(Debug)]
pub(crate) struct Budget {
    extents: AtomicUsize,
    max: fn() -> usize,
}

impl Budget {
    const fn new(max: fn() -> usize) -> Budget {
        Budget { extents: AtomicUsize::new(0), max }
    }

    /// Extents in use.
    pub(crate) fn used(&self) -> usize {
        // relaxed: an independent number, which decides how coarse the next step is.
        self.extents.load(Ordering::Relaxed)
    }

    /// A reservation had `from` extents, and has `to` now.
    fn changed(&self, from: usize, to: usize) {
        // relaxed: a sum of numbers, each of which changes under its own lock.
        self.extents.fetch_add(to.wrapping_sub(from), Ordering::Relaxed);
    }
}

/// The steps of one reservation. The module has a picture.
#[derive(Debug)]
pub(crate) struct Steps {
    pages: usize,
    /// A power of two.
    step_pages: usize,
    open: Box<[AtomicU64]>,
    extents: Lock<usize>,
    budget: &'static Budget,
}

impl Steps {
    /// Steps of `step_pages` pages for a reservation of `pages` pages, none of them open. `rank` is
    /// that of the lock.
    pub(crate) fn new(
        pages: usize,
        step_pages: usize,
        rank: Rank,
        budget: &'static Budget,
    ) -> Steps {
        assert!(step_pages.is_power_of_two(), "a step is a power of two of pages");
        let words = words_for(pages.div_ceil(step_pages));
        let open = (0..words).map(|_| AtomicU64::new(0)).collect();
        Steps { pages, step_pages, open, extents: Lock::new(rank, 0), budget }
    }

    /// Whether all of `pages` are open.
    #[inline]
    pub(crate) fn is_open(&self, pages: &Range<usize>) -> bool {
        let steps = self.steps_of(pages);
        // Mostly it is one step. Every claim of frames asks here.
        if steps.len() == 1 {
            return self.is_open_in(word_of(steps.start), mask_of(steps.start));
        }
        self.are_open(steps)
    }

    #[inline(never)]
    fn are_open(&self, steps: Range<usize>) -> bool {
        spans(steps.start, steps.end).all(|(word, mask)| self.is_open_in(word, mask))
    }

    #[inline]
    fn is_open_in(&self, word: usize, mask: u64) -> bool {
        // Acquire pairs with the Release in `open`, so that a thread that sees the bit may write
        // (O1).
        self.open[word].load(Ordering::Acquire) & mask == mask
    }

    /// Opens those of `pages` that are not open. `open` asks the system to open a range, which is
    /// whole steps.
    ///
    /// # Errors
    ///
    /// The answer of the system. Nothing has changed then.
    #[cold]
    pub(crate) fn open(
        &self,
        pages: &Range<usize>,
        open: impl Fn(Range<usize>) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut extents = self.extents.lock();
        let mut wanted = self.steps_of(pages);
        let Some(first) = wanted.clone().find(|&step| !self.is_set(step)) else { return Ok(()) };
        wanted.start = first;
        let mut steps = self.widened(&wanted);
        if let Err(error) = open(self.pages_of(&steps)) {
            // A step that joins an extent needs no further mapping.
            steps = self.joined(&wanted);
            open(self.pages_of(&steps)).map_err(|_| error)?;
        }
        for (word, mask) in spans(steps.start, steps.end) {
            // Release pairs with the Acquire in `is_open_in`, so that a thread that sees the bit
            // writes after the system opened the step (O1).
            self.open[word].fetch_or(mask, Ordering::Release);
        }
        let before = std::mem::replace(&mut *extents, self.count_extents());
        self.budget.changed(before, *extents);
        Ok(())
    }

    /// The steps to open if `wanted` are needed, of which the first is not open (O3, O4).
    fn widened(&self, wanted: &Range<usize>) -> Range<usize> {
        let (used, max) = (self.budget.used(), (self.budget.max)().max(1));
        if used >= max {
            return self.joined(wanted);
        }
        let ahead_max = AHEAD_MAX / self.step_pages;
        let below = (0..wanted.start).rev().take(ahead_max * AHEAD_DIVISOR);
        let ahead = below.take_while(|&step| self.is_set(step)).count() / AHEAD_DIVISOR;
        let unit = 1 << (used * PARTS / max);
        let end = wanted.end.max(wanted.start + ahead).next_multiple_of(unit);
        wanted.start / unit * unit..end.min(self.len())
    }

    /// `wanted`, and the steps between them and the nearest extent, if there is one.
    fn joined(&self, wanted: &Range<usize>) -> Range<usize> {
        let below = (0..wanted.start).rev().find(|&step| self.is_set(step));
        let above = (wanted.end..self.len()).find(|&step| self.is_set(step));
        match (below, above) {
            (Some(below), Some(above)) if wanted.start - below > above - wanted.end => {
                wanted.start..above
            }
            (Some(below), _) => below + 1..wanted.end,
            (None, Some(above)) => wanted.start..above,
            (None, None) => wanted.clone(),
        }
    }

    fn len(&self) -> usize {
        self.pages.div_ceil(self.step_pages)
    }

    fn steps_of(&self, pages: &Range<usize>) -> Range<usize> {
        // It shifts, because a division by a variable takes as long as everything else here.
        let shift = self.step_pages.trailing_zeros();
        pages.start >> shift..(pages.end + self.step_pages - 1) >> shift
    }

    fn pages_of(&self, steps: &Range<usize>) -> Range<usize> {
        steps.start * self.step_pages..(steps.end * self.step_pages).min(self.pages)
    }

    /// Whether a step is open. The caller has the lock.
    fn is_set(&self, step: usize) -> bool {
        // relaxed: bits are set under the lock.
        self.open[word_of(step)].load(Ordering::Relaxed) & mask_of(step) != 0
    }

    fn count_extents(&self) -> usize {
        let mut last = 0;
        let starts = |word: &AtomicU64| {
            // relaxed: bits are set under the lock.
            let bits = word.load(Ordering::Relaxed);
            let before = std::mem::replace(&mut last, bits >> (u64::BITS - 1));
            (bits & !(bits << 1 | before)).count_ones() as usize
        };
        self.open.iter().map(starts).sum()
    }

    /// Recounts the extents (O2).
    pub(crate) fn check(&self) -> Result<(), HostDefect> {
        let extents = self.extents.lock();
        match self.count_extents() {
            counted if counted == *extents => Ok(()),
            counted => Err(HostDefect(format!("O2: {} extents, the bits say {counted}", *extents))),
        }
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        self.budget.changed(*self.extents.lock(), 0);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::cell::RefCell;

    /// Not a whole number of steps.
    const PAGES: usize = 4000;
    const STEP: usize = 4;
    const STEPS: usize = PAGES / STEP;

    /// Where a leak checker finds the budgets of all tests.
    static BUDGETS: std::sync::Mutex<Vec<&Budget>> = std::sync::Mutex::new(Vec::new());

    /// A budget that is not the process's, which other tests use.
    fn budget(max: fn() -> usize) -> &'static Budget {
        let budget: &Budget = Box::leak(Box::new(Budget::new(max)));
        BUDGETS.lock().expect("nothing panics here").push(budget);
        budget
    }

    fn steps(budget: &'static Budget) -> Steps {
        Steps::new(PAGES, STEP, Rank::Entries, budget)
    }

    /// The naive twin: a `bool` a page.
    struct Twin(RefCell<Vec<bool>>);

    impl Twin {
        fn new() -> Twin {
            Twin(RefCell::new(vec![false; PAGES]))
        }

        fn open(&self, pages: Range<usize>) -> io::Result<()> {
            self.0.borrow_mut()[pages].fill(true);
            Ok(())
        }

        fn opened(&self) -> usize {
            self.0.borrow().iter().filter(|&&page| page).count()
        }

        fn extents(&self) -> usize {
            let pages = self.0.borrow();
            let starts = |&at: &usize| pages[at] && (at == 0 || !pages[at - 1]);
            (0..PAGES).filter(starts).count()
        }
    }

    #[test]
    fn a_recount_finds_a_wrong_count_of_extents() {
        let steps = steps(budget(|| 40));
        steps.open(&(0..1), |_| Ok(())).expect("not refused");
        assert_eq!(steps.check(), Ok(()));
        *steps.extents.lock() += 1;
        let defect = steps.check().expect_err("damaged").to_string();
        assert!(defect.contains("O2: 2 extents, the bits say 1"), "{defect}");
        *steps.extents.lock() -= 1;
    }

    fn range() -> impl Strategy<Value = Range<usize>> {
        (0..PAGES, 1_usize..20).prop_map(|(start, len)| start..(start + len).min(PAGES))
    }

    proptest! {
        /// What is said to be open was opened, whatever the system refuses; and the extents are
        /// those of the pages.
        #[test]
        fn the_steps_agree_with_their_naive_twin(
            wishes in prop::collection::vec((range(), 0_u8..4), 1..120),
        ) {
            let budget = budget(|| 40);
            let (steps, twin) = (steps(budget), Twin::new());
            for (pages, refusals) in wishes {
                let left = RefCell::new(refusals);
                let opened = steps.open(&pages, |pages| {
                    let mut left = left.borrow_mut();
                    *left = left.saturating_sub(1);
                    let refused = *left > 0;
                    if refused { Err(io::ErrorKind::OutOfMemory.into()) } else { twin.open(pages) }
                });
                prop_assert!(opened.is_err() || steps.is_open(&pages));
                for page in 0..PAGES {
                    prop_assert_eq!(steps.is_open(&(page..page + 1)), twin.0.borrow()[page]);
                }
                prop_assert_eq!(budget.used(), twin.extents());
                prop_assert_eq!(steps.check(), Ok(()));
            }
            drop(steps);
            prop_assert_eq!(budget.used(), 0);
        }

        /// The story: a table written at random places took a mapping for each, without end.
        #[test]
        fn no_more_extents_than_the_budget_has(
            places in prop::collection::vec(0..PAGES, 1..600),
        ) {
            let budget = budget(|| 16);
            let (steps, twin) = (steps(budget), Twin::new());
            for page in places {
                steps.open(&(page..page + 1), |pages| twin.open(pages)).expect("not refused");
                prop_assert!(budget.used() <= 16, "{} extents", budget.used());
            }
        }
    }

    #[test]
    fn a_part_that_is_filled_from_low_to_high_is_opened_in_few_calls_and_little_more() {
        let (steps, twin) = (steps(budget(|| 1000)), Twin::new());
        let calls = RefCell::new(0);
        for page in 0..PAGES {
            let open = |pages| {
                *calls.borrow_mut() += 1;
                twin.open(pages)
            };
            steps.open(&(page..page + 1), open).expect("not refused");
            let most = (page + STEP) + page / AHEAD_DIVISOR;
            assert!(twin.opened() <= most, "{} opened for {page}", twin.opened());
        }
        assert_eq!(twin.extents(), 1);
        let calls = calls.into_inner();
        assert!(calls < STEPS / 10, "{calls} calls");
    }

    #[test]
    fn where_no_mapping_is_left_what_is_opened_joins_what_is_open() {
        let (steps, twin) = (steps(budget(|| 1000)), Twin::new());
        steps.open(&(0..1), |pages| twin.open(pages)).expect("not refused");
        let joins = |pages: Range<usize>| match pages.start == STEP {
            true => twin.open(pages),
            false => Err(io::ErrorKind::OutOfMemory.into()),
        };
        steps.open(&(100..101), joins).expect("the second way");
        assert_eq!((twin.extents(), twin.opened()), (1, 100 + STEP));
        let refused = steps.open(&(500..501), |_| Err(io::ErrorKind::OutOfMemory.into()));
        assert!(refused.is_err() && !steps.is_open(&(500..501)));
    }

    #[test]
    fn a_full_budget_still_gives_each_reservation_one_extent() {
        let budget = budget(|| 2);
        let each = [0; 5].map(|_| (steps(budget), Twin::new()));
        for (steps, twin) in &each {
            for page in [2000, 100, 3900] {
                steps.open(&(page..page + 1), |pages| twin.open(pages)).expect("not refused");
            }
        }
        let extents: Vec<_> = each.iter().map(|(_, twin)| twin.extents()).collect();
        assert_eq!(extents, [2, 1, 1, 1, 1], "the first has what the budget has");
    }
}
