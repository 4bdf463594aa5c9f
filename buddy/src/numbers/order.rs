//! Block sizes: an order is the logarithm of a number of frames.
//!
//! ```text
//!    order     0   1   2   3   4   5    6    7    8    9          10
//!    frames    1   2   4   8  16  32   64  128  256  512        1024
//!                                                    pageblock  longest run
//! ```
//!
//! Invariant: an `Order` is at most 10. Its number is private, and every function that makes one
//! keeps it there. So `frames` never overflows, and an order fits its four bits of a state byte.

use std::fmt;

/// The largest order of a block.
pub const MAX_ORDER: u8 = 10;

/// The order of a pageblock.
pub const PAGEBLOCK_ORDER: u8 = 9;

/// How many orders there are: 0..=10.
pub const ORDERS: usize = MAX_ORDER as usize + 1; // 11

/// The longest run, one block of the largest order.
pub const RUN_FRAMES_MAX: u32 = 1 << MAX_ORDER; // 1024 frames, 4 MiB

// Four bits of a frame's state byte hold an order.
const _: () = assert!(MAX_ORDER < 16);
// Two pageblocks make the largest block: bringing one online deals in pairs, and nothing larger.
const _: () = assert!(MAX_ORDER == PAGEBLOCK_ORDER + 1);

/// The size of a block: 2^order frames. Always 0..=10.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Order(u8);

impl Order {
    /// One frame.
    pub const ZERO: Order = Order(0);
    /// 512 frames: a pageblock.
    pub const PAGEBLOCK: Order = Order(PAGEBLOCK_ORDER);
    /// 1024 frames.
    pub const MAX: Order = Order(MAX_ORDER);

    /// The order `order`, if there is one.
    pub const fn new(order: u8) -> Option<Order> {
        if order <= MAX_ORDER { Some(Order(order)) } else { None }
    }

    /// The smallest order whose blocks hold a run of `frames`: none for 0 and for more than 1024.
    pub const fn holding(frames: u32) -> Option<Order> {
        if frames == 0 || frames > RUN_FRAMES_MAX {
            return None;
        }
        Some(Order(frames.next_power_of_two().trailing_zeros() as u8))
    }

    /// The largest order whose blocks are no longer than `frames`, which is at least 1.
    pub(crate) const fn within(frames: u32) -> Order {
        let order = frames.ilog2();
        if order < MAX_ORDER as u32 { Order(order as u8) } else { Order::MAX }
    }

    /// The order as a number, 0..=10.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// How many frames a block of this order has.
    pub const fn frames(self) -> u32 {
        1 << self.0
    }

    /// All orders, smallest first.
    pub fn all() -> impl DoubleEndedIterator<Item = Order> {
        (0..=MAX_ORDER).map(Order)
    }

    /// This order and all larger ones, smallest first.
    pub(crate) fn and_above(self) -> impl DoubleEndedIterator<Item = Order> {
        (self.0..=MAX_ORDER).map(Order)
    }

    /// The order of the block that two buddies of this order make: none above the largest.
    pub(crate) const fn above(self) -> Option<Order> {
        Order::new(self.0 + 1)
    }

    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "order {}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holding_is_the_smallest_that_fits() {
        assert_eq!(Order::holding(0), None, "a run of no frames has no order");
        assert_eq!(Order::holding(RUN_FRAMES_MAX + 1), None, "longer than the largest block");
        for frames in 1..=RUN_FRAMES_MAX {
            let order = Order::holding(frames).expect("every run up to the largest block");
            assert!(order.frames() >= frames, "{order} is too small for {frames} frames");
            assert!(order.frames() < 2 * frames, "{order} is wasteful for {frames} frames");
        }
    }

    #[test]
    fn within_is_the_largest_that_is_no_longer() {
        for frames in 1..=2 * RUN_FRAMES_MAX {
            let order = Order::within(frames);
            assert!(order.frames() <= frames, "{order} is longer than {frames} frames");
            let larger = order.above().is_some_and(|above| above.frames() <= frames);
            assert!(!larger, "{order} is not the largest within {frames} frames");
        }
    }

    #[test]
    fn orders_end_at_ten() {
        assert_eq!(Order::new(11), None);
        assert_eq!(Order::MAX.above(), None);
        assert_eq!(Order::all().count(), ORDERS);
    }
}
