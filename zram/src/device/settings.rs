//! The settings of write-back that may change while a device is in use.
//!
//! ```text
//!   limit: 3 units   submit: 2   failed: 3   submit: 2 ...   0: writes back nothing more
//! ```
//!
//! Invariant: a unit is taken for each block that is submitted while the limit is enabled. It is
//! put back if the block was not written. If the limit was set meanwhile, the unit is not put back,
//! because the limit stays as it was set.
//!
//! Locks: one write-back or recompression at a time holds `running`. The lock of the limit is a
//! leaf.

use std::sync::atomic::{AtomicU32, Ordering};

use host::{Rank, RankedMutex, RankedMutexGuard, unmodelled};

use super::target::Hold;
use super::tiering::Tiering;
use crate::terms::PostError;

/// Pages that a write-back has in flight by default, as in the kernel.
const BATCH_PAGES: u32 = 32; // 128 KiB

/// The settings of one device.
pub(crate) struct Settings {
    running: RankedMutex<()>,
    limit: unmodelled::RankedMutex<Limit>,
    batch_pages: AtomicU32,
    pub(crate) hold: Hold,
    pub(crate) tiering: Tiering,
}

#[derive(Default)]
struct Limit {
    /// Units of 4096 bytes that may still be written.
    units: u64,
    enabled: bool,
    /// The number of times that `units` was set.
    set: u64,
}

/// A unit that was taken from the limit, and the setting of the limit that it came from.
#[derive(Clone, Copy)]
pub(crate) struct Unit {
    set: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            running: RankedMutex::new(Rank::PostProcessing, ()),
            limit: unmodelled::RankedMutex::new(Rank::Leaf, Limit::default()),
            batch_pages: AtomicU32::new(BATCH_PAGES),
            hold: Hold::new(),
            tiering: Tiering::new(),
        }
    }
}

impl Settings {
    /// Waits for the post-processing that runs. Others wait until this is dropped.
    pub(crate) fn run(&self) -> RankedMutexGuard<'_, ()> {
        self.running.lock()
    }

    /// Takes a unit of the limit. `None` if there is no limit.
    pub(crate) fn take_unit(&self) -> Result<Option<Unit>, PostError> {
        let mut limit = self.limit.lock();
        if !limit.enabled {
            return Ok(None);
        }
        limit.units = limit.units.checked_sub(1).ok_or(PostError::LimitReached)?;
        Ok(Some(Unit { set: limit.set }))
    }

    /// Puts back a unit, if the limit is still the one it was taken from.
    pub(crate) fn put_back_unit(&self, unit: Unit) {
        let mut limit = self.limit.lock();
        if limit.set == unit.set {
            limit.units += 1;
        }
    }

    /// Units that may still be written, if that is limited.
    pub(super) fn units(&self) -> u64 {
        self.limit.lock().units
    }

    /// Sets the units that may still be written.
    pub(super) fn set_units(&self, units: u64) {
        let mut limit = self.limit.lock();
        limit.units = units;
        limit.set += 1;
    }

    /// Enables or disables the limit.
    pub(super) fn enable_limit(&self, enable: bool) {
        self.limit.lock().enabled = enable;
    }

    /// The most pages that a write-back has in flight.
    pub(super) fn batch_pages(&self) -> u32 {
        // relaxed: an independent value.
        self.batch_pages.load(Ordering::Relaxed)
    }

    /// Sets the most pages that a write-back has in flight.
    pub(super) fn set_batch_pages(&self, pages: u32) {
        // relaxed: an independent value, read by the next write-back.
        self.batch_pages.store(pages, Ordering::Relaxed);
    }
}
