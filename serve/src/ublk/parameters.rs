//! What the kernel is told about a disk: `ublk_params` of linux/ublk_cmd.h.
//!
//! ```text
//!    0 length.4 parts.4
//!    8 attributes.4 logical.1 physical.1 best.1 least.1 most.4 chunk.4 sectors.8 boundary.8
//!   40 discard: alignment.4 granularity.4 most sectors.4 most sectors of zeroes.4 segments.2 -.2
//! ```
//!
//! The disk is said to have a cache that is flushed, because the contract of a disk has a flush. It
//! is not said to rotate. A write with FUA is a write and a flush, which the kernel makes of it.
//!
//! Invariant: sectors are of 512 bytes, and every number of them is whole blocks of 4096 bytes.
//! Locks: none.

use crate::terms::limits::{PAGE, UBLK_REQUEST_MAX, ZEROED_SECTORS_MAX};
use disk::Disk;

/// Bytes of a sector.
pub(super) const SECTOR: u64 = 512;
/// Bytes of the parameters.
const BYTES: usize = 60;
/// The parts: the basic one, and that of discards.
const BASIC: u32 = 1;
const DISCARD: u32 = 2;
/// Attributes.
const READ_ONLY: u32 = 1;
const VOLATILE_CACHE: u32 = 4;
/// Blocks have 2^12 bytes.
const BLOCK_SHIFT: u8 = 12;
const _: () = assert!(1 << BLOCK_SHIFT == PAGE, "a block is a page");

/// The parameters of a disk.
pub(super) fn of(disk: &dyn Disk) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    let (attributes, parts) = match disk.read_only() {
        true => (VOLATILE_CACHE | READ_ONLY, BASIC),
        false => (VOLATILE_CACHE, BASIC | DISCARD),
    };
    put(0, &(BYTES as u32).to_ne_bytes());
    put(4, &parts.to_ne_bytes());
    put(8, &attributes.to_ne_bytes());
    put(12, &[BLOCK_SHIFT; 4]);
    put(16, &(UBLK_REQUEST_MAX / SECTOR as u32).to_ne_bytes());
    put(24, &sectors(disk).to_ne_bytes());
    put(44, &(PAGE as u32).to_ne_bytes());
    put(48, &ZEROED_SECTORS_MAX.to_ne_bytes());
    put(52, &ZEROED_SECTORS_MAX.to_ne_bytes());
    put(56, &1_u16.to_ne_bytes());
    bytes
}

/// Sectors of the whole blocks of a disk.
pub(super) fn sectors(disk: &dyn Disk) -> u64 {
    disk.size_bytes() / PAGE as u64 * (PAGE as u64 / SECTOR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use disk::{RamDisk, ReadOnly};

    #[test]
    fn the_kernel_is_told_sizes_and_what_the_disk_can_do() {
        let bytes = of(&RamDisk::new(10 * 4096 + 512).unwrap());
        let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!((word(0), word(4), word(8)), (60, 3, 4), "length, parts, attributes");
        assert_eq!(bytes[12..16], [12; 4], "blocks of a page");
        assert_eq!(word(16) * 512, 1 << 20, "the most bytes of a request");
        assert_eq!((word(24), word(28)), (80, 0), "whole blocks");
        assert_eq!((word(40), word(44)), (0, 4096), "a discard, at least a page");
        assert_eq!((word(48), word(52)), (8_388_600, 8_388_600));
        assert_eq!(word(56), 1, "one range of a discard");
        let bytes = of(&ReadOnly::new(RamDisk::new(4096).unwrap()));
        assert_eq!((bytes[4], bytes[8]), (1, 5), "no discards, and nothing is written");
    }
}
