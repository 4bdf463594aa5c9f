//! Pages that leave and come back without a userfaultfd: their range is closed by `mprotect`, and
//! their bytes go through `/proc/self/mem`.
//!
//! ```text
//!   out   mprotect(NONE) ---> pread ---> MADV_DONTNEED      from the first step on, a touch is a
//!   in    pwrite -----------> mprotect(READ | WRITE)        SIGSEGV, until the last step is done
//! ```
//!
//! The system reads and writes closed pages for this file, because a process may force its own
//! memory as a debugger may. So no thread ever sees a page that is filled in part. The memory is
//! private, so a forked child has a copy of its own.
//!
//! A forked child has copies of the pages and of all that leads to them, and brings its own in. The
//! open file stays bound to its parent, so the child opens it anew, once it sees that it is one. It
//! is refused new spans, because the threads that look after them are its parent's.
//!
//! Each closed range between open ones takes a mapping, of which a process may have a limited
//! number (`vm.max_map_count`). The caller counts them.
//!
//! Callers own the mappings, and check the addresses and lengths that reach this file.
//!
//! Invariant: bytes move by a file that is the memory of this very process.
//!
//! Lock: opening the file in a child, a leaf.
//!
//! The manual pages are `mprotect(2)` and `proc_pid_mem(5)`.

use super::error::FaultError;
use super::home::Home;
use super::transfer::{Stop, Transfer};
use crate::locks::{Lock, Rank};
use crate::machine::{PAGE_SIZE, die_at};
use crate::memory::{Access, Core, Mapping, inherit_all};
use rustix::fs::{Mode, OFlags, fstat};
use rustix::io::{Errno, pread, pwrite};
use rustix::mm::{Advice, MprotectFlags, madvise, mprotect};
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// The memory of this process as a file, and the calls that close and open parts of it.
#[derive(Debug)]
pub(crate) struct Protection {
    /// The file. A child opens it anew under the same number.
    memory: OwnedFd,
    /// Number of the file in its file system, by which it is told from one that other code opened
    /// under the number of the descriptor.
    inode: AtomicU64,
    /// The file system.
    device: u64,
    /// The process for which the file is open.
    opened: Home,
    /// The process that made this.
    maker: Home,
    /// Held by a thread of a child that opens the file. No thread holds it when a child is made.
    opening: Lock<()>,
}

impl Protection {
    /// Opens the memory of this process, and tries whether closed pages can be written. From now on
    /// a forked child has the mappings that lead to a page.
    pub(crate) fn new() -> Result<Protection, FaultError> {
        let refused = |source| FaultError::Unforced { source };
        let (memory, device, inode) = open_memory().map_err(|error| refused(error.into()))?;
        let (opened, maker) = (Home::new()?, Home::new()?);
        let inode = AtomicU64::new(inode);
        let opening = Lock::new(Rank::Leaf, ());
        let protection = Protection { memory, inode, device, opened, maker, opening };
        protection.try_closed_page().map_err(refused)?;
        inherit_all();
        Ok(protection)
    }

    /// Writes to a closed page and reads it again.
    fn try_closed_page(&self) -> io::Result<()> {
        let mapping =
            Mapping::reserve(1, Access::Closed, Core::LeftOut).map_err(io::Error::other)?;
        let (address, written, mut read) = (mapping.range().start, [0x5a; 64], [0; 64]);
        pwrite(&self.memory, &written, address as u64)?;
        pread(&self.memory, &mut read, address as u64)?;
        if read == written { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// An error in a child that was forked since this was made.
    pub(crate) fn expect_own(&self) -> Result<(), FaultError> {
        if self.maker.is_here() { Ok(()) } else { Err(FaultError::Inherited) }
    }

    /// Whether the descriptor still is the memory of this process. A program that closes all its
    /// descriptors closes this one too, and may get its number for a file of its own.
    pub(crate) fn is_open(&self) -> bool {
        // relaxed: a thread that needs a child's number has seen `opened`, or holds the lock.
        let inode = self.inode.load(Ordering::Relaxed);
        fstat(&self.memory)
            .is_ok_and(|status| (status.st_dev, status.st_ino) == (self.device, inode))
    }

    /// Closes a range that is open as a whole: from now on a touch of it is a SIGSEGV. If this
    /// fails, all of it is open again.
    ///
    /// # Safety
    ///
    /// - The range is whole pages of a mapping of ours.
    /// - A reader of it through a reference waits in the handler until the range is open again, and
    ///   finds the bytes there that the reference promises.
    pub(crate) unsafe fn close(&self, range: &Range<usize>) -> Result<(), Errno> {
        // SAFETY: the caller's contract.
        unsafe { self.protect(range, MprotectFlags::empty()) }.inspect_err(|_| {
            // A range of several mappings may be closed in part. SAFETY: as above.
            if unsafe { self.open(range) }.is_err() {
                die_at(UNMAPPED, range.start);
            }
        })
    }

    /// Opens a range: its pages may be read and written from now on.
    ///
    /// # Safety
    ///
    /// - The range is whole pages of a mapping of ours.
    /// - A reader of it through a reference finds the bytes there that the reference promises.
    pub(crate) unsafe fn open(&self, range: &Range<usize>) -> Result<(), Errno> {
        // SAFETY: the caller's contract.
        unsafe { self.protect(range, MprotectFlags::READ | MprotectFlags::WRITE) }
    }

    /// # Safety
    ///
    /// Those of `close` and `open`.
    unsafe fn protect(&self, range: &Range<usize>, rights: MprotectFlags) -> Result<(), Errno> {
        let start = std::ptr::without_provenance_mut(range.start);
        // SAFETY: the caller's contract.
        unsafe { mprotect(start, range.len(), rights) }
    }

    /// Puts copies of the pages at `src` in the place of closed pages at `dst`, and opens these.
    ///
    /// # Safety
    ///
    /// - `src` is readable for `pages` pages.
    /// - `dst` is as many closed pages of a mapping of ours. A reader of them through a reference
    ///   finds the bytes there that the reference promises.
    pub(crate) unsafe fn copy_in(&self, dst: usize, src: usize, pages: usize) -> Transfer {
        let written = copied(pages, |done| {
            let (to, from) = (dst + done * PAGE_SIZE, src + done * PAGE_SIZE);
            // SAFETY: the caller's contract, for the pages that are not done yet.
            unsafe { self.write(to, from, pages - done) }
        });
        let range = dst..dst + written.pages * PAGE_SIZE;
        // SAFETY: the caller's contract: the bytes are there.
        let opened = unsafe { self.open(&range) };
        let Err(error) = opened else { return written };
        // The pages stay closed. The memory that they got goes back, because nobody counts it.
        // SAFETY: they get their bytes once more before they are opened.
        let _ = unsafe { self.discard(&range) };
        Transfer { pages: 0, stop: Some(not_protected(error)) }
    }

    /// Opens closed pages at `dst` that no thread has written since they were discarded, so that
    /// they read as zeros, or as what the system's swap has for them.
    ///
    /// # Safety
    ///
    /// - `dst` is `pages` closed pages of a mapping of ours.
    /// - A reader of them through a reference finds the bytes there that the reference promises.
    pub(crate) unsafe fn open_as_they_are(&self, dst: usize, pages: usize) -> Transfer {
        // SAFETY: the caller's contract.
        match unsafe { self.open(&(dst..dst + pages * PAGE_SIZE)) } {
            Ok(()) => Transfer { pages, stop: None },
            Err(error) => Transfer { pages: 0, stop: Some(not_protected(error)) },
        }
    }

    /// Closes the open pages at `src`, copies them to `dst`, and discards them.
    ///
    /// # Safety
    ///
    /// - `dst` is writable for `pages` pages, and nothing refers to it.
    /// - `src` is as many pages of a mapping of ours. Before they are opened again, they get the
    ///   bytes that a reference to them promises.
    pub(crate) unsafe fn move_out(&self, dst: usize, src: usize, pages: usize) -> Transfer {
        // SAFETY: the caller's contract: a reader waits until they are open.
        if let Err(error) = unsafe { self.close(&(src..src + pages * PAGE_SIZE)) } {
            return Transfer { pages: 0, stop: Some(not_protected(error)) };
        }
        let read = copied(pages, |done| {
            let (to, from) = (dst + done * PAGE_SIZE, src + done * PAGE_SIZE);
            // SAFETY: the caller's contract, for the pages that are not done yet.
            unsafe { self.read(to, from, pages - done) }
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
        let _ = unsafe { self.discard(&(copy..dst + read.pages * PAGE_SIZE)) };
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

    /// Writes to closed pages, as many as the system does at once.
    ///
    /// # Safety
    ///
    /// - `src` is readable for `pages` pages.
    /// - `dst` is as many closed pages of a mapping of ours.
    unsafe fn write(&self, dst: usize, src: usize, pages: usize) -> Result<usize, Errno> {
        self.expect_memory(dst);
        let (to, len) = (dst as libc::off_t, pages * PAGE_SIZE);
        let from = std::ptr::without_provenance::<u8>(src);
        // Not by `pwrite`, where a thread may be cancelled: the handler of a touch calls this.
        // SAFETY: the caller's contract. The file was just seen to be this process's memory.
        pages_of(unsafe { libc::syscall(libc::SYS_pwrite64, self.number(), from, len, to) })
    }

    /// Reads closed pages, as many as the system does at once. A page without contents reads as
    /// zeros.
    ///
    /// # Safety
    ///
    /// - `dst` is writable for `pages` pages, and nothing refers to it.
    unsafe fn read(&self, dst: usize, src: usize, pages: usize) -> Result<usize, Errno> {
        self.expect_memory(src);
        let (from, len) = (src as libc::off_t, pages * PAGE_SIZE);
        let to = std::ptr::without_provenance_mut::<u8>(dst);
        // As in `write`. SAFETY: the caller's contract.
        pages_of(unsafe { libc::syscall(libc::SYS_pread64, self.number(), to, len, from) })
    }

    /// The descriptor as an argument of `syscall`.
    fn number(&self) -> libc::c_long {
        self.memory.as_raw_fd().into()
    }

    /// Discards the contents of a closed range.
    ///
    /// # Safety
    ///
    /// - The range is closed pages of a mapping of ours.
    /// - Before it is opened, it gets the bytes that a reference to it promises.
    unsafe fn discard(&self, range: &Range<usize>) -> Result<(), Errno> {
        let start = std::ptr::without_provenance_mut(range.start);
        // SAFETY: the caller's contract.
        unsafe { madvise(start, range.len(), Advice::LinuxDontNeed) }
    }

    /// Ends the process if the file is not its memory: bytes must not go elsewhere.
    fn expect_memory(&self, address: usize) {
        if !self.opened.is_here() {
            self.open_in_child(address);
        }
        if !self.is_open() {
            die_at("the descriptor of folded memory was closed, by which a page moves:", address);
        }
    }

    /// Opens the memory of this process, which was forked since the file was opened, unless another
    /// thread has done so, or the descriptor is no longer the parent's file. May be called in a
    /// signal handler.
    fn open_in_child(&self, address: usize) {
        let _opening = self.opening.lock();
        if self.opened.is_here() || !self.is_open() {
            return;
        }
        let Ok((memory, _, inode)) = open_memory() else {
            die_at("a forked child cannot open /proc/self/mem, by which a page moves:", address);
        };
        // SAFETY: the number is this value's, and stays open.
        let moved =
            unsafe { libc::dup3(memory.as_raw_fd(), self.memory.as_raw_fd(), libc::O_CLOEXEC) };
        if moved < 0 {
            die_at("a forked child cannot keep /proc/self/mem, by which a page moves:", address);
        }
        // relaxed: it is published by `opened`, which is settled after it.
        self.inode.store(inode, Ordering::Relaxed);
        self.opened.settle();
    }
}

/// The message about a range that can be neither closed nor opened. An address follows it.
pub(super) const UNMAPPED: &str = "a part of a region can be neither closed nor opened, because \
                                   other code has unmapped it or changed its rights; it begins";

/// The memory of this process as a file, its file system, and its number there. May be called in a
/// signal handler.
fn open_memory() -> Result<(OwnedFd, u64, u64), Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let memory = rustix::fs::open(c"/proc/self/mem", flags, Mode::empty())?;
    let status = fstat(&memory)?;
    Ok((memory, status.st_dev, status.st_ino))
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
        Errno::IO | Errno::NOMEM | Errno::INTR => Stop::NoMemory,
        error => Stop::Broken(error.raw_os_error()),
    }
}

/// The system says "no memory" if the process has no mapping left, or if a page is not mapped.
fn not_protected(error: Errno) -> Stop {
    match error {
        Errno::NOMEM => Stop::NoMapping,
        error => Stop::Broken(error.raw_os_error()),
    }
}
