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
//! Each file has a mark of its own, because the number may be that of another file of ours by now.
//!
//! Invariant: a file that is taken for ours is ours. Lock: none.

use rustix::fs::{Mode, OFlags, SeekFrom, fstat, open, seek};
use rustix::io::Errno;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Marks lie from here up to twice this. No file that is read or written in order comes there.
const MARKS: u64 = 1 << 61;

/// Files that were marked so far.
static MARKED: AtomicU64 = AtomicU64::new(0);

/// A descriptor, and what tells its file.
#[derive(Debug)]
pub(super) struct MarkedFile {
    file: OwnedFd,
    /// The file system.
    device: u64,
    /// The number of the file there.
    inode: AtomicU64,
    /// The position.
    mark: AtomicU64,
}

impl MarkedFile {
    /// Marks a file.
    pub(super) fn new(file: OwnedFd) -> Result<MarkedFile, Errno> {
        let status = fstat(&file)?;
        // relaxed: a count.
        let mark = mark(status.st_dev, status.st_ino, MARKED.fetch_add(1, Ordering::Relaxed));
        seek(&file, SeekFrom::Start(mark))?;
        let (inode, mark) = (AtomicU64::new(status.st_ino), AtomicU64::new(mark));
        Ok(MarkedFile { file, device: status.st_dev, inode, mark })
    }

    /// Whether the descriptor still is the file.
    pub(super) fn is_open(&self) -> bool {
        // relaxed: a thread that needs those of a later file has seen that it was put here.
        let (inode, mark) = (self.inode.load(Ordering::Relaxed), self.mark.load(Ordering::Relaxed));
        let is_the_file =
            |status: rustix::fs::Stat| (status.st_dev, status.st_ino) == (self.device, inode);
        seek(&self.file, SeekFrom::Current(0)) == Ok(mark)
            || fstat(&self.file).is_ok_and(is_the_file)
    }

    /// Where the file has data next, from `at` on; `None` also if it is not open. The mark is away
    /// meanwhile.
    pub(super) fn next_data(&self, at: u64) -> Option<u64> {
        if !self.is_open() {
            return None;
        }
        let next = seek(&self.file, SeekFrom::Data(at)).ok();
        // If this fails, the status decides from now on.
        // relaxed: as in `is_open`.
        let _ = seek(&self.file, SeekFrom::Start(self.mark.load(Ordering::Relaxed)));
        next
    }

    /// Lets go of the file, and keeps its number: something that is always there gets it. May be
    /// called in a forked child that was in the middle of anything. If the system refuses, the file
    /// stays.
    pub(super) fn let_go(&self) {
        if !self.is_open() {
            return;
        }
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        if let Ok(root) = open(c"/", flags, Mode::empty()) {
            // SAFETY: the number is this value's, and stays open.
            unsafe { libc::dup3(root.as_raw_fd(), self.number(), libc::O_CLOEXEC) };
        }
    }

    /// Puts another file of the same file system under the number of this one. May be called in a
    /// signal handler.
    pub(super) fn replace(&self, other: MarkedFile) -> Result<(), Errno> {
        let (from, to) = (other.number(), self.number());
        // SAFETY: the number is this value's, and stays open.
        if unsafe { libc::dup3(from, to, libc::O_CLOEXEC) } < 0 {
            return Err(Errno::MFILE);
        }
        // relaxed: the caller publishes both.
        self.inode.store(other.inode.into_inner(), Ordering::Relaxed);
        self.mark.store(other.mark.into_inner(), Ordering::Relaxed);
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

/// The mark of the file that is the `count`th of this process.
fn mark(device: u64, inode: u64, count: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (device, inode, count).hash(&mut hasher);
    MARKS + hasher.finish() % MARKS
}
