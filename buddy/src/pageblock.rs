//! The metadata of one online pageblock: nine bytes a frame.
//!
//! ```text
//!    links   512 x { prev, next }   of a free head: its neighbours in its list
//!                                   of an allocated head: prev is the run's length
//!                                   of an inner frame: meaningless
//!    states  512 x one byte         see state.rs
//!    migratetype                    of the pageblock, hence of every free block in it
//!    before                         the type to return to, while migratetype is Isolate
//!    used                           frames in runs; see occupancy.rs
//! ```

use crate::migratetype::Migratetype;
use crate::occupancy::Used;
use crate::pfn::PAGEBLOCK_FRAMES;
use crate::state::State;

const FRAMES: usize = PAGEBLOCK_FRAMES as usize; // 512

/// Two frame numbers, or a run's length; see the head of this file.
#[derive(Clone, Copy)]
pub(crate) struct Links {
    pub(crate) prev: u32,
    pub(crate) next: u32,
}

/// What is known about the frames of one pageblock.
pub(crate) struct Pageblock {
    pub(crate) links: [Links; FRAMES],
    pub(crate) states: [State; FRAMES],
    pub(crate) migratetype: Migratetype,
    pub(crate) before: Migratetype,
    pub(crate) used: Used,
}

// Eight bytes of links and one of state a frame, and one word for the rest: the budget.
const _: () = assert!(size_of::<Pageblock>() <= 9 * FRAMES + size_of::<u64>()); // 4616 bytes

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
            links: [Links { prev: 0, next: 0 }; FRAMES],
            states: [State::INNER; FRAMES],
            migratetype,
            before: migratetype,
            used: Used::default(),
        });
        one.into_boxed_slice().try_into().ok()
    }
}
