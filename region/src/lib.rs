//! Memory that folds. A region is used as memory. Its cold pages live compressed and come back when
//! they are touched, and dropping it frees all of it at once.
//!
//! ```text
//!   touch --> there?  go on                                      out: MOVE, compress, one DONTNEED
//!               | no: SIGBUS, SIGSEGV, or a message to a thread
//!               `--> fault path: group, store --> decode --> COPY --> go on
//! ```
//!
//! Words: a *region* is an address range whose cold pages live in a store. To *page out* is to
//! leave memory for the store; to *fault in* is to come back on touch. A *group* is 64 neighbouring
//! pages, which leave together. *Staging* holds pages on their way out, with unchanged content.
//!
//! The rooms, each of which uses only those under it:
//!
//! ```text
//!   face         regions, vectors, controls, pins
//!   upkeep       the pager, and the threads that look after regions
//!   way_out      pages leave: staging, store, or for good
//!   way_in       pages come: from the touch until the page is there
//!   state        what is known of one region, and how its groups are locked
//!   resources    what each region has, and what those of a pager share
//!   neighbours   how many pages a fault brings in
//!   places       where each page is
//!   terms        settings, results, errors
//! ```
//!
//! ```no_run
//! use ramfold_region::{Memory, MemoryConfig, Pager, PagerConfig, Region, RegionConfig};
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
//! Pages go to a zram device of the region's own, or to a zswap cache. Regions share a cache, and
//! it may have a disk behind it: [`StoreConfig`].
//!
//! The crate is fastest with Linux 6.8, for `UFFDIO_MOVE`. On older kernels, and where userfaultfd
//! is refused, it closes pages that are out: [`FaultMode::Protection`] and [`FaultMode::Guards`].

#![deny(unsafe_code)]

mod face;
mod neighbours;
mod places;
mod resources;
mod state;
mod terms;
mod upkeep;
mod way_in;
mod way_out;

pub use face::{
    Field, IntoIter, Pinned, PinnedMut, Plot, PushError, RawRegion, Region, RegionControl,
    RegionVec, Teardown,
};
pub use host::{FaultError, FaultMode};
pub use terms::{
    FaultCosts, LIMIT_MIN, PageOut, PagerConfig, PlotStats, Quads, Refusal, RegionConfig,
    RegionError, RegionStats, StoreConfig,
};
pub use upkeep::Pager;
pub use zram::{
    Algorithm, Codec, Density, Memory, MemoryConfig, TierStat, TiersConfig, ZramError, ZramStat,
};
pub use zswap;
