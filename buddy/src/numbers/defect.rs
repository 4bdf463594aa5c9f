//! What [`Zone::check`](crate::Zone::check) may find.
//!
//! Invariant: no caller can cause one of these, whatever it passes. The defects of per-CPU lists
//! are an exception: without debug assertions, a free of a run that is not allocated gets as far as
//! that. The numbers in brackets are the invariants that are broken, as the heads of zone.rs,
//! lists.rs, directory.rs and percpu.rs state them.

use std::error::Error;
use std::fmt;

use super::migratetype::Migratetype;
use super::order::Order;
use super::pfn::{PageblockIndex, Pfn};
use super::state::Warm;

/// The first defect found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ZoneDefect {
    /// The directory's count of online pageblocks, its end or its hint is wrong (D2, D3, D4).
    Directory {
        /// Pageblocks found online.
        counted: u32,
        /// Pageblocks recorded as online.
        recorded: u32,
    },
    /// The published count of pageblocks of a type is wrong (D3).
    PageblockCount {
        /// The type.
        migratetype: Migratetype,
        /// Pageblocks found.
        counted: u64,
        /// Pageblocks published.
        recorded: u64,
    },
    /// A pageblock is online that the zone may not have (D1).
    BeyondTheZone(PageblockIndex),
    /// A state byte has no meaning (I1).
    BadState(Pfn),
    /// A frame is in no block and no run (I1).
    NoHead(Pfn),
    /// A frame inside a block or run is itself a head (I1).
    Overlap {
        /// The head of the block or run.
        head: Pfn,
        /// The frame inside it.
        frame: Pfn,
    },
    /// A block or run starts where none of its size may (I2, I5).
    Misaligned(Pfn),
    /// A block or run reaches into an offline pageblock (I2).
    CutOff(Pfn),
    /// A free block lies in pageblocks of two types (I3).
    MixedTypes(Pfn),
    /// A pageblock's numbers of frames in runs are wrong (I6).
    Occupancy {
        /// The pageblock.
        index: PageblockIndex,
        /// Free frames by the runs that were found.
        counted: u32,
        /// Free frames as recorded; equal if the runs are of other types than recorded.
        recorded: u32,
    },
    /// An isolated pageblock does not know which type to return to.
    LostType(PageblockIndex),
    /// A run has a length no run can have (I5).
    BadRunLength {
        /// The head of the run.
        pfn: Pfn,
        /// Its recorded length.
        frames: u32,
    },
    /// A free block and its buddy could be one (I4).
    Unmerged(Pfn),
    /// Something on a list does not belong there (L1).
    Strayed(Pfn),
    /// A list's links disagree at this block (L2).
    BrokenLink(Pfn),
    /// A list's count is not the number of free blocks of its kind (L2).
    ListCount {
        /// The list's order.
        order: Order,
        /// The list's type.
        migratetype: Migratetype,
        /// The list's warmth.
        warm: Warm,
        /// Blocks found.
        counted: u32,
        /// Blocks recorded.
        recorded: u32,
    },
    /// The total of free frames is wrong (L3).
    FreeFrames {
        /// Frames found.
        counted: u64,
        /// Frames recorded.
        recorded: u64,
    },
    /// What starts there is on a per-CPU list, and is no movable run of that length (C1).
    Listed(Pfn),
    /// A run is on per-CPU lists twice (C1).
    ListedTwice(Pfn),
    /// The number of frames on per-CPU lists is wrong (C7).
    ListedFrames {
        /// Frames found.
        counted: u64,
        /// Frames recorded.
        recorded: u64,
    },
    /// The zone refused runs that came from per-CPU lists (C1).
    Misfreed {
        /// How many so far.
        runs: u64,
    },
}

impl fmt::Display for ZoneDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use ZoneDefect::*;
        match self {
            Directory { counted, recorded } => {
                write!(f, "{counted} pageblocks are online, the directory says {recorded}")
            }
            PageblockCount { migratetype, counted, recorded } => {
                write!(f, "{counted} pageblocks are {migratetype}, published are {recorded}")
            }
            BeyondTheZone(index) => write!(f, "{index} is online beyond the zone"),
            BadState(pfn) => write!(f, "the state of {pfn} has no meaning"),
            NoHead(pfn) => write!(f, "{pfn} is in no block and no run"),
            Overlap { head, frame } => write!(f, "{frame} is a head inside what starts at {head}"),
            Misaligned(pfn) => write!(f, "what starts at {pfn} is not aligned to its size"),
            CutOff(pfn) => write!(f, "what starts at {pfn} reaches into an offline pageblock"),
            MixedTypes(pfn) => write!(f, "what starts at {pfn} lies in pageblocks of two types"),
            Occupancy { index, counted, recorded } => {
                write!(
                    f,
                    "{counted} frames of {index} are free, or its runs are of other types: "
                )?;
                write!(f, "it says {recorded}")
            }
            LostType(index) => write!(f, "{index} is isolated and has no type to return to"),
            BadRunLength { pfn, frames } => write!(f, "the run at {pfn} has {frames} frames"),
            Unmerged(pfn) => write!(f, "the free block at {pfn} was not merged with its buddy"),
            Strayed(pfn) => write!(f, "{pfn} is on a list where it does not belong"),
            BrokenLink(pfn) => write!(f, "the links of a free list disagree at {pfn}"),
            ListCount { order, migratetype, warm, counted, recorded } => {
                write!(f, "{counted} free blocks of {order}, {migratetype}, {warm:?}, ")?;
                write!(f, "the list says {recorded}")
            }
            FreeFrames { counted, recorded } => {
                write!(f, "{counted} frames are free, the zone says {recorded}")
            }
            Listed(pfn) => write!(f, "{pfn} is on a CPU's list and no run of that length"),
            ListedTwice(pfn) => write!(f, "the run at {pfn} is on the lists of CPUs twice"),
            ListedFrames { counted, recorded } => {
                write!(f, "{counted} frames are on the lists of CPUs, they say {recorded}")
            }
            Misfreed { runs } => write!(f, "{runs} runs from lists of CPUs were not allocated"),
        }
    }
}

impl Error for ZoneDefect {}
