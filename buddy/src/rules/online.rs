//! Bringing pageblocks online, and taking wholly free ones offline.
//!
//! ```text
//!                bring_online: no metadata yet, all of it one untouched free block
//!    offline  ------------------------------------------------------------------->  online
//!             <-------------------------------------------------------------------
//!                offline: wholly free; metadata dropped
//! ```

use crate::lists::{Counts, FreeBlock};
use crate::numbers::{AllocError, Migratetype, OfflineError, Order, PageblockIndex, Pfn, Warm};
use crate::zone::Zone;

impl<C: Counts> Zone<C> {
    /// Brings online what a request of `order` needs, as pageblocks of its type: the lowest
    /// offline pageblock, or the lowest pair that yields a block of the largest order.
    pub(crate) fn bring_online(&mut self, order: Order, mt: Migratetype) -> Result<(), AllocError> {
        if order > Order::PAGEBLOCK {
            return self.bring_pair_online(mt);
        }
        let index = self.directory.lowest_offline();
        self.bring_one_online(index.ok_or(AllocError::NoFreeRun { order })?, mt)
    }

    /// The lowest pair of which one half at least is offline and the other would merge with it;
    /// past the end of the directory every pair is. When the second half is refused, the first
    /// stays online and free.
    fn bring_pair_online(&mut self, mt: Migratetype) -> Result<(), AllocError> {
        let pairs = (0..self.directory.len() + 2).step_by(2).map(pair);
        let suits = |index: &PageblockIndex| self.suits_pair(*index, mt);
        let mut suited = pairs.filter(|pair| pair.iter().all(suits));
        let found = suited.find(|pair| pair.iter().any(|index| !self.is_online(*index)));
        for index in found.ok_or(AllocError::NoFreeRun { order: Order::MAX })? {
            if !self.is_online(index) {
                self.bring_one_online(index, mt)?;
            }
        }
        Ok(())
    }

    /// Whether a pageblock is, or can come online as, half of a free pair of type `mt`.
    fn suits_pair(&self, index: PageblockIndex, mt: Migratetype) -> bool {
        if !self.directory.is_online(index) {
            return self.directory.contains(index);
        }
        self.free_block_over(index).is_some() && self.directory.migratetype(index).merges_with(mt)
    }

    pub(crate) fn bring_one_online(
        &mut self,
        index: PageblockIndex,
        migratetype: Migratetype,
    ) -> Result<(), AllocError> {
        self.directory.insert(index, migratetype)?;
        let pfn = first_frame(index);
        self.give_back(FreeBlock { pfn, order: Order::PAGEBLOCK, warm: Warm::Untouched });
        Ok(())
    }

    /// Takes a wholly free pageblock offline and drops its metadata. Its memory is the caller's
    /// to release, before another request brings it online again.
    pub fn offline(&mut self, index: PageblockIndex) -> Result<(), OfflineError> {
        if !self.directory.contains(index) {
            return Err(OfflineError::OutOfRange(index));
        }
        if !self.is_online(index) {
            return Err(OfflineError::AlreadyOffline(index));
        }
        let block = self.free_block_over(index).ok_or(OfflineError::InUse(index))?;
        self.take_pageblock(index, block);
        self.directory.remove(index);
        Ok(())
    }

    /// Takes every pageblock offline that is wholly free and untouched, so that there is nothing to
    /// release. Returns how many. What was set aside or is isolated stays. It looks at each
    /// pageblock once.
    pub fn offline_untouched(&mut self) -> u32 {
        let before = self.online_frames();
        for number in 0..self.directory.len() {
            let index = PageblockIndex::new(number);
            let untouched = |block: FreeBlock| block.warm == Warm::Untouched;
            let ordinary = self.is_online(index) && self.directory.migratetype(index).is_ordinary();
            if ordinary && self.free_block_over(index).is_some_and(untouched) {
                let gone = self.offline(index);
                debug_assert!(gone.is_ok(), "it is online and wholly free: {gone:?}");
            }
        }
        ((before - self.online_frames()) / u64::from(Order::PAGEBLOCK.frames())) as u32
    }
}

fn pair(even: u32) -> [PageblockIndex; 2] {
    [PageblockIndex::new(even), PageblockIndex::new(even + 1)]
}

fn first_frame(index: PageblockIndex) -> Pfn {
    index.first_frame().expect("a pageblock of the zone has frame numbers")
}
