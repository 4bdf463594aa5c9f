//! The metadata of one online pageblock: five bytes a frame.
//!
//! ```text
//!    links   256 x { prev, next }   of two frames, the even one first; if one of them is
//!                                   a free head: its neighbours in its list
//!                                   the head of a run of two or more: prev is its length
//!                                   neither: meaningless
//!    states  512 x one byte         see state.rs
//!    migratetype                    of the pageblock, hence of every free block in it
//!    before                         the type to return to, while migratetype is Isolate
//!    used                           frames in runs; see occupancy.rs
//! ```
//!
//! Two frames have at most one use for their links. A block of more than one frame is aligned, so
//! it has both frames (I2 and I5 of the zone). Two free frames would be one block (I4). A run of
//! one frame is told by its state.

use crate::numbers::{Migratetype, PAGEBLOCK_FRAMES, State, Used};

const FRAMES: usize = PAGEBLOCK_FRAMES as usize; // 512
/// Frames that have their links in common.
pub(crate) const LINKED: usize = 2;

/// Two frame numbers, or a run's length; see the head of this file.
#[derive(Clone, Copy)]
pub(crate) struct Links {
    pub(crate) prev: u32,
    pub(crate) next: u32,
}

/// What is known about the frames of one pageblock.
pub(crate) struct Pageblock {
    pub(crate) links: [Links; FRAMES / LINKED],
    pub(crate) states: [State; FRAMES],
    pub(crate) migratetype: Migratetype,
    pub(crate) before: Migratetype,
    pub(crate) used: Used,
}

// Four bytes of links and one of state a frame, and one word for the rest: the budget.
const _: () = assert!(size_of::<Pageblock>() <= 5 * FRAMES + size_of::<u64>()); // 2568 bytes

/// A pageblock on the heap. An array of one, because a `Vec` is the stable way to a heap
/// allocation that may fail, and an array keeps the pointer thin.
pub(crate) type BoxedPageblock = Box<[Pageblock; 1]>;

impl Pageblock {
    /// A pageblock whose frames are all inner: its maker puts them into a free block. None when
    /// the process has no memory for it.
    pub(crate) fn boxed(migratetype: Migratetype) -> Option<BoxedPageblock> {
        let mut one = Vec::new();
        one.try_reserve_exact(1).ok()?;
        one.push(Pageblock {
            links: [Links { prev: 0, next: 0 }; FRAMES / LINKED],
            states: [State::INNER; FRAMES],
            migratetype,
            before: migratetype,
            used: Used::default(),
        });
        one.into_boxed_slice().try_into().ok()
    }
}
