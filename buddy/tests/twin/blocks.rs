//! The twin's memory: what each frame is, and the free blocks that follow from it.
//!
//! Invariant: the warmth of a free block is the warmth of each of its frames. The zone keeps it
//! by block, so a block that came to be warm stays so when it is split; the twin spreads it over
//! the frames after every change.

use ramfold_buddy::{
    AllocatedRun, Migratetype, Occupancy, Order, PAGEBLOCK_FRAMES, PageblockIndex, Pfn, Warm,
};

use std::collections::BTreeMap;

use super::Runs;

pub(crate) const PAGEBLOCK: usize = PAGEBLOCK_FRAMES as usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    Offline,
    Free(Warm),
    Used,
}

/// A free block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) pfn: u32,
    pub(crate) order: Order,
    pub(crate) migratetype: Migratetype,
    pub(crate) warm: Warm,
}

#[derive(Clone)]
pub(crate) struct Twin {
    pub(crate) frames: Vec<Frame>,
    pub(crate) types: Vec<Migratetype>,
    /// The types to return to, of isolated pageblocks.
    pub(crate) before: Vec<Migratetype>,
    pub(crate) runs: Runs,
    /// What the runs were asked for as, by their heads.
    pub(crate) asked: BTreeMap<u32, Migratetype>,
    pub(crate) reserve_max: u32,
    pub(crate) cma: bool,
    pub(crate) mixings: u64,
}

pub(crate) fn ordinary(mt: Migratetype) -> bool {
    [Migratetype::Unmovable, Migratetype::Movable, Migratetype::Reclaimable].contains(&mt)
}

pub(crate) fn mergeable(one: Migratetype, other: Migratetype) -> bool {
    one == other || ordinary(one) && ordinary(other)
}

impl Twin {
    pub(crate) fn new(frames_max: u32) -> Twin {
        let pageblocks = frames_max as usize / PAGEBLOCK;
        Twin {
            frames: vec![Frame::Offline; pageblocks * PAGEBLOCK],
            types: vec![Migratetype::Movable; pageblocks],
            before: vec![Migratetype::Movable; pageblocks],
            runs: Runs::new(),
            asked: BTreeMap::new(),
            reserve_max: 0,
            cma: false,
            mixings: 0,
        }
    }

    /// The free blocks, lowest first: the largest aligned ones that are free all through.
    pub(crate) fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        for pfn in (0..self.frames.len() as u32).step_by(Order::MAX.frames() as usize) {
            self.cut(pfn, Order::MAX, &mut blocks);
        }
        blocks
    }

    fn cut(&self, pfn: u32, order: Order, blocks: &mut Vec<Block>) {
        if let Some(block) = self.whole(pfn, order) {
            blocks.push(block);
        } else if let Some(half) = order.get().checked_sub(1).and_then(Order::new) {
            self.cut(pfn, half, blocks);
            self.cut(pfn + half.frames(), half, blocks);
        }
    }

    /// The block of `order` at `pfn`, if all of it is free and of mergeable types.
    pub(crate) fn whole(&self, pfn: u32, order: Order) -> Option<Block> {
        let frames = self.frames.get(pfn as usize..(pfn + order.frames()) as usize)?;
        if !frames.iter().all(|frame| matches!(frame, Frame::Free(_))) {
            return None;
        }
        let types = &self.types[pfn as usize / PAGEBLOCK..];
        let migratetype = types[0];
        if order == Order::MAX && !mergeable(migratetype, types[1]) {
            return None;
        }
        let resident = frames.contains(&Frame::Free(Warm::Resident));
        let warm = if resident { Warm::Resident } else { Warm::Untouched };
        Some(Block { pfn, order, migratetype, warm })
    }

    pub(crate) fn block_at(&self, pfn: u32) -> Option<Block> {
        self.blocks().into_iter().find(|block| block.pfn == pfn)
    }

    /// The types of the online pageblocks.
    pub(crate) fn online_types(&self) -> impl Iterator<Item = Migratetype> {
        let heads = self.frames.iter().step_by(PAGEBLOCK).zip(&self.types);
        heads.filter(|(frame, _)| **frame != Frame::Offline).map(|(_, mt)| *mt)
    }

    pub(crate) fn has_reserves(&self) -> bool {
        self.online_types().any(|mt| !ordinary(mt))
    }

    pub(crate) fn occupy(&mut self, pfn: u32, frames: u32, asked: Migratetype) {
        for frame in &mut self.frames[pfn as usize..(pfn + frames) as usize] {
            assert!(matches!(frame, Frame::Free(_)), "frame of a run at {pfn} handed out twice");
            *frame = Frame::Used;
        }
        self.runs.insert(pfn, frames);
        self.asked.insert(pfn, asked);
    }

    pub(crate) fn release(&mut self, pfn: u32, frames: u32, warm: Warm) {
        self.runs.remove(&pfn);
        self.asked.remove(&pfn);
        self.frames[pfn as usize..(pfn + frames) as usize].fill(Frame::Free(warm));
        // Each part goes to its own pageblock; the last to come decides for both.
        self.settle((pfn + frames - 1) as usize / PAGEBLOCK);
    }

    pub(crate) fn offline(&mut self, index: u32) {
        let first = index as usize * PAGEBLOCK;
        self.frames[first..first + PAGEBLOCK].fill(Frame::Offline);
    }

    /// After frames of a pageblock became free: its type spreads over a largest block it is now
    /// part of, and warmth over every block.
    pub(crate) fn settle(&mut self, index: usize) {
        for block in self.blocks() {
            let range = block.pfn as usize..(block.pfn + block.order.frames()) as usize;
            if range.contains(&(index * PAGEBLOCK)) && block.order == Order::MAX {
                let winner = self.types[index];
                self.types[range.start / PAGEBLOCK..range.end / PAGEBLOCK].fill(winner);
            }
            self.frames[range].fill(Frame::Free(block.warm));
        }
    }

    /// Everything free in a pageblock and the pageblock itself change type.
    pub(crate) fn retype(&mut self, index: usize, to: Migratetype) {
        self.types[index] = to;
        self.settle(index);
    }

    pub(crate) fn is_offline(&self, index: usize) -> bool {
        self.frames[index * PAGEBLOCK] == Frame::Offline
    }

    pub(crate) fn lowest_offline(&self) -> Option<usize> {
        (0..self.types.len()).find(|index| self.is_offline(*index))
    }

    pub(crate) fn bring_one_online(&mut self, index: usize, mt: Migratetype) {
        let first = index * PAGEBLOCK;
        self.frames[first..first + PAGEBLOCK].fill(Frame::Free(Warm::Untouched));
        self.retype(index, mt);
    }

    /// A pageblock that is offline or wholly free becomes one of a reserve or of CMA.
    pub(crate) fn set_apart(&mut self, index: usize, mt: Migratetype) {
        match self.is_offline(index) {
            true => self.bring_one_online(index, mt),
            false => self.retype(index, mt),
        }
    }

    pub(crate) fn reserved(&self) -> u32 {
        let own = |index: &usize| match self.types[*index] {
            Migratetype::Isolate => self.before[*index],
            own => own,
        };
        let online = (0..self.types.len()).filter(|index| !self.is_offline(*index));
        online.filter(|index| own(index) == Migratetype::HighAtomic).count() as u32
    }

    /// The runs of which a frame lies in a pageblock.
    pub(crate) fn runs_in(&self, index: usize) -> Vec<AllocatedRun> {
        let first = (index * PAGEBLOCK) as u32;
        let inside = |(pfn, frames): &(&u32, &u32)| {
            **pfn < first + PAGEBLOCK_FRAMES && **pfn + **frames > first
        };
        let run = |(pfn, frames): (&u32, &u32)| AllocatedRun {
            pfn: Pfn::new(*pfn),
            frames: *frames,
            migratetype: self.asked[pfn],
        };
        self.runs.iter().filter(inside).map(run).collect()
    }

    pub(crate) fn occupancy(&self, index: usize) -> Option<Occupancy> {
        if index >= self.types.len() || self.is_offline(index) {
            return None;
        }
        let first = index * PAGEBLOCK;
        let free = |frame: &&Frame| matches!(frame, Frame::Free(_));
        let all = self.runs_in(index);
        let used = |asked: &dyn Fn(Migratetype) -> bool| -> u32 {
            let end = (first + PAGEBLOCK) as u32;
            let runs = all.iter().filter(|run| asked(run.migratetype));
            let inside = |run: &AllocatedRun| {
                (run.pfn.get() + run.frames).min(end) - run.pfn.get().max(first as u32)
            };
            runs.map(inside).sum()
        };
        let (movable, taken) = (Migratetype::Movable, Migratetype::Isolate);
        Some(Occupancy {
            index: PageblockIndex::new(index as u32),
            migratetype: self.types[index],
            free: self.frames[first..first + PAGEBLOCK].iter().filter(free).count() as u32,
            movable: used(&|asked| asked == movable),
            fixed: used(&|asked| asked != movable && asked != taken),
            taken: used(&|asked| asked == taken),
        })
    }
}
