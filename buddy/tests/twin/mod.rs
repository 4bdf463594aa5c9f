//! The zone's naive twin, and the pair that is driven together.
//!
//! ```text
//!    frames   one entry a frame: offline, free (and warm or not), used
//!    runs     head -> length
//!    types    one a pageblock
//! ```
//!
//! No lists and no orders: a free block is whatever aligned power of two happens to be free all
//! through, the largest that is. The twin does not know which of several equal blocks a list
//! yields first, so it names them all and the zone's answer must be among them; everything else
//! it predicts exactly.

mod blocks;

use std::collections::BTreeMap;

use buddy::{
    AllocError, FreeError, Migratetype, OfflineError, Order, PAGEBLOCK_FRAMES, PageblockIndex, Pfn,
    TakeError, Warm, Zone, ZoneCheck,
};

pub(crate) use blocks::{Block, Frame, Twin};

/// One call of the zone.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Alloc { frames: u32, migratetype: Migratetype },
    Free { pfn: u32, frames: u32, warm: Warm },
    Take { pfn: u32, order: Order },
    TakeLargest { min: Order },
    Offline { index: u32 },
}

/// Every free block in the order of the lists: two zones with equal listings behave alike.
type Listing = Vec<(Pfn, Order, Migratetype, Warm)>;

/// A zone and its twin.
pub(crate) struct Pair {
    pub(crate) zone: Zone,
    pub(crate) twin: Twin,
}

impl Pair {
    pub(crate) fn new(frames_max: u32) -> Pair {
        Pair { zone: Zone::new(frames_max), twin: Twin::new(frames_max) }
    }

    /// Does one call on both and compares everything. Whether the call succeeded.
    pub(crate) fn step(&mut self, op: Op) -> bool {
        let before = self.listing();
        let done = match op {
            Op::Alloc { frames, migratetype } => self.alloc(frames, migratetype),
            Op::Free { pfn, frames, warm } => self.free(pfn, frames, warm),
            Op::Take { pfn, order } => self.take(pfn, order),
            Op::TakeLargest { min } => self.take_largest(min),
            Op::Offline { index } => self.offline(index),
        };
        if !done {
            assert_eq!(self.listing(), before, "{op:?} was refused and changed the zone");
        }
        self.compare(op);
        done
    }

    pub(crate) fn listing(&self) -> Listing {
        let mut listing = Vec::new();
        self.zone.for_each_free(|pfn, order, mt, warm| listing.push((pfn, order, mt, warm)));
        listing
    }

    fn alloc(&mut self, frames: u32, mt: Migratetype) -> bool {
        let expected = self.twin.expect_alloc(frames, mt);
        let found = self.zone.alloc_run(frames, mt);
        match (expected, found) {
            (Ok(blocks), Ok(pfn)) => {
                let any = blocks.iter().any(|block| block.pfn == pfn.get());
                assert!(any, "{frames} {mt} frames at {pfn}, not in any of {blocks:?}");
                self.twin.occupy(pfn.get(), frames);
                true
            }
            (Err(expected), Err(found)) => {
                assert_eq!(found, expected, "why {frames} {mt} frames were refused");
                self.check_bound(mt, expected);
                false
            }
            (expected, found) => panic!("{frames} {mt} frames: {found:?}, not {expected:?}"),
        }
    }

    /// The bound in the head of zone.rs, by the meter it names.
    fn check_bound(&self, mt: Migratetype, refused: AllocError) {
        let AllocError::NoFreeRun { order } = refused else { return };
        if !blocks::ordinary(mt) || self.twin.has_reserves() {
            return;
        }
        let span = Order::PAGEBLOCK.max(order).frames();
        let whole = self.zone.frames_max() / u64::from(span) * u64::from(span);
        let used = self.zone.allocated_frames();
        let least = whole / u64::from(order.frames());
        assert!(used >= least, "{order} refused with {used} frames in use, fewer than {least}");
    }

    fn free(&mut self, pfn: u32, frames: u32, warm: Warm) -> bool {
        let expected = self.twin.expect_free(pfn, frames);
        let found = self.zone.free_run(Pfn::new(pfn), frames, warm);
        assert_eq!(found, expected, "freeing {frames} frames at {pfn}");
        if found.is_ok() {
            self.twin.release(pfn, frames, warm);
        }
        found.is_ok()
    }

    fn take(&mut self, pfn: u32, order: Order) -> bool {
        let expected = self.twin.expect_take(pfn, order);
        let found = self.zone.take_free(Pfn::new(pfn), order);
        assert_eq!(found, expected, "taking {order} at {pfn}");
        if found.is_ok() {
            self.twin.occupy(pfn, order.frames());
        }
        found.is_ok()
    }

    fn take_largest(&mut self, min: Order) -> bool {
        let blocks = self.twin.largest_warm(min);
        let Some((pfn, order)) = self.zone.take_largest_warm(min) else {
            assert!(blocks.is_empty(), "no warm block of {min} found, there are {blocks:?}");
            return false;
        };
        let any = blocks.iter().any(|block| (block.pfn, block.order) == (pfn.get(), order));
        assert!(any, "took {order} at {pfn}, which is none of {blocks:?}");
        self.twin.occupy(pfn.get(), order.frames());
        true
    }

    fn offline(&mut self, index: u32) -> bool {
        let expected = self.twin.expect_offline(index);
        let found = self.zone.offline(PageblockIndex::new(index));
        assert_eq!(found, expected, "taking pageblock {index} offline");
        if found.is_ok() {
            self.twin.offline(index);
        }
        found.is_ok()
    }

    fn compare(&self, op: Op) {
        let blocks = self.twin.blocks();
        let mut listed: Vec<Block> = Vec::new();
        self.zone.for_each_free(|pfn, order, migratetype, warm| {
            listed.push(Block { pfn: pfn.get(), order, migratetype, warm });
        });
        listed.sort_by_key(|block| block.pfn);
        assert_eq!(listed, blocks, "the zone's free blocks, then the twin's, after {op:?}");
        self.compare_totals(op, &blocks);
        let runs = &self.twin.runs;
        let expected = ZoneCheck {
            online_pageblocks: self.twin.online_types().count() as u64,
            free_blocks: blocks.len() as u64,
            free_frames: self.zone.free_frames(),
            runs: runs.len() as u64,
            allocated_frames: self.zone.allocated_frames(),
        };
        assert_eq!(self.zone.check(), Ok(expected), "after {op:?}");
    }

    fn compare_totals(&self, op: Op, blocks: &[Block]) {
        let free: u64 = blocks.iter().map(|block| u64::from(block.order.frames())).sum();
        assert_eq!(self.zone.free_frames(), free, "free frames after {op:?}");
        let used: u64 = self.twin.runs.values().map(|frames| u64::from(*frames)).sum();
        assert_eq!(self.zone.allocated_frames(), used, "allocated frames after {op:?}");
        let largest = blocks.iter().map(|block| block.order).max();
        assert_eq!(self.zone.largest_free_order(), largest, "largest free order after {op:?}");
        self.compare_types(op);
        let counts = self.zone.counts();
        for order in Order::all() {
            for (index, mt) in Migratetype::ALL.into_iter().enumerate() {
                let kind = |block: &&Block| (block.order, block.migratetype) == (order, mt);
                let expected = blocks.iter().filter(kind).count() as u64;
                let found = counts[usize::from(order.get())][index];
                assert_eq!(found, expected, "count of {order}, {mt} after {op:?}");
                let published = self.zone.published().free_blocks(order, mt);
                assert_eq!(published, expected, "published of {order}, {mt} after {op:?}");
            }
        }
    }

    fn compare_types(&self, op: Op) {
        let found = self.zone.published().read().pageblocks;
        for (mt, found) in Migratetype::ALL.into_iter().zip(found) {
            let online = self.twin.online_types();
            let expected = online.filter(|online| *online == mt).count() as u64;
            assert_eq!(found, expected, "pageblocks of {mt} after {op:?}");
        }
    }
}

/// The runs, for tests that free them.
pub(crate) type Runs = BTreeMap<u32, u32>;

impl Twin {
    fn expect_free(&self, pfn: u32, frames: u32) -> Result<(), FreeError> {
        let at = Pfn::new(pfn);
        match (self.runs.get(&pfn), self.frames.get(pfn as usize)) {
            (_, None) => Err(FreeError::OutOfRange(at)),
            (_, Some(Frame::Offline)) => Err(FreeError::Offline(at)),
            (Some(allocated), _) if *allocated == frames => Ok(()),
            (Some(allocated), _) => {
                Err(FreeError::WrongLength { pfn: at, allocated: *allocated, freed: frames })
            }
            (None, _) if self.block_at(pfn).is_some() => Err(FreeError::AlreadyFree(at)),
            (None, _) => Err(FreeError::NotAHead(at)),
        }
    }

    fn expect_take(&self, pfn: u32, order: Order) -> Result<(), TakeError> {
        let at = Pfn::new(pfn);
        match (self.block_at(pfn), self.frames.get(pfn as usize)) {
            (_, None) => Err(TakeError::OutOfRange(at)),
            (_, Some(Frame::Offline)) => Err(TakeError::Offline(at)),
            (None, _) => Err(TakeError::NotAFreeHead(at)),
            (Some(block), _) if block.order == order => Ok(()),
            (Some(block), _) => Err(TakeError::WrongOrder { pfn: at, order: block.order }),
        }
    }

    fn expect_offline(&self, index: u32) -> Result<(), OfflineError> {
        let at = PageblockIndex::new(index);
        if index as usize >= self.types.len() {
            return Err(OfflineError::OutOfRange(at));
        }
        let first = (index * PAGEBLOCK_FRAMES) as usize;
        let frames = &self.frames[first..first + PAGEBLOCK_FRAMES as usize];
        if frames[0] == Frame::Offline {
            return Err(OfflineError::AlreadyOffline(at));
        }
        let used = frames.contains(&Frame::Used);
        if used { Err(OfflineError::InUse(at)) } else { Ok(()) }
    }
}
