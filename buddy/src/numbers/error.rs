//! Why the zone said no.
//!
//! Invariant: a call that returned one of these has changed nothing, with one exception. A request
//! for more than a pageblock that ends in [`AllocError::NoMetadata`] may have brought one of the
//! two pageblocks it needs online, wholly free.

use std::error::Error;
use std::fmt;

use super::migratetype::Migratetype;
use super::order::{Order, RUN_FRAMES_MAX};
use super::pfn::{PageblockIndex, Pfn};

/// Why nothing was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllocError {
    /// A run has 1..=1024 frames.
    BadLength {
        /// What was asked for.
        frames: u32,
    },
    /// Isolated pageblocks are being emptied: nothing is allocated from them.
    Isolated,
    /// No free block is large enough and no pageblock is left to bring online: free something.
    NoFreeRun {
        /// The block that was needed.
        order: Order,
    },
    /// A pageblock could have come online, but the process has no memory for its metadata.
    NoMetadata,
}

/// Why a run was not freed. Each means that the caller's books are wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FreeError {
    /// The zone has no such frame.
    OutOfRange(Pfn),
    /// The frame's pageblock is offline.
    Offline(Pfn),
    /// The frame is the head of a free block: freed twice.
    AlreadyFree(Pfn),
    /// The frame is inside a run or a free block, not at its head.
    NotAHead(Pfn),
    /// A run starts there, but of another length.
    WrongLength {
        /// The head of the run.
        pfn: Pfn,
        /// How long the run is.
        allocated: u32,
        /// How long the caller thinks it is.
        freed: u32,
    },
    /// The run that starts there was asked for as something else than Movable.
    NotMovable(Pfn),
}

/// Why a pageblock did not go offline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OfflineError {
    /// The zone has no such pageblock.
    OutOfRange(PageblockIndex),
    /// It is offline already.
    AlreadyOffline(PageblockIndex),
    /// Some of its frames are allocated.
    InUse(PageblockIndex),
}

/// Why a pageblock was not isolated, or its isolation not undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IsolateError {
    /// The zone has no such pageblock.
    OutOfRange(PageblockIndex),
    /// It is offline: there is nothing to isolate.
    Offline(PageblockIndex),
    /// It is isolated already, by another caller.
    AlreadyIsolated(PageblockIndex),
    /// It is not isolated, so there is nothing to undo.
    NotIsolated(PageblockIndex),
    /// A run in it can neither be moved nor dropped.
    Pinned {
        /// The pageblock.
        index: PageblockIndex,
        /// The head of the lowest such run.
        pfn: Pfn,
    },
}

/// Why the reserve did not grow or shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReserveError {
    /// The reserve is as large as it may be.
    AtLimit {
        /// How large that is.
        pageblocks: u32,
    },
    /// No pageblock is wholly free and none can come online: free something.
    NoFreePageblock,
    /// A pageblock could have come online, but the process has no memory for its metadata.
    NoMetadata,
    /// Nothing in the reserve is free.
    NothingFree,
    /// One pageblock is left, and it was not to be the last.
    LastOne,
    /// The reserve goes back to Unmovable, Movable or Reclaimable, not to this type.
    NotOrdinary(Migratetype),
}

/// Why a particular free block was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TakeError {
    /// The zone has no such frame.
    OutOfRange(Pfn),
    /// The frame's pageblock is offline.
    Offline(Pfn),
    /// No free block starts at the frame.
    NotAFreeHead(Pfn),
    /// A free block starts there, but of another order.
    WrongOrder {
        /// The head of the block.
        pfn: Pfn,
        /// Its order.
        order: Order,
    },
}

impl AllocError {
    /// Whether more free frames in the zone could change the answer.
    pub(crate) fn is_want(self) -> bool {
        match self {
            AllocError::NoFreeRun { .. } | AllocError::NoMetadata => true,
            AllocError::BadLength { .. } | AllocError::Isolated => false,
        }
    }
}

impl ReserveError {
    /// Whether more free frames in the zone could change the answer.
    pub(crate) fn is_want(self) -> bool {
        match self {
            ReserveError::NoFreePageblock | ReserveError::NoMetadata => true,
            ReserveError::AtLimit { .. }
            | ReserveError::NothingFree
            | ReserveError::LastOne
            | ReserveError::NotOrdinary(_) => false,
        }
    }
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AllocError::BadLength { frames } => {
                write!(f, "a run has 1 to {RUN_FRAMES_MAX} frames, not {frames}")
            }
            AllocError::Isolated => f.write_str("nothing is allocated from isolated pageblocks"),
            AllocError::NoFreeRun { order } => {
                write!(f, "no free block of {order} and no pageblock left to bring online")
            }
            AllocError::NoMetadata => f.write_str("no memory for the metadata of a pageblock"),
        }
    }
}

impl fmt::Display for FreeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FreeError::OutOfRange(pfn) => write!(f, "{pfn} is beyond the zone"),
            FreeError::Offline(pfn) => write!(f, "{pfn} is in an offline pageblock"),
            FreeError::AlreadyFree(pfn) => write!(f, "{pfn} is free already"),
            FreeError::NotAHead(pfn) => write!(f, "{pfn} is not the head of a run"),
            FreeError::WrongLength { pfn, allocated, freed } => {
                write!(f, "the run at {pfn} has {allocated} frames, not {freed}")
            }
            FreeError::NotMovable(pfn) => {
                write!(f, "the run at {pfn} was not asked for as movable")
            }
        }
    }
}

impl fmt::Display for OfflineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OfflineError::OutOfRange(index) => write!(f, "{index} is beyond the zone"),
            OfflineError::AlreadyOffline(index) => write!(f, "{index} is offline already"),
            OfflineError::InUse(index) => write!(f, "{index} has allocated frames"),
        }
    }
}

impl fmt::Display for IsolateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IsolateError::OutOfRange(index) => write!(f, "{index} is beyond the zone"),
            IsolateError::Offline(index) => write!(f, "{index} is offline"),
            IsolateError::AlreadyIsolated(index) => write!(f, "{index} is isolated already"),
            IsolateError::NotIsolated(index) => write!(f, "{index} is not isolated"),
            IsolateError::Pinned { index, pfn } => {
                write!(f, "{index} cannot be emptied: the run at {pfn} stays where it is")
            }
        }
    }
}

impl fmt::Display for ReserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReserveError::AtLimit { pageblocks } => {
                write!(f, "the reserve has the {pageblocks} pageblocks that it may have")
            }
            ReserveError::NoFreePageblock => f.write_str("no pageblock is wholly free"),
            ReserveError::NoMetadata => f.write_str("no memory for the metadata of a pageblock"),
            ReserveError::NothingFree => f.write_str("nothing in the reserve is free"),
            ReserveError::LastOne => f.write_str("the last pageblock of the reserve is kept"),
            ReserveError::NotOrdinary(mt) => write!(f, "the reserve does not go back to {mt}"),
        }
    }
}

impl fmt::Display for TakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TakeError::OutOfRange(pfn) => write!(f, "{pfn} is beyond the zone"),
            TakeError::Offline(pfn) => write!(f, "{pfn} is in an offline pageblock"),
            TakeError::NotAFreeHead(pfn) => write!(f, "no free block starts at {pfn}"),
            TakeError::WrongOrder { pfn, order } => {
                write!(f, "the free block at {pfn} is of {order}")
            }
        }
    }
}

impl Error for AllocError {}
impl Error for FreeError {}
impl Error for OfflineError {}
impl Error for IsolateError {}
impl Error for ReserveError {}
impl Error for TakeError {}
