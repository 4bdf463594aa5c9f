//! How densely a region is touched: what bringing in neighbours of a page would have been worth.
//!
//! Nobody says which pages were touched, so nothing can be learnt from a page that was brought in
//! beside another. Hence an experiment: of 16 groups one, by a hash of its number, has each page
//! wait for a fault of its own, and what faults there is counted, by *quads*: 4 pages, aligned.
//!
//! ```text
//!   quad in the store     # # # #
//!   a fault on the 2nd    o @ o o      a trial: 3 beside
//!   one on the last       o @ o @      1 of them wanted
//!   a walk brings the 3rd o @   @      it might have been: 2 beside, 1 wanted
//!   any page out          . . . .      the trial has ended: 1 of 2
//! ```
//!
//! The density is wanted pages over pages beside: the larger of that of trials that run, and of
//! those that ended last. Running ones alone would tell too little in the beginning of each cycle
//! of pages out and in; ended ones alone, nothing before the first is complete. Until then the
//! running ones count double: a trial that runs is halfway, on average.
//!
//! When a quad at a fault pays (nanoseconds of the machine in docs/region.md):
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
//! Where a program comes to touch less densely, ended trials are wrong for as long as it takes the
//! groups that it touches now to leave memory; where it comes to touch more, running ones tell.
//!
//! Invariants
//! - D1 in a trial, `wanted` are some of the pages `beside`; the others of these are stored.
//! - D2 `running` is the sum of the trials there are; they change under their group's lock.
//!
//! Locks: none of its own. What a fault elsewhere reads is one word, which changes by whole per
//! cents; the sums are written by faults in these groups alone.

use crate::GROUP_PAGES;
use host::FaultMode;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Pages of a quad.
pub(crate) const QUAD_PAGES: usize = 4;

/// Of so many groups one has its pages wait for faults of their own.
const WATCHED_ONE_IN: u64 = 16;

const SIGNAL_NS: u32 = 9400;
const MESSAGE_NS: u32 = 14000;
const PAGE_NS: u32 = 2500;
const PAGE_OUT_NS: u32 = 6000;

/// Per cent of the pages beside that have to be wanted: without a limit, and with one.
const PAYS_SIGNAL: [u32; 2] = per_cent_to_pay(SIGNAL_NS);
const PAYS_MESSAGE: [u32; 2] = per_cent_to_pay(MESSAGE_NS);

/// Fewer pages beside are no evidence: those of one group.
const EVIDENCE: u32 = (GROUP_PAGES - GROUP_PAGES / QUAD_PAGES) as u32; // 48
/// Pages beside of ended trials that are remembered; from here on, the older count half.
const MEMORY: u32 = 1024;

const AS_IN_THE_HEAD: bool = matches!((PAYS_SIGNAL, PAYS_MESSAGE), ([27, 56], [18, 43]));
const _: () = assert!(AS_IN_THE_HEAD, "as the head of this file says");
const _: () = assert!(GROUP_PAGES.is_multiple_of(QUAD_PAGES), "a quad is in one group");

/// The per cent at which what is not wanted costs what is wanted saves.
const fn per_cent_to_pay(fault_ns: u32) -> [u32; 2] {
    let saved = fault_ns - PAGE_NS;
    let (page, page_again) = (PAGE_NS, PAGE_NS + PAGE_OUT_NS);
    [(100 * page).div_ceil(page + saved), (100 * page_again).div_ceil(page_again + saved)]
}

/// Whether a group is one of those that tell the density.
pub(crate) fn is_watched(group: usize) -> bool {
    // The multiplier is 2^64 over the golden ratio: neighbours and strides are spread alike.
    let hash = (group as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    hash >> (u64::BITS - WATCHED_ONE_IN.ilog2()) == 0
}

/// The quads of a group that have some of `pages`, all of their bits.
pub(crate) fn quads(pages: u64) -> u64 {
    const FIRSTS: u64 = u64::MAX / ((1 << QUAD_PAGES) - 1); // 0x1111...
    let firsts = (0..QUAD_PAGES).fold(0, |any, page| any | pages >> page) & FIRSTS;
    firsts * ((1 << QUAD_PAGES) - 1)
}

/// Pages beside such that faulted, and those of them that were wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    pub(crate) beside: u32,
    pub(crate) wanted: u32,
}

impl Tally {
    fn pack(self) -> u64 {
        u64::from(self.beside) << 32 | u64::from(self.wanted)
    }

    fn unpack(word: u64) -> Tally {
        Tally { beside: (word >> 32) as u32, wanted: word as u32 }
    }

    /// With as much as counts of what was before.
    fn after(self, before: Tally) -> Tally {
        let half = u32::from(before.beside + self.beside > MEMORY);
        Tally {
            beside: (before.beside >> half) + self.beside,
            wanted: (before.wanted >> half) + self.wanted,
        }
    }

    /// Per cent; nothing without evidence.
    fn density(self) -> u32 {
        if self.beside < EVIDENCE { 0 } else { 100 * self.wanted / self.beside }
    }
}

/// The trials of a group's quads.
#[derive(Debug, Default)]
pub(crate) struct Trials {
    /// Pages that were in the store when another of their quad faulted.
    pub(crate) beside: u64,
    /// Of these, those that faulted since.
    pub(crate) wanted: u64,
}

impl Trials {
    /// A page of the store faulted; `stored` are those of its group.
    fn touched(&mut self, page: usize, stored: u64) {
        let bit = 1 << page;
        if self.beside & quads(bit) == 0 {
            self.beside |= stored & quads(bit) & !bit;
        } else {
            self.wanted |= self.beside & bit;
        }
    }

    /// Pages came or went for other reasons: whether they would have been wanted will not be known.
    fn spoil(&mut self, pages: u64) {
        self.beside &= !pages | self.wanted;
    }

    /// Pages leave memory: the trials of their quads end, with this.
    fn end(&mut self, pages: u64) -> Tally {
        let ended = Trials { beside: self.beside & quads(pages), ..Trials::default() };
        let ended = Trials { wanted: self.wanted & ended.beside, ..ended }.tally();
        self.beside &= !quads(pages);
        self.wanted &= self.beside;
        ended
    }

    pub(crate) fn tally(&self) -> Tally {
        Tally { beside: self.beside.count_ones(), wanted: self.wanted.count_ones() }
    }
}

/// What trials have told.
#[derive(Debug, Default)]
pub(crate) struct Density {
    read: Read,
    /// Packed tallies: the sum of trials that run (D2), and that of those that ended, of late.
    running: AtomicU64,
    ended: AtomicU64,
}

/// Two cache lines, because processors fetch them in pairs: what every fault reads, in per cent.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Read(AtomicU32);

impl Density {
    /// A page faulted in a group of which `stored` were in the store, and so was the page.
    pub(crate) fn touched(&self, group: usize, trials: &mut Trials, page: usize, stored: u64) {
        if is_watched(group) {
            self.change(trials, |trials| trials.touched(page, stored));
        }
    }

    /// Pages of a group came for other reasons, or are gone.
    pub(crate) fn spoil(&self, group: usize, trials: &mut Trials, pages: u64) {
        if is_watched(group) {
            self.change(trials, |trials| trials.spoil(pages));
        }
    }

    /// Pages of a group leave memory.
    pub(crate) fn end(&self, group: usize, trials: &mut Trials, pages: u64) {
        if is_watched(group) {
            let told = self.change(trials, |trials| trials.end(pages));
            // relaxed: a hint, as below: of two groups that leave at once, one may not be heard.
            let before = Tally::unpack(self.ended.load(Ordering::Relaxed));
            self.ended.store(told.after(before).pack(), Ordering::Relaxed);
            self.publish();
        }
    }

    fn change<R>(&self, trials: &mut Trials, change: impl FnOnce(&mut Trials) -> R) -> R {
        let before = trials.tally().pack();
        let result = change(trials);
        let more = trials.tally().pack().wrapping_sub(before);
        if more != 0 {
            // relaxed: a sum that nothing else is read by. Both halves of it are sums of what there
            // is, so that what one borrows from the other is given back.
            self.running.fetch_add(more, Ordering::Relaxed);
            self.publish();
        }
        result
    }

    fn publish(&self) {
        // relaxed: a hint.
        let ended = Tally::unpack(self.ended.load(Ordering::Relaxed));
        let running = self.running().density();
        let density = match ended.beside {
            ..EVIDENCE => (2 * running).min(100),
            _ => running.max(ended.density()),
        };
        // relaxed: a hint. Looked at first, to leave the line where it is read.
        if self.read.0.load(Ordering::Relaxed) != density {
            self.read.0.store(density, Ordering::Relaxed);
        }
    }

    /// The sum of the trials that run.
    pub(crate) fn running(&self) -> Tally {
        // relaxed: a sum that nothing else is read by.
        Tally::unpack(self.running.load(Ordering::Relaxed))
    }

    /// Per cent of the pages beside one that faulted that are wanted too.
    pub(crate) fn per_cent(&self) -> u32 {
        // relaxed: a hint.
        self.read.0.load(Ordering::Relaxed)
    }

    /// Whether a fault is to bring in its quad: with what it costs in this mode, and where there is
    /// a limit.
    pub(crate) fn pays(&self, (mode, limited): (FaultMode, bool)) -> bool {
        let pays = if mode == FaultMode::Signal { &PAYS_SIGNAL } else { &PAYS_MESSAGE };
        self.per_cent() >= pays[usize::from(limited)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::{Group, bits};
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

    #[test]
    fn quads_are_whole() {
        assert_eq!(quads(0), 0);
        assert_eq!(quads(1 << 6 | 1 << 63), 0xF0 | 0xF << 60);
        assert_eq!(quads(u64::MAX), u64::MAX);
    }

    /// The trials of one group, page by page.
    struct Naive {
        stored: [bool; GROUP_PAGES],
        /// Beside one that faulted, and whether it was wanted.
        beside: [Option<bool>; GROUP_PAGES],
    }

    impl Naive {
        fn new() -> Naive {
            Naive { stored: [false; GROUP_PAGES], beside: [None; GROUP_PAGES] }
        }

        fn quad(page: usize) -> std::ops::Range<usize> {
            let first = page / QUAD_PAGES * QUAD_PAGES;
            first..first + QUAD_PAGES
        }

        fn touched(&mut self, page: usize) {
            let quad = Naive::quad(page);
            if quad.clone().any(|at| self.beside[at].is_some()) {
                if self.beside[page].is_some() {
                    self.beside[page] = Some(true);
                }
            } else {
                quad.filter(|&at| at != page && self.stored[at])
                    .for_each(|at| self.beside[at] = Some(false));
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
            let ends = |at: &usize| Naive::quad(*at).any(|other| pages & bits(other, 1) != 0);
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

    #[derive(Debug, Clone)]
    enum Op {
        Touch(usize),
        Bring(u64),
        Out(u64),
        Store(u64),
    }

    fn op() -> impl Strategy<Value = (usize, Op)> {
        // Few pages at a time, mostly, or no trial would get far.
        let pages = prop_oneof![
            4 => (0usize..64).prop_map(|at| bits(at, 1)),
            1 => (0usize..64).prop_map(|at| quads(bits(at, 1))),
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
            let mut twins = [(); 3].map(|()| Naive::new());
            let mut ended = Tally::default();
            for (which, op) in ops {
                let (index, group, twin) = (numbers[which], &mut groups[which], &mut twins[which]);
                match op {
                    Op::Touch(page) if twin.stored[page] => {
                        told.touched(index, &mut group.trials, page, group.stored);
                        group.arrive(bits(page, 1));
                        twin.touched(page);
                    }
                    Op::Touch(_) => {}
                    Op::Bring(pages) => {
                        let pages = pages & group.stored;
                        told.spoil(index, &mut group.trials, pages);
                        group.arrive(pages);
                        crate::group::runs(pages).for_each(|(at, count)| {
                            (at..at + count).for_each(|page| twin.spoil(page));
                        });
                    }
                    Op::Out(pages) => {
                        let pages = pages & group.resident;
                        told.end(index, &mut group.trials, pages);
                        group.resident &= !pages;
                        let tally = twin.end(pages);
                        let older = if ended.beside + tally.beside > MEMORY { 2 } else { 1 };
                        ended.beside = ended.beside / older + tally.beside;
                        ended.wanted = ended.wanted / older + tally.wanted;
                    }
                    Op::Store(pages) => {
                        let pages = pages & !group.resident & !group.stored;
                        group.keep(pages);
                        (0..64).filter(|&at| pages & bits(at, 1) != 0)
                            .for_each(|at| twin.stored[at] = true);
                    }
                }
                prop_assert_eq!(group.defect(), None);
                let beside = twins.iter().flat_map(|twin| twin.beside);
                let running = Naive::tally(beside);
                prop_assert_eq!(told.running(), running);
                let known = |of: Tally| of.beside >= EVIDENCE;
                let share = |of: Tally| if known(of) { 100 * of.wanted / of.beside } else { 0 };
                let first = (share(running) * 2).min(100);
                let density = if known(ended) { share(running).max(share(ended)) } else { first };
                prop_assert_eq!(told.per_cent(), density);
            }
        }
    }

    /// Has a group of 64 stored pages touched as told, and paged out.
    fn cycle(density: &Density, touched: impl Fn(usize) -> bool) {
        let mut group = Group::default();
        group.keep(u64::MAX);
        for page in (0..GROUP_PAGES).map(|page| page * 5 % GROUP_PAGES).filter(|&at| touched(at)) {
            density.touched(watched(), &mut group.trials, page, group.stored);
            group.arrive(bits(page, 1));
        }
        density.end(watched(), &mut group.trials, group.resident);
    }

    #[test]
    fn what_was_long_ago_is_forgotten() {
        let density = Density::default();
        let (signal, message) = (FaultMode::Signal, FaultMode::Thread);
        let all = [(signal, false), (message, true), (signal, true)];
        (0..100).for_each(|_| cycle(&density, |_| true));
        assert_eq!((density.per_cent(), density.running()), (100, Tally::default()));
        assert_eq!(all.map(|at| density.pays(at)), [true; 3]);
        // A page of a quad now and then: what a tenth of all, at random, comes to.
        (0..100).for_each(|_| cycle(&density, |page| page % 10 == 0));
        assert!(!density.pays((message, false)), "{}", density.per_cent());
        (0..100).for_each(|_| cycle(&density, |page| page % 4 < 2));
        assert!((30..34).contains(&density.per_cent()), "one of three: {}", density.per_cent());
        assert_eq!(all.map(|at| density.pays(at)), [true, false, false]);
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
