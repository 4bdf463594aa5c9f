//! 64 neighbouring pages: where each of them is, and the transitions between those places.
//!
//! ```text
//!                                   arrive (first touch)
//!             untouched ------------------------------------> resident
//!                                                           ^   |    ^
//!                                          arrive (copied)  |   |    | arrive (decoded)
//!                                                           |   v    |
//!                                                        staged --> stored
//!                                                     move out   keep
//! ```
//!
//! Invariants
//! - G1 `resident`, `staged` and `stored` are disjoint. A page in none of them reads as zeros: no
//!   thread has touched it since its chunk was registered.
//! - G2 a staged page is in the segment. The segment may also hold pages that are resident again.
//!   Their copies there are dead.
//! - G3 `copies` are the pages that the store holds something for. These are the stored pages, and
//!   pages that came back. The copy of a page that came back is dead until it is overwritten or
//!   discarded.
//! - G4 no page leaves memory while `pins` is not 0.
//! - G5 a page that is `gone` was given back, and is nowhere else.
//! - G6 while a thread is `fetching` a page from a disk, without the lock, the page stays stored.
//!   Only that thread brings it in. A thread that wants to forget the page waits until then.
//! - G7 only watched groups have trials (T1 of `trials`).
//!
//! The words are private. They change only by the transitions below.
//!
//! Lock: the group's own, of rank `Group`. It is in `chunk`.

use super::bits::bits;
use super::trials::Trials;
use host::{Lock, Rank, Segment};

/// What is known of 64 pages.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// Pages that were resident when the chunk was registered are in `resident`.
    known: bool,
    resident: u64,
    staged: u64,
    stored: u64,
    copies: u64,
    gone: u64,
    fetching: u64,
    trials: Trials,
    pins: u32,
    /// The group is in the queue of groups.
    listed: bool,
    segment: Option<Segment>,
}

/// Where a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Untouched,
    Resident,
    Staged,
    Stored,
    Gone,
}

impl Group {
    pub(crate) fn new_lock() -> Lock<Group> {
        Lock::new(Rank::Group, Group::default())
    }

    pub(crate) fn place(&self, page: usize) -> Place {
        let bit = 1 << page;
        if self.gone & bit != 0 {
            Place::Gone
        } else if self.resident & bit != 0 {
            Place::Resident
        } else if self.staged & bit != 0 {
            Place::Staged
        } else if self.stored & bit != 0 {
            Place::Stored
        } else {
            Place::Untouched
        }
    }

    /// The number of pages from `page` on that are in the same place as it, at most `max`.
    pub(crate) fn run(&self, page: usize, max: usize) -> usize {
        let alike = match self.place(page) {
            Place::Untouched => !(self.resident | self.staged | self.stored | self.gone),
            Place::Gone => self.gone,
            Place::Resident => self.resident & !self.gone,
            Place::Staged => self.staged & !self.gone,
            Place::Stored => self.stored & !self.gone,
        };
        ((alike >> page).trailing_ones() as usize).min(max)
    }

    /// Of the `count` aligned pages around a page, those that are stored and that no thread
    /// fetches.
    pub(crate) fn stored_around(&self, page: usize, count: usize) -> u64 {
        self.stored & !self.gone & !self.fetching & bits(page - page % count, count)
    }

    /// Pages in memory, including those that are being given back.
    pub(crate) fn resident(&self) -> u64 {
        self.resident
    }

    /// Pages in the segment that wait for the store.
    pub(crate) fn staged(&self) -> u64 {
        self.staged
    }

    /// Pages whose content only the store has.
    pub(crate) fn stored(&self) -> u64 {
        self.stored
    }

    /// Pages that were given back.
    pub(crate) fn gone(&self) -> u64 {
        self.gone
    }

    /// Pages that the store holds something for.
    pub(crate) fn copies(&self) -> u64 {
        self.copies
    }

    /// Copies in the store that no thread will read.
    pub(crate) fn dead_copies(&self) -> u64 {
        self.copies & !self.stored
    }

    /// The segment that has the staged pages, each at its number in the group.
    pub(crate) fn segment(&self) -> Option<&Segment> {
        self.segment.as_ref()
    }

    /// The number of pages from `page` on that no thread fetches.
    pub(crate) fn unfetched_from(&self, page: usize) -> usize {
        (self.fetching >> page).trailing_zeros() as usize
    }

    /// Whether a thread fetches some of `pages`.
    pub(crate) fn is_fetching(&self, pages: u64) -> bool {
        self.fetching & pages != 0
    }

    /// Whether it is known what was resident when the chunk was registered.
    pub(crate) fn is_known(&self) -> bool {
        self.known
    }

    pub(crate) fn is_pinned(&self) -> bool {
        self.pins > 0
    }

    pub(crate) fn trials(&self) -> &Trials {
        &self.trials
    }

    /// The trials. They change when pages come and go (module `density`).
    pub(crate) fn trials_mut(&mut self) -> &mut Trials {
        &mut self.trials
    }

    /// The system has said which pages are in memory. Returns those that the group did not know to
    /// be.
    pub(crate) fn learn(&mut self, there: u64) -> u64 {
        let new = there & !(self.staged | self.stored | self.resident | self.gone);
        self.known = true;
        self.resident |= new;
        new
    }

    /// Pages came back to memory, or were touched first.
    pub(crate) fn arrive(&mut self, pages: u64) {
        self.resident |= pages;
        self.staged &= !pages;
        self.stored &= !pages;
    }

    /// Pages were moved to a segment. The group keeps the segment if there are any.
    pub(crate) fn stage(&mut self, pages: u64, segment: Segment) {
        self.resident &= !pages;
        self.staged |= pages;
        if pages != 0 {
            self.segment = Some(segment);
        }
    }

    /// The store took the pages.
    pub(crate) fn keep(&mut self, pages: u64) {
        self.staged &= !pages;
        self.stored |= pages;
        self.copies |= pages;
    }

    /// Takes the segment from a group that has no page in it any more.
    pub(crate) fn take_segment(&mut self) -> Option<Segment> {
        debug_assert_eq!(self.staged, 0, "G2");
        self.segment.take()
    }

    /// The content of the pages is gone: they read as zeros, and the store has nothing for them.
    pub(crate) fn forget(&mut self, pages: u64) {
        self.resident &= !pages;
        self.staged &= !pages;
        self.stored &= !pages;
        self.copies &= !pages;
    }

    /// The store discards the dead copies. Returns these.
    pub(crate) fn drop_dead_copies(&mut self) -> u64 {
        let dead = self.dead_copies();
        self.copies &= !dead;
        dead
    }

    /// Pages are given back. Nothing is brought in there from now on.
    pub(crate) fn mark_gone(&mut self, pages: u64) {
        self.gone |= pages;
    }

    /// Pages were not given back after all. The group must ask the system again which pages are in
    /// memory, because an answer in the meantime left these out.
    pub(crate) fn unmark_gone(&mut self, pages: u64) {
        self.gone &= !pages;
        self.known = false;
    }

    /// The caller will fetch pages from a disk once it has given up the lock.
    pub(crate) fn begin_fetch(&mut self, pages: u64) {
        debug_assert!(!self.is_fetching(pages), "nobody else fetches them (G6)");
        self.fetching |= pages;
    }

    /// The caller has the lock again. It alone was fetching these pages.
    pub(crate) fn end_fetch(&mut self, pages: u64) {
        debug_assert_eq!(self.fetching & pages, pages, "ours (G6)");
        self.fetching &= !pages;
    }

    pub(crate) fn pin(&mut self) {
        self.pins += 1;
    }

    pub(crate) fn unpin(&mut self) {
        self.pins -= 1;
    }

    /// Enters the group in a queue by `push`, which says whether there was room. Nothing changes if
    /// the group is in it already, or has no page in memory.
    pub(crate) fn list(&mut self, push: impl FnOnce() -> bool) {
        if !self.listed && self.resident != 0 {
            self.listed = push();
        }
    }

    /// The group was taken off the queue.
    pub(crate) fn unlist(&mut self) {
        self.listed = false;
    }

    /// The first contradiction of the invariants, if there is one.
    pub(crate) fn defect(&self) -> Option<&'static str> {
        let places = [self.resident, self.staged, self.stored, self.gone];
        let counted: u32 = places.iter().map(|place| place.count_ones()).sum();
        let all = places.iter().fold(0, |all, place| all | place);
        if counted != all.count_ones() {
            return Some("a page is in two places (G1, G5)");
        }
        let present = self.segment.as_ref().map_or(0, Segment::present);
        if self.staged & !present != 0 {
            return Some("a staged page is not in the segment (G2)");
        }
        if self.fetching & !self.stored != 0 {
            return Some("a page is fetched that is not stored (G6)");
        }
        if !self.trials.is_sound(self.stored) {
            return Some("a page is on trial that is not stored, or wanted and not on trial (T1)");
        }
        (self.stored & !self.copies != 0).then_some("a stored page has no copy (G3)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::places::{QUAD_PAGES, STRETCH_PAGES};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_run_is_of_one_place(staged: u64, stored: u64, resident: u64, page in 0usize..64) {
            let staged = staged & !resident;
            let stored = stored & !resident & !staged;
            let group = Group { resident, staged, stored, ..Group::default() };
            let run = group.run(page, 64);
            let alike = |at: usize| group.place(at) == group.place(page);
            prop_assert!((page..page + run).all(alike));
            prop_assert!(page + run == 64 || !alike(page + run));
        }

        #[test]
        fn what_is_stored_around_a_page_is_aligned(
            stored: u64, fetching: u64, gone: u64, page in 0usize..64,
        ) {
            let (fetching, gone) = (fetching & stored, gone & !stored);
            let group = Group { stored, fetching, gone, ..Group::default() };
            for count in [QUAD_PAGES, STRETCH_PAGES] {
                let around = group.stored_around(page, count);
                for at in 0..64 {
                    let there = group.place(at) == Place::Stored && group.fetching & 1 << at == 0;
                    let alike = at / count == page / count && there;
                    prop_assert_eq!(around & 1 << at != 0, alike, "{} around {}", at, page);
                }
            }
        }
    }

    #[test]
    fn pages_are_in_one_place_all_their_life() {
        let mut group = Group::default();
        group.arrive(bits(3, 2));
        assert_eq!((group.place(3), group.place(5)), (Place::Resident, Place::Untouched));
        group.resident &= !bits(3, 2);
        group.stored |= bits(3, 2);
        assert_eq!(group.defect(), Some("a stored page has no copy (G3)"));
        group.copies |= bits(3, 2);
        assert_eq!(group.defect(), None);
        group.arrive(bits(4, 1));
        assert_eq!(group.dead_copies(), bits(4, 1));
        group.staged |= bits(4, 1);
        assert_eq!(group.defect(), Some("a page is in two places (G1, G5)"));
        group.forget(u64::MAX);
        assert_eq!((group.place(4), group.defect()), (Place::Untouched, None));
    }

    #[test]
    fn a_broken_invariant_is_named() {
        let named = |damage: fn(&mut Group)| {
            let mut group = Group::default();
            group.keep(bits(0, 8));
            assert_eq!(group.defect(), None);
            damage(&mut group);
            group.defect().expect("damaged")
        };
        assert!(named(|group| group.staged = bits(9, 1)).contains("(G2)"));
        assert!(named(|group| group.fetching = bits(9, 1)).contains("(G6)"));
        assert!(named(|group| group.trials.quads.touched(9, u64::MAX)).contains("(T1)"));
        assert!(named(|group| group.copies = 0).contains("(G3)"));
        assert!(named(|group| group.gone = bits(3, 1)).contains("(G1, G5)"));
    }

    #[test]
    fn what_is_learnt_leaves_out_what_is_known() {
        let mut group = Group::default();
        group.keep(bits(0, 4));
        group.mark_gone(bits(8, 4));
        assert_eq!((group.learn(bits(0, 16)), group.is_known()), (bits(4, 4) | bits(12, 4), true));
        assert_eq!(group.defect(), None);
        group.unmark_gone(bits(8, 4));
        assert!(!group.is_known(), "the system is asked again");
        assert_eq!(group.learn(bits(0, 16)), bits(8, 4));
    }

    #[test]
    fn a_group_is_in_the_queue_once_while_it_has_pages_in_memory() {
        let mut group = Group::default();
        group.list(|| panic!("it has no page in memory"));
        group.arrive(bits(1, 1));
        group.list(|| false);
        let mut pushed = 0;
        (0..2).for_each(|_| {
            group.list(|| {
                pushed += 1;
                true
            })
        });
        assert_eq!(pushed, 1, "the second time it is in there, the first time there was no room");
        group.unlist();
        group.list(|| {
            pushed += 1;
            true
        });
        assert_eq!(pushed, 2);
    }

    #[test]
    fn a_fetched_page_stays_stored_and_is_left_out() {
        let mut group = Group::default();
        group.keep(bits(0, 8));
        group.begin_fetch(bits(2, 2));
        assert_eq!((group.unfetched_from(0), group.unfetched_from(3)), (2, 0));
        assert_eq!(group.stored_around(0, 4), bits(0, 2));
        assert_eq!((group.place(2), group.defect()), (Place::Stored, None));
        group.end_fetch(bits(2, 2));
        assert!(!group.is_fetching(u64::MAX));
    }

    #[test]
    fn a_dead_copy_is_dropped_and_a_live_one_kept() {
        let mut group = Group::default();
        group.keep(bits(0, 8));
        group.arrive(bits(3, 2));
        assert_eq!(
            (group.drop_dead_copies(), group.copies()),
            (bits(3, 2), bits(0, 3) | bits(5, 3))
        );
        group.forget(bits(0, 2));
        assert_eq!((group.copies(), group.dead_copies()), (bits(2, 1) | bits(5, 3), 0));
    }
}
