//! The number of a frame, and the token that is the right to a run of them.
//!
//! Invariant H1: only [`Arena::claim`](crate::Arena::claim) makes a token, and a token is neither
//! `Copy` nor `Clone`. No other token covers its frames. A token that is dropped leaves its frames
//! claimed for the life of the arena. Lock: none.

use std::fmt;

/// The number of a frame: which 4096 bytes it is, counted from the start of its arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pfn(u32);

impl Pfn {
    /// The frame with this number.
    #[inline]
    pub const fn new(number: u32) -> Pfn {
        Pfn(number)
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The number, for a table with an item for each frame.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The frame `frames` further up, which the caller knows to be in the arena.
    #[inline]
    #[must_use]
    pub const fn plus(self, frames: u32) -> Pfn {
        Pfn(self.0 + frames)
    }

    /// So many frames in a row, from this one on; the caller knows them to be in the arena.
    pub fn run(self, frames: u32) -> impl DoubleEndedIterator<Item = Pfn> + Clone {
        (self.0..self.0 + frames).map(Pfn)
    }

    /// The frames from this one to `last`, both included.
    pub fn through(self, last: Pfn) -> impl DoubleEndedIterator<Item = Pfn> + Clone {
        (self.0..=last.0).map(Pfn)
    }
}

impl fmt::Display for Pfn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frame {}", self.0)
    }
}

/// The exclusive right to frames `pfn..pfn + frames` of one arena.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a dropped token leaves its frames claimed for ever"]
pub struct Run {
    pfn: Pfn,
    frames: u32,
    arena: ArenaId,
}

/// A run as numbers, for keeping in a descriptor. By itself it is a right to nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawRun {
    /// The first frame.
    pub pfn: Pfn,
    /// How many there are, at least one.
    pub frames: u32,
}

/// The arena that a run belongs to: the first address of the arena. An arena that is dropped while
/// runs of it exist keeps its addresses reserved. So no later arena has the same address and
/// accepts a stale run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ArenaId(pub(crate) usize);

impl Run {
    /// Makes a token. The caller has just claimed these frames, or taken them from another token.
    pub(crate) fn new(raw: RawRun, arena: ArenaId) -> Run {
        Run { pfn: raw.pfn, frames: raw.frames, arena }
    }

    /// The first frame.
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// How many frames there are, at least one.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// Whether `arena` made this run.
    pub(crate) fn is_of(&self, arena: ArenaId) -> bool {
        self.arena == arena
    }

    /// The run as numbers, while the token stays.
    pub(crate) fn raw(&self) -> RawRun {
        RawRun { pfn: self.pfn, frames: self.frames }
    }

    /// The run as numbers. The frames stay claimed, and the way back is
    /// [`Arena::run_from_raw`](crate::Arena::run_from_raw).
    pub fn into_raw(self) -> RawRun {
        self.raw()
    }

    /// Two runs: the first `at` frames, and the others.
    ///
    /// # Panics
    ///
    /// If one of the two would be empty: a broken caller.
    pub fn split(self, at: u32) -> (Run, Run) {
        assert!(at > 0, "a split at 0 leaves the first run empty");
        assert!(at < self.frames, "a split at {at} of {} frames leaves none behind", self.frames);
        let first = RawRun { pfn: self.pfn, frames: at };
        let second = RawRun { pfn: self.pfn.plus(at), frames: self.frames - at };
        (Run::new(first, self.arena), Run::new(second, self.arena))
    }
}
