//! What the studies compare with the default: lock designs of the allocator, and the ways of study
//! S3 to free a discarded page's object.
//!
//! The code is in two more files of this name: `device/study` has the slots that are set aside,
//! `access/study` the discards. With the feature they are in the place of `device/aside` and
//! `access/discard`.
//!
//! ```text
//!             the discard does                    and later
//!   range     takes whole leaves out of the root  the worker drains them
//!   sync      frees every object                  nothing
//!   entries   notes the slot's number             the slot is locked, its object freed
//!   handles   empties the slot                    its object is freed, with others of its class
//! ```
//!
//! Invariant: how it is freed changes neither what a page reads as, nor whether a write succeeds.
//!
//! ```
//! # use ramfold_zram::{Memory, MemoryConfig, Zram, ZramConfig};
//! use ramfold_zram::study::FreeDesign;
//!
//! # let memory = MemoryConfig {
//! #     arena_frames: 1 << 12,
//! #     entries_max: 1 << 12,
//! #     expected_bytes: 1 << 20,
//! #     worker: false,
//! # };
//! let config = ZramConfig { study: FreeDesign::Handles.into(), ..ZramConfig::new("zram0", 1 << 20)
//! }; let zram = Zram::new(Memory::new(memory)?, config)?;
//! # zram.write_page(7, &std::array::from_fn::<u8, 4096, _>(|at| (at * at / 7) as u8))?;
//! zram.discard_pages(7..8)?;
//! assert_eq!(zram.deferred().pending_values, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fmt;
use std::str::FromStr;

pub use zsmalloc::deferred::QueueConfig;
pub use zsmalloc::study::LockDesign;

/// How a device differs from what it is without the feature `study`; fixed for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Study {
    /// How the allocator's locks are laid out.
    pub design: LockDesign,
    /// Shards of each class of the allocator; `None` is as many as a pool has by default.
    pub shards: Option<usize>,
    /// How discarded pages are freed.
    pub free: FreeDesign,
    /// How much may be pending with [`FreeDesign::Entries`] and [`FreeDesign::Handles`].
    pub deferred: QueueConfig,
}

impl From<LockDesign> for Study {
    fn from(design: LockDesign) -> Study {
        Study { design, ..Study::default() }
    }
}

impl From<FreeDesign> for Study {
    fn from(free: FreeDesign) -> Study {
        Study { free, ..Study::default() }
    }
}

/// How discarded pages are freed; fixed for a device's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FreeDesign {
    /// Whole leaves, 2 MiB each, are handed to the memory's worker; slots at the ends of a range
    /// are freed at once.
    #[default]
    Range,
    /// At once: when a discard returns, nothing of what it emptied is left.
    Sync,
    /// Slot by slot and later, what a slot has in the device's books too: the callback form of
    /// study S3. Until then the statistics count such pages as stored, although they read as zeros.
    Entries,
    /// Slot by slot, the object later: the allocator-only form of study S3.
    Handles,
}

impl FreeDesign {
    /// Every way.
    pub const ALL: [FreeDesign; 4] =
        [FreeDesign::Range, FreeDesign::Sync, FreeDesign::Entries, FreeDesign::Handles];

    /// Its name in options and reports.
    pub fn name(self) -> &'static str {
        match self {
            FreeDesign::Range => "range",
            FreeDesign::Sync => "sync",
            FreeDesign::Entries => "entries",
            FreeDesign::Handles => "handles",
        }
    }
}

impl fmt::Display for FreeDesign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for FreeDesign {
    type Err = String;

    fn from_str(name: &str) -> Result<FreeDesign, String> {
        let found = FreeDesign::ALL.into_iter().find(|free| free.name() == name);
        found.ok_or_else(|| {
            format!("unknown way to free \"{name}\": range, sync, entries or handles")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for free in FreeDesign::ALL {
            assert_eq!(free.to_string().parse(), Ok(free));
        }
        assert!("later".parse::<FreeDesign>().is_err());
    }
}
