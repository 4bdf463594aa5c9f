//! What all devices share: their memory, the defaults they are made with, and the guard of paths.
//!
//! Invariant: nothing here changes once there are devices, except that a guard may be set, once.
//!
//! Locks: none.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use codec::Codec;
use zsmalloc::{Memory, Rule};

use crate::attributes::AttributeError;
use crate::terms::{TiersConfig, ZramConfig};

/// The settings of a device unless its attributes say otherwise. A reset goes back to them.
#[derive(Clone, Debug)]
pub struct DeviceDefaults {
    /// The primary algorithm.
    pub algorithm: Codec,
    /// Whether the algorithms that are set, this one and those of attributes, shuffle the pages
    /// that gain by it ([`Codec::with_sampled_shuffle`]).
    pub shuffle: bool,
    /// At most 2^N frames per zspage, 0 to 4.
    pub chain_order: u32,
    /// How each size class picks its chain length.
    pub rule: Rule,
    /// The most bytes that the objects of one device may take; 0 means no limit, as in the kernel.
    pub mem_limit: u64,
    /// Bytes that the objects of one device are held at, until its attribute says otherwise. The
    /// coldest pages are recompressed, and written back. The device notes ages then. `None` means
    /// that this is done only on request.
    pub memory_target: Option<u64>,
    /// The tiers of each device whose algorithms nobody chooses. It notes ages then. `None` means
    /// that pages stay as they were written.
    pub tiers: Option<TiersConfig>,
    /// Whether to note when each page is used, so that ages may be written to `idle`.
    pub track_ages: bool,
    /// Whether each device stores equal pages once.
    pub share_equal_pages: bool,
    /// Refuse writes.
    pub read_only: bool,
    /// What a study compares.
    #[cfg(feature = "study")]
    pub study: crate::study::Study,
}

impl DeviceDefaults {
    /// Whether a device notes when each page is used.
    pub(crate) fn notes_ages(&self) -> bool {
        self.track_ages || self.memory_target.is_some() || self.tiers.is_some()
    }
}

impl Default for DeviceDefaults {
    fn default() -> DeviceDefaults {
        let config = ZramConfig::new("", 0);
        DeviceDefaults {
            algorithm: config.algorithm,
            shuffle: false,
            chain_order: config.chain_order,
            rule: config.rule,
            mem_limit: config.mem_limit,
            memory_target: None,
            tiers: None,
            track_ages: config.track_ages,
            share_equal_pages: config.share_equal_pages,
            read_only: config.read_only,
            #[cfg(feature = "study")]
            study: config.study,
        }
    }
}

/// Judges the path of a backing device or of a dictionary before it is opened. `Err` says why it
/// must not be opened.
pub type PathGuard = Box<dyn Fn(&Path) -> Result<(), String> + Send + Sync>;

/// The part that devices share.
pub(crate) struct Shared {
    memory: Arc<Memory>,
    defaults: DeviceDefaults,
    guard: OnceLock<PathGuard>,
}

impl Shared {
    pub(crate) fn new(memory: Arc<Memory>, defaults: DeviceDefaults) -> Shared {
        Shared { memory, defaults, guard: OnceLock::new() }
    }

    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    pub(crate) fn defaults(&self) -> &DeviceDefaults {
        &self.defaults
    }

    /// Sets a guard that judges paths before they are opened. Only the first guard is kept.
    pub(crate) fn guard_paths(&self, guard: PathGuard) {
        // A second guard is dropped. The server that serves the devices sets the guard, once.
        let _ = self.guard.set(guard);
    }

    /// Refuses a path that must not be opened from here.
    pub(crate) fn check_path(&self, path: &Path) -> Result<(), AttributeError> {
        let judged = self.guard.get().map_or(Ok(()), |guard| guard(path));
        judged.map_err(AttributeError::invalid)
    }
}
