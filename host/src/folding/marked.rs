//! A file of ours that is told from any other one that may have its number.
//!
//! ```text
//!   close(7)          by a program that closes all its descriptors
//!   open(..) = 7      its own file, which must not get pages
//! ```
//!
//! Nothing here reads or writes at the position of the file, so the position can be a mark. To ask
//! for it touches less than to ask for the status, which took a microsecond where each page comes
//! at random. If the mark is not there, the status decides.
//!
//! Invariant: a file that is taken for ours is ours. Lock: none.

use rustix::fs::{SeekFrom, fstat, seek};
use rustix::io::Errno;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// The position. No file that is read or written in order comes there.
const MARK: u64 = 0x3261_6d66_6f6c_6421;

/// A descriptor, and what tells its file.
#[derive(Debug)]
pub(super) struct MarkedFile {
    file: OwnedFd,
    /// The file system.
    device: u64,
    /// The number of the file there.
    inode: AtomicU64,
}

impl MarkedFile {
    /// Marks a file.
    pub(super) fn new(file: OwnedFd) -> Result<MarkedFile, Errno> {
        seek(&file, SeekFrom::Start(MARK))?;
        let status = fstat(&file)?;
        Ok(MarkedFile { file, device: status.st_dev, inode: AtomicU64::new(status.st_ino) })
    }

    /// Whether the descriptor still is the file.
    pub(super) fn is_open(&self) -> bool {
        // relaxed: a thread that needs the number of a later file has seen that it was put here.
        let inode = self.inode.load(Ordering::Relaxed);
        let is_the_file =
            |status: rustix::fs::Stat| (status.st_dev, status.st_ino) == (self.device, inode);
        seek(&self.file, SeekFrom::Current(0)) == Ok(MARK)
            || fstat(&self.file).is_ok_and(is_the_file)
    }

    /// Where the file has data next, from `at` on. The mark is away meanwhile.
    pub(super) fn next_data(&self, at: u64) -> Option<u64> {
        let next = seek(&self.file, SeekFrom::Data(at)).ok();
        // If this fails, the status decides from now on.
        let _ = self.is_open() && seek(&self.file, SeekFrom::Start(MARK)).is_ok();
        next
    }

    /// Puts another file of the same file system under the number of this one. May be called in a
    /// signal handler.
    pub(super) fn replace(&self, other: MarkedFile) -> Result<(), Errno> {
        let (from, to) = (other.number(), self.number());
        // SAFETY: the number is this value's, and stays open.
        if unsafe { libc::dup3(from, to, libc::O_CLOEXEC) } < 0 {
            return Err(Errno::MFILE);
        }
        // relaxed: the caller publishes it.
        self.inode.store(other.inode.into_inner(), Ordering::Relaxed);
        Ok(())
    }

    /// The descriptor's number.
    pub(super) fn number(&self) -> libc::c_int {
        self.file.as_raw_fd()
    }
}

impl AsFd for MarkedFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
