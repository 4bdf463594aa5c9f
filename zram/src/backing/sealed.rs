//! The disk that pages are written back to.
//!
//! ```text
//!   post-processing:  take a block -> checksum -> write ... -> the cell names it
//!   a read:           the cell names it -> read -> checksum -> the cell still names it
//!   the slot's content goes, anywhere: the block is given back
//! ```
//!
//! Invariants
//! - I1 a block in use is named by one cell, or a post-processing is about to have a cell name it.
//!   A block that the disk may still change by itself is not taken again.
//! - I2 a read gives what was written, or an error. Each block's checksum stays in memory. It is
//!   keyed, and bound to block and page, so a process that can write to the disk can only guess it.
//!
//! Locks: none is held while the disk is called.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use disk::{Disk, Seal};
use host::PAGE_SIZE;
use zsmalloc::{MemoryError, Pool};

use super::blocks::Blocks;
use crate::terms::backing_error;

/// A backing disk.
pub(crate) struct Backing {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) blocks: Blocks,
    seal: Seal,
    /// Blocks that were ever read and written.
    reads: AtomicU64,
    writes: AtomicU64,
}

/// The three columns of `bd_stat`, in units of 4096 bytes. `Display` writes the kernel's line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct BdStat {
    /// Blocks that hold pages of the disk.
    pub count: u64,
    /// Blocks that were ever read.
    pub reads: u64,
    /// Blocks that were ever written.
    pub writes: u64,
    /// Blocks in use that hold no page. Some belong to discarded pages, and the memory's worker
    /// gives them back. Others are on their way to the disk. This is no column of the line. A
    /// write-back that finds no other block waits for the first kind.
    pub pending: u64,
    /// Blocks that are not used again, because a write to them that had no reply may still be done.
    /// This is no column of the line either.
    pub quarantined: u64,
}

impl std::fmt::Display for BdStat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{:>8} {:>8} {:>8}", self.count, self.reads, self.writes)
    }
}

impl Backing {
    /// Takes a disk of which no block is used yet.
    pub(crate) fn new(disk: Arc<dyn Disk>, pool: &Pool) -> Result<Backing, MemoryError> {
        let blocks = Blocks::new(pool, disk.size_bytes())?;
        let (reads, writes) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Backing { disk, blocks, seal: Seal::random(), reads, writes })
    }

    /// Reads a block without decoding it.
    pub(crate) fn read(&self, block: u32, data: &mut [u8; PAGE_SIZE]) -> io::Result<()> {
        // relaxed: a total.
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.disk.read(offset_of(block), data).map_err(backing_error)
    }

    /// Notes that a block was written by the thread that uses the disk directly.
    pub(crate) fn wrote(&self) {
        // relaxed: a total.
        self.writes.fetch_add(1, Ordering::Relaxed);
    }

    /// A write to a block has returned. If the disk may still do it, the block is not taken again
    /// when its use ends.
    pub(crate) fn returned(&self, block: u32) {
        if self.disk.may_still_change(offset_of(block), PAGE_SIZE as u64) {
            self.blocks.taint(block);
        }
    }

    /// The checksum of the bytes that a block holds for a page.
    pub(crate) fn sum(&self, block: u32, page: u64, data: &[u8]) -> u32 {
        self.seal.sum([block.into(), page], data)
    }

    /// The figures of the disk if so many pages are in its blocks.
    pub(crate) fn stat(&self, pages: u64) -> BdStat {
        // relaxed: independent totals.
        let read = |total: &AtomicU64| total.load(Ordering::Relaxed);
        let (reads, writes) = (read(&self.reads), read(&self.writes));
        let pending = self.blocks.in_use().saturating_sub(pages);
        BdStat { count: pages, reads, writes, pending, quarantined: self.blocks.quarantined() }
    }
}

/// Where a block starts.
pub(crate) fn offset_of(block: u32) -> u64 {
    u64::from(block) * PAGE_SIZE as u64
}

#[cfg(all(test, not(loom)))]
mod tests {
    use disk::RamDisk;
    use zsmalloc::PoolConfig;

    use super::*;
    use crate::small;

    fn backing() -> Backing {
        let pool = Pool::new(small::memory(), PoolConfig::default()).expect("a pool");
        let disk = Arc::new(RamDisk::new(1 << 20).expect("memory"));
        Backing::new(disk, &pool).expect("address space")
    }

    /// If a sum were one of the bytes alone, it would be right for them in any place. It would also
    /// tell an owner of two devices which of their pages are the same.
    #[test]
    fn a_sum_is_of_its_block_its_page_and_its_device() {
        let (ours, theirs, data) = (backing(), backing(), [7; PAGE_SIZE]);
        let sum = ours.sum(1, 2, &data);
        assert_eq!(ours.sum(1, 2, &data), sum, "the same block of the same page");
        assert_ne!(ours.sum(2, 2, &data), sum, "another block");
        assert_ne!(ours.sum(1, 3, &data), sum, "another page");
        assert_ne!(theirs.sum(1, 2, &data), sum, "another device");
    }
}
