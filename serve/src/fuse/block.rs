//! A disk as a file: what a block device's file does, for a [`Disk`].
//!
//! ```text
//!   read past the end            short, then nothing
//!   write past the end           short, then ENOSPC
//!   fallocate PUNCH_HOLE         writes zeros, which may become holes
//!             ZERO_RANGE         writes zeros
//!             anything else      EOPNOTSUPP
//!   lseek SEEK_DATA, SEEK_HOLE   what the disk knows; zeros that are stored are data
//! ```
//!
//! Invariant: the disk is never asked for a byte beyond its end. Locks: the disk's.

use super::channel::wire::Range;
use disk::{Allocation, Disk, DiskError, ExtentKind};
use rustix::io::Errno;

/// Modes of fallocate(2).
mod mode {
    pub(super) const KEEP_SIZE: u32 = 1 << 0;
    pub(super) const PUNCH_HOLE: u32 = 1 << 1;
    pub(super) const ZERO_RANGE: u32 = 1 << 4;

    const _: () =
        assert!(KEEP_SIZE & (PUNCH_HOLE | ZERO_RANGE) == 0, "one says how, the others say what");
}
/// `lseek` to the next data, or the next hole.
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// Whether reading a range waits for another disk.
pub(super) fn read_waits(disk: &dyn Disk, range: &Range) -> bool {
    disk.would_wait(range.offset, range.len)
}

/// Whether changing a range waits for another disk. It does if the range begins or ends within a
/// block that must be read from there first.
pub(super) fn change_waits(disk: &dyn Disk, range: &Range) -> bool {
    let block = u64::from(disk.block_size());
    let end = range.offset.saturating_add(range.len);
    [range.offset, end].iter().any(|at| at % block != 0 && disk.would_wait(*at, 1))
}

/// Fills `buffer` up to the end of the disk, and gives how many bytes that were.
pub(super) fn read(disk: &dyn Disk, range: &Range, buffer: &mut [u8]) -> Result<usize, Errno> {
    let len = within(disk, range.offset, buffer.len());
    disk.read(range.offset.min(disk.size_bytes()), &mut buffer[..len])
        .map_err(|e| read_errno(&e))?;
    Ok(len)
}

/// Writes up to the end of the disk, and gives how many bytes that were.
pub(super) fn write(disk: &dyn Disk, range: &Range, data: &[u8]) -> Result<usize, Errno> {
    let len = within(disk, range.offset, data.len());
    if len == 0 && !data.is_empty() {
        return Err(Errno::NOSPC);
    }
    disk.write(range.offset, &data[..len]).map_err(|e| write_errno(&e))?;
    Ok(len)
}

/// Makes a range zeros. Whole pages that are punched out take no memory afterwards. This is not a
/// discard, because every byte of a hole must read as zero, which a discard does not promise.
pub(super) fn allocate(disk: &dyn Disk, range: &Range, how: u32) -> Result<(), Errno> {
    use mode::{KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE};
    let (offset, len) = (range.offset, range.len);
    let zeroes = |keep| disk.write_zeroes(offset, len, keep).map_err(|e| read_errno(&e));
    match how & !KEEP_SIZE {
        PUNCH_HOLE => zeroes(Allocation::MayUnmap),
        ZERO_RANGE => zeroes(Allocation::Keep),
        _ => Err(Errno::OPNOTSUPP),
    }
}

/// The next data, or the next hole, from an offset on. The end of the disk is a hole.
pub(super) fn seek(disk: &dyn Disk, offset: u64, whence: u32) -> Result<u64, Errno> {
    let size = disk.size_bytes();
    if offset >= size {
        return Err(Errno::NXIO);
    }
    let holes = match whence {
        SEEK_DATA => false,
        SEEK_HOLE => true,
        _ => return Err(Errno::INVAL),
    };
    let mut at = offset;
    while at < size {
        let run = disk.next_extent(at, size - at).map_err(|e| read_errno(&e))?;
        if (run.kind == ExtentKind::Hole) == holes {
            return Ok(at);
        }
        at += run.len;
    }
    if holes { Ok(size) } else { Err(Errno::NXIO) }
}

/// Bytes of a request that lie within the disk.
fn within(disk: &dyn Disk, offset: u64, len: usize) -> usize {
    let left = disk.size_bytes().saturating_sub(offset);
    usize::try_from(left).unwrap_or(usize::MAX).min(len)
}

fn read_errno(error: &DiskError) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

fn write_errno(error: &DiskError) -> Errno {
    Errno::from_raw_os_error(error.write_errno())
}

/// The disk of a device that has no size yet: no byte lies within it.
pub(super) struct Empty;

impl Disk for Empty {
    fn size_bytes(&self) -> u64 {
        0
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        disk::check_range(0, offset, buf.len() as u64)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DiskError> {
        disk::check_range(0, offset, data.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use zram::{Memory, MemoryConfig, Selection, Zram, ZramConfig};

    const SIZE: u64 = 1 << 20;

    /// Four pages are stored, and the second was written back.
    fn device() -> Zram {
        let memory = Memory::new(MemoryConfig::for_disk(SIZE)).unwrap();
        let backing = disk::RamDisk::new(SIZE).unwrap();
        let config = ZramConfig::new("zram0", SIZE);
        let zram = Zram::new(memory, ZramConfig { backing: Some(Arc::new(backing)), ..config });
        let zram = zram.unwrap();
        let data: Vec<u8> = (0..4 * 4096_u32).map(|at| ((at * at) >> 7) as u8).collect();
        zram.write(0, &data).unwrap();
        assert_eq!(zram.write_back(&Selection::Pages(vec![1..=1]).into()).unwrap().pages, 1);
        zram
    }

    #[test]
    fn the_disk_of_a_device_without_a_size_is_a_disk() {
        disk::conformance::run_sized("Empty", 0, &|_| Arc::new(Empty));
    }

    /// A program that punches a hole relies on its zeros, which a discard does not promise at the
    /// limit.
    #[test]
    fn a_hole_reads_as_zeros_to_its_last_byte_or_is_refused() {
        let zram = device();
        let range = Range { handle: 0, offset: 100, len: 5000 };
        let punch = || allocate(&zram, &range, mode::PUNCH_HOLE | mode::KEEP_SIZE);
        zram.set_mem_limit(1);
        assert_eq!(punch(), Err(Errno::NOSPC));
        zram.set_mem_limit(0);
        assert_eq!(punch(), Ok(()));
        let mut bytes = [1; 5200];
        zram.read(0, &mut bytes).unwrap();
        assert!(bytes[100..5100].iter().all(|&byte| byte == 0));
        assert!(bytes[..100].iter().any(|&byte| byte != 0));
        let whole = Range { handle: 0, offset: 0, len: 8192 };
        assert_eq!(allocate(&zram, &whole, mode::PUNCH_HOLE), Ok(()));
        let kind = zram.next_extent(0, 8192).unwrap();
        assert_eq!((kind.len, kind.kind), (8192, ExtentKind::Hole), "whole pages take nothing");
    }

    #[test]
    fn what_needs_a_written_back_page_waits_and_nothing_else() {
        let zram = device();
        let range = |&(offset, len)| Range { handle: 0, offset, len };
        let reads = |range| read_waits(&zram, &range);
        let waits = [(4096, 4096), (0, 4097), (4096, 1), (8191, 1), (0, SIZE), (8191, u64::MAX)];
        assert!(waits.iter().map(range).all(reads));
        let none = [(0, 4096), (8192, 8192), (4095, 1), (16384, 9), (SIZE, 4096), (u64::MAX, 1)];
        assert!(!none.iter().map(range).any(reads));
        let changes = |range| change_waits(&zram, &range);
        let waits = [(4100, 10), (0, 4097), (8191, 2), (8191, 1), (4095, 2), (5000, SIZE)];
        assert!(waits.iter().map(range).all(changes), "part of the page is kept");
        let none = [(4096, 4096), (0, 12288), (4095, 1), (8193, 5), (1, 4095), (SIZE, 1)];
        assert!(!none.iter().map(range).any(changes), "nothing of the page is kept");
    }
}
