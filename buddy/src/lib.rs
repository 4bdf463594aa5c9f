//! The page allocator: which frames of an arena are in use, in pure numbers.
//!
//! Nothing here touches the memory it manages. A frame is a number ([`Pfn`]). The arena that turns
//! runs of numbers into memory is a crate of its own. It refuses a run that is handed out twice, so
//! a defect in this crate is an error there and never aliasing.
//!
//! | word | meaning |
//! |---|---|
//! | frame, [`Pfn`] | one 4096-byte unit of the arena, and its number |
//! | block, [`Order`] | 2^order frames, aligned to their own size |
//! | buddy | the other half of the next larger block |
//! | run | 1..=1024 frames handed out together, starting at the head of a block |
//! | pageblock | 512 frames: the unit of mobility grouping and of going online and offline |
//! | migratetype | what a pageblock is used for; free blocks are kept apart by it |
//! | online | has metadata here and takes part; everything else costs nothing |
//! | warm | a free block of which some frame is, as far as is known, still resident |
//!
//! ```text
//!   study       what a study compares with the published counts; with the feature `study`
//!     |
//!   shared      SharedZone: one lock around one Zone
//!     |  \
//!     |   percpu, cpu_lists  short runs by CPU, before that lock
//!     |
//!   zone        alloc: find, split, give the tail back;  free: check, cut into blocks, merge
//!     |  \
//!     |   online, fallback   where a request goes when its type's free blocks do not serve it
//!     |   reserve            pageblocks set aside for some requests
//!     |   isolate            pageblocks being emptied; the runs in them
//!     |   release            free blocks and pageblocks on their way back to the system
//!     |   survey, check      what there is; recounting everything
//!     |  /
//!   retype      a pageblock and its free blocks change type
//!     |
//!   lists       free blocks by order, migratetype and warmth
//!     |  \
//!     |   published   the counts, for readers without the lock
//!     |     |
//!     |   buddyinfo, pagetypeinfo   the counts as the kernel prints them, and read back
//!     |   extfrag                   how fragmented that is
//!     |   column, parse             how its tables are written and read
//!   directory   the pageblocks that are online
//!   pageblock   links and one state byte per frame
//!   occupancy   frames of a pageblock that are in use, and by what
//!     |
//!   state, pieces, order, pfn, migratetype, error, defect        values and arithmetic
//! ```
#![cfg_attr(
    not(feature = "study"),
    doc = "
Every zone is counted. Others are behind the feature `study`:

```compile_fail
let zone = ramfold_buddy::Zone::uncounted(4096);
```"
)]
#![forbid(unsafe_code)]

mod lists;
mod numbers;
mod rules;
mod sharing;
mod texts;
mod zone;

pub use lists::{Published, ZoneCounts};
pub use numbers::{
    AllocError, AllocatedRun, FreeError, FreedRun, IsolateError, MAX_ORDER, Migratetype, ORDERS,
    Occupancy, OfflineError, Order, PAGEBLOCK_FRAMES, PAGEBLOCK_ORDER, PageblockIndex, Pfn,
    RUN_FRAMES_MAX, ReserveError, TakeError, Warm, ZoneDefect,
};
pub use rules::ZoneCheck;
pub use sharing::SharedZone;
#[cfg(feature = "study")]
pub use sharing::study;
pub use texts::{
    BuddyInfo, NodePageTypes, PageTypeInfo, ParseError, ParseProblem, TextForm, ZonePageTypes,
    ZoneTotals, fragmentation_index, unusable_free_index,
};
pub use zone::Zone;
