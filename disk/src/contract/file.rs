//! A file, or a block device, as a disk.
//!
//! ```text
//!   read, write       pread, pwrite                        through the page cache
//!   discard           fallocate, a hole punched   \  if the file system can do neither,
//!   write_zeroes      fallocate, or a hole        /  zeros are written
//!   next_extent       lseek to data, to the hole           a device is data everywhere
//! ```
//!
//! Invariants
//! - I1 through this type, only clones of one disk have the file or device open. A file is locked
//!   (flock). A device is opened for exclusive use, so one that is mounted or lies under a loop
//!   device is refused. If a loop device is opened, the file under it is locked too (see `loops`).
//! - I2 its size is fixed when it is opened. If the file is shortened later, reads past its end are
//!   errors, and never zeros that were not written.
//!
//! No locks of its own.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Advice, FallocateFlags, SeekFrom};
use rustix::io::Errno;

use super::Disk;
use super::error::DiskError;
use super::extent::{Allocation, Extent, ExtentKind};
use super::loops::{claim_under, loops_over_opened};
use super::open::{invalid, open_alone};
use super::range::check_range;

/// Bytes of zeros written at a time if the file system offers no other way.
const ZEROS: usize = 64 << 10; // 64 KiB

/// A file or block device that no other process can open while this or a clone of it lives.
#[derive(Clone, Debug)]
pub struct FileDisk {
    file: Arc<File>,
    /// The files and devices under it, which are locked as well.
    _under: Arc<[File]>,
    size_bytes: u64,
    read_only: bool,
    is_device: bool,
}

impl FileDisk {
    /// Opens a file or a block device that exists. Its length is the disk's size.
    ///
    /// # Errors
    ///
    /// - the errors of opening it
    /// - `ResourceBusy` if another process uses it, or uses the file under a loop device; and if it
    ///   is opened to be written while a loop device is over it
    /// - `InvalidInput` if it is neither a file nor a block device, or is empty
    pub fn open(path: &Path, read_only: bool) -> io::Result<FileDisk> {
        let file = open_alone(path, read_only)?;
        let metadata = file.metadata()?;
        let is_device = metadata.file_type().is_block_device();
        // It is claimed first and examined afterwards. So if two processes come at once, one of
        // them notices the other.
        let under = if is_device { claim_under(&metadata, read_only)? } else { Vec::new() };
        if !read_only {
            refuse_looped(path, &metadata)?;
        }
        let size_bytes = rustix::fs::seek(&file, SeekFrom::End(0))?;
        if size_bytes == 0 {
            return Err(invalid("it is empty, and a disk is as large as its file"));
        }
        Ok(FileDisk { file: file.into(), _under: under.into(), size_bytes, read_only, is_device })
    }

    /// Whether it is a block device.
    pub fn is_device(&self) -> bool {
        self.is_device
    }

    fn check_change(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        if self.read_only {
            return Err(DiskError::ReadOnly);
        }
        check_range(self.size_bytes, offset, len)
    }

    /// Makes a range read as zeros. It uses the first of `ways` that works, and writes zeros if
    /// none does.
    fn zero(&self, offset: u64, len: u64, ways: &[FallocateFlags]) -> Result<(), DiskError> {
        if len == 0 {
            return Ok(());
        }
        for &way in ways {
            match rustix::fs::fallocate(&self.file, way, offset, len) {
                Ok(()) => return Ok(()),
                // A device takes only whole blocks, and some file systems take nothing.
                Err(Errno::OPNOTSUPP | Errno::INVAL | Errno::NOSYS | Errno::PERM) => {}
                Err(error) => return Err(failed(error.into())),
            }
        }
        self.write_zeros(offset, len)
    }

    fn write_zeros(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        let zeros = [0; ZEROS];
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let piece = (end - at).min(ZEROS as u64) as usize;
            self.file.write_all_at(&zeros[..piece], at).map_err(failed)?;
            at += piece as u64;
        }
        Ok(())
    }

    /// Fails if the file was shortened, because the missing part is not a hole.
    fn check_length(&self) -> Result<(), DiskError> {
        let length =
            rustix::fs::seek(&self.file, SeekFrom::End(0)).map_err(|e| failed(e.into()))?;
        if length < self.size_bytes {
            return Err(failed(io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(())
    }

    /// The offset of the next data, or hole, at `offset` or behind it. The end if there is none.
    fn find(&self, whence: fn(u64) -> SeekFrom, offset: u64) -> Result<u64, DiskError> {
        match rustix::fs::seek(&self.file, whence(offset)) {
            Ok(found) => Ok(found.min(self.size_bytes)),
            Err(Errno::NXIO) => self.check_length().map(|()| self.size_bytes),
            Err(error) => Err(failed(error.into())),
        }
    }
}

impl Disk for FileDisk {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read_only(&self) -> bool {
        self.read_only
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        check_range(self.size_bytes, offset, buf.len() as u64)?;
        self.file.read_exact_at(buf, offset).map_err(failed)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DiskError> {
        self.check_change(offset, data.len() as u64)?;
        self.file.write_all_at(data, offset).map_err(failed)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.check_change(offset, len)?;
        self.zero(offset, len, &[HOLE])
    }

    fn write_zeroes(&self, offset: u64, len: u64, keep: Allocation) -> Result<(), DiskError> {
        self.check_change(offset, len)?;
        match keep {
            Allocation::Keep => self.zero(offset, len, &[FallocateFlags::ZERO_RANGE]),
            Allocation::MayUnmap => self.zero(offset, len, &[HOLE, FallocateFlags::ZERO_RANGE]),
        }
    }

    fn prefetch(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        check_range(self.size_bytes, offset, len)?;
        if let Some(len) = std::num::NonZeroU64::new(len) {
            // If the system ignores the advice, that is no failure.
            let _ = rustix::fs::fadvise(&self.file, offset, Some(len), Advice::WillNeed);
        }
        Ok(())
    }

    fn would_wait(&self, offset: u64, len: u64) -> bool {
        len > 0 && check_range(self.size_bytes, offset, len).is_ok()
    }

    fn file(&self) -> Option<FileDisk> {
        Some(self.clone())
    }

    fn flush(&self) -> Result<(), DiskError> {
        self.file.sync_data().map_err(failed)
    }

    fn next_extent(&self, offset: u64, len: u64) -> Result<Extent, DiskError> {
        check_range(self.size_bytes, offset, len)?;
        if self.is_device || len == 0 {
            return Ok(Extent { len, kind: ExtentKind::Data });
        }
        let data = self.find(SeekFrom::Data, offset)?;
        if data > offset {
            return Ok(Extent { len: (data - offset).min(len), kind: ExtentKind::Hole });
        }
        let hole = self.find(SeekFrom::Hole, offset)?;
        Ok(Extent { len: hole.saturating_sub(offset).clamp(1, len), kind: ExtentKind::Data })
    }
}

const HOLE: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

/// Refuses a file that is under a loop device. The device may be mounted, and no lock on the file
/// says so.
fn refuse_looped(path: &Path, file: &Metadata) -> io::Result<()> {
    let loops = loops_over_opened(path, file)?;
    let Some(name) = loops.first() else { return Ok(()) };
    let why = format!("/dev/{name} is over it; losetup --detach ends that");
    Err(io::Error::new(io::ErrorKind::ResourceBusy, why))
}

/// To the client, a full file system is "no space". Any other error is a failure of the disk.
fn failed(error: io::Error) -> DiskError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => DiskError::NoSpace,
        _ => DiskError::Backing(error),
    }
}
