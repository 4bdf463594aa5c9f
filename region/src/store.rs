//! Where pages go: a zram device of the region's own, whose slots are the region's pages.
//!
//! A device of its own costs a pool with partly filled zspages, under a megabyte, and makes
//! dropping the region cheap: whole zspages go back, no object is looked at.

use host::PAGE_SIZE;
use std::sync::Arc;
use zram::{DiskError, Memory, Zram, ZramConfig};

use crate::RegionError;
use crate::region::RegionConfig;

/// The store of one region.
pub(crate) struct Store {
    zram: Zram,
    /// Set by a test: reads fail.
    #[cfg(test)]
    broken: std::sync::atomic::AtomicBool,
}

/// Why the store did not take a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full;

impl Store {
    pub(crate) fn new(
        memory: &Arc<Memory>,
        pages: usize,
        config: &RegionConfig,
    ) -> Result<Store, RegionError> {
        let mut device = ZramConfig::new(&config.name, (pages * PAGE_SIZE) as u64);
        device.algorithm = config.algorithm.clone();
        device.chain_order = config.chain_order;
        device.mem_limit = config.store_limit;
        let zram = Zram::new(Arc::clone(memory), device).map_err(RegionError::Store)?;
        zram.prepare().map_err(RegionError::Codec)?;
        Ok(Store {
            zram,
            #[cfg(test)]
            broken: Default::default(),
        })
    }

    /// Stores a page, if there is room as it is.
    pub(crate) fn write(&self, page: usize, data: &[u8]) -> Result<(), Full> {
        self.zram.write_page_if_room(page as u64, data).map_err(|_| Full)
    }

    /// Compacts, and runs what is deferred. The caller holds no lock.
    pub(crate) fn make_room(&self) {
        self.zram.make_room();
    }

    /// Fills `data` with a stored page. Fit for the fault path: see
    /// [`Zram::read_page`](zram::Zram::read_page).
    pub(crate) fn read(&self, page: usize, data: &mut [u8]) -> Result<(), DiskError> {
        #[cfg(test)]
        // relaxed: one thread.
        if self.broken.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(DiskError::Corrupt { offset: 0 });
        }
        self.zram.read_page(page as u64, data)
    }

    /// Has every later read fail.
    #[cfg(test)]
    pub(crate) fn break_reads(&self) {
        // relaxed: one thread.
        self.broken.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// Forgets pages.
    pub(crate) fn discard(&self, first: usize, count: usize) {
        let pages = first as u64..(first + count) as u64;
        let discarded = self.zram.discard_pages(pages);
        debug_assert!(discarded.is_ok(), "the pages are the device's");
    }

    /// The device, for its counters.
    pub(crate) fn zram(&self) -> &Zram {
        &self.zram
    }
}
