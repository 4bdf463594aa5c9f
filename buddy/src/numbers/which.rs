//! Which list of free blocks: an order, a migratetype and a warmth, and where tables keep it.

use super::migratetype::Migratetype;
use super::order::{ORDERS, Order};
use super::state::Warm;

const SLOT_ORDER_BITS: usize = 4;
/// How many slots there are: more than orders and migratetypes need, so that a slot is put together
/// from bits and is never past the end of a table.
pub(crate) const SLOTS: usize = 1 << (SLOT_ORDER_BITS + 3); // 128
const SLOT_ORDER_MASK: usize = (1 << SLOT_ORDER_BITS) - 1; // 0x0f

// Every order and every migratetype has a slot of its own.
const _: () = assert!(ORDERS <= 1 << SLOT_ORDER_BITS);
const _: () = assert!(Migratetype::COUNT << SLOT_ORDER_BITS <= SLOTS);

/// Where the tables keep what belongs to an order and a migratetype: orders of one type side by
/// side.
pub(crate) const fn slot(order: Order, migratetype: Migratetype) -> usize {
    (migratetype.index() << SLOT_ORDER_BITS | order.index() & SLOT_ORDER_MASK) % SLOTS
}

/// Which list: an order, a migratetype and a warmth.
#[derive(Clone, Copy, Debug)]
pub struct Which {
    pub(crate) order: Order,
    pub(crate) migratetype: Migratetype,
    pub(crate) warm: Warm,
}

impl Which {
    /// Which of the tables' entries is this list's: those of a slot are side by side.
    pub(crate) const fn number(self) -> usize {
        slot(self.order, self.migratetype) * Warm::ALL.len() + self.warm.index()
    }

    /// Every list: by order, then type, then warmth.
    pub(crate) fn all() -> impl Iterator<Item = Which> {
        Order::all().flat_map(|order| {
            Migratetype::ALL.into_iter().flat_map(move |migratetype| {
                Warm::ALL.into_iter().map(move |warm| Which { order, migratetype, warm })
            })
        })
    }
}
