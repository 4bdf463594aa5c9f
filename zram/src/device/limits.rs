//! What of a device may be set while it is in use, as its owner sets it.
//!
//! Invariant: a value that is refused changes nothing. Locks: those of `settings` and `target`.

use super::zram::Zram;
use crate::terms::PostError;

impl Zram {
    /// Sets the bytes that objects may take at most; 0 = no limit. What is stored stays.
    pub fn set_mem_limit(&self, bytes: u64) {
        self.settings.hold.set_limit(&self.slots.pool, bytes);
    }

    /// Makes the present use the most that ever was.
    pub fn reset_mem_used_max(&self) {
        self.slots.pool.reset_mem_used_max();
    }

    /// Units of 4096 bytes that may still be written back, where that is limited.
    pub fn writeback_limit(&self) -> u64 {
        self.settings.units()
    }

    /// Sets the units of 4096 bytes that may still be written back.
    pub fn set_writeback_limit(&self, units: u64) {
        self.settings.set_units(units);
    }

    /// Limits write-back, or not.
    pub fn enable_writeback_limit(&self, enable: bool) {
        self.settings.enable_limit(enable);
    }

    /// Pages that a write-back has in flight at most.
    pub fn writeback_batch_size(&self) -> u32 {
        self.settings.batch_pages()
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
        self.settings.set_batch_pages(pages);
        Ok(())
    }
}
