//! Pages that are out have guards (`MADV_GUARD_INSTALL`), and their bytes go through a memory file
//! that the range maps.
//!
//! A guard is a mark in the page table. It takes no mapping, and putting one there or taking it
//! away splits none. A page of a memory file stays in the file while its guard stands, so it can be
//! read and written there. The offset of a page in the file is its address, so no two pages that
//! are mapped share one.
//!
//! The memory is shared, so a child that had it would write its parent's pages. No child gets it,
//! and the file does not stay with a child that outlives its parent.
//!
//! Invariant: only the process that made the file changes it. Lock: none.
//!
//! The manual pages are `madvise(2)` and `memfd_create(2)`. Files may have guards from Linux 6.15
//! on.

use super::closing::{CLOSED, Closing, page_to_try};
use super::error::{FaultError, unless_exhausted};
use super::home::Home;
use super::marked::MarkedFile;
use super::transfer::Stop;
use crate::machine::{PAGE_SIZE, die_at};
use crate::memory::{Access, Core, Mapping};
use rustix::fs::{MemfdFlags, fstat, ftruncate, memfd_create};
use rustix::io::{Errno, pwrite};
use rustix::process::{Resource, getrlimit};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Bytes of the file, of which no more is in memory than was written: past the highest address.
const FILE_BYTES: u64 = 1 << 62; // 4 EiB

/// Bytes of a hole at most. The file is locked while one is made, and pages of other regions that
/// come wait for that.
const HOLE_BYTES: usize = 4 << 20; // 4 MiB

/// Where a file is tried: at the start of a huge page, past any address.
const TRIED_AT: u64 = FILE_BYTES / 2; // 2 EiB

/// Pages that are written at once there, as many as come at once at most.
const TRIED_PAGES: usize = 64;

/// Bytes of a block, by which `fstat(2)` counts.
const BLOCK_BYTES: i64 = 512;

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
        let refused = unless_exhausted(|source| FaultError::Unguarded { source });
        let file = MarkedFile::new(memory_file().map_err(&refused)?);
        let guards =
            Guards { file: file.map_err(|error| refused(error.into()))?, maker: Home::new()? };
        guards.try_page(page_to_try()?).map_err(&refused)?;
        let zeros = Mapping::reserve(TRIED_PAGES, Access::Zeros, Core::LeftOut)?;
        expect_small_pages(guards.file.as_fd(), &zeros).map_err(refused)?;
        Ok(guards)
    }
}

impl Guards {
    /// Discards what the file has of a range, which may be large and mostly empty.
    ///
    /// # Safety
    ///
    /// Those of [`Closing::discard`].
    unsafe fn try_empty(&self, range: &Range<usize>) -> Result<(), Errno> {
        let mut at = range.start;
        while let Some(data) = self.next_data(at).filter(|&data| data < range.end) {
            at = range.end.min(data + HOLE_BYTES);
            // SAFETY: the caller's contract.
            unsafe { self.discard(&(data..at))? };
        }
        Ok(())
    }
}

impl Closing for Guards {
    fn expect_own(&self) -> Result<(), FaultError> {
        if self.maker.is_here() { Ok(()) } else { Err(FaultError::Inherited) }
    }

    /// The file may still have bytes of an earlier span there, if the system refused to take them.
    fn back(&self, mapping: Mapping) -> io::Result<Mapping> {
        self.is_open().then_some(()).ok_or(Errno::BADF)?;
        // SAFETY: nothing refers to a new mapping.
        unsafe { self.try_empty(&mapping.range())? };
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

    fn let_go(&self) {
        if !self.maker.is_here() {
            self.file.let_go();
        }
    }

    fn next_data(&self, address: usize) -> Option<usize> {
        if !self.maker.is_here() {
            return None;
        }
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
        range.clone().step_by(HOLE_BYTES).try_for_each(|start| {
            if !self.maker.is_here() || !self.is_open() {
                return Err(Errno::BADF);
            }
            let len = HOLE_BYTES.min(range.end - start);
            // SAFETY: the caller's contract.
            unsafe { make_hole(self.file.as_fd(), start, len) }
        })
    }

    unsafe fn empty(&self, range: &Range<usize>) {
        // If the program has closed the file, its memory goes with the last mapping.
        // SAFETY: the caller's contract.
        let _ = unsafe { self.try_empty(range) };
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

/// Makes a hole in a file. What is mapped of it reads as zeros.
///
/// # Safety
///
/// Those of [`Closing::discard`], for what is mapped of it.
unsafe fn make_hole(file: BorrowedFd<'_>, start: usize, len: usize) -> Result<(), Errno> {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    // Not by `fallocate`, where a thread may be cancelled.
    // SAFETY: the caller's contract.
    answer(unsafe { libc::syscall(libc::SYS_fallocate, file.as_raw_fd(), mode, start, len) })
}

/// Checks that pages of a file get and give back their memory one by one. A system that keeps such
/// files in huge pages would take 2 MiB for a page that comes, and keep them when it leaves. Nobody
/// would count that.
fn expect_small_pages(file: BorrowedFd<'_>, zeros: &Mapping) -> io::Result<()> {
    let expect = |pages: usize| {
        let bytes = fstat(file)?.st_blocks * BLOCK_BYTES;
        if bytes == (pages * PAGE_SIZE) as i64 {
            return Ok(());
        }
        Err(io::Error::other(
            "the system keeps files of memory in huge pages, which cannot leave one by one (write \
             `never` or `advise` to /sys/kernel/mm/transparent_hugepage/shmem_enabled)",
        ))
    };
    let bytes = zeros.range().len();
    // SAFETY: the mapping may be read, and nothing writes it.
    let zeros = unsafe { std::slice::from_raw_parts(zeros.base().as_ptr(), bytes) };
    // Nothing is mapped there. SAFETY: so nothing refers to it.
    let hole = |at, len| unsafe { make_hole(file, TRIED_AT as usize + at, len) };
    let mut written = 0;
    while written < bytes {
        written += pwrite(file, &zeros[written..], TRIED_AT + written as u64)?;
    }
    expect(TRIED_PAGES)?;
    hole(PAGE_SIZE, PAGE_SIZE)?;
    expect(TRIED_PAGES - 1)?;
    hole(0, bytes)?;
    pwrite(file, &zeros[..PAGE_SIZE], TRIED_AT)?;
    expect(1)?;
    Ok(hole(0, PAGE_SIZE)?)
}

/// A memory file as long as there are addresses.
fn memory_file() -> io::Result<OwnedFd> {
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
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;
    use std::ptr::null;

    /// What the check says of a file of a file system that is mounted with an option. This thread
    /// alone sees the mount. `None` if the system refuses that.
    fn says_of(option: &CStr) -> Option<io::Result<()>> {
        let (private, kind) = (libc::MS_PRIVATE | libc::MS_REC, c"tmpfs".as_ptr());
        // SAFETY: the mounts of this thread alone, and strings that outlive the calls.
        let mounted = unsafe {
            libc::unshare(libc::CLONE_NEWNS) == 0
                && libc::mount(null(), c"/".as_ptr(), null(), private, null()) == 0
                && libc::mount(kind, c"/mnt".as_ptr(), kind, 0, option.as_ptr().cast()) == 0
        };
        if !mounted {
            return None;
        }
        let file = std::fs::File::create_new("/mnt/file").expect("a file");
        let pages = Mapping::reserve(TRIED_PAGES, Access::Zeros, Core::LeftOut).expect("pages");
        ftruncate(&file, FILE_BYTES).expect("a file has holes");
        Some(expect_small_pages(file.as_fd(), &pages))
    }

    #[test]
    fn a_system_with_huge_pages_in_files_is_refused_with_that_reason() {
        let says = |option| {
            std::thread::scope(|scope| scope.spawn(move || says_of(option)).join().expect("a word"))
        };
        let (Some(small), Some(huge)) = (says(c"huge=never"), says(c"huge=always")) else {
            return eprintln!("skipped: needs the right to mount, and huge pages");
        };
        small.expect("page by page");
        assert!(huge.expect_err("2 MiB for a page").to_string().contains("shmem_enabled"));
    }
}
