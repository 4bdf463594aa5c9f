//! Frame numbers and pageblock numbers, and the arithmetic between them.
//!
//! ```text
//!    31                       9 8                   0
//!    [      pageblock          |  frame within it    ]     flipping bit k gives the buddy of an
//!                                                          aligned block of order k
//! ```
//!
//! Invariant: every 32-bit number is a `Pfn`, and the number says nothing about the frame. Only the
//! directory knows whether the frame is online. A `PageblockIndex` may lie beyond the last frame,
//! and then it has no first frame.

use std::fmt;

use super::order::{Order, PAGEBLOCK_ORDER};

/// Frames in a pageblock.
pub const PAGEBLOCK_FRAMES: u32 = 1 << PAGEBLOCK_ORDER; // 512 frames, 2 MiB

// The last frame number is no whole pageblock's, so it can stand for "no frame" in a link.
const _: () = assert!(u32::MAX / PAGEBLOCK_FRAMES * PAGEBLOCK_FRAMES < u32::MAX);

/// The number of a frame, from 0 at the start of its zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pfn(u32);

impl Pfn {
    /// The frame with this number.
    pub const fn new(number: u32) -> Pfn {
        Pfn(number)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The pageblock this frame lies in.
    pub const fn pageblock(self) -> PageblockIndex {
        PageblockIndex(self.0 >> PAGEBLOCK_ORDER)
    }

    /// Where in its pageblock this frame lies, 0..512.
    pub(crate) const fn offset(self) -> usize {
        (self.0 & (PAGEBLOCK_FRAMES - 1)) as usize
    }

    /// The frame `frames` further up. Only within a block or a run that is known to be online.
    pub(crate) const fn plus(self, frames: u32) -> Pfn {
        Pfn(self.0 + frames)
    }

    /// The other half of the block of twice the size.
    pub(crate) const fn buddy(self, order: Order) -> Pfn {
        Pfn(self.0 ^ order.frames())
    }

    /// The head of the aligned block of `order` that this frame lies in.
    pub(crate) const fn head(self, order: Order) -> Pfn {
        Pfn(self.0 & !(order.frames() - 1))
    }

    /// Whether a block of `order` can start here.
    pub(crate) const fn is_aligned(self, order: Order) -> bool {
        self.head(order).0 == self.0
    }
}

impl fmt::Display for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frame {}", self.0)
    }
}

/// The number of a pageblock: its first frame's number divided by 512.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageblockIndex(u32);

impl PageblockIndex {
    /// The pageblock with this number.
    pub const fn new(number: u32) -> PageblockIndex {
        PageblockIndex(number)
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Its first frame: none if that is beyond every frame number.
    pub const fn first_frame(self) -> Option<Pfn> {
        match self.0.checked_mul(PAGEBLOCK_FRAMES) {
            Some(number) => Some(Pfn(number)),
            None => None,
        }
    }

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for PageblockIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pageblock {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn buddies(order: u8, low: u32, high: u32) {
        let order = Order::new(order).expect("an order of the table");
        assert_eq!(Pfn(low).buddy(order), Pfn(high), "buddy of the lower half");
        assert_eq!(Pfn(high).buddy(order), Pfn(low), "buddy of the upper half");
        assert_eq!(Pfn(high).head(order.above().expect("below the top")), Pfn(low));
    }

    #[test]
    fn a_buddy_is_one_bit_away() {
        buddies(0, 0, 1);
        buddies(0, 6, 7);
        buddies(1, 4, 6);
        buddies(3, 16, 24);
        buddies(9, 1024, 1536);
    }

    #[test]
    fn pageblocks_cut_the_numbers_every_512() {
        assert_eq!(Pfn(511).pageblock(), PageblockIndex(0));
        assert_eq!(Pfn(512).pageblock(), PageblockIndex(1));
        assert_eq!(Pfn(513).offset(), 1);
        assert_eq!(PageblockIndex(3).first_frame(), Some(Pfn(1536)));
        assert_eq!(PageblockIndex(u32::MAX).first_frame(), None, "no frame has such a number");
    }
}
