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
//! - G1 `resident`, `staged` and `stored` are disjoint; a page in none of them is zeros that nobody
//!   has touched since its chunk was registered.
//! - G2 a staged page is in the segment. The segment may also have pages that are resident again:
//!   their copies there are dead.
//! - G3 `copies` are the pages that the store has something for: `stored`, and pages that came
//!   back, whose copy there is dead until it is overwritten or discarded.
//! - G4 nothing leaves memory while `pins` is not 0.
//! - G5 a page that is `gone` was given back, and is nowhere else.
//! - G6 a page that a thread is `fetching` from a disk, without the lock, is stored until that
//!   thread has the lock again: nobody else brings it in, and who forgets it waits.
//! - G7 there are trials (T1 of `trials`) in watched groups only.
//!
//! Lock: the group's own, of rank `Group`; it is in `chunk`.

use crate::GROUP_PAGES;
use crate::trials::Trials;
use host::{Lock, Rank, Segment};

/// What is known of 64 pages.
#[derive(Debug, Default)]
pub(crate) struct Group {
    /// What was resident when the chunk was registered is in `resident`.
    pub(crate) known: bool,
    pub(crate) resident: u64,
    pub(crate) staged: u64,
    pub(crate) stored: u64,
    pub(crate) copies: u64,
    pub(crate) gone: u64,
    pub(crate) fetching: u64,
    pub(crate) trials: Trials,
    pub(crate) pins: u32,
    /// The queue of groups has this one.
    pub(crate) listed: bool,
    pub(crate) segment: Option<Segment>,
}

const _: () = assert!(GROUP_PAGES == u64::BITS as usize, "a bit of a word for each page");

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

    /// Pages from `page` on that are in the same place as it, `max` at most.
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

    /// Of the `count` aligned pages around one, those that are stored and fetched by nobody.
    pub(crate) fn stored_around(&self, page: usize, count: usize) -> u64 {
        self.stored & !self.gone & !self.fetching & bits(page - page % count, count)
    }

    /// Pages came back to memory, or were touched first.
    pub(crate) fn arrive(&mut self, pages: u64) {
        self.resident |= pages;
        self.staged &= !pages;
        self.stored &= !pages;
    }

    /// Pages were moved to the segment.
    pub(crate) fn stage(&mut self, pages: u64) {
        self.resident &= !pages;
        self.staged |= pages;
    }

    /// The store has the pages.
    pub(crate) fn keep(&mut self, pages: u64) {
        self.staged &= !pages;
        self.stored |= pages;
        self.copies |= pages;
    }

    /// The content of the pages is gone: they read as zeros.
    pub(crate) fn forget(&mut self, pages: u64) {
        self.resident &= !pages;
        self.staged &= !pages;
        self.stored &= !pages;
    }

    /// Copies in the store that nobody will read.
    pub(crate) fn dead_copies(&self) -> u64 {
        self.copies & !self.stored
    }

    /// The first thing that is not as the invariants say.
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

/// The bits of `count` pages from `first` on.
pub(crate) fn bits(first: usize, count: usize) -> u64 {
    debug_assert!(first + count <= GROUP_PAGES, "pages of the group");
    match count {
        0 => 0,
        _ => u64::MAX >> (GROUP_PAGES - count) << first,
    }
}

/// Runs of set bits: first page and length, from the lowest on.
pub(crate) fn runs(mut pages: u64) -> impl Iterator<Item = (usize, usize)> {
    std::iter::from_fn(move || {
        if pages == 0 {
            return None;
        }
        let first = pages.trailing_zeros() as usize;
        let count = (pages >> first).trailing_ones() as usize;
        pages &= !bits(first, count);
        Some((first, count))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trials::{QUAD_PAGES, STRETCH_PAGES};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_are_the_bits(pages: u64) {
            let back = runs(pages).fold(0, |all, (first, count)| {
                assert_eq!(all & bits(first, count), 0, "runs do not overlap");
                all | bits(first, count)
            });
            prop_assert_eq!(back, pages);
            let joined = runs(pages).zip(runs(pages).skip(1)).any(|(a, b)| a.0 + a.1 == b.0);
            prop_assert!(!joined, "a run is as long as it can be");
        }

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
}
