//! Trials: which of the pages beside a faulting page were wanted too.
//!
//! ```text
//!   quad in the store     # # # #
//!   a fault on the 2nd    o @ o o      a trial: 3 beside
//!   one on the last       o @ o @      1 of them wanted
//!   a walk brings the 3rd o @   @      it might have been wanted: 2 beside, 1 wanted
//!   any page out          . . . .      the trial has ended: 1 of 2
//! ```
//!
//! There are trials of quads, which are 4 aligned pages, and of *stretches*, which are 16.
//!
//! ```text
//!   63         32 31          0
//!  +-------------+-------------+
//!  |  beside 32  |  wanted 32  |   a packed tally; each half is a sum of its own
//!  +-------------+-------------+
//! ```
//!
//! Invariant T1: in a trial, `wanted` are some of the pages `beside`. The others of these are still
//! stored.
//!
//! Lock: their group's.

use crate::terms::{AROUND_PAGES, GROUP_PAGES};

/// Pages of a quad, and of a stretch.
pub(crate) const QUAD_PAGES: usize = 4;
pub(crate) const STRETCH_PAGES: usize = 16;

/// Fewer trials than this are no evidence. One group has this many quads.
const EVIDENCE: usize = GROUP_PAGES / QUAD_PAGES; // 16
/// Pages beside, of ended trials, that are remembered. Beyond this number the older ones count
/// half.
pub(crate) const MEMORY: u32 = 1024;

/// Bits of the lower half of a packed tally.
const WANTED_BITS: u32 = u32::BITS; // 32

const _: () = assert!(STRETCH_PAGES <= AROUND_PAGES, "a stretch fits a buffer");

/// All pages of those quads, or stretches, of a group that contain some of `pages`.
fn whole<const COUNT: usize>(pages: u64) -> u64 {
    const { assert!(GROUP_PAGES.is_multiple_of(COUNT), "each is in one group") };
    let each = (1 << COUNT) - 1;
    let firsts = u64::MAX / each; // 0x1111...
    let any = (0..COUNT).fold(0, |any, page| any | pages >> page) & firsts;
    any * each
}

/// Pages beside a faulting page, and those of them that were wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    pub(crate) beside: u32,
    pub(crate) wanted: u32,
}

impl Tally {
    pub(crate) fn pack(self) -> u64 {
        u64::from(self.beside) << WANTED_BITS | u64::from(self.wanted)
    }

    pub(crate) fn unpack(word: u64) -> Tally {
        Tally { beside: (word >> WANTED_BITS) as u32, wanted: word as u32 }
    }

    /// This tally, with the part of an older one that still counts.
    pub(crate) fn after(self, before: Tally) -> Tally {
        let half = u32::from(before.beside + self.beside > MEMORY);
        Tally {
            beside: (before.beside >> half) + self.beside,
            wanted: (before.wanted >> half) + self.wanted,
        }
    }

    /// The density in per cent. 0 if there are fewer pages beside than `evidence`.
    pub(crate) fn density(self, evidence: u32) -> u32 {
        if self.beside < evidence { 0 } else { 100 * self.wanted / self.beside }
    }
}

/// The trials of a group's quads, or of its stretches.
#[derive(Debug, Default)]
pub(crate) struct TrialsOf<const COUNT: usize> {
    /// Pages that were in the store when another page of their quad or stretch faulted.
    beside: u64,
    /// Those of the pages beside that have faulted since.
    wanted: u64,
}

impl<const COUNT: usize> TrialsOf<COUNT> {
    /// Fewer pages beside than this are no evidence.
    pub(crate) const EVIDENCE: u32 = (EVIDENCE * (COUNT - 1)) as u32; // 48, 240

    /// A stored page faulted. `stored` are the stored pages of its group.
    pub(crate) fn touched(&mut self, page: usize, stored: u64) {
        let bit = 1 << page;
        if self.beside & whole::<COUNT>(bit) == 0 {
            self.beside |= stored & whole::<COUNT>(bit) & !bit;
        } else {
            self.wanted |= self.beside & bit;
        }
    }

    /// Pages came or went for other reasons, so nothing will show whether they were wanted.
    pub(crate) fn spoil(&mut self, pages: u64) {
        self.beside &= !pages | self.wanted;
    }

    /// Pages leave memory. The trials that contain some of them end. Returns their sum.
    pub(crate) fn end(&mut self, pages: u64) -> Tally {
        let beside = self.beside & whole::<COUNT>(pages);
        let ended = Self { beside, wanted: self.wanted & beside }.tally();
        self.beside &= !beside;
        self.wanted &= !beside;
        ended
    }

    pub(crate) fn tally(&self) -> Tally {
        Tally { beside: self.beside.count_ones(), wanted: self.wanted.count_ones() }
    }

    /// Whether T1 holds.
    fn is_sound(&self, stored: u64) -> bool {
        self.wanted & !self.beside == 0 && self.beside & !self.wanted & !stored == 0
    }
}

/// The trials of a group.
#[derive(Debug, Default)]
pub(crate) struct Trials {
    pub(crate) quads: TrialsOf<QUAD_PAGES>,
    pub(crate) stretches: TrialsOf<STRETCH_PAGES>,
}

impl Trials {
    /// The tallies of quads, and of stretches.
    pub(crate) fn tally(&self) -> [Tally; 2] {
        [self.quads.tally(), self.stretches.tally()]
    }

    /// Whether T1 holds for a group that has these pages in the store.
    pub(crate) fn is_sound(&self, stored: u64) -> bool {
        self.quads.is_sound(stored) && self.stretches.is_sound(stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_tally_has_its_fields_back(beside: u32, wanted: u32) {
            let tally = Tally { beside, wanted };
            prop_assert_eq!(Tally::unpack(tally.pack()), tally);
        }
    }

    #[test]
    fn quads_and_stretches_are_whole() {
        assert_eq!((whole::<4>(0), whole::<16>(0)), (0, 0));
        assert_eq!(whole::<4>(1 << 6 | 1 << 63), 0xF0 | 0xF << 60);
        assert_eq!(whole::<16>(1 << 31 | 1 << 32), 0xFFFF_FFFF_0000);
        assert_eq!((whole::<4>(u64::MAX), whole::<16>(u64::MAX)), (u64::MAX, u64::MAX));
    }
}
