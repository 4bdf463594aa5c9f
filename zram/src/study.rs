//! What the studies compare with the default: lock designs of the allocator, and ways to free
//! discarded pages.
//!
//! The code is in three files of this name: `terms/study` has the names of the ways, `device/study`
//! the slots that are set aside, `access/study` the discards. With the feature the last two are in
//! the place of `device/aside` and `access/discard`.
//!
//! ```
//! # use ramfold_zram::{Memory, MemoryConfig, Zram, ZramConfig};
//! use ramfold_zram::study::Free;
//!
//! # let memory = MemoryConfig {
//! #     arena_frames: 1 << 12,
//! #     entries_max: 1 << 12,
//! #     expected_bytes: 1 << 20,
//! #     worker: false,
//! # };
//! let config = ZramConfig { study: Free::Handles.into(), ..ZramConfig::new("zram0", 1 << 20) };
//! let zram = Zram::new(Memory::new(memory)?, config)?;
//! # zram.write_page(7, &std::array::from_fn::<u8, 4096, _>(|at| (at * at / 7) as u8))?;
//! zram.discard_pages(7..8)?;
//! assert_eq!(zram.deferred().pending_values, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub use crate::terms::study::{Free, Study};
pub use zsmalloc::deferred::QueueConfig;
pub use zsmalloc::study::LockDesign;
