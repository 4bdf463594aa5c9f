//! Free blocks on their way back to the system.
//!
//! Clearing memory takes long, so it happens without the zone: a block is taken as if allocated,
//! cleared, and put back untouched with `free_run(pfn, order.frames(), Warm::Untouched)`. Until
//! then no other caller can have its frames. Reserves keep their memory, and isolated pageblocks
//! are left to the caller that isolated them.

use crate::lists::FreeBlock;
use crate::numbers::{Migratetype, Order, Pfn, TakeError, Warm, Which};
use crate::zone::Zone;

impl Zone {
    /// Takes the free block of `order` whose head is `pfn`.
    pub fn take_free(&mut self, pfn: Pfn, order: Order) -> Result<(), TakeError> {
        if !self.directory.contains(pfn.pageblock()) {
            return Err(TakeError::OutOfRange(pfn));
        }
        if !self.is_online(pfn.pageblock()) {
            return Err(TakeError::Offline(pfn));
        }
        let block = self.free_at(pfn).ok_or(TakeError::NotAFreeHead(pfn))?;
        if block.order != order {
            return Err(TakeError::WrongOrder { pfn, order: block.order });
        }
        self.take(block);
        Ok(())
    }

    /// Takes a warm free block of the largest order that has one, `min_order` at least; none of the
    /// reserve, and none that is isolated.
    pub fn take_largest_warm(&mut self, min_order: Order) -> Option<(Pfn, Order)> {
        let block = min_order.and_above().rev().find_map(|order| self.first_warm(order))?;
        self.take(block);
        Some((block.pfn, block.order))
    }

    /// Takes the largest warm free block of no more than `frames` frames. If there is none, it
    /// takes the smallest. The block is not cut, because what was returned of it would merge with
    /// the warm rest, and be taken again.
    pub(crate) fn take_warm_near(&mut self, frames: u64) -> Option<(Pfn, Order)> {
        let fits = |order: &Order| u64::from(order.frames()) <= frames;
        let orders = || Order::ZERO.and_above();
        let largest = orders().rev().filter(fits).find_map(|order| self.first_warm(order));
        let block = largest.or_else(|| orders().find_map(|order| self.first_warm(order)))?;
        self.take(block);
        Some((block.pfn, block.order))
    }

    fn first_warm(&self, order: Order) -> Option<FreeBlock> {
        let warm = Warm::Resident;
        let first = |migratetype| self.lists.first(Which { order, migratetype, warm });
        let kept = [Migratetype::HighAtomic, Migratetype::Isolate];
        Migratetype::ALL.into_iter().filter(|mt| !kept.contains(mt)).find_map(first)
    }

    fn take(&mut self, block: FreeBlock) {
        self.lists.take(&mut self.directory, block);
        self.directory.set_allocated(block.pfn, block.order.frames(), Migratetype::Isolate);
    }
}
