//! Memory that folds: a region is used as memory, its cold pages live compressed and come back when
//! they are touched, and all of it is gone at once when the program is done with it.
//!
//! ```text
//!   touch --> there?  go on                                      out: MOVE, compress, one DONTNEED
//!               | no: SIGBUS, or a message to a thread
//!               `--> fault path: group, store --> decode --> COPY --> go on
//! ```
//!
//! Words: a *region* is an address range whose cold pages live in a store; to *page out* is to
//! leave memory for the store, to *fault in* to come back on touch; a *group* is 64 neighbouring
//! pages, which leave together; *staging* is where pages stand on their way out, still as they
//! were.
//!
//! ```no_run
//! use region::{Memory, MemoryConfig, Pager, PagerConfig, Region, RegionConfig};
//! let memory = Memory::new(MemoryConfig {
//!     arena_frames: 1 << 18,
//!     entries_max: 1 << 20,
//!     expected_bytes: 1 << 30,
//!     worker: true,
//! })?;
//! let pager = Pager::new(memory, &PagerConfig::default())?;
//! let mut region = Region::map(&pager, 64 << 20, &RegionConfig::default())?;
//! region.as_mut_slice()[12345] = 6;
//! region.control().page_out(0..64 << 20)?;
//! assert_eq!(region.as_slice()[12345], 6);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Pages go to a zram device of the region's own, or to a zswap cache that regions share, and that
//! may have a disk behind it: [`StoreConfig`].
//!
//! Needs Linux 6.8, for `UFFDIO_MOVE`.

#![deny(unsafe_code)]

mod around;
mod bring_around;
mod buffers;
mod chunk;
mod config;
mod control;
mod counters;
mod density;
mod error;
mod fault_in;
mod fetch;
mod fetchers;
mod folded;
mod forget;
mod gate;
mod group;
mod look;
mod outcome;
mod overhead;
mod page_out;
mod pager;
mod pinned;
#[expect(unsafe_code, reason = "the fence: faults and the pages put in place, see its invariants")]
mod promises;
mod queue;
mod range;
mod region;
mod runs;
mod stats;
mod store;
mod trials;
mod vec;
mod vec_iter;
mod watch;
mod worth;

pub use config::{Quads, RegionConfig, StoreConfig};
pub use control::Control;
pub use error::RegionError;
pub use host::{FaultMode, UserfaultError};
pub use outcome::{PageOut, Refusal};
pub use pager::{FaultCosts, Pager, PagerConfig};
pub use pinned::{Pinned, PinnedMut};
pub use region::{LIMIT_MIN, Region, Teardown};
pub use stats::RegionStats;
pub use vec::{PushError, RegionVec};
pub use vec_iter::IntoIter;
pub use zram::{Algorithm, Codec, Memory, MemoryConfig};
pub use zswap;

/// Pages of a group: what is found cold and moved at a time.
const GROUP_PAGES: usize = host::SEGMENT_PAGES;
/// Groups of a chunk.
const CHUNK_GROUPS: usize = 8; // 2 MiB
/// Pages brought in by one call, at most.
const AROUND_PAGES: usize = 16; // 64 KiB

/// The examples of the documents, which `cargo test --doc` compiles and runs.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../README.md")]
    struct Readme;

    #[doc = include_str!("../../docs/region.md")]
    struct RegionDocument;
}
