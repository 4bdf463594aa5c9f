//! The settings of a device that its owner may change while it is in use.
//!
//! Invariant: a value that is refused changes nothing. Locks: those of `settings` and `target`.

use super::zram::Zram;
use crate::terms::PostError;

impl Zram {
    /// Sets the most bytes that objects may take; 0 means no limit. Stored pages stay.
    pub fn set_mem_limit(&self, bytes: u64) {
        self.settings.hold.set_limit(&self.slots.pool, bytes);
    }

    /// True if so many bytes can be written without making room first, whatever they are. Other
    /// threads may write meanwhile.
    pub fn has_room_for(&self, bytes: u64) -> bool {
        self.slots.pool.has_room_for(bytes)
    }

    /// Makes the present use the highest use.
    pub fn reset_mem_used_max(&self) {
        self.slots.pool.reset_mem_used_max();
    }

    /// Units of 4096 bytes that may still be written back, if that is limited.
    pub fn writeback_limit(&self) -> u64 {
        self.settings.units()
    }

    /// Sets the units of 4096 bytes that may still be written back.
    pub fn set_writeback_limit(&self, units: u64) {
        self.settings.set_units(units);
    }

    /// Enables or disables the limit on write-back.
    pub fn enable_writeback_limit(&self, enable: bool) {
        self.settings.enable_limit(enable);
    }

    /// The most pages that a write-back has in flight.
    pub fn writeback_batch_size(&self) -> u32 {
        self.settings.batch_pages()
    }

    /// Sets the most pages that a write-back has in flight. It is 32 at first.
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
