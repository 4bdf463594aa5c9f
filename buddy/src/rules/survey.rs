//! What there is: totals, counts, and a visit to every free block.
//!
//! Invariant: nothing here changes the zone.

use crate::lists::{Counts, Published};
use crate::numbers::{
    Migratetype, ORDERS, Occupancy, Order, PAGEBLOCK_FRAMES, PageblockIndex, Pfn, Warm, Which,
};
use crate::zone::Zone;

impl<C: Counts> Zone<C> {
    /// Frames in free blocks.
    pub fn free_frames(&self) -> u64 {
        self.lists.frames()
    }

    /// Frames in runs, taken blocks included.
    pub fn allocated_frames(&self) -> u64 {
        self.online_frames() - self.free_frames()
    }

    /// Frames of online pageblocks, free and allocated.
    pub fn online_frames(&self) -> u64 {
        frames_of(self.directory.online())
    }

    /// Frames of whole pageblocks, online and offline: all that can ever be allocated.
    pub fn frames_max(&self) -> u64 {
        frames_of(self.directory.pageblocks_max())
    }

    /// Whether a pageblock is online.
    pub fn is_online(&self, index: PageblockIndex) -> bool {
        self.directory.is_online(index)
    }

    /// Visits every free block: by order, then type, warm before untouched, each list from the
    /// end that requests take from.
    pub fn for_each_free(&self, mut visit: impl FnMut(Pfn, Order, Migratetype, Warm)) {
        for which in Which::all() {
            let mut at = self.lists.first(which).map(|block| block.pfn);
            while let Some(pfn) = at {
                visit(pfn, which.order, which.migratetype, which.warm);
                at = self.lists.next(&self.directory, pfn);
            }
        }
    }

    /// How much of a pageblock is in use: none if it is offline.
    pub fn occupancy(&self, index: PageblockIndex) -> Option<Occupancy> {
        let online = self.is_online(index);
        let of =
            |index| self.directory.used(index).occupancy(index, self.directory.migratetype(index));
        online.then(|| of(index))
    }

    /// Looks at `pageblocks_max` pageblocks from `from` on and adds the online ones to `found`.
    /// Gives where to go on, none at the end. What is found is true now, and of several calls each
    /// is of its own moment.
    pub fn occupancies(
        &self,
        from: PageblockIndex,
        pageblocks_max: u32,
        found: &mut Vec<Occupancy>,
    ) -> Option<PageblockIndex> {
        let end = from.get().saturating_add(pageblocks_max).min(self.directory.len());
        let looked_at = (from.get()..end).map(PageblockIndex::new);
        found.extend(looked_at.filter_map(|index| self.occupancy(index)));
        (end < self.directory.len()).then(|| PageblockIndex::new(end))
    }

    /// Bytes this zone holds: itself, its counts, the metadata of the online pageblocks, the way to
    /// it. What the heap adds for itself is not counted.
    pub fn metadata_bytes(&self) -> usize {
        size_of::<Self>() + size_of::<Published>() + self.directory.heap_bytes()
    }
}

impl Zone {
    /// Free blocks by order and migratetype: `counts()[order][migratetype]`, the types in the
    /// order of [`Migratetype::ALL`].
    pub fn counts(&self) -> [[u64; Migratetype::COUNT]; ORDERS] {
        let mut counts = [[0; Migratetype::COUNT]; ORDERS];
        for which in Which::all() {
            let blocks = u64::from(self.lists.count(which));
            counts[which.order.index()][which.migratetype.index()] += blocks;
        }
        counts
    }

    /// The largest order of which a block is free, of whatever type.
    pub fn largest_free_order(&self) -> Option<Order> {
        let free = Which::all().filter(|which| self.lists.count(*which) > 0);
        free.map(|which| which.order).max()
    }
}

fn frames_of(pageblocks: u32) -> u64 {
    u64::from(pageblocks) * u64::from(PAGEBLOCK_FRAMES)
}
