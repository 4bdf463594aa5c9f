//! A unit: neighbouring pages that are stored as one frame, and which of them it still has.
//!
//! ```text
//!   pages of the run      0  1  2  3  4  5 ...  15      16 pages, aligned: 64 KiB of the disk
//!   members               1  1  0  1  1  1       1      the frame has them, in this order
//!   live                  1  0  0  1  1  1       1      their cells name the unit; page 1 is dead
//!
//!   63        48 47     32 31     16 15      0
//!  |     0      |   len   | members |  live   |         the word of a unit; 0: there is none
//! ```
//!
//! The number of a unit is that of its run, so a page says by its own number which unit it may be
//! in, and where.
//!
//! Invariant: live pages are members. A unit without live pages is no unit, and its word is 0.
//!
//! Locks: none.

use host::PAGE_SIZE;

/// Pages of a run, of which a unit has some.
pub(crate) const UNIT_PAGES: u64 = if cfg!(loom) { 2 } else { 16 };
/// The fewest pages of a new unit.
pub(crate) const UNIT_PAGES_MIN: u32 = if cfg!(loom) { 2 } else { 4 }; // 16 KiB
/// The most pieces of a frame. A longer frame would gain too little.
pub(crate) const PIECES: usize = UNIT_PAGES as usize * 3 / 4; // 12
/// The part of a unit's pages that may be dead: 1/this.
const DEAD_PART: u32 = 8;

const FIELD_BITS: u32 = 16;
const FIELD_MASK: u64 = (1 << FIELD_BITS) - 1; // 0xffff

const _: () = assert!(UNIT_PAGES <= FIELD_BITS as u64, "a bit for each page");
const _: () = assert!(PIECES * PAGE_SIZE <= FIELD_MASK as usize, "a length fits its field");
const _: () = assert!(UNIT_PAGES as usize * PAGE_SIZE <= codec::UNIT_LEN_MAX, "codecs take it");

/// The unit that a page may be in.
pub(crate) fn unit_of(page: u64) -> u64 {
    page / UNIT_PAGES
}

/// The bit of a page in the masks of its unit.
pub(crate) fn bit_of(page: u64) -> u16 {
    1 << (page % UNIT_PAGES)
}

/// The pages of a unit that a mask has, in order.
pub(crate) fn pages_of(unit: u64, mask: u16) -> impl Iterator<Item = u64> {
    let first = unit * UNIT_PAGES;
    (first..first + UNIT_PAGES).filter(move |&page| mask & bit_of(page) != 0)
}

/// What is known of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct UnitState {
    /// The pages that its frame has.
    pub(crate) members: u16,
    /// Those whose cells name it, or are about to.
    pub(crate) live: u16,
    /// Bytes of the frame.
    pub(crate) len: usize,
}

impl UnitState {
    pub(super) fn pack(self) -> u64 {
        let fields = [self.len as u64, self.members.into(), self.live.into()];
        fields.into_iter().fold(0, |word, field| word << FIELD_BITS | field)
    }

    pub(super) fn unpack(word: u64) -> UnitState {
        let field = |index: u32| (word >> (index * FIELD_BITS)) & FIELD_MASK;
        UnitState { live: field(0) as u16, members: field(1) as u16, len: field(2) as usize }
    }

    /// Whether there is such a unit.
    pub(crate) fn exists(self) -> bool {
        self.live != 0
    }

    /// Bytes of all its pages.
    pub(crate) fn unpacked_len(self) -> usize {
        self.members.count_ones() as usize * PAGE_SIZE
    }

    /// Where a live page begins among these bytes.
    pub(crate) fn place_of(self, page: u64) -> Option<usize> {
        let bit = bit_of(page);
        let before = (self.members & (bit - 1)).count_ones() as usize;
        (self.live & bit != 0).then_some(before * PAGE_SIZE)
    }

    /// Pages that its frame has for nothing.
    pub(crate) fn dead_pages(self) -> u32 {
        (self.members & !self.live).count_ones()
    }

    /// Whether more of it is dead than may be.
    pub(crate) fn is_too_dead(self) -> bool {
        self.dead_pages() * DEAD_PART > self.members.count_ones()
    }

    /// Whether so many pages that join it, with its dead ones, are enough to make it anew.
    pub(crate) fn is_worth_remaking(self, joining: u32) -> bool {
        joining > 0 && (self.dead_pages() + joining) * DEAD_PART > self.members.count_ones()
    }

    /// Objects of its frame.
    pub(crate) fn pieces(self) -> u64 {
        self.len.div_ceil(PAGE_SIZE) as u64
    }

    /// Bytes of its frame for each page that it has.
    pub(crate) fn share(self) -> usize {
        // It is never that of a huge page, because those are in no unit.
        (self.len / (self.members.count_ones() as usize).max(1)).clamp(1, PAGE_SIZE - 1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_page_has_its_place_among_the_members_before_it() {
        let unit = UnitState { members: 0b1011_1011, live: 0b1011_1001, len: 9000 };
        let places: Vec<Option<usize>> = (32..40).map(|page| unit.place_of(page)).collect();
        let at = |index: usize| Some(index * PAGE_SIZE);
        assert_eq!(places, [at(0), None, None, at(2), at(3), at(4), None, at(5)]);
        assert_eq!((unit.unpacked_len(), unit.pieces(), unit.share()), (6 * 4096, 3, 1500));
        assert_eq!(pages_of(2, unit.live).collect::<Vec<_>>(), [32, 35, 36, 37, 39]);
        assert_eq!((unit_of(47), bit_of(47)), (2, 1 << 15));
    }

    #[test]
    fn at_most_an_eighth_may_be_dead() {
        let dead = |members: u32, dead: u32| UnitState {
            members: ((1_u32 << members) - 1) as u16,
            live: ((1_u32 << (members - dead)) - 1) as u16,
            len: 1,
        };
        for (members, most) in [(4, 0), (7, 0), (8, 1), (15, 1), (16, 2)] {
            assert!(!dead(members, most).is_too_dead(), "{most} of {members}");
            assert!(dead(members, most + 1).is_too_dead(), "{} of {members}", most + 1);
        }
        assert!(dead(16, 2).is_worth_remaking(1) && !dead(16, 1).is_worth_remaking(1));
        assert!(!dead(16, 2).is_worth_remaking(0), "nothing joins it");
    }

    proptest! {
        #[test]
        fn a_word_says_all(members: u16, live: u16, len in 0..=PIECES * PAGE_SIZE) {
            let unit = UnitState { members, live, len };
            prop_assert_eq!(UnitState::unpack(unit.pack()), unit);
        }
    }
}
