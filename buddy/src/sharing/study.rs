//! What study S2 compares with the published counts: lists that are not counted, and counting by
//! walking over the lists.
//!
//! Invariant: a zone does the same, whatever is compared. Only its counts differ.
//!
//! ```
//! let mut zone = ramfold_buddy::Zone::uncounted(4096);
//! zone.alloc_run(5, ramfold_buddy::Migratetype::Movable)?;
//! assert_eq!(zone.published().read().free_frames(), 0, "no free block is counted");
//! assert_eq!(zone.counts_by_walk(u64::MAX).free_frames(), 507);
//! # Ok::<(), ramfold_buddy::AllocError>(())
//! ```
//!
//! Lock: the zone's, which a walk over a shared zone holds to its end.

use super::SharedZone;
pub use crate::lists::counts::Counts;
use crate::lists::{List, NONE, OfSlot, Published, ZoneCounts};
use crate::numbers::{Arc, Migratetype, Order, SLOTS, Warm, Which, slot};
use crate::zone::Zone;

/// Counts that stay 0: a list is empty if it has no head.
#[derive(Debug)]
pub struct Uncounted(Arc<Published>);

impl Counts for Uncounted {
    fn published(&self) -> &Arc<Published> {
        &self.0
    }

    #[inline(always)]
    fn count_added(&self, _: Which) {}

    #[inline(always)]
    fn count_taken(&self, _: Which) {}

    #[inline]
    fn is_empty(&self, _: Which, list: &List) -> bool {
        list.head == NONE
    }

    #[inline]
    fn smallest(
        &self,
        order: Order,
        mt: Migratetype,
        warm: Warm,
        lists: &[OfSlot; SLOTS],
    ) -> Option<Order> {
        let lists = &lists[slot(order, mt)..=slot(Order::MAX, mt)];
        let has = |lists: &OfSlot| lists[warm.index()].head != NONE;
        Order::new(order.get() + lists.iter().position(has)? as u8)
    }
}

impl Zone<Uncounted> {
    /// As [`Zone::new`], with published counts of free blocks that stay 0.
    pub fn uncounted(frames_max: u32) -> Zone<Uncounted> {
        Zone::empty(frames_max, Uncounted(Arc::new(Published::new())))
    }
}

impl<C: Counts> Zone<C> {
    /// The counts as a walk over every list finds them: the way in which pagetypeinfo was read
    /// before study S2. It counts at most `blocks_max` blocks of an order and type. The kernel did
    /// so up to 100000. Pageblocks are as published.
    pub fn counts_by_walk(&self, blocks_max: u64) -> ZoneCounts {
        let pageblocks = Migratetype::ALL.map(|mt| self.published().pageblocks(mt));
        let mut counts = ZoneCounts { pageblocks, ..ZoneCounts::default() };
        for which in Which::all() {
            let found = &mut counts.free_blocks[which.migratetype.index()][which.order.index()];
            let mut at = self.lists.first(which).map(|block| block.pfn);
            while let Some(pfn) = at.filter(|_| *found < blocks_max) {
                *found += 1;
                at = self.lists.next(&self.directory, pfn);
            }
        }
        counts
    }
}

impl SharedZone {
    /// See [`Zone::counts_by_walk`]: the lock is held for the whole walk.
    pub fn counts_by_walk(&self, blocks_max: u64) -> ZoneCounts {
        self.lock().counts_by_walk(blocks_max)
    }
}
