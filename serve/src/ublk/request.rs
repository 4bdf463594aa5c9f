//! One request of the kernel: what it asks for, doing it, and the number that answers it.
//!
//! | operation | does | number |
//! |---|---|---|
//! | `READ`, `WRITE` | reads, writes, a piece after the other | bytes |
//! | `FLUSH` | flushes | 0 |
//! | `DISCARD` | discards | 0 |
//! | `WRITE_ZEROES` | zeroes, as a hole unless `NOUNMAP` is set | 0 |
//! | any other | nothing | `-EOPNOTSUPP` |
//!
//! What a disk refuses is answered with its error number. A program that reads sees that number as
//! far as the block layer knows it: a damaged page is EIO, and a full store ENOSPC.
//!
//! Invariants
//! - A request costs one piece of memory, whatever its length.
//! - A read whose pages are not all good is an error as a whole.
//!
//! Locks: the disk's.

use super::parameters::SECTOR;
use crate::doors::{Buffer, pieces};
use disk::{Allocation, Disk, DiskError, check_range};
use host::{UblkQueue, UblkRequest};
use rustix::io::Errno;
use std::io;

const READ: u8 = 0;
const WRITE: u8 = 1;
const FLUSH: u8 = 2;
const DISCARD: u8 = 3;
const WRITE_ZEROES: u8 = 5;
/// The flag of zeroes that must keep their place.
const NO_UNMAP: u32 = 1 << 15;
const _: () = assert!(NO_UNMAP > u8::MAX as u32, "a flag is beside the operation");

/// What a request asks for.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    /// The operation in its first 8 bits, and flags.
    pub(super) op_flags: u32,
    pub(super) sectors: u32,
    pub(super) start_sector: u64,
}

/// Where the data of a request is.
pub(super) trait Data {
    /// Fills `data` with what is to be written, from byte `at` of the request on.
    fn take(&self, at: u64, data: &mut [u8]) -> io::Result<()>;
    /// Puts `data` where it was read for.
    fn put(&self, at: u64, data: &[u8]) -> io::Result<()>;
}

/// Data of the kernel.
pub(super) struct OfKernel<'a>(pub(super) &'a UblkQueue, pub(super) &'a UblkRequest);

impl Data for OfKernel<'_> {
    fn take(&self, at: u64, data: &mut [u8]) -> io::Result<()> {
        self.0.take(self.1, at, data)
    }

    fn put(&self, at: u64, data: &[u8]) -> io::Result<()> {
        self.0.put(self.1, at, data)
    }
}

impl From<&UblkRequest> for Asked {
    fn from(request: &UblkRequest) -> Self {
        let UblkRequest { op_flags, sectors, start_sector, .. } = *request;
        Self { op_flags, sectors, start_sector }
    }
}

/// Does a request, and gives the number that answers it.
pub(super) fn answer(disk: &dyn Disk, asked: Asked, data: &impl Data, piece: &mut Buffer) -> i32 {
    perform(disk, asked, data, piece).unwrap_or_else(|errno| -errno.raw_os_error())
}

fn perform(
    disk: &dyn Disk,
    asked: Asked,
    data: &impl Data,
    piece: &mut Buffer,
) -> Result<i32, Errno> {
    let len = u64::from(asked.sectors) * SECTOR;
    // A flush is about no range: its sector is the highest number.
    let offset = || asked.start_sector.checked_mul(SECTOR).ok_or(Errno::INVAL);
    match asked.op_flags as u8 {
        READ => read(disk, offset()?, len, data, piece),
        WRITE => write(disk, offset()?, len, data, piece),
        FLUSH => disk.flush().map(|()| 0).map_err(of_other),
        DISCARD => disk.discard(offset()?, len).map(|()| 0).map_err(of_other),
        WRITE_ZEROES => {
            let keep = match asked.op_flags & NO_UNMAP {
                0 => Allocation::MayUnmap,
                _ => Allocation::Keep,
            };
            disk.write_zeroes(offset()?, len, keep).map(|()| 0).map_err(of_write)
        }
        _ => Err(Errno::OPNOTSUPP),
    }
}

fn read(
    disk: &dyn Disk,
    offset: u64,
    len: u64,
    data: &impl Data,
    piece: &mut Buffer,
) -> Result<i32, Errno> {
    let bytes = i32::try_from(len).map_err(|_| Errno::INVAL)?;
    check_range(disk.size_bytes(), offset, len).map_err(of_other)?;
    for (from, len) in pieces(offset, len) {
        let piece = room(piece, len)?;
        disk.read(from, piece).map_err(of_other)?;
        data.put(from - offset, piece).map_err(of_system)?;
    }
    Ok(bytes)
}

fn write(
    disk: &dyn Disk,
    offset: u64,
    len: u64,
    data: &impl Data,
    piece: &mut Buffer,
) -> Result<i32, Errno> {
    let bytes = i32::try_from(len).map_err(|_| Errno::INVAL)?;
    check_range(disk.size_bytes(), offset, len).map_err(of_write)?;
    for (from, len) in pieces(offset, len) {
        let piece = room(piece, len)?;
        data.take(from - offset, piece).map_err(of_system)?;
        disk.write(from, piece).map_err(of_write)?;
    }
    Ok(bytes)
}

fn of_write(error: DiskError) -> Errno {
    Errno::from_raw_os_error(error.write_errno())
}

fn of_other(error: DiskError) -> Errno {
    Errno::from_raw_os_error(error.errno())
}

fn of_system(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

fn room(piece: &mut Buffer, len: usize) -> Result<&mut [u8], Errno> {
    piece.reserve().map_err(|_| Errno::NOMEM)?;
    piece.touch(len);
    piece.bytes_mut().get_mut(..len).ok_or(Errno::NOMEM)
}

#[cfg(test)]
mod tests {
    use super::*;
    use disk::{RamDisk, ReadOnly};
    use std::cell::RefCell;
    use std::sync::Arc;

    /// Data in memory.
    struct Memory(RefCell<Vec<u8>>);

    impl Data for Memory {
        fn take(&self, at: u64, data: &mut [u8]) -> io::Result<()> {
            let memory = self.0.borrow();
            let from = memory.get(at as usize..at as usize + data.len()).ok_or(Errno::INVAL)?;
            data.copy_from_slice(from);
            Ok(())
        }

        fn put(&self, at: u64, data: &[u8]) -> io::Result<()> {
            let mut memory = self.0.borrow_mut();
            let to = memory.get_mut(at as usize..at as usize + data.len()).ok_or(Errno::INVAL)?;
            to.copy_from_slice(data);
            Ok(())
        }
    }

    fn ask(disk: &dyn Disk, op_flags: u32, start_sector: u64, data: &mut Vec<u8>) -> i32 {
        let sectors = (data.len() / 512) as u32;
        let memory = Memory(RefCell::new(std::mem::take(data)));
        let mut piece = Buffer::new(crate::terms::limits::PIECE, Arc::default());
        let asked = Asked { op_flags, sectors, start_sector };
        let answer = answer(disk, asked, &memory, &mut piece);
        *data = memory.0.into_inner();
        answer
    }

    #[test]
    fn requests_change_exactly_their_sectors() {
        let disk = RamDisk::new(4 << 20).unwrap();
        let mut written: Vec<u8> = (0..1 << 20).map(|at| (at % 251) as u8).collect();
        assert_eq!(ask(&disk, WRITE.into(), 3, &mut written.clone()), 1 << 20, "several pieces");
        let mut read = vec![0; 1 << 20];
        assert_eq!(ask(&disk, READ.into(), 3, &mut read), 1 << 20);
        assert!(read == written);
        assert_eq!(ask(&disk, FLUSH.into(), u64::MAX, &mut Vec::new()), 0, "as the kernel asks");
        for operation in [DISCARD.into(), WRITE_ZEROES.into(), u32::from(WRITE_ZEROES) | NO_UNMAP] {
            assert_eq!(ask(&disk, WRITE.into(), 8, &mut vec![7; 4096]), 4096);
            assert_eq!(ask(&disk, operation, 8, &mut vec![0; 4096]), 0);
            written[5 * 512..13 * 512].fill(0);
            assert_eq!(ask(&disk, READ.into(), 3, &mut read), 1 << 20);
            assert!(read == written, "operation {operation}");
        }
    }

    #[test]
    fn what_cannot_be_done_has_its_error_number() {
        let disk = RamDisk::new(8192).unwrap();
        let page = || vec![0; 4096];
        let rows = [
            (READ.into(), 16, Errno::INVAL),
            (WRITE.into(), 16, Errno::NOSPC),
            (DISCARD.into(), 16, Errno::INVAL),
            (WRITE_ZEROES.into(), 16, Errno::NOSPC),
            (READ.into(), u64::MAX, Errno::INVAL),
            (READ.into(), u64::MAX / 512, Errno::INVAL),
            (4, 0, Errno::OPNOTSUPP),
            (255, 0, Errno::OPNOTSUPP),
        ];
        for (operation, sector, errno) in rows {
            let answer = ask(&disk, operation, sector, &mut page());
            assert_eq!(answer, -errno.raw_os_error(), "operation {operation} at {sector}");
        }
        let disk = ReadOnly::new(disk);
        assert_eq!(ask(&disk, WRITE.into(), 0, &mut page()), -Errno::PERM.raw_os_error());
        assert_eq!(ask(&disk, READ.into(), 0, &mut page()), 4096);
    }
}
