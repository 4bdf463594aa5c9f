//! Where a blob lies on the backing disk, and how the disk is divided.
//!
//! ```text
//!   40          12 11         0
//!   | sector 29   | length - 1 |    a place, as a cell keeps it
//!
//!   sector    512 bytes         a blob begins at the start of one
//!   window     64 sectors       32 KiB: a blob lies within one
//! ```
//!
//! Invariant: the fields of a place fill the 41 bits of a cell's value.

use host::PAGE_SIZE;
use zsmalloc::VALUE_BITS;

/// Bytes of a sector.
pub(crate) const SECTOR: usize = 512;
/// Sectors of a window, one word of the bitmap.
pub(super) const WINDOW_SECTORS: u32 = u64::BITS; // 32 KiB
/// Sectors of a page.
pub(super) const SECTORS_MAX: u32 = 8;
/// Bytes of a window.
pub(super) const WINDOW: usize = WINDOW_SECTORS as usize * SECTOR; // 32 KiB
const LENGTH_BITS: u32 = PAGE_SIZE.ilog2(); // 12
/// Bits of a sector's number: the rest of a value.
pub(super) const SECTOR_BITS: u32 = VALUE_BITS - LENGTH_BITS; // 29
const _: () = assert!(SECTOR_BITS < u32::BITS, "a sector's number is a u32");

/// Where a blob lies on the backing disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OnDisk {
    /// The first sector.
    pub(crate) sector: u32,
    /// Bytes of the blob, 1 to 4096.
    pub(crate) len: u16,
}

impl OnDisk {
    /// The value of the cell.
    pub(crate) fn value(self) -> u64 {
        u64::from(self.sector) << LENGTH_BITS | u64::from(self.len - 1)
    }

    /// The place that a cell's value names.
    pub(crate) fn from_value(value: u64) -> OnDisk {
        let len = (value & ((1 << LENGTH_BITS) - 1)) as u16 + 1;
        OnDisk { sector: (value >> LENGTH_BITS) as u32, len }
    }

    /// Sectors that the blob takes.
    pub(crate) fn sectors(self) -> u32 {
        usize::from(self.len).div_ceil(SECTOR) as u32
    }

    /// The window that the blob lies in.
    pub(super) fn window(self) -> u32 {
        self.sector / WINDOW_SECTORS
    }
}

/// What a blob was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Disk,
    ReadAhead,
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_place_on_disk_is_found_again(sector in 0u32..1 << SECTOR_BITS, len in 1u16..=4096) {
            let at = OnDisk { sector, len };
            prop_assert!(at.value() >> VALUE_BITS == 0);
            prop_assert_eq!(OnDisk::from_value(at.value()), at);
        }
    }
}
