//! Zones with a given number of free blocks that cannot merge.
//!
//! ```text
//!   frame   0  1  2  3  4  5  ..  2N-1 |                    |
//!          [ ][R][ ][R][ ][R] ..  [R]  |  room, offline yet |
//! ```
//!
//! Invariant: every even frame of the first 2N is a free block, and its buddy is in use. They were
//! freed in random order, so that a thread that walks their list jumps about, as in a zone long in
//! use.

use crate::ground::{LabError, Rng};
use buddy::study::Counts;
use buddy::{AllocError, FreeError, Migratetype, Order, PAGEBLOCK_FRAMES, Pfn, SharedZone};
use buddy::{Warm, Zone};

const SEED: u64 = 0x7363_6174;

/// A zone that hands out blocks: for all threads or for one, with or without counts.
pub(crate) trait Blocks {
    fn alloc(&mut self, order: Order, migratetype: Migratetype) -> Result<Pfn, AllocError>;
    fn free(&mut self, pfn: Pfn, order: Order) -> Result<(), FreeError>;
}

impl Blocks for &SharedZone {
    #[inline]
    fn alloc(&mut self, order: Order, migratetype: Migratetype) -> Result<Pfn, AllocError> {
        SharedZone::alloc(self, order, migratetype)
    }

    #[inline]
    fn free(&mut self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        SharedZone::free(self, pfn, order, Warm::Resident)
    }
}

impl<C: Counts> Blocks for Zone<C> {
    #[inline]
    fn alloc(&mut self, order: Order, migratetype: Migratetype) -> Result<Pfn, AllocError> {
        Zone::alloc(self, order, migratetype)
    }

    #[inline]
    fn free(&mut self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        Zone::free(self, pfn, order, Warm::Resident)
    }
}

/// Frames of a zone that is to have so many scattered blocks and room for as many frames more.
pub(crate) fn frames(free_blocks: u32, room: u32) -> u32 {
    (2 * free_blocks + room).next_multiple_of(PAGEBLOCK_FRAMES) + PAGEBLOCK_FRAMES
}

/// Leaves an empty zone with `free_blocks` free blocks of one movable frame each, and no others.
pub(crate) fn scatter(zone: &mut impl Blocks, free_blocks: u32) -> Result<(), LabError> {
    let (single, movable) = (Order::ZERO, Migratetype::Movable);
    let used = (2 * free_blocks).next_multiple_of(PAGEBLOCK_FRAMES);
    let mut frames = (0..used)
        .map(|_| zone.alloc(single, movable))
        .collect::<Result<Vec<Pfn>, _>>()
        .map_err(LabError::store("scatter"))?;
    frames.sort_unstable();
    for pair in Rng::new(SEED, 0).permutation(free_blocks as usize) {
        let even = frames[2 * pair as usize];
        zone.free(even, single).map_err(LabError::store("scatter"))?;
    }
    Ok(())
}

/// A shared zone with scattered blocks; an error if it counts another number of them.
pub(crate) fn shared(free_blocks: u32, room: u32) -> Result<SharedZone, LabError> {
    let zone = SharedZone::new(frames(free_blocks, room));
    scatter(&mut &zone, free_blocks)?;
    is_scattered(&zone, free_blocks)?;
    let (free, expected) = (zone.free_frames(), u64::from(free_blocks));
    let wrong = || LabError::Wrong(format!("{free} frames are free, {expected} were left so"));
    (free == expected).then_some(zone).ok_or_else(wrong)
}

/// Whether the scattered blocks are as they were, whatever else is free.
pub(crate) fn is_scattered(zone: &SharedZone, free_blocks: u32) -> Result<(), LabError> {
    let found = zone.published().free_blocks(Order::ZERO, Migratetype::Movable);
    let wrong = || LabError::Wrong(format!("{found} blocks of a frame, not {free_blocks}"));
    (found == u64::from(free_blocks)).then_some(()).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_as_many_as_wanted_and_none_merges() {
        for free_blocks in [1, 255, 256, 257, 1000] {
            let zone = shared(free_blocks, 1024).unwrap();
            let counts = zone.published().read();
            assert_eq!(counts.blocks_by_order().iter().sum::<u64>(), u64::from(free_blocks));
            zone.check().unwrap();
            zone.alloc_run(1024, Migratetype::Movable).expect("there is room");
        }
    }

    #[test]
    fn a_block_that_is_gone_is_noticed() {
        let zone = shared(100, 512).unwrap();
        zone.alloc(Order::ZERO, Migratetype::Movable).unwrap();
        let error = is_scattered(&zone, 100).unwrap_err().to_string();
        assert_eq!(error, "wrong answer: 99 blocks of a frame, not 100");
    }
}
