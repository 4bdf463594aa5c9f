//! How densely a region is touched: how much it would have been worth to bring in a page's
//! neighbours.
//!
//! The system does not say which pages were touched, so a page that came beside another teaches
//! nothing. Hence there is an experiment. One group in 16, by a hash of its number, is *watched*:
//! each of its pages waits for a fault of its own. The faults there are counted, by quads and by
//! stretches (module `trials`).
//!
//! A density is the number of wanted pages over the number of pages beside. It is the larger of
//! two: that of the trials that run, and that of the trials that ended last. Running trials alone
//! would say too little at the beginning of each cycle of pages out and in. Ended trials alone
//! would say nothing until the first is complete.
//!
//! Until one has ended, the running trials count `YOUNG` times, because they have seen little yet.
//! They count only up to `EVEN`, because all pages that are still out may be touched, or none. If
//! that guess is too high or too low, a region's first cycle takes longer than necessary. Ended
//! trials decide afterwards.
//!
//! If a program begins to touch less densely, ended trials are wrong until the groups that it
//! touches now have left memory. If it begins to touch more densely, running trials show it.
//!
//! Invariant D1: `running` is the sum of all running trials. A trial changes under its group's
//! lock.
//!
//! Locks: none of its own. A fault in another group reads one word, which changes in steps of one
//! per cent. Only faults in watched groups write the sums.

use crate::places::{QUAD_PAGES, STRETCH_PAGES, Tally, Trials, TrialsOf};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// One in this many groups is watched: its pages wait for faults of their own.
const WATCHED_ONE_IN: u64 = 16;
/// How many times the density of running trials counts while none have ended.
const YOUNG: u32 = 3;
/// They count up to this. While nothing is known of how much will be touched in the end, half of
/// the pages that are still out are expected to be.
const EVEN: u32 = 50;

/// Whether a group is one of those that measure the density.
pub(crate) fn is_watched(group: usize) -> bool {
    // The multiplier is 2^64 over the golden ratio: neighbours and strides are spread alike.
    let hash = (group as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    hash >> (u64::BITS - WATCHED_ONE_IN.ilog2()) == 0
}

/// The results of trials of quads, or of stretches: packed tallies.
#[derive(Debug, Default)]
struct Told<const COUNT: usize> {
    /// The sum of the trials that run (D1).
    running: AtomicU64,
    /// The sum of the trials that ended lately.
    ended: AtomicU64,
}

impl<const COUNT: usize> Told<COUNT> {
    fn change<R>(
        &self,
        trials: &mut TrialsOf<COUNT>,
        change: impl FnOnce(&mut TrialsOf<COUNT>) -> R,
    ) -> R {
        let before = trials.tally().pack();
        let result = change(trials);
        let more = trials.tally().pack().wrapping_sub(before);
        if more != 0 {
            // relaxed: a sum that publishes nothing else. Both halves are sums of running trials,
            // so a borrow of one half from the other is given back.
            self.running.fetch_add(more, Ordering::Relaxed);
        }
        result
    }

    fn end(&self, trials: &mut TrialsOf<COUNT>, pages: u64) {
        let told = self.change(trials, |trials| trials.end(pages));
        // relaxed: a hint, as below. If two groups leave at once, the result of one may be lost.
        let before = Tally::unpack(self.ended.load(Ordering::Relaxed));
        self.ended.store(told.after(before).pack(), Ordering::Relaxed);
    }

    fn running(&self) -> Tally {
        // relaxed: a sum that publishes nothing else.
        Tally::unpack(self.running.load(Ordering::Relaxed))
    }

    /// The density in per cent.
    fn density(&self) -> u32 {
        let evidence = TrialsOf::<COUNT>::EVIDENCE;
        // relaxed: a hint.
        let ended = Tally::unpack(self.ended.load(Ordering::Relaxed));
        let running = self.running().density(evidence);
        if ended.beside < evidence {
            running.max((YOUNG * running).min(EVEN))
        } else {
            running.max(ended.density(evidence))
        }
    }
}

/// The results of all trials of a region.
#[derive(Debug, Default)]
pub(crate) struct Density {
    read: Read,
    quads: Told<QUAD_PAGES>,
    stretches: Told<STRETCH_PAGES>,
}

/// The word that every fault reads: the per cent of quads, and above it that of stretches. It has
/// two cache lines, because processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Read(AtomicU32);

impl Density {
    /// Notes that a stored page faulted, in a group of which `stored` were in the store.
    pub(crate) fn touched(&self, group: usize, trials: &mut Trials, page: usize, stored: u64) {
        if is_watched(group) {
            self.quads.change(&mut trials.quads, |trials| trials.touched(page, stored));
            self.stretches.change(&mut trials.stretches, |trials| trials.touched(page, stored));
            self.publish();
        }
    }

    /// Notes that pages of a group came for other reasons, or are gone.
    pub(crate) fn spoil(&self, group: usize, trials: &mut Trials, pages: u64) {
        if is_watched(group) {
            self.quads.change(&mut trials.quads, |trials| trials.spoil(pages));
            self.stretches.change(&mut trials.stretches, |trials| trials.spoil(pages));
            self.publish();
        }
    }

    /// Notes that pages of a group leave memory.
    pub(crate) fn end(&self, group: usize, trials: &mut Trials, pages: u64) {
        if is_watched(group) {
            self.quads.end(&mut trials.quads, pages);
            self.stretches.end(&mut trials.stretches, pages);
            self.publish();
        }
    }

    fn publish(&self) {
        let word = self.quads.density() | self.stretches.density() << u8::BITS;
        // relaxed: a hint. It is read first, so that the line stays with its readers.
        if self.read.0.load(Ordering::Relaxed) != word {
            self.read.0.store(word, Ordering::Relaxed);
        }
    }

    /// The sums of the trials that run, of quads and of stretches.
    pub(crate) fn running(&self) -> [Tally; 2] {
        [self.quads.running(), self.stretches.running()]
    }

    /// The per cent of the pages beside a faulting page that are wanted too: in its quad, and in
    /// its stretch.
    pub(crate) fn per_cent(&self) -> [u32; 2] {
        // relaxed: a hint.
        let word = self.read.0.load(Ordering::Relaxed);
        [word & u32::from(u8::MAX), word >> u8::BITS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::neighbours::worth::cheapest;
    use crate::places::{Group, MEMORY, bits};
    use crate::terms::GROUP_PAGES;
    use proptest::prelude::*;

    /// The first group that is watched, and some that are not.
    fn watched() -> usize {
        (0..).find(|&group| is_watched(group)).expect("one in 16")
    }

    #[test]
    fn one_group_in_sixteen_is_watched_whatever_the_stride() {
        for stride in 1..100 {
            let watched = (0..1600).filter(|number| is_watched(number * stride)).count();
            assert!((80..=120).contains(&watched), "{watched} of 1600 in steps of {stride}");
        }
    }

    /// The trials of one group's blocks of `count` pages, page by page.
    struct Naive {
        count: usize,
        stored: [bool; GROUP_PAGES],
        /// Pages beside one that faulted, and whether each was wanted.
        beside: [Option<bool>; GROUP_PAGES],
    }

    impl Naive {
        fn new(count: usize) -> Naive {
            Naive { count, stored: [false; GROUP_PAGES], beside: [None; GROUP_PAGES] }
        }

        fn around(&self, page: usize) -> std::ops::Range<usize> {
            let first = page / self.count * self.count;
            first..first + self.count
        }

        fn touched(&mut self, page: usize) {
            let around = self.around(page);
            if around.clone().any(|at| self.beside[at].is_some()) {
                if self.beside[page].is_some() {
                    self.beside[page] = Some(true);
                }
            } else {
                for at in around.filter(|&at| at != page) {
                    self.beside[at] = self.stored[at].then_some(false);
                }
            }
            self.stored[page] = false;
        }

        fn spoil(&mut self, page: usize) {
            if self.beside[page] == Some(false) {
                self.beside[page] = None;
            }
            self.stored[page] = false;
        }

        fn end(&mut self, pages: u64) -> Tally {
            let ends = |at: &usize| self.around(*at).any(|other| pages & bits(other, 1) != 0);
            let ended: Vec<usize> = (0..GROUP_PAGES).filter(ends).collect();
            let told = Naive::tally(ended.iter().map(|&at| self.beside[at]));
            ended.into_iter().for_each(|at| self.beside[at] = None);
            told
        }

        fn tally(beside: impl Iterator<Item = Option<bool>>) -> Tally {
            beside.flatten().fold(Tally::default(), |sum, wanted| Tally {
                beside: sum.beside + 1,
                wanted: sum.wanted + u32::from(wanted),
            })
        }
    }

    /// The results of groups for one size.
    struct NaiveTold {
        /// The number of pages beside in 16 trials.
        evidence: u32,
        groups: [Naive; 3],
        ended: Tally,
    }

    impl NaiveTold {
        fn new(count: usize) -> NaiveTold {
            let groups = [(); 3].map(|()| Naive::new(count));
            NaiveTold { evidence: 16 * (count as u32 - 1), groups, ended: Tally::default() }
        }

        fn end(&mut self, which: usize, pages: u64) {
            let (tally, ended) = (self.groups[which].end(pages), self.ended);
            let older = if ended.beside + tally.beside > MEMORY { 2 } else { 1 };
            self.ended.beside = ended.beside / older + tally.beside;
            self.ended.wanted = ended.wanted / older + tally.wanted;
        }

        fn running(&self) -> Tally {
            Naive::tally(self.groups.iter().flat_map(|group| group.beside))
        }

        fn per_cent(&self) -> u32 {
            let known = |of: Tally| of.beside >= self.evidence;
            let share = |of: Tally| if known(of) { 100 * of.wanted / of.beside } else { 0 };
            let (running, ended) = (share(self.running()), share(self.ended));
            if known(self.ended) {
                running.max(ended)
            } else {
                running.max((running * YOUNG).min(EVEN))
            }
        }
    }

    #[derive(Debug, Clone)]
    enum Op {
        Touch(usize),
        Bring(u64),
        Out(u64),
        Store(u64),
    }

    fn op() -> impl Strategy<Value = (usize, Op)> {
        // Mostly few pages at a time. Otherwise no trial would get far.
        let pages = prop_oneof![
            4 => (0usize..64).prop_map(|at| bits(at, 1)),
            1 => (0usize..16).prop_map(|quad| bits(4 * quad, 4)),
            1 => (0usize..4).prop_map(|stretch| bits(16 * stretch, 16)),
            1 => any::<u64>(),
        ];
        let op = prop_oneof![
            8 => (0usize..64).prop_map(Op::Touch),
            1 => pages.clone().prop_map(Op::Bring),
            1 => pages.prop_map(Op::Out),
            1 => Just(Op::Store(u64::MAX)),
        ];
        (0usize..3, op)
    }

    proptest! {
        #[test]
        fn trials_are_those_counted_page_by_page(ops in prop::collection::vec(op(), 1..400)) {
            let numbers: Vec<usize> = (0..).filter(|&group| is_watched(group)).take(3).collect();
            let told = Density::default();
            let mut groups: [Group; 3] = Default::default();
            let mut twins = [NaiveTold::new(4), NaiveTold::new(16)];
            for (which, op) in ops {
                let (index, group) = (numbers[which], &mut groups[which]);
                match op {
                    Op::Touch(page) if group.stored() & bits(page, 1) != 0 => {
                        let stored = group.stored();
                        told.touched(index, group.trials_mut(), page, stored);
                        group.arrive(bits(page, 1));
                        twins.iter_mut().for_each(|twin| twin.groups[which].touched(page));
                    }
                    Op::Touch(_) => {}
                    Op::Bring(pages) => {
                        let pages = pages & group.stored();
                        told.spoil(index, group.trials_mut(), pages);
                        group.arrive(pages);
                        for page in (0..64).filter(|&at| pages & bits(at, 1) != 0) {
                            twins.iter_mut().for_each(|twin| twin.groups[which].spoil(page));
                        }
                    }
                    Op::Out(pages) => {
                        let pages = pages & group.resident();
                        told.end(index, group.trials_mut(), pages);
                        group.forget(pages);
                        twins.iter_mut().for_each(|twin| twin.end(which, pages));
                    }
                    Op::Store(pages) => {
                        let pages = pages & !group.resident() & !group.stored();
                        group.keep(pages);
                        for page in (0..64).filter(|&at| pages & bits(at, 1) != 0) {
                            for twin in &mut twins {
                                twin.groups[which].stored[page] = true;
                            }
                        }
                    }
                }
                prop_assert_eq!(group.defect(), None);
                prop_assert_eq!(told.running(), twins.each_ref().map(NaiveTold::running));
                prop_assert_eq!(told.per_cent(), twins.each_ref().map(NaiveTold::per_cent));
            }
        }
    }

    /// Touches a group of 64 stored pages as told, and pages it out.
    fn cycle(density: &Density, touched: impl Fn(usize) -> bool) {
        let mut group = Group::default();
        group.keep(u64::MAX);
        for page in (0..GROUP_PAGES).map(|page| page * 5 % GROUP_PAGES).filter(|&at| touched(at)) {
            let stored = group.stored();
            density.touched(watched(), group.trials_mut(), page, stored);
            group.arrive(bits(page, 1));
        }
        let resident = group.resident();
        density.end(watched(), group.trials_mut(), resident);
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let density = Density::default();
        // The per cent to pay: by a signal, and with a limit by a message and by a signal.
        let costs = [27, 43, 56];
        let pays = |density: &Density| costs.map(|cost| cheapest(cost, density.per_cent()));
        (0..100).for_each(|_| cycle(&density, |_| true));
        assert_eq!((density.per_cent(), density.running()), ([100; 2], [Tally::default(); 2]));
        assert_eq!(pays(&density), [16; 3]);
        // Now and then one page of a quad, as when a tenth of all pages is touched at random.
        (0..100).for_each(|_| cycle(&density, |page| page % 10 == 0));
        assert_eq!(pays(&density), [1; 3], "{:?}", density.per_cent());
        (0..100).for_each(|_| cycle(&density, |page| page % 4 < 2));
        // One of three pages, and seven of 15.
        assert_eq!(density.per_cent(), [33, 46]);
        assert_eq!(pays(&density), [16, 16, 1]);
        (0..400).for_each(|_| cycle(&density, |page| page % 16 < 4));
        // All three, and three of 15. The older results are halved again and again.
        let [quads, stretches] = density.per_cent();
        assert!(quads > 95 && stretches < 25, "{quads} and {stretches}");
        assert_eq!(pays(&density), [4; 3]);
    }

    #[test]
    fn a_group_that_is_not_watched_tells_nothing() {
        let (density, mut trials) = (Density::default(), Trials::default());
        assert!(!is_watched(0));
        density.touched(0, &mut trials, 3, u64::MAX);
        density.end(0, &mut trials, u64::MAX);
        assert_eq!((trials.tally(), density.running()), Default::default());
    }
}
