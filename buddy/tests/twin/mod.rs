//! The zone's naive twin, and the pair that is driven together.
//!
//! ```text
//!    frames   one entry a frame: offline, free (and warm or not), used
//!    runs     head -> length, and what it was asked for as
//!    types    one a pageblock; of an isolated one the type to return to as well
//! ```
//!
//! No lists and no orders: a free block is whatever aligned power of two happens to be free all
//! through, the largest that is. The twin does not know which of several equal blocks a list
//! yields first, so it names them all and the zone's answer must be among them; everything else
//! it predicts exactly.

mod blocks;
mod choices;
mod refusals;

use std::collections::BTreeMap;

use ramfold_buddy::{AllocError, Migratetype, Order, PageblockIndex, Pfn, Warm, Zone, ZoneCheck};

use choices::Choice;

pub(crate) use blocks::{Block, Twin};

/// One call of the zone.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Alloc { frames: u32, migratetype: Migratetype },
    AllocWarm { frames: u32, migratetype: Migratetype },
    Free { pfn: u32, frames: u32, warm: Warm },
    Take { pfn: u32, order: Order },
    TakeLargest { min: Order },
    Offline { index: u32 },
    Isolate { index: u32 },
    UndoIsolation { index: u32 },
    Reserve,
    Unreserve { to: Migratetype, force: bool },
    SetAside,
}

/// More than the hundredth of a small zone, which is nothing.
const RESERVE_MAX: u32 = 2;

/// Every free block in the order of the lists: two zones with equal listings behave alike.
type Listing = Vec<(Pfn, Order, Migratetype, Warm)>;

/// A zone and its twin.
pub(crate) struct Pair {
    pub(crate) zone: Zone,
    pub(crate) twin: Twin,
}

impl Pair {
    pub(crate) fn new(frames_max: u32) -> Pair {
        let (mut zone, mut twin) = (Zone::new(frames_max), Twin::new(frames_max));
        zone.set_reserve_max(RESERVE_MAX);
        twin.reserve_max = RESERVE_MAX;
        Pair { zone, twin }
    }

    /// Does one call on both and compares everything. Whether the call succeeded.
    pub(crate) fn step(&mut self, op: Op) -> bool {
        let before = self.listing();
        let done = match op {
            Op::Alloc { frames, migratetype } => self.alloc(frames, migratetype),
            Op::AllocWarm { frames, migratetype } => self.alloc_warm(frames, migratetype),
            Op::Free { pfn, frames, warm } => self.free(pfn, frames, warm),
            Op::Take { pfn, order } => self.take(pfn, order),
            Op::TakeLargest { min } => self.take_largest(min),
            Op::Offline { index } => self.offline(index),
            Op::Isolate { index } => self.isolate(index),
            Op::UndoIsolation { index } => self.undo_isolation(index),
            Op::Reserve => self.reserve(),
            Op::Unreserve { to, force } => self.unreserve(to, force),
            Op::SetAside => self.set_aside(),
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
            (Ok(choices), Ok(pfn)) => {
                // Two ways may end at one frame: with its pageblock claimed, or not.
                let now = self.zone.occupancy(pfn.pageblock()).map(|now| now.migratetype);
                let index = pfn.pageblock().get() as usize;
                let made = |choice: &&Choice| {
                    let same = choice.claimed.is_empty() && now == Some(self.twin.types[index]);
                    let claimed =
                        choice.claimed.contains(&index) && now == Some(choice.block.migratetype);
                    choice.block.pfn == pfn.get() && (same || claimed)
                };
                let choice = choices.iter().find(made);
                let choice = choice.unwrap_or_else(|| {
                    panic!("{frames} {mt} frames at {pfn}, which is none of {choices:?}")
                });
                self.twin.choose(choice, frames, mt);
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

    fn alloc_warm(&mut self, frames: u32, mt: Migratetype) -> bool {
        let choices = self.twin.expect_warm(frames, mt);
        let Ok(pfn) = self.zone.alloc_warm(frames, mt) else {
            assert!(choices.is_empty(), "no {frames} warm {mt} frames, there are {choices:?}");
            return false;
        };
        let choice = choices.iter().find(|choice| choice.block.pfn == pfn.get());
        let choice = choice.unwrap_or_else(|| {
            panic!("{frames} warm {mt} frames at {pfn}, which is none of {choices:?}")
        });
        self.twin.choose(choice, frames, mt);
        true
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
            self.twin.occupy(pfn, order.frames(), Migratetype::Isolate);
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
        self.twin.occupy(pfn.get(), order.frames(), Migratetype::Isolate);
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

    fn isolate(&mut self, index: u32) -> bool {
        let expected = self.twin.expect_isolate(index);
        let found = self.zone.isolate(PageblockIndex::new(index));
        assert_eq!(found, expected, "isolating pageblock {index}");
        if found.is_ok() {
            self.twin.before[index as usize] = self.twin.types[index as usize];
            self.twin.retype(index as usize, Migratetype::Isolate);
        }
        found.is_ok()
    }

    fn undo_isolation(&mut self, index: u32) -> bool {
        let expected = self.twin.expect_undo(index);
        let found = self.zone.undo_isolation(PageblockIndex::new(index));
        assert_eq!(found, expected, "undoing the isolation of pageblock {index}");
        if found.is_ok() {
            self.twin.retype(index as usize, self.twin.before[index as usize]);
        }
        found.is_ok()
    }

    fn reserve(&mut self) -> bool {
        let (expected, found) = (self.twin.expect_reserve(), self.zone.reserve());
        let Some(index) = self.one_of(expected, found) else { return false };
        self.twin.set_apart(index, Migratetype::HighAtomic);
        true
    }

    fn unreserve(&mut self, to: Migratetype, force: bool) -> bool {
        let (expected, found) =
            (self.twin.expect_unreserve(to, force), self.zone.unreserve(to, force));
        let Some(index) = self.one_of(expected, found) else { return false };
        self.twin.retype(index, to);
        true
    }

    fn one_of<E: PartialEq + std::fmt::Debug>(
        &self,
        expected: Result<Vec<usize>, E>,
        found: Result<PageblockIndex, E>,
    ) -> Option<usize> {
        match (expected, found) {
            (Ok(any), Ok(index)) => {
                let index = index.get() as usize;
                assert!(any.contains(&index), "pageblock {index} is none of {any:?}");
                Some(index)
            }
            (expected, found) => {
                assert_eq!(found.err(), expected.err(), "why it was refused");
                None
            }
        }
    }

    fn set_aside(&mut self) -> bool {
        let (expected, found) = (self.twin.expect_set_aside(), self.zone.set_aside_cma());
        let Some(index) = self.one_of(expected, found) else { return false };
        self.twin.cma = true;
        self.twin.set_apart(index, Migratetype::Cma);
        true
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
            listed_frames: 0,
        };
        assert_eq!(self.zone.check(), Ok(expected), "after {op:?}");
        self.compare_pageblocks(op);
        assert_eq!(self.zone.published().mixings(), self.twin.mixings, "mixings after {op:?}");
    }

    fn compare_pageblocks(&self, op: Op) {
        let mut online = Vec::new();
        for index in 0..=self.twin.types.len() {
            let number = PageblockIndex::new(index as u32);
            let expected = self.twin.occupancy(index);
            online.extend(expected);
            assert_eq!(self.zone.occupancy(number), expected, "occupancy after {op:?}");
            let (mut runs, expected) = (Vec::new(), expected.map(|_| self.twin.runs_in(index)));
            self.zone.runs_in(number, &mut runs);
            assert_eq!(runs, expected.unwrap_or_default(), "runs of {number} after {op:?}");
        }
        let (mut found, mut next) = (Vec::new(), Some(PageblockIndex::new(0)));
        while let Some(from) = next {
            next = self.zone.occupancies(from, 2, &mut found);
        }
        assert_eq!(found, online, "all occupancies after {op:?}");
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
