//! Pages that leave and come back without a userfaultfd: their range is closed, and their bytes go
//! through a file.
//!
//! ```text
//!   out   close ---> pread ---> discard      from the first step on, a touch is a SIGSEGV,
//!   in    pwrite ---> open                   until the last step is done
//! ```
//!
//! The file shows the bytes of a page at the page's address, also while the page is closed. So no
//! thread ever sees a page that is filled in part.
//!
//! Callers own the mappings, and check the addresses and lengths that reach this file.
//!
//! Invariant: bytes move by a file that shows the memory of this very process. Lock: none here.

use super::error::FaultError;
use super::transfer::{Stop, Transfer};
use crate::machine::{PAGE_SIZE, die_at};
use crate::memory::{Access, Core, HostError, Mapping};
use rustix::io::{Errno, pread, pwrite};
use rustix::mm::{Advice, madvise};
use std::fmt::Debug;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

/// A way to close pages, and the file that shows them.
pub(crate) trait Closing: Debug + Send + Sync {
    /// An error in a child that was forked since this was made.
    fn expect_own(&self) -> Result<(), FaultError>;

    /// Makes a new mapping show the file's bytes, if private memory does not. It reads as zeros.
    fn back(&self, mapping: Mapping) -> io::Result<Mapping>;

    /// Whether the descriptor still is the file. A program that closes all its descriptors closes
    /// this one too, and may get its number for a file of its own.
    fn is_open(&self) -> bool;

    /// The file's descriptor, for a page at `address`. Ends the process if it is not the file any
    /// more: bytes must not go elsewhere.
    fn file(&self, address: usize) -> BorrowedFd<'_>;

    /// What a refusal to close or to open pages means.
    fn refusal(&self, error: Errno) -> Stop;

    /// Where the file has contents next, from `address` on, if it has its own.
    fn next_data(&self, address: usize) -> Option<usize>;

    /// Closes a range that is open as a whole. If this fails, a part of it may be closed.
    ///
    /// # Safety
    ///
    /// Those of `close`.
    unsafe fn try_close(&self, range: &Range<usize>) -> Result<(), Errno>;

    /// Opens a range: its pages may be read and written from now on.
    ///
    /// # Safety
    ///
    /// - The range is whole pages of a mapping of ours.
    /// - A reader of it through a reference finds the bytes there that the reference promises.
    unsafe fn open(&self, range: &Range<usize>) -> Result<(), Errno>;

    /// Discards the contents of a range.
    ///
    /// # Safety
    ///
    /// - The range is whole pages of a mapping of ours.
    /// - There is no reference to it, or it is closed, and gets the bytes that a reference to it
    ///   promises before it is opened.
    unsafe fn discard(&self, range: &Range<usize>) -> Result<(), Errno>;

    /// Gives back what the file has of a range that is not mapped any more, or soon will not be.
    ///
    /// # Safety
    ///
    /// - The range is whole pages of a mapping of ours, and there is no reference to it.
    unsafe fn empty(&self, range: &Range<usize>);

    /// Lets go of the file in a forked child that does not have the pages.
    fn let_go(&self);

    /// Tries whether a page of `mapping`, which is new, can be written and read through the file
    /// while it is closed.
    fn try_page(&self, mapping: Mapping) -> io::Result<()> {
        let mapping = self.back(mapping)?;
        let (range, written, mut found) = (mapping.range(), [0x5a; 64], [0; 64]);
        // SAFETY: the page is this function's, and nothing refers to it.
        unsafe { self.try_close(&range)? };
        pwrite(self.file(range.start), &written, range.start as u64)?;
        pread(self.file(range.start), &mut found, range.start as u64)?;
        // SAFETY: as above.
        unsafe { self.discard(&range)? };
        if found == written { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// Closes a range that is open as a whole: from now on a touch of it is a SIGSEGV. If this
    /// fails, all of it is open again.
    ///
    /// # Safety
    ///
    /// - The range is whole pages of a mapping of ours.
    /// - A reader of it through a reference waits in the handler until the range is open again, and
    ///   finds the bytes there that the reference promises.
    unsafe fn close(&self, range: &Range<usize>) -> Result<(), Errno> {
        // SAFETY: the caller's contract.
        unsafe { self.try_close(range) }.inspect_err(|_| {
            // SAFETY: as above; the bytes are as they were.
            if unsafe { self.open(range) }.is_err() {
                die_at(UNMAPPED, range.start);
            }
        })
    }

    /// Puts copies of the pages at `src` in the place of closed pages at `dst`, and opens these.
    ///
    /// # Safety
    ///
    /// - `src` is readable for `pages` pages.
    /// - `dst` is as many closed pages of a mapping of ours. A reader of them through a reference
    ///   finds the bytes there that the reference promises.
    unsafe fn copy_in(&self, dst: usize, src: usize, pages: usize) -> Transfer {
        let written = copied(pages, |done| {
            let (to, from) = (dst + done * PAGE_SIZE, src + done * PAGE_SIZE);
            // SAFETY: the caller's contract, for the pages that are not done yet.
            unsafe { write(self.file(to), to, from, pages - done) }
        });
        if written.stop == Some(Stop::Broken(Errno::FBIG.raw_os_error())) {
            die_at(LIMITED, dst);
        }
        let range = dst..dst + written.pages * PAGE_SIZE;
        // SAFETY: the caller's contract: the bytes are there.
        let opened = unsafe { self.open(&range) };
        let Err(error) = opened else { return written };
        // The pages stay closed. The memory that they got goes back, because nobody counts it.
        // SAFETY: they get their bytes once more before they are opened.
        let _ = unsafe { self.discard(&range) };
        Transfer { pages: 0, stop: Some(self.refusal(error)) }
    }

    /// Opens closed pages at `dst` that no thread has written since they were discarded, so that
    /// they read as zeros, or as what the system's swap has for them.
    ///
    /// # Safety
    ///
    /// - `dst` is `pages` closed pages of a mapping of ours.
    /// - A reader of them through a reference finds the bytes there that the reference promises.
    unsafe fn open_as_they_are(&self, dst: usize, pages: usize) -> Transfer {
        // SAFETY: the caller's contract.
        match unsafe { self.open(&(dst..dst + pages * PAGE_SIZE)) } {
            Ok(()) => Transfer { pages, stop: None },
            Err(error) => Transfer { pages: 0, stop: Some(self.refusal(error)) },
        }
    }

    /// Closes the open pages at `src`, copies them to `dst`, and discards them.
    ///
    /// # Safety
    ///
    /// - `dst` is private memory, writable for `pages` pages, and nothing refers to it.
    /// - `src` is as many pages of a mapping of ours. Before they are opened again, they get the
    ///   bytes that a reference to them promises.
    unsafe fn move_out(&self, dst: usize, src: usize, pages: usize) -> Transfer {
        // SAFETY: the caller's contract: a reader waits until they are open.
        if let Err(error) = unsafe { self.close(&(src..src + pages * PAGE_SIZE)) } {
            return Transfer { pages: 0, stop: Some(self.refusal(error)) };
        }
        let read = copied(pages, |done| {
            let (to, from) = (dst + done * PAGE_SIZE, src + done * PAGE_SIZE);
            // SAFETY: the caller's contract, for the pages that are not done yet.
            unsafe { read(self.file(from), to, from, pages - done) }
        });
        let (left, end) = (src + read.pages * PAGE_SIZE, src + pages * PAGE_SIZE);
        // SAFETY: the pages that were not copied still have their bytes.
        if left < end && unsafe { self.open(&(left..end)) }.is_err() {
            die_at("a page that cannot leave cannot be opened either:", left);
        }
        // SAFETY: the copy has their bytes.
        let gone = unsafe { self.discard_first(src, read.pages) };
        if gone == read.pages {
            return read;
        }
        let (copy, stays) = (dst + gone * PAGE_SIZE, src + gone * PAGE_SIZE);
        // SAFETY: from the first locked page on, none was discarded.
        if unsafe { self.open(&(stays..left)) }.is_err() {
            die_at("a page that cannot leave cannot be opened either:", stays);
        }
        // The copies of what stays are nobody's. If they are kept, the next user writes over them.
        // SAFETY: nothing refers to them.
        let _ = unsafe { discard_private(&(copy..dst + read.pages * PAGE_SIZE)) };
        Transfer { pages: gone, stop: Some(Stop::Busy) }
    }

    /// Discards closed pages from `src` on, up to the first one that is locked. Returns how many.
    ///
    /// # Safety
    ///
    /// Those of `discard`, for `pages` pages.
    unsafe fn discard_first(&self, src: usize, pages: usize) -> usize {
        // SAFETY: the caller's contract.
        match unsafe { self.discard(&(src..src + pages * PAGE_SIZE)) } {
            Ok(()) => return pages,
            // The system goes on behind what is not mapped, so nobody knows what is left.
            Err(Errno::NOMEM) => die_at(UNMAPPED, src),
            Err(_) => {}
        }
        // It has discarded all up to a mapping that is locked. Discarding these once more changes
        // nothing, because their bytes are in the copy.
        let goes = |page: &usize| {
            let at = src + page * PAGE_SIZE;
            // SAFETY: the caller's contract.
            unsafe { self.discard(&(at..at + PAGE_SIZE)) }.is_ok()
        };
        (0..pages).take_while(goes).count()
    }
}

/// The message about a range that can be neither closed nor opened. An address follows it.
pub(super) const UNMAPPED: &str = "a part of a region can be neither closed nor opened, because \
                                   other code has unmapped it or changed its rights; it begins";

/// The message about a file that is gone. An address follows it.
pub(super) const CLOSED: &str =
    "the descriptor of folded memory was closed, by which a page moves:";

/// The message about a file that may not be written any more. An address follows it.
const LIMITED: &str = "the limit of the size of files (RLIMIT_FSIZE, `ulimit -f`) was lowered, and \
                       keeps a page of folded memory from coming back:";

/// A page to try the way with.
pub(super) fn page_to_try() -> Result<Mapping, HostError> {
    Mapping::reserve(1, Access::Open, Core::LeftOut)
}

/// Discards the contents of private memory.
///
/// # Safety
///
/// Those of [`Closing::discard`].
pub(super) unsafe fn discard_private(range: &Range<usize>) -> Result<(), Errno> {
    let start = std::ptr::without_provenance_mut(range.start);
    // SAFETY: the caller's contract.
    unsafe { madvise(start, range.len(), Advice::LinuxDontNeed) }
}

/// Writes to closed pages, as many as the system does at once.
///
/// # Safety
///
/// - `file` shows the memory of this process.
/// - `src` is readable for `pages` pages.
/// - `dst` is as many closed pages of a mapping of ours.
unsafe fn write(
    file: BorrowedFd<'_>,
    dst: usize,
    src: usize,
    pages: usize,
) -> Result<usize, Errno> {
    let (to, len) = (dst as libc::off_t, pages * PAGE_SIZE);
    let from = std::ptr::without_provenance::<u8>(src);
    // Not by `pwrite`, where a thread may be cancelled: the handler of a touch calls this.
    // SAFETY: the caller's contract.
    pages_of(unsafe { libc::syscall(libc::SYS_pwrite64, file.as_raw_fd(), from, len, to) })
}

/// Reads closed pages, as many as the system does at once. A page without contents reads as zeros.
///
/// # Safety
///
/// - `file` shows the memory of this process.
/// - `dst` is writable for `pages` pages, and nothing refers to it.
unsafe fn read(file: BorrowedFd<'_>, dst: usize, src: usize, pages: usize) -> Result<usize, Errno> {
    let (from, len) = (src as libc::off_t, pages * PAGE_SIZE);
    let to = std::ptr::without_provenance_mut::<u8>(dst);
    // As in `write`. SAFETY: the caller's contract.
    pages_of(unsafe { libc::syscall(libc::SYS_pread64, file.as_raw_fd(), to, len, from) })
}

/// Repeats a copy until `pages` pages are done, or until one cannot be copied.
fn copied(pages: usize, some: impl Fn(usize) -> Result<usize, Errno>) -> Transfer {
    let mut done = 0;
    while done < pages {
        match some(done) {
            Ok(more) => done += more,
            Err(error) => return Transfer { pages: done, stop: Some(not_copied(error)) },
        }
    }
    Transfer { pages, stop: None }
}

/// Whole pages of a count of bytes that a system call returned.
fn pages_of(bytes: libc::c_long) -> Result<usize, Errno> {
    match usize::try_from(bytes).map(|bytes| bytes / PAGE_SIZE) {
        Ok(pages) if pages > 0 => Ok(pages),
        Ok(_) => Err(Errno::IO),
        Err(_) => Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}

/// The system gives one error for all that can go wrong at a page of a process: there is no memory
/// for it, it is not mapped, or the system's swap cannot be read.
fn not_copied(error: Errno) -> Stop {
    match error {
        Errno::IO | Errno::NOMEM | Errno::NOSPC | Errno::INTR => Stop::NoMemory,
        error => Stop::Broken(error.raw_os_error()),
    }
}
