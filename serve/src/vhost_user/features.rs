//! What the device offers: its features, and the space in which a guest reads its sizes.
//!
//! ```text
//!    0 capacity.8 size_max.4 seg_max.4 (geometry.4) blk_size.4
//!   24 (topology.8) writeback.1 -.1 num_queues.2
//!   36 max_discard_sectors.4 max_discard_seg.4 discard_sector_alignment.4
//!   48 max_write_zeroes_sectors.4 max_write_zeroes_seg.4 write_zeroes_may_unmap.1 -.3
//! ```
//!
//! There is no `INFLIGHT_SHMFD`: what is stored ends with the server, so a request that another
//! server did not answer cannot be done by this one. There is no `CONFIG_WCE`, because the two ways
//! to cache would not differ.
//!
//! Invariant: nothing here changes while a frontend is connected. Locks: none.

use super::wire;
use crate::terms::limits::{
    CHAIN_SEGMENTS_MAX, CONFIG_BYTES, PAGE, SEGMENT_MAX, VHOST_QUEUES_MAX, ZEROED_SECTORS_MAX,
    ZEROED_SEGMENTS_MAX,
};
use disk::Disk;
use vhost::vhost_user::message::VhostUserProtocolFeatures;

/// The features of vhost-user itself. `REPLY_ACK` is added by the library.
pub(super) fn protocol_features() -> VhostUserProtocolFeatures {
    VhostUserProtocolFeatures::MQ
        | VhostUserProtocolFeatures::CONFIG
        | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
}

/// The features of the device.
pub(super) fn features(disk: &dyn Disk) -> u64 {
    let changing = wire::F_DISCARD | wire::F_WRITE_ZEROES;
    wire::F_VERSION_1
        | wire::F_PROTOCOL_FEATURES
        | wire::F_EVENT_IDX
        | wire::F_INDIRECT_DESC
        | wire::F_SIZE_MAX
        | wire::F_SEG_MAX
        | wire::F_BLK_SIZE
        | wire::F_FLUSH
        | wire::F_TOPOLOGY
        | wire::F_MQ
        | if disk.read_only() { wire::F_RO } else { changing }
}

/// `len` bytes of the configuration space from `offset` on. What the device does not have is zeros,
/// because later versions of the specification have a longer space.
pub(super) fn config(disk: &dyn Disk, offset: u32, len: u32) -> Vec<u8> {
    let space = space(disk);
    let (start, end) = (offset as usize, offset as usize + len as usize);
    (start..end).map(|at| space.get(at).copied().unwrap_or(0)).collect()
}

fn space(disk: &dyn Disk) -> [u8; CONFIG_BYTES] {
    let mut space = [0; CONFIG_BYTES];
    let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &(disk.size_bytes() / wire::SECTOR).to_le_bytes());
    put(8, &SEGMENT_MAX.to_le_bytes());
    put(12, &CHAIN_SEGMENTS_MAX.to_le_bytes());
    put(20, &block_size(disk).to_le_bytes());
    put(26, &1_u16.to_le_bytes()); // min_io_size: one block
    put(28, &1_u32.to_le_bytes()); // opt_io_size: one block
    put(32, &[1]); // writeback: a guest may flush, though nothing depends on it
    put(34, &VHOST_QUEUES_MAX.to_le_bytes());
    let pages = (PAGE as u64 / wire::SECTOR) as u32;
    put(36, &ZEROED_SECTORS_MAX.to_le_bytes());
    put(40, &ZEROED_SEGMENTS_MAX.to_le_bytes());
    put(44, &pages.to_le_bytes());
    put(48, &ZEROED_SECTORS_MAX.to_le_bytes());
    put(52, &ZEROED_SEGMENTS_MAX.to_le_bytes());
    put(56, &[1]);
    space
}

/// The disk's own block size, or a sector if that does not divide the disk.
fn block_size(disk: &dyn Disk) -> u32 {
    let own = disk.block_size();
    if disk.size_bytes().is_multiple_of(own.into()) { own } else { wire::SECTOR as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use disk::RamDisk;

    #[test]
    fn the_space_is_laid_out_as_the_specification_says() {
        let disk = RamDisk::new(3 << 20).unwrap();
        let space = config(&disk, 0, 60);
        let word = |at: usize| u32::from_le_bytes(space[at..at + 4].try_into().unwrap());
        assert_eq!((word(0), word(4)), (6144, 0), "sectors");
        assert_eq!((word(8), word(12), word(20)), (64 << 10, 126, 4096));
        assert_eq!((space[32], space[34]), (1, 64));
        assert_eq!((word(36), word(40), word(44)), (8_388_600, 32, 8), "discard");
        assert_eq!((word(48), word(52), space[56]), (8_388_600, 32, 1), "write zeroes");
        assert_eq!(config(&disk, 8, 4), space[8..12]);
        assert_eq!(config(&disk, 56, 200)[4..], [0; 196], "beyond what it has");
    }

    #[test]
    fn a_disk_of_odd_size_has_blocks_of_a_sector() {
        assert_eq!(config(&RamDisk::new(4096 + 512).unwrap(), 20, 4), 512_u32.to_le_bytes());
    }
}
