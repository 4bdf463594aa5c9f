//! The twin's memory: what each frame is, and the free blocks that follow from it.
//!
//! Invariant: the warmth of a free block is the warmth of each of its frames. The zone keeps it
//! by block, so a block that came to be warm stays so when it is split; the twin spreads it over
//! the frames after every change.

use buddy::{AllocError, Migratetype, Order, PAGEBLOCK_FRAMES, Warm};

use super::Runs;

const PAGEBLOCK: usize = PAGEBLOCK_FRAMES as usize;

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
    pub(crate) runs: Runs,
}

pub(crate) fn ordinary(mt: Migratetype) -> bool {
    [Migratetype::Unmovable, Migratetype::Movable, Migratetype::Reclaimable].contains(&mt)
}

fn mergeable(one: Migratetype, other: Migratetype) -> bool {
    one == other || ordinary(one) && ordinary(other)
}

/// The request's own type is not among them.
fn fallbacks(mt: Migratetype) -> Vec<Migratetype> {
    use Migratetype::*;
    match mt {
        Unmovable => vec![Reclaimable, Movable],
        Movable => vec![Reclaimable, Unmovable],
        Reclaimable => vec![Unmovable, Movable],
        HighAtomic | Cma | Isolate => vec![],
    }
}

impl Twin {
    pub(crate) fn new(frames_max: u32) -> Twin {
        let pageblocks = frames_max as usize / PAGEBLOCK;
        Twin {
            frames: vec![Frame::Offline; pageblocks * PAGEBLOCK],
            types: vec![Migratetype::Movable; pageblocks],
            runs: Runs::new(),
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
    fn whole(&self, pfn: u32, order: Order) -> Option<Block> {
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

    /// The blocks that may serve a request, any one of them. Brings pageblocks online as the zone
    /// must.
    pub(crate) fn expect_alloc(
        &mut self,
        frames: u32,
        mt: Migratetype,
    ) -> Result<Vec<Block>, AllocError> {
        if frames == 0 || frames > 1024 {
            return Err(AllocError::BadLength { frames });
        }
        if mt == Migratetype::Isolate {
            return Err(AllocError::Isolated);
        }
        let order = Order::all().find(|order| order.frames() >= frames).expect("at most 1024");
        let mut served = self.own(order, mt);
        if served.is_empty() && self.bring_online(order, mt) {
            served = self.own(order, mt);
        } else if served.is_empty() {
            served = self.others(order, mt);
        }
        if served.is_empty() { Err(AllocError::NoFreeRun { order }) } else { Ok(served) }
    }

    /// Blocks of the type itself: warm before untouched, then the smallest.
    fn own(&self, order: Order, mt: Migratetype) -> Vec<Block> {
        let fits = |block: &Block| block.order >= order && block.migratetype == mt;
        best(self.blocks().into_iter().filter(fits).collect(), |b| (untouched(b), b.order))
    }

    /// Blocks of other types: the smallest, then by type, then warm before untouched.
    fn others(&self, order: Order, mt: Migratetype) -> Vec<Block> {
        let types = fallbacks(mt);
        let rank = |block: &Block| types.iter().position(|mt| *mt == block.migratetype);
        let fits = |block: &Block| block.order >= order && rank(block).is_some();
        let fitting = self.blocks().into_iter().filter(fits).collect();
        best(fitting, |b| (b.order, rank(b), untouched(b)))
    }

    fn bring_online(&mut self, order: Order, mt: Migratetype) -> bool {
        let span = if order == Order::MAX { 2 } else { 1 };
        let starts = (0..self.types.len()).step_by(span);
        let mut groups = starts.map(|start| start..start + span);
        let offline = |index: usize| self.frames.get(index * PAGEBLOCK) == Some(&Frame::Offline);
        let joins = |index: usize| {
            let free = self.whole((index * PAGEBLOCK) as u32, Order::PAGEBLOCK);
            free.is_some_and(|block| mergeable(block.migratetype, mt))
        };
        let suits = |group: &std::ops::Range<usize>| {
            group.clone().any(offline) && group.clone().all(|index| offline(index) || joins(index))
        };
        let Some(group) = groups.find(suits) else { return false };
        for index in group {
            let first = index * PAGEBLOCK;
            if self.frames[first] == Frame::Offline {
                self.frames[first..first + PAGEBLOCK].fill(Frame::Free(Warm::Untouched));
                self.types[index] = mt;
                self.settle(index);
            }
        }
        true
    }

    /// Warm blocks of the largest order that has one.
    pub(crate) fn largest_warm(&self, min: Order) -> Vec<Block> {
        let fits = |block: &Block| block.order >= min && block.warm == Warm::Resident;
        let warm = self.blocks().into_iter().filter(fits).collect();
        best(warm, |b| std::cmp::Reverse(b.order))
    }

    pub(crate) fn occupy(&mut self, pfn: u32, frames: u32) {
        for frame in &mut self.frames[pfn as usize..(pfn + frames) as usize] {
            assert!(matches!(frame, Frame::Free(_)), "frame of a run at {pfn} handed out twice");
            *frame = Frame::Used;
        }
        self.runs.insert(pfn, frames);
    }

    pub(crate) fn release(&mut self, pfn: u32, frames: u32, warm: Warm) {
        self.runs.remove(&pfn);
        self.frames[pfn as usize..(pfn + frames) as usize].fill(Frame::Free(warm));
        self.settle(pfn as usize / PAGEBLOCK);
    }

    pub(crate) fn offline(&mut self, index: u32) {
        let first = index as usize * PAGEBLOCK;
        self.frames[first..first + PAGEBLOCK].fill(Frame::Offline);
    }

    /// After frames of a pageblock became free: its type spreads over a largest block it is now
    /// part of, and warmth over every block.
    fn settle(&mut self, index: usize) {
        for block in self.blocks() {
            let range = block.pfn as usize..(block.pfn + block.order.frames()) as usize;
            if range.contains(&(index * PAGEBLOCK)) && block.order == Order::MAX {
                let winner = self.types[index];
                self.types[range.start / PAGEBLOCK..range.end / PAGEBLOCK].fill(winner);
            }
            self.frames[range].fill(Frame::Free(block.warm));
        }
    }
}

fn untouched(block: &Block) -> bool {
    block.warm == Warm::Untouched
}

/// The blocks with the least key.
fn best<K: Ord>(blocks: Vec<Block>, key: impl Fn(&Block) -> K) -> Vec<Block> {
    let least = blocks.iter().map(&key).min();
    blocks.into_iter().filter(|block| Some(key(block)) == least).collect()
}
