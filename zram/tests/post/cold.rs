//! A device whose every page is written back at once.
//!
//! Claim: it is a disk (the conformance suite).

use std::sync::Arc;

use crate::devices::{PAGE, device};
use disk::{Allocation, Disk, DiskError, Extent, RamDisk};
use ramfold_zram::{Selection, Zram, ZramConfig};

/// A device that has only same-filled pages in memory.
struct Cold(Zram);

impl Cold {
    /// Writes back the pages that a finished request has touched.
    fn chill(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        if len > 0 {
            let pages = offset / PAGE as u64..=(offset + len - 1) / PAGE as u64;
            let pages = Selection::Pages(vec![pages]);
            self.0.write_back(&pages.into()).expect("room on the backing disk");
        }
        Ok(())
    }
}

impl Disk for Cold {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        self.0.read(offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DiskError> {
        self.0.write(offset, data)?;
        self.chill(offset, data.len() as u64)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.0.discard(offset, len)?;
        self.chill(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64, keep: Allocation) -> Result<(), DiskError> {
        self.0.write_zeroes(offset, len, keep)?;
        self.chill(offset, len)
    }

    fn flush(&self) -> Result<(), DiskError> {
        self.0.flush()
    }

    fn next_extent(&self, offset: u64, len: u64) -> Result<Extent, DiskError> {
        self.0.next_extent(offset, len)
    }
}

#[test]
fn a_device_that_writes_everything_back_is_a_disk() {
    for compressed_writeback in [false, true] {
        let make = |size: u64| -> Arc<dyn Disk> {
            let backing: Arc<dyn Disk> =
                Arc::new(RamDisk::new(2 * size + (1 << 20)).expect("a size"));
            let config = ZramConfig {
                compressed_writeback,
                backing: Some(backing),
                ..ZramConfig::new("zram0", size)
            };
            Arc::new(Cold(device(config)))
        };
        // One leaf and a page. At its other sizes, the suite runs on a device without a backing
        // disk.
        let (name, size) = ("zram, all written back", 513 * PAGE as u64);
        disk::conformance::run_sized(name, size, &make);
        disk::conformance::run_sparse_sized(name, size, &make);
    }
}
