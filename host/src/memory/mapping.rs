//! One reservation of zeroed, lazily touched memory between two guard pages. It is private, unless
//! [`Mapping::share`] makes it a part of a file.
//!
//! ```text
//!    | guard | base ................................. base + len | guard |
//!    PROT_NONE        as `Access` says, NORESERVE                  PROT_NONE
//!                     MADV_NOHUGEPAGE, not locked; MADV_DONTFORK unless `forked` says otherwise
//! ```
//!
//! Invariants
//! - M1: `base` is page-aligned, and `len` bytes from it stay mapped for the life of the value.
//! - M2: the guards differ from the middle in what a forked child gets, or at least in rights or
//!   huge pages, so the kernel never merges the middle with a neighbour. The middle is one VMA, or
//!   several if a caller splits it, and all of it is ours.
//! - M3: an advice for the whole holds for each part that is opened later.
//!
//! The system fills memory that a program locks (`mlockall`) if it may be written. Memory that may
//! only be read costs page tables, 8 bytes a page, and any other memory costs nothing. A part that
//! is opened after the program locked its memory is not locked.
//!
//! Under Miri there is no system to ask. An aligned heap allocation stands in for the mapping, and
//! discarding writes zeros. Lock: none.

use super::error::HostError;
use crate::machine::PAGE_SIZE;
use std::io;
use std::ops::Range;
#[cfg(not(any(loom, shuttle, miri)))]
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(not(any(loom, shuttle, miri)))]
mod forked;
#[cfg(not(miri))]
mod system;

#[cfg(not(any(loom, shuttle, miri)))]
pub use forked::inherit_all;
#[cfg(not(any(loom, shuttle, miri)))]
pub(crate) use forked::settle_in_child;
#[cfg(not(any(loom, shuttle, miri)))]
pub(crate) use system::close;

/// The access rights of a fresh reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// All of it is open.
    Open,
    /// It reads as zeros, and only opened parts may be written.
    Zeros,
    /// Only opened parts may be read or written.
    Closed,
}

/// Whether a core file has the contents of the reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Core {
    /// It has them, because they are the program's.
    #[cfg_attr(any(loom, miri), expect(dead_code, reason = "there are no regions in a model"))]
    Kept,
    /// It has not: they are ours, compressed pages or data about those.
    LeftOut,
}

/// Owned address space. Which thread may touch which byte is up to its owner.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// Whether the addresses outlive the value, so that no later mapping has them.
    kept: AtomicBool,
}

// SAFETY: it is an owned range of addresses that no thread is tied to. It hands out no references.
unsafe impl Send for Mapping {}
// SAFETY: as above. `discard` only asks the system, and its contract is the caller's.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves `pages` pages, at least one.
    pub(crate) fn reserve(pages: usize, access: Access, core: Core) -> Result<Mapping, HostError> {
        let len = pages.saturating_mul(PAGE_SIZE);
        let total = len.saturating_add(2 * PAGE_SIZE);
        let refused = |source| HostError::Reserve { bytes: total as u64, source };
        if pages == 0 || total > isize::MAX as usize {
            return Err(refused(io::ErrorKind::InvalidInput.into()));
        }
        system::check_page_size()?;
        let base = system::reserve(len, access, core).map_err(refused)?;
        #[cfg(not(any(loom, shuttle, miri)))]
        forked::enter(base, len);
        Ok(Mapping { base, len, kept: AtomicBool::new(false) })
    }

    /// Makes no forked child have the mapping, whatever it has of others.
    #[cfg(not(any(loom, shuttle, miri)))]
    pub(crate) fn keep_from_children(&self) -> io::Result<()> {
        if forked::leave(self.base) {
            // SAFETY: these pages are ours (M1), and stay as they are in this process.
            unsafe { system::keep_from_children(self.base, self.len)? };
        }
        Ok(())
    }

    /// Puts a mapping of `file` in its place, open and shared, at the offset that is its address. A
    /// core file keeps it, and no forked child gets it.
    #[cfg(not(any(loom, shuttle, miri)))]
    pub(crate) fn share(self, file: impl AsFd) -> io::Result<Mapping> {
        forked::leave(self.base);
        // SAFETY: these pages are ours (M1), and every borrow of them has ended with `self`.
        unsafe { system::share(self.base, self.len, file.as_fd())? };
        Ok(self)
    }

    /// Reserves open pages, which a core file keeps, to be registered part by part. When all parts
    /// are registered, the mapping is one VMA again. The system joins parts only if they share
    /// their `anon_vma`, which they do if a page was touched before the mapping was split.
    #[cfg(not(any(loom, shuttle, miri)))]
    pub(crate) fn reserve_for_parts(pages: usize) -> Result<Mapping, HostError> {
        let mapping = Mapping::reserve(pages, Access::Open, Core::Kept)?;
        mapping.populate(0..1);
        // SAFETY: no other code knows of the pages yet.
        unsafe { mapping.discard(0..1)? };
        Ok(mapping)
    }

    /// The lowest address.
    #[inline]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// All addresses.
    pub(crate) fn range(&self) -> Range<usize> {
        let start = self.base.as_ptr().addr();
        start..start + self.len
    }

    /// Makes the addresses stay reserved when the value is dropped. The memory is returned then.
    pub(crate) fn keep_addresses(&self) {
        // relaxed: read by `drop`, which has the value alone.
        self.kept.store(true, Ordering::Relaxed);
    }

    /// Makes a forked child have the mapping, filled with zeros.
    #[cfg(not(any(loom, shuttle, miri)))]
    pub(crate) fn wipe_on_fork(&self) -> io::Result<()> {
        // SAFETY: these pages are ours (M1), and stay as they are in this process.
        unsafe { system::wipe_on_fork(self.base, self.len) }
    }

    /// Opens `pages`: they may be read and written from now on.
    pub(crate) fn open(&self, pages: Range<usize>) -> io::Result<()> {
        assert!(pages.end <= self.len / PAGE_SIZE, "pages {pages:?} lie past the mapping");
        // SAFETY: the assertion keeps the result inside the mapping (M1).
        let start = unsafe { self.base.add(pages.start * PAGE_SIZE) };
        // SAFETY: these pages are ours (M1).
        unsafe { system::open(start, pages.len() * PAGE_SIZE) }
    }

    /// Makes the system give `pages` their memory in one call. Their contents stay. If the system
    /// refuses, they get their memory when they are touched.
    pub(crate) fn populate(&self, pages: Range<usize>) {
        assert!(pages.end <= self.len / PAGE_SIZE, "pages {pages:?} lie past the mapping");
        // SAFETY: the assertion keeps the result inside the mapping (M1).
        let start = unsafe { self.base.add(pages.start * PAGE_SIZE) };
        // SAFETY: these pages are ours (M1).
        unsafe { system::populate(start, pages.len() * PAGE_SIZE) };
    }

    /// Whether the program has locked all of its memory since this was reserved, and not unlocked
    /// it. A guard page tells, because nothing else locks it.
    pub(crate) fn is_locked(&self) -> bool {
        system::is_locked(self.base)
    }

    /// Which of `pages` are in memory: the low bit of each byte says it. `None` if the system does
    /// not tell.
    pub(crate) fn in_memory(&self, pages: Range<usize>) -> Option<Vec<u8>> {
        assert!(pages.end <= self.len / PAGE_SIZE, "pages {pages:?} lie past the mapping");
        let mut there = vec![0; pages.len()];
        // SAFETY: the assertion keeps the result inside the mapping (M1).
        let start = unsafe { self.base.add(pages.start * PAGE_SIZE) };
        system::in_memory(start, &mut there).then_some(there)
    }

    /// Makes the system bring a page back to memory; false if it cannot.
    #[cfg(not(any(loom, shuttle, miri)))]
    pub(crate) fn read_in(&self, page: usize) -> bool {
        assert!(page < self.len / PAGE_SIZE, "page {page} lies past the mapping");
        // SAFETY: the assertion keeps the result inside the mapping (M1).
        let start = unsafe { self.base.add(page * PAGE_SIZE) };
        // SAFETY: this page is ours (M1).
        unsafe { system::read_in(start, PAGE_SIZE) }
    }

    /// Whether all addresses are still mapped, by us or by other code.
    #[cfg(not(any(loom, shuttle, miri)))]
    pub(crate) fn is_mapped(&self) -> bool {
        // SAFETY: these pages are ours (M1), or were.
        unsafe { system::is_mapped(self.base, self.len) }
    }

    /// Gives `pages` back to the system: they read as zeros and cost nothing until touched. Those
    /// of a file stay in the file.
    ///
    /// # Safety
    ///
    /// - No reference to plain (non-atomic) data on these pages is alive.
    pub(crate) unsafe fn discard(&self, pages: Range<usize>) -> Result<(), HostError> {
        if pages.is_empty() {
            return Ok(());
        }
        assert!(pages.end <= self.len / PAGE_SIZE, "pages {pages:?} lie past the mapping");
        let bytes = pages.len() * PAGE_SIZE;
        // SAFETY: the assertion keeps the result inside the mapping (M1).
        let start = unsafe { self.base.add(pages.start * PAGE_SIZE) };
        // SAFETY: these pages are ours (M1), and the caller vouches for references to them.
        unsafe { system::discard(start, bytes) }.map_err(refused(bytes))
    }

    /// Takes `pages` away for good. They cost nothing, and a thread that touches them gets a
    /// SIGSEGV.
    ///
    /// # Safety
    ///
    /// - There is no reference to these pages any more.
    pub(crate) unsafe fn unmap(&self, pages: Range<usize>) -> Result<(), HostError> {
        if pages.is_empty() {
            return Ok(());
        }
        assert!(pages.end <= self.len / PAGE_SIZE, "pages {pages:?} lie past the mapping");
        let bytes = pages.len() * PAGE_SIZE;
        // SAFETY: the assertion keeps the result inside the mapping (M1).
        let start = unsafe { self.base.add(pages.start * PAGE_SIZE) };
        // SAFETY: these pages are ours (M1), and the caller vouches for references to them.
        let unmapped = unsafe { system::unmap(start, bytes) };
        unmapped.map_err(|source| HostError::Reserve { bytes: bytes as u64, source })
    }

    /// The same as [`Mapping::discard`], for many ranges. If the system refuses some, the others
    /// are given back all the same.
    ///
    /// # Safety
    ///
    /// - No reference to plain (non-atomic) data on these pages is alive.
    pub(crate) unsafe fn discard_all(&self, ranges: &[Range<usize>]) -> Result<(), HostError> {
        let last = ranges.iter().map(|pages| pages.end).max().unwrap_or(0);
        assert!(last <= self.len / PAGE_SIZE, "page {last} lies past the mapping");
        let bytes = ranges.iter().map(|pages| pages.len() * PAGE_SIZE).sum();
        // SAFETY: these pages are ours (M1), and the caller vouches for references to them.
        unsafe { system::discard_all(self.base, ranges) }.map_err(refused(bytes))
    }
}

fn refused(bytes: usize) -> impl FnOnce(io::Error) -> HostError {
    move |source| HostError::Advise { advice: "MADV_DONTNEED", bytes: bytes as u64, source }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        #[cfg(not(any(loom, shuttle, miri)))]
        forked::leave(self.base);
        if *self.kept.get_mut() {
            // SAFETY: every borrow of the mapping has ended with `self`.
            let unmapped = unsafe { self.unmap(0..self.len / PAGE_SIZE) };
            // If the system refuses, the memory stays with the addresses.
            drop(unmapped);
            return;
        }
        // SAFETY: `system::reserve` made it with this length. `self` is gone after this, and every
        // borrow of the mapping has ended.
        unsafe { system::release(self.base, self.len) };
    }
}

#[cfg(miri)]
mod system {
    use super::{Access, Core};
    use crate::machine::PAGE_SIZE;
    use crate::memory::HostError;
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::io;
    use std::ops::Range;
    use std::ptr::NonNull;

    pub(super) fn check_page_size() -> Result<(), HostError> {
        Ok(())
    }

    fn layout(len: usize) -> io::Result<Layout> {
        Layout::from_size_align(len, PAGE_SIZE).map_err(|_| io::ErrorKind::InvalidInput.into())
    }

    pub(super) fn reserve(len: usize, _: Access, _: Core) -> io::Result<NonNull<u8>> {
        // SAFETY: `Mapping::reserve` asks for at least one page, so the layout is not empty.
        let base = unsafe { alloc_zeroed(layout(len)?) };
        NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory.into())
    }

    pub(super) fn is_locked(_: NonNull<u8>) -> bool {
        false
    }

    pub(super) fn in_memory(_: NonNull<u8>, _: &mut [u8]) -> bool {
        false
    }

    /// # Safety
    ///
    /// - The pages belong to a live `Mapping`.
    pub(super) unsafe fn open(_: NonNull<u8>, _: usize) -> io::Result<()> {
        Ok(())
    }

    /// # Safety
    ///
    /// - The pages belong to a live `Mapping`.
    pub(super) unsafe fn populate(_: NonNull<u8>, _: usize) {}

    /// # Safety
    ///
    /// - The pages belong to a live `Mapping`.
    /// - No reference to anything on them is alive.
    pub(super) unsafe fn discard(start: NonNull<u8>, bytes: usize) -> io::Result<()> {
        // SAFETY: the caller's contract.
        unsafe { start.write_bytes(0, bytes) };
        Ok(())
    }

    /// # Safety
    ///
    /// - The pages, counted from `base`, belong to a live `Mapping`.
    /// - No reference to anything on them is alive.
    pub(super) unsafe fn discard_all(base: NonNull<u8>, ranges: &[Range<usize>]) -> io::Result<()> {
        for pages in ranges {
            // SAFETY: the caller's contract.
            unsafe { discard(base.add(pages.start * PAGE_SIZE), pages.len() * PAGE_SIZE)? };
        }
        Ok(())
    }

    /// # Safety
    ///
    /// - The pages belong to a live `Mapping`, and nobody refers to them.
    pub(super) unsafe fn unmap(start: NonNull<u8>, bytes: usize) -> io::Result<()> {
        // SAFETY: the caller's contract.
        unsafe { discard(start, bytes) }
    }

    /// # Safety
    ///
    /// - `base` and `len` are those of one `reserve`, not yet released.
    pub(super) unsafe fn release(base: NonNull<u8>, len: usize) {
        if let Ok(layout) = layout(len) {
            // SAFETY: allocated by `reserve` with this very layout.
            unsafe { dealloc(base.as_ptr(), layout) };
        }
    }
}
