//! The first block of a backing disk: whose it is.
//!
//! ```text
//!   0       8         12      16      24     32          4096
//!   | magic | version | state | epoch | size | zeros ... |         little-endian
//!    8 bytes  u32 = 1   u32     u64     u64                state: 1 in use, 2 left in order
//! ```
//!
//! No process reads the pages of another, because only the other's memory said where they are. The
//! header serves two purposes. A disk that belongs to something else is not overwritten. A cache
//! can tell whether the last process left the disk in order or died.

use disk::{Disk, DiskError};

use crate::terms::ZswapError;

const MAGIC: [u8; 8] = *b"RAMFOLDZ";
const VERSION: u32 = 1;
const BLOCK: usize = 4096;
const IN_USE: u32 = 1;
const LEFT: u32 = 2;

/// What a backing disk held when a cache took it in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// Zeros.
    Blank,
    /// A cache's pages, left in order. They mean nothing any more.
    Left,
    /// Pages of a cache whose process crashed, or still uses the disk. They mean nothing to any
    /// other process.
    Stale {
        /// That process's number for its use of the disk.
        epoch: u64,
    },
}

/// Takes a disk in use if it is blank or has a cache's header, in any state.
pub(super) fn take(disk: &dyn Disk, epoch: u64) -> Result<Found, ZswapError> {
    let mut block = [0; BLOCK];
    disk.read(0, &mut block).map_err(ZswapError::Backing)?;
    let found = found(&block).ok_or(ZswapError::BackingForeign)?;
    write(disk, IN_USE, epoch).map_err(ZswapError::Backing)?;
    Ok(found)
}

/// Gives a disk up in order.
pub(super) fn leave(disk: &dyn Disk, epoch: u64) -> Result<(), DiskError> {
    write(disk, LEFT, epoch)
}

fn write(disk: &dyn Disk, state: u32, epoch: u64) -> Result<(), DiskError> {
    let mut block = [0; BLOCK];
    block[0..8].copy_from_slice(&MAGIC);
    block[8..12].copy_from_slice(&VERSION.to_le_bytes());
    block[12..16].copy_from_slice(&state.to_le_bytes());
    block[16..24].copy_from_slice(&epoch.to_le_bytes());
    block[24..32].copy_from_slice(&disk.size_bytes().to_le_bytes());
    disk.write(0, &block)
}

/// What a block says. `None` if it is neither blank nor a cache's header.
fn found(block: &[u8; BLOCK]) -> Option<Found> {
    if block.iter().all(|&byte| byte == 0) {
        return Some(Found::Blank);
    }
    let number = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|byte| block[at + byte]));
    if block[0..8] != MAGIC || number(8) != VERSION {
        return None;
    }
    let epoch = u64::from(number(20)) << u32::BITS | u64::from(number(16));
    Some(if number(12) == LEFT { Found::Left } else { Found::Stale { epoch } })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use disk::RamDisk;

    #[test]
    fn a_disk_is_blank_then_in_use_then_left() {
        let disk = RamDisk::new(1 << 16).expect("memory");
        assert_eq!(take(&disk, 7).expect("blank"), Found::Blank);
        assert_eq!(take(&disk, 8).expect("a cache's"), Found::Stale { epoch: 7 });
        leave(&disk, 8).expect("room");
        assert_eq!(take(&disk, 9).expect("a cache's"), Found::Left);
    }

    #[test]
    fn what_is_something_elses_is_refused_and_kept() {
        let disk = RamDisk::new(1 << 16).expect("memory");
        disk.write(1080, &[0x53, 0xEF]).expect("in range"); // where ext4 has its magic
        assert!(matches!(take(&disk, 7), Err(ZswapError::BackingForeign)));
        let mut kept = [0; 2];
        disk.read(1080, &mut kept).expect("in range");
        assert_eq!(kept, [0x53, 0xEF]);
    }
}
