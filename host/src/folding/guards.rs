//! Pages that are out have guards (`MADV_GUARD_INSTALL`), and their bytes go through a memory file
//! that the range maps.
//!
//! A guard is a mark in the page table. It takes no mapping, and putting one there or taking it
//! away splits none. A page of a memory file stays in the file while its guard stands, so it can be
//! read and written there. The offset of a page in the file is its address, so no two pages that
//! are mapped share one.
//!
//! The memory is shared, so a child that had it would write its parent's pages. No child gets it.
//!
//! Invariant: only the process that made the file changes it. Lock: none.
//!
//! The manual pages are `madvise(2)` and `memfd_create(2)`. Files may have guards from Linux 6.15
//! on.

use super::closing::{CLOSED, Closing};
use super::error::FaultError;
use super::home::Home;
use super::marked::MarkedFile;
use super::transfer::Stop;
use crate::machine::die_at;
use crate::memory::Mapping;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

/// Bytes of the file, of which no more is in memory than was written: past the highest address.
const FILE_BYTES: u64 = 1 << 62; // 4 EiB

/// Bytes of a hole at most. The file is locked while one is made, and pages of other regions that
/// come wait for that.
const HOLE_BYTES: usize = 4 << 20; // 4 MiB

/// Advice to `madvise(2)` that the bindings do not name yet.
const GUARD_INSTALL: libc::c_int = 102;
const GUARD_REMOVE: libc::c_int = 103;

/// A memory file, and the calls that guard parts of its mappings.
#[derive(Debug)]
pub(crate) struct Guards {
    file: MarkedFile,
    maker: Home,
}

impl Guards {
    /// Makes a file, and tries whether a page of it can be guarded.
    pub(crate) fn new() -> Result<Guards, FaultError> {
        let refused = |source| FaultError::Unguarded { source };
        let guards = Guards { file: memory_file().map_err(refused)?, maker: Home::new()? };
        guards.try_page().map_err(refused)?;
        Ok(guards)
    }
}

impl Closing for Guards {
    fn expect_own(&self) -> Result<(), FaultError> {
        if self.maker.is_here() { Ok(()) } else { Err(FaultError::Inherited) }
    }

    fn back(&self, mapping: &Mapping) -> io::Result<()> {
        mapping.share(&self.file)
    }

    fn is_open(&self) -> bool {
        self.file.is_open()
    }

    fn file(&self, address: usize) -> BorrowedFd<'_> {
        if !self.maker.is_here() {
            die_at("a forked child has its parent's folded memory:", address);
        }
        if !self.is_open() {
            die_at(CLOSED, address);
        }
        self.file.as_fd()
    }

    /// The system refuses to guard what is locked, and says "no memory" also if a page is not
    /// mapped.
    fn refusal(&self, error: Errno) -> Stop {
        match error {
            Errno::INVAL => Stop::Busy,
            Errno::NOMEM => Stop::NoMemory,
            error => Stop::Broken(error.raw_os_error()),
        }
    }

    fn next_data(&self, address: usize) -> Option<usize> {
        self.file.next_data(address as u64).and_then(|at| usize::try_from(at).ok())
    }

    unsafe fn try_close(&self, range: &Range<usize>) -> Result<(), Errno> {
        // SAFETY: the caller's contract. The bytes stay in the file.
        unsafe { advise(range, GUARD_INSTALL) }
    }

    unsafe fn open(&self, range: &Range<usize>) -> Result<(), Errno> {
        // SAFETY: the caller's contract.
        unsafe { advise(range, GUARD_REMOVE) }
    }

    unsafe fn discard(&self, range: &Range<usize>) -> Result<(), Errno> {
        if !self.maker.is_here() || !self.is_open() {
            return Err(Errno::BADF);
        }
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        range.clone().step_by(HOLE_BYTES).try_for_each(|start| {
            let (file, len) = (self.file.number(), HOLE_BYTES.min(range.end - start));
            // Not by `fallocate`, where a thread may be cancelled.
            // SAFETY: the caller's contract.
            answer(unsafe { libc::syscall(libc::SYS_fallocate, file, mode, start, len) })
        })
    }

    unsafe fn empty(&self, range: &Range<usize>) {
        // If the program has closed the file, its memory goes with the last mapping.
        // SAFETY: the caller's contract.
        let _ = unsafe { self.discard(range) };
    }
}

/// # Safety
///
/// Those of [`Closing::try_close`] and [`Closing::open`].
unsafe fn advise(range: &Range<usize>, advice: libc::c_int) -> Result<(), Errno> {
    let start = std::ptr::without_provenance_mut(range.start);
    // SAFETY: the caller's contract.
    answer(unsafe { libc::madvise(start, range.len(), advice) }.into())
}

fn answer(returned: libc::c_long) -> Result<(), Errno> {
    match returned {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// A memory file as long as there are addresses.
fn memory_file() -> io::Result<MarkedFile> {
    if getrlimit(Resource::Fsize).current.is_some() {
        // Otherwise the system would send a SIGXFSZ.
        return Err(io::Error::other(
            "RLIMIT_FSIZE is set, and a file for memory is as long as there are addresses (raise \
             it, by `ulimit -f unlimited`)",
        ));
    }
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL;
    let file = memfd_create("ramfold", flags)?;
    ftruncate(&file, FILE_BYTES)?;
    Ok(MarkedFile::new(file)?)
}
