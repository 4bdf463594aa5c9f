//! How much of a pageblock is in use, and by what.
//!
//! ```text
//!    512 frames  =  free  +  movable  +  fixed  +  taken
//!                            runs        runs      on their way back to the system, or being
//!                            that can    that      cleared: in nobody's use
//!                            be moved    cannot
//! ```
//!
//! Counted where runs are made and freed and not where blocks are split and merged, so a request
//! pays for it once. Three decisions rest on it: which pageblocks are worth evacuating, whether
//! one may be isolated, and whether one may change sides.

use super::migratetype::Migratetype;
use super::pfn::{PAGEBLOCK_FRAMES, PageblockIndex, Pfn};

/// What is known of an online pageblock without looking at its frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// The pageblock.
    pub index: PageblockIndex,
    /// Its type: Isolate while it is isolated.
    pub migratetype: Migratetype,
    /// Frames in free blocks.
    pub free: u32,
    /// Frames of runs that were asked for as Movable.
    pub movable: u32,
    /// Frames of runs that were asked for as anything else.
    pub fixed: u32,
    /// Frames of blocks that were taken.
    pub taken: u32,
}

/// A run as its owner sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllocatedRun {
    /// Its head.
    pub pfn: Pfn,
    /// Its length.
    pub frames: u32,
    /// What it was asked for as; Isolate if it is a block that was taken.
    pub migratetype: Migratetype,
}

/// What a run means for its pageblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Movable,
    Fixed,
    Taken,
}

impl Kind {
    const COUNT: usize = 3;

    /// Of a run asked for as `migratetype`.
    pub(crate) const fn of(migratetype: Migratetype) -> Kind {
        match migratetype {
            Migratetype::Movable => Kind::Movable,
            Migratetype::Isolate => Kind::Taken,
            _ => Kind::Fixed,
        }
    }
}

/// Frames in runs, by kind. At most 512 in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used([u16; Kind::COUNT]);

// A pageblock's frames can be counted in each.
const _: () = assert!(PAGEBLOCK_FRAMES <= u16::MAX as u32);

impl Used {
    pub(crate) fn add(&mut self, kind: Kind, frames: u32) {
        self.0[kind as usize] += frames as u16;
    }

    pub(crate) fn sub(&mut self, kind: Kind, frames: u32) {
        self.0[kind as usize] -= frames as u16;
    }

    pub(crate) fn of(self, kind: Kind) -> u32 {
        self.0[kind as usize].into()
    }

    /// Frames that are in no run.
    pub(crate) fn free(self) -> u32 {
        PAGEBLOCK_FRAMES - self.0.into_iter().map(u32::from).sum::<u32>()
    }

    pub(crate) fn occupancy(self, index: PageblockIndex, migratetype: Migratetype) -> Occupancy {
        let [movable, fixed, taken] = [Kind::Movable, Kind::Fixed, Kind::Taken].map(|k| self.of(k));
        Occupancy { index, migratetype, free: self.free(), movable, fixed, taken }
    }
}
