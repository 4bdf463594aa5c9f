//! What anybody may read without the zone lock, at any rate.
//!
//! ```text
//!   [ warm | untouched ]  [ warm | untouched ]  ..     a word for each list: orders of one type
//!     order 0               order 1                    side by side
//!
//!   Lists, Directory  --- load, add, store --->  Published  <--- load ---  any thread
//!     (&mut Zone, so one writer at a time)          (Arc)                  (no lock)
//! ```
//!
//! These words are the zone's own counts and not copies of them: a list is empty when its word is
//! 0. They lie on cache lines of their own, so a reader takes nothing from the writer but the
//! lines it reads.
//!
//! Invariants
//!
//! * P1: only the owner of the zone writes, through `&mut Zone`. A plain load and store then loses
//!   nothing, and no instruction locks the bus.
//! * P2: every list operation is one store to one word, every change of a pageblock's type one to
//!   each of two.
//!
//! What a reader is promised
//!
//! * R1: each word was true at some moment: the number of blocks that were on a list, or of
//!   pageblocks of a type. The moment may lie within an operation of the zone, in which a block
//!   that is being split is on no list.
//! * R2: a thread that reads a word twice does not go back in time.
//! * R3: a thread that learned by other means (a message, the lock) that an operation was done
//!   reads its result, or a later one.
//! * R4: nothing is promised about two words together. That includes the warm and the untouched
//!   blocks of one order and type. A block that was split, merged or moved between two loads is in
//!   both or in neither. A sum of several words is an estimate while the zone changes, and exact
//!   while it does not.
//!
//! Source: study S2, the counts that let pagetypeinfo be read at no cost to threads that allocate.

use crate::numbers::{
    AtomicU32, AtomicU64, Migratetype, ORDERS, Order, Ordering, PAGEBLOCK_FRAMES, SLOTS, Warm,
    Which, slot,
};

/// The counts of a zone, for readers without its lock. The head of published.rs says what a reader
/// is promised.
#[derive(Debug)]
#[repr(align(64))]
pub struct Published {
    blocks: [[AtomicU32; Warm::ALL.len()]; SLOTS],
    pageblocks: [AtomicU32; Migratetype::COUNT],
    mixings: AtomicU64,
}

/// Numbers read from a [`Published`], no two of them of one moment; or from a text, whose numbers
/// may be any. Sums that 64 bits cannot hold are `u64::MAX`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneCounts {
    /// Free blocks: `free_blocks[migratetype][order]`, types as in [`Migratetype::ALL`].
    pub free_blocks: [[u64; ORDERS]; Migratetype::COUNT],
    /// Online pageblocks by type.
    pub pageblocks: [u64; Migratetype::COUNT],
}

impl ZoneCounts {
    /// Frames in free blocks, of whatever type.
    pub fn free_frames(&self) -> u64 {
        let frames = |orders: &[u64; ORDERS]| frames_in(orders);
        self.free_blocks.iter().map(frames).fold(0, u64::saturating_add)
    }

    /// Frames in free blocks of a pageblock or more, of whatever type: what could become a huge
    /// page at once. The kernel's `nr_free_pages_blocks`.
    pub fn free_pageblock_frames(&self) -> u64 {
        let mut blocks = self.blocks_by_order();
        blocks[..Order::PAGEBLOCK.index()].fill(0);
        frames_in(&blocks)
    }

    /// Frames of online pageblocks, free and in use.
    pub fn online_frames(&self) -> u64 {
        let pageblocks = self.pageblocks.iter().copied().fold(0, u64::saturating_add);
        pageblocks.saturating_mul(PAGEBLOCK_FRAMES.into())
    }

    /// Free blocks by order, all types together: a line of buddyinfo.
    pub fn blocks_by_order(&self) -> [u64; ORDERS] {
        let of_order = |order: usize| self.free_blocks.iter().map(move |orders| orders[order]);
        std::array::from_fn(|order| of_order(order).fold(0, u64::saturating_add))
    }

    /// Adds what another zone has.
    pub fn add(&mut self, other: &ZoneCounts) {
        let add = |(sum, more): (&mut u64, &u64)| *sum = sum.saturating_add(*more);
        for (sum, more) in self.free_blocks.iter_mut().zip(&other.free_blocks) {
            sum.iter_mut().zip(more).for_each(add);
        }
        self.pageblocks.iter_mut().zip(&other.pageblocks).for_each(add);
    }
}

/// Frames in so many blocks of each order.
pub(crate) fn frames_in(blocks: &[u64; ORDERS]) -> u64 {
    let frames = |(order, blocks): (Order, &u64)| blocks.saturating_mul(u64::from(order.frames()));
    Order::all().zip(blocks).map(frames).fold(0, u64::saturating_add)
}

impl Published {
    pub(crate) fn new() -> Published {
        Published {
            blocks: std::array::from_fn(|_| Warm::ALL.map(|_| AtomicU32::new(0))),
            pageblocks: std::array::from_fn(|_| AtomicU32::new(0)),
            mixings: AtomicU64::new(0),
        }
    }

    /// Free blocks of an order and a migratetype: of two lists, warm and untouched.
    pub fn free_blocks(&self, order: Order, migratetype: Migratetype) -> u64 {
        let lists = &self.blocks[slot(order, migratetype)];
        // relaxed: each is a number that stands for itself, as R4 says.
        lists.iter().map(|count| u64::from(count.load(Ordering::Relaxed))).sum()
    }

    /// Online pageblocks of a migratetype.
    pub fn pageblocks(&self, migratetype: Migratetype) -> u64 {
        // relaxed: one number that stands for itself, as R4 says.
        self.pageblocks[migratetype.index()].load(Ordering::Relaxed).into()
    }

    /// How often a request had no other way than into a pageblock with runs of the other mobility:
    /// movable beside unmovable, or the reverse. Never falls.
    pub fn mixings(&self) -> u64 {
        // relaxed: one number that stands for itself, as R4 says.
        self.mixings.load(Ordering::Relaxed)
    }

    /// Every count of blocks and pageblocks, each read once.
    pub fn read(&self) -> ZoneCounts {
        let mut counts = ZoneCounts::default();
        for mt in Migratetype::ALL {
            let blocks = &mut counts.free_blocks[mt.index()];
            Order::all().for_each(|order| blocks[order.index()] = self.free_blocks(order, mt));
            counts.pageblocks[mt.index()] = self.pageblocks(mt);
        }
        counts
    }

    /// Blocks on one list, for the owner of the zone.
    pub(crate) fn count(&self, which: Which) -> u32 {
        // relaxed: the owner of the zone made every store, or got the lock from the thread that
        // did.
        self.list(which).load(Ordering::Relaxed)
    }

    /// The smallest order from `order` on of which a type has a block of this warmth, for the owner
    /// of the zone.
    pub(crate) fn smallest(&self, order: Order, mt: Migratetype, warm: Warm) -> Option<Order> {
        let lists = &self.blocks[slot(order, mt)..=slot(Order::MAX, mt)];
        // relaxed: for the load see `count`.
        let has = |list: &[AtomicU32; 2]| list[warm.index()].load(Ordering::Relaxed) > 0;
        Order::new(order.get() + lists.iter().position(has)? as u8)
    }

    /// One block more on a list. Only for the owner of the zone (P1).
    pub(crate) fn count_added(&self, which: Which) {
        let count = self.list(which);
        // relaxed: for the load see `count`; nothing else is published with this number (R4).
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// One block less on a list. Only for the owner of the zone (P1).
    pub(crate) fn count_taken(&self, which: Which) {
        let count = self.list(which);
        // relaxed: for the load see `count`; nothing else is published with this number (R4).
        count.store(count.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    }

    /// One pageblock more of a type. Only for the owner of the zone (P1).
    pub(crate) fn pageblock_added(&self, migratetype: Migratetype) {
        let count = &self.pageblocks[migratetype.index()];
        // relaxed: for the load see `count`; nothing else is published with this number (R4).
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// One pageblock less of a type. Only for the owner of the zone (P1).
    pub(crate) fn pageblock_taken(&self, migratetype: Migratetype) {
        let count = &self.pageblocks[migratetype.index()];
        // relaxed: for the load see `count`; nothing else is published with this number (R4).
        count.store(count.load(Ordering::Relaxed) - 1, Ordering::Relaxed);
    }

    /// One mixing more. Only for the owner of the zone (P1).
    pub(crate) fn mixing_added(&self) {
        // relaxed: for the load see `count`; nothing else is published with this number (R4).
        self.mixings.store(self.mixings.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    fn list(&self, which: Which) -> &AtomicU32 {
        &self.blocks.as_flattened()[which.number()]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const MOVABLE: Migratetype = Migratetype::Movable;

    fn which(warm: Warm) -> Which {
        Which { order: Order::PAGEBLOCK, migratetype: MOVABLE, warm }
    }

    /// A machine with Linux 6.18: the last two columns of its `/proc/pagetypeinfo`, and
    /// `nr_free_pages_blocks` of its `/proc/vmstat` at that moment.
    #[test]
    fn frames_of_free_pageblocks_are_those_that_the_kernel_counts() {
        let mut counts = ZoneCounts::default();
        let types = [Migratetype::Unmovable, Migratetype::Movable, Migratetype::Reclaimable];
        for (mt, orders) in types.into_iter().zip([[1, 3], [2, 752], [104, 233]]) {
            let blocks = &mut counts.free_blocks[mt.index()];
            (blocks[8], blocks[9], blocks[10]) = (32, orders[0], orders[1]);
        }
        assert_eq!(counts.free_pageblock_frames(), 1_066_496);
    }

    #[test]
    fn warm_and_untouched_blocks_are_counted_apart_and_read_together() {
        let published = Published::new();
        for warm in [Warm::Resident, Warm::Untouched, Warm::Untouched] {
            published.count_added(which(warm));
        }
        assert_eq!(Warm::ALL.map(|warm| published.count(which(warm))), [1, 2]);
        assert_eq!(published.free_blocks(Order::PAGEBLOCK, MOVABLE), 3);
        published.count_taken(which(Warm::Resident));
        assert_eq!(Warm::ALL.map(|warm| published.count(which(warm))), [0, 2]);
    }

    #[test]
    fn what_is_read_adds_up() {
        let published = Published::new();
        published.count_added(which(Warm::Resident));
        published.count_added(Which { order: Order::ZERO, ..which(Warm::Untouched) });
        published.pageblock_added(MOVABLE);
        let mut counts = published.read();
        assert_eq!((counts.free_frames(), counts.online_frames()), (513, 512));
        counts.add(&published.read());
        assert_eq!((counts.free_frames(), counts.pageblocks[MOVABLE.index()]), (1026, 2));
        assert_eq!(counts.blocks_by_order()[usize::from(Order::PAGEBLOCK.get())], 2);
    }
}
