//! Changing the type of a pageblock, and of all that is free in it.
//!
//! ```text
//!    [ R ][ free ][   free   ][  R  ...        each free block to the list of the new type
//!    [            free              ]          once more freed: it may merge with its buddy now
//!    [            free              |  ..  ]   half of the largest block: cut off first
//! ```
//!
//! Invariant: I3 and I4 hold before and after. Runs stay what they are; when they are freed, their
//! frames go where their pageblock's type then says.

use crate::lists::{Counts, End, FreeBlock};
use crate::numbers::{Migratetype, Order, PAGEBLOCK_FRAMES, PageblockIndex, Pfn, Role, Warm};
use crate::zone::Zone;

impl<C: Counts> Zone<C> {
    /// Gives an online pageblock the type `to` and moves its free blocks there: the kernel's
    /// `move_freepages_block` and `set_pageblock_migratetype`, and for isolation
    /// `move_freepages_block_isolate`. One look at each block and run in it.
    pub(crate) fn retype(&mut self, index: PageblockIndex, to: Migratetype) {
        let Some(block) = self.free_block_over(index) else {
            self.retype_parts(index, to);
            return;
        };
        let warm = self.take_pageblock(index, block);
        self.directory.set_migratetype(index, to);
        let pfn = index.first_frame().expect("D1: an online pageblock has frames");
        self.give_back(FreeBlock { pfn, order: Order::PAGEBLOCK, warm });
    }

    /// Takes a pageblock off its list, out of the free block that covers it; what else the block
    /// covers stays. Gives the block's warmth.
    pub(crate) fn take_pageblock(&mut self, index: PageblockIndex, block: FreeBlock) -> Warm {
        self.lists.take(&mut self.directory, block);
        if block.order > Order::PAGEBLOCK {
            let pfn = index.first_frame().expect("D1: an online pageblock has frames");
            let pfn = pfn.buddy(Order::PAGEBLOCK);
            let half = FreeBlock { pfn, order: Order::PAGEBLOCK, warm: block.warm };
            self.lists.add(&mut self.directory, half, End::Head);
        }
        block.warm
    }

    /// No block here is as large as the pageblock, so none can merge with anything else than
    /// before.
    fn retype_parts(&mut self, index: PageblockIndex, to: Migratetype) {
        let mut at = self.first_head(index);
        while at.pageblock() == index {
            if let Some(block) = self.free_at(at) {
                self.lists.relist(&mut self.directory, block, to);
            }
            at = at.plus(self.frames_from(at));
        }
        self.directory.set_migratetype(index, to);
    }

    /// The free block that covers a whole pageblock.
    pub(crate) fn free_block_over(&self, index: PageblockIndex) -> Option<FreeBlock> {
        let pfn = index.first_frame()?;
        let at = |order| self.free_of(pfn.head(order), order);
        at(Order::PAGEBLOCK).or_else(|| at(Order::MAX))
    }

    /// The run that starts in the pageblock before an online one and reaches into it.
    pub(crate) fn run_into(&self, index: PageblockIndex) -> Option<Pfn> {
        let pfn = index.first_frame()?.head(Order::MAX);
        let other = pfn.pageblock() != index;
        let run = other && matches!(self.directory.role(pfn), Some(Role::Allocated(_)));
        (run && self.directory.run_frames(pfn) > PAGEBLOCK_FRAMES).then_some(pfn)
    }

    /// The first frame of an online pageblock, not covered by one free block, at which a block or
    /// a run starts; that of a later pageblock if none does.
    pub(crate) fn first_head(&self, index: PageblockIndex) -> Pfn {
        match self.run_into(index) {
            Some(pfn) => pfn.plus(self.directory.run_frames(pfn)),
            None => index.first_frame().expect("D1: an online pageblock has frames"),
        }
    }

    /// The length of the block or run whose head is `pfn`.
    pub(crate) fn frames_from(&self, pfn: Pfn) -> u32 {
        match self.directory.role(pfn) {
            Some(Role::Free { order, .. }) => order.frames(),
            Some(Role::Allocated(_)) => self.directory.run_frames(pfn),
            Some(Role::Inner) | None => unreachable!("I1: the walk goes from head to head"),
        }
    }
}
