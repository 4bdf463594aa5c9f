//! Pages that are out are closed by `mprotect`, and their bytes go through `/proc/self/mem`.
//!
//! The system reads and writes closed pages for this file, because a process may force its own
//! memory as a debugger may. The memory is private, so a forked child has a copy of its own.
//!
//! A forked child has copies of the pages and of all that leads to them, and brings its own in. The
//! open file stays bound to its parent, so the child opens it anew, once it sees that it is one. It
//! is refused new spans, because the threads that look after them are its parent's.
//!
//! Each closed range between open ones takes a mapping, of which a process may have a limited
//! number (`vm.max_map_count`). The caller counts them.
//!
//! Invariant: bytes move by a file that is the memory of this very process.
//!
//! Lock: opening the file in a child, a leaf.
//!
//! The manual pages are `mprotect(2)` and `proc_pid_mem(5)`.

use super::closing::{CLOSED, Closing, discard_private, page_to_try};
use super::error::{FaultError, unless_exhausted};
use super::home::Home;
use super::marked::MarkedFile;
use super::transfer::Stop;
use crate::locks::{Lock, Rank};
use crate::machine::die_at;
use crate::memory::{Mapping, inherit_all};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mm::{MprotectFlags, mprotect};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};

/// The memory of this process as a file, and the calls that close and open parts of it.
#[derive(Debug)]
pub(crate) struct Protection {
    /// The file. A child opens it anew under the same number.
    memory: MarkedFile,
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
        let refused = unless_exhausted(|source| FaultError::Unforced { source });
        let memory = open_memory().map_err(|error| refused(error.into()))?;
        let (opened, maker) = (Home::new()?, Home::new()?);
        let opening = Lock::new(Rank::Leaf, ());
        let protection = Protection { memory, opened, maker, opening };
        protection.try_page(page_to_try()?).map_err(refused)?;
        inherit_all();
        Ok(protection)
    }

    /// Ends the process if the file is not its memory: bytes must not go elsewhere.
    fn expect_memory(&self, address: usize) {
        if !self.opened.is_here() {
            self.open_in_child(address);
        }
        if !self.is_open() {
            die_at(CLOSED, address);
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
        let Ok(memory) = open_memory() else {
            die_at("a forked child cannot open /proc/self/mem, by which a page moves:", address);
        };
        if self.memory.replace(memory).is_err() {
            die_at("a forked child cannot keep /proc/self/mem, by which a page moves:", address);
        }
        // What was put there is published by this.
        self.opened.settle();
    }
}

impl Closing for Protection {
    fn expect_own(&self) -> Result<(), FaultError> {
        if self.maker.is_here() { Ok(()) } else { Err(FaultError::Inherited) }
    }

    fn back(&self, mapping: Mapping) -> io::Result<Mapping> {
        Ok(mapping)
    }

    fn is_open(&self) -> bool {
        self.memory.is_open()
    }

    /// The system says "no memory" if the process has no mapping left, or if a page is not mapped.
    fn refusal(&self, error: Errno) -> Stop {
        match error {
            Errno::NOMEM => Stop::NoMapping,
            error => Stop::Broken(error.raw_os_error()),
        }
    }

    fn next_data(&self, _: usize) -> Option<usize> {
        None
    }

    unsafe fn try_close(&self, range: &Range<usize>) -> Result<(), Errno> {
        let start = std::ptr::without_provenance_mut(range.start);
        // SAFETY: the caller's contract.
        unsafe { mprotect(start, range.len(), MprotectFlags::empty()) }
    }

    unsafe fn open(&self, range: &Range<usize>) -> Result<(), Errno> {
        let start = std::ptr::without_provenance_mut(range.start);
        // SAFETY: the caller's contract.
        unsafe { mprotect(start, range.len(), MprotectFlags::READ | MprotectFlags::WRITE) }
    }

    unsafe fn discard(&self, range: &Range<usize>) -> Result<(), Errno> {
        // SAFETY: the caller's contract.
        unsafe { discard_private(range) }
    }

    /// Private memory goes with its mapping.
    unsafe fn empty(&self, _: &Range<usize>) {}

    /// A child has the pages, and opens its own.
    fn let_go(&self) {}

    fn file(&self, address: usize) -> BorrowedFd<'_> {
        self.expect_memory(address);
        self.memory.as_fd()
    }
}

/// The memory of this process as a file. May be called in a signal handler.
fn open_memory() -> Result<MarkedFile, Errno> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    MarkedFile::new(rustix::fs::open(c"/proc/self/mem", flags, Mode::empty())?)
}
