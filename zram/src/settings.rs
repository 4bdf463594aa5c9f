//! What of a write-back may be set while a device is in use.
//!
//! ```text
//!   limit: 3 units   submit: 2   failed: 3   submit: 2 ...   0: writes back nothing more
//! ```
//!
//! Invariant: a unit is taken for each block that is submitted while the limit is enabled, and put
//! back if the block was not written.
//!
//! Lock: one write-back or recompression at a time holds `running`.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use zsmalloc::sync::{Mutex, MutexGuard};

use crate::backing::{Backing, BdStat};
use crate::device::Zram;
use crate::hold::Hold;
use crate::post::PostError;

/// Pages that a write-back has in flight, unless told otherwise: the kernel's number.
const BATCH_PAGES: u32 = 32; // 128 KiB

/// The settings of one device.
pub(crate) struct Settings {
    running: Mutex<()>,
    /// Units of 4096 bytes that may still be written.
    limit: AtomicU64,
    limited: AtomicBool,
    batch_pages: AtomicU32,
    pub(crate) hold: Hold,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            running: Mutex::new(()),
            limit: AtomicU64::new(0),
            limited: AtomicBool::new(false),
            batch_pages: AtomicU32::new(BATCH_PAGES),
            hold: Hold::default(),
        }
    }
}

impl Settings {
    /// Waits for the post-processing that runs, and keeps others waiting.
    pub(crate) fn run(&self) -> MutexGuard<'_, ()> {
        // It guards no data that could be half done.
        self.running.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Takes a unit of the limit: whether one was taken, which it is not while there is no limit.
    pub(crate) fn take_unit(&self) -> Result<bool, PostError> {
        // relaxed: independent values.
        if !self.limited.load(Ordering::Relaxed) {
            return Ok(false);
        }
        let less = |limit: u64| limit.checked_sub(1);
        // relaxed: as above.
        let taken = self.limit.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        taken.map(|_| true).map_err(|_| PostError::LimitReached)
    }

    /// Puts a unit back that was taken.
    pub(crate) fn put_back_unit(&self) {
        // relaxed: an independent value.
        self.limit.fetch_add(1, Ordering::Relaxed);
    }
}

impl Zram {
    /// Units of 4096 bytes that may still be written back, where that is limited.
    pub fn writeback_limit(&self) -> u64 {
        // relaxed: an independent value.
        self.settings.limit.load(Ordering::Relaxed)
    }

    /// Sets the units of 4096 bytes that may still be written back.
    pub fn set_writeback_limit(&self, units: u64) {
        // relaxed: an independent value.
        self.settings.limit.store(units, Ordering::Relaxed);
    }

    /// Whether write-back is limited; not so at first.
    pub fn writeback_limit_enabled(&self) -> bool {
        // relaxed: an independent value.
        self.settings.limited.load(Ordering::Relaxed)
    }

    /// Limits write-back, or not.
    pub fn enable_writeback_limit(&self, enable: bool) {
        // relaxed: an independent value.
        self.settings.limited.store(enable, Ordering::Relaxed);
    }

    /// Pages that a write-back has in flight at most.
    pub fn writeback_batch_size(&self) -> u32 {
        // relaxed: an independent value.
        self.settings.batch_pages.load(Ordering::Relaxed)
    }

    /// Sets how many pages a write-back has in flight at most; 32 at first.
    ///
    /// # Errors
    ///
    /// [`PostError::Invalid`] for 0.
    pub fn set_writeback_batch_size(&self, pages: u32) -> Result<(), PostError> {
        if pages == 0 {
            return Err(PostError::Invalid("a write-back has at least one page in flight"));
        }
        // relaxed: an independent value, read by the next write-back.
        self.settings.batch_pages.store(pages, Ordering::Relaxed);
        Ok(())
    }

    /// The line of the kernel's `bd_stat`; zeros without a backing disk.
    pub fn bd_stat(&self) -> BdStat {
        self.values.backing.as_ref().map(Backing::stat).unwrap_or_default()
    }
}
