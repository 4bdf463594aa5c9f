//! What the lists of a zone tell their counts, and ask them.
//!
//! By default the counts are [`Published`]. With the feature `study` there are others to compare
//! them with, see the module of that name.

use super::published::Published;
use super::{List, OfSlot};
use crate::numbers::{Arc, Migratetype, Order, SLOTS, Warm, Which};

/// The counts of a zone's lists. Only this crate can name what its methods take, so no other crate
/// implements it.
pub trait Counts {
    /// The counts, for readers without the lock.
    fn published(&self) -> &Arc<Published>;

    /// One block more is on a list.
    fn count_added(&self, which: Which);

    /// One block less is on a list.
    fn count_taken(&self, which: Which);

    /// Whether no block is on a list.
    fn is_empty(&self, which: Which, list: &List) -> bool;

    /// The smallest order from `order` on of which a type has a block of this warmth.
    fn smallest(
        &self,
        order: Order,
        mt: Migratetype,
        warm: Warm,
        lists: &[OfSlot; SLOTS],
    ) -> Option<Order>;
}

impl Counts for Arc<Published> {
    fn published(&self) -> &Arc<Published> {
        self
    }

    #[inline(always)]
    fn count_added(&self, which: Which) {
        Published::count_added(self, which);
    }

    #[inline(always)]
    fn count_taken(&self, which: Which) {
        Published::count_taken(self, which);
    }

    #[inline]
    fn is_empty(&self, which: Which, _: &List) -> bool {
        self.count(which) == 0
    }

    #[inline]
    fn smallest(
        &self,
        order: Order,
        mt: Migratetype,
        warm: Warm,
        _: &[OfSlot; SLOTS],
    ) -> Option<Order> {
        Published::smallest(self, order, mt, warm)
    }
}
