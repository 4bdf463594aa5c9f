//! One reservation of zeroed, private, lazily touched memory between two guard pages.
//!
//! ```text
//!    | guard | base ................................. base + len | guard |
//!    PROT_NONE        as `Access` says, NORESERVE                  PROT_NONE
//!                     MADV_NOHUGEPAGE, MADV_DONTFORK, not locked
//! ```
//!
//! Invariant M1: `base` is page-aligned and `len` bytes from it stay mapped for the life of the
//! value. Invariant M2: the guards differ in what a forked child gets, so the kernel never merges
//! the middle with a neighbour: it is one VMA (or several, if a caller splits it), and all of it is
//! ours. Invariant M3: what was advised of the whole holds for each part that is opened later.
//!
//! Memory that a program locks (`mlockall`) is filled by the system if it may be written. If it may
//! only be read, it costs the page tables, 8 bytes a page; otherwise nothing. A part that is opened
//! after the program locked its memory is not locked. Under Miri there is no system to ask: an
//! aligned heap allocation stands in, and discarding writes zeros.

use super::error::HostError;
use crate::machine::PAGE_SIZE;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

/// What may be done with a fresh reservation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// All of it is open.
    Open,
    /// It reads as zeros, and is written where it was opened.
    Zeros,
    /// It is neither read nor written but where it was opened.
    Closed,
}

/// Whether a core file has what the reservation holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Core {
    /// It is the program's.
    #[cfg_attr(any(loom, miri), expect(dead_code, reason = "there are no regions in a model"))]
    Kept,
    /// It is ours: compressed, or about what is compressed.
    LeftOut,
}

/// Address space, owned. Says nothing about who may touch which byte: its owner does.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// The addresses outlive the value, so that nobody gets them again.
    kept: AtomicBool,
}

// SAFETY: an owned range of addresses, not tied to a thread; it hands out no references.
unsafe impl Send for Mapping {}
// SAFETY: as above; `discard` only tells the system, and its contract is the caller's.
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
        Ok(Mapping { base, len, kept: AtomicBool::new(false) })
    }

    /// Reserves open pages, which a core file keeps, to be registered part by part: when all parts
    /// are, the mapping is one again. The system joins parts only if they share their first page.
    #[cfg(not(any(loom, shuttle, miri)))]
    pub(crate) fn reserve_for_parts(pages: usize) -> Result<Mapping, HostError> {
        let mapping = Mapping::reserve(pages, Access::Open, Core::Kept)?;
        mapping.populate(0..1);
        // SAFETY: nobody else knows of the pages.
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

    /// From now on, dropping the value returns the memory and keeps the addresses reserved.
    pub(crate) fn keep_addresses(&self) {
        // relaxed: read by `drop`, which has the value alone.
        self.kept.store(true, Ordering::Relaxed);
    }

    /// A forked child has the mapping, all zeros.
    #[cfg(not(any(loom, shuttle, miri)))]
    pub(crate) fn wipe_on_fork(&self) -> io::Result<()> {
        // SAFETY: these pages are ours (M1), and stay as they are in this process.
        unsafe { system::wipe_on_fork(self.base, self.len) }
    }

    /// Lets `pages` be read and written from now on.
    pub(crate) fn open(&self, pages: Range<usize>) -> io::Result<()> {
        assert!(pages.end <= self.len / PAGE_SIZE, "pages {pages:?} lie past the mapping");
        // SAFETY: the assertion keeps the result inside the mapping (M1).
        let start = unsafe { self.base.add(pages.start * PAGE_SIZE) };
        // SAFETY: these pages are ours (M1).
        unsafe { system::open(start, pages.len() * PAGE_SIZE) }
    }

    /// Has the system give `pages` their memory in one call; what they hold stays. Where it cannot,
    /// they get it when they are touched.
    pub(crate) fn populate(&self, pages: Range<usize>) {
        assert!(pages.end <= self.len / PAGE_SIZE, "pages {pages:?} lie past the mapping");
        // SAFETY: the assertion keeps the result inside the mapping (M1).
        let start = unsafe { self.base.add(pages.start * PAGE_SIZE) };
        // SAFETY: these pages are ours (M1).
        unsafe { system::populate(start, pages.len() * PAGE_SIZE) };
    }

    /// Whether the program has locked all of its memory since this was reserved, and not unlocked
    /// it: a guard page is, which nobody else locks.
    pub(crate) fn is_locked(&self) -> bool {
        system::is_locked(self.base)
    }

    /// Which of `pages` are in memory: the low bit of each byte. `None` where the system does not
    /// say.
    pub(crate) fn in_memory(&self, pages: Range<usize>) -> Option<Vec<u8>> {
        assert!(pages.end <= self.len / PAGE_SIZE, "pages {pages:?} lie past the mapping");
        let mut there = vec![0; pages.len()];
        // SAFETY: the assertion keeps the result inside the mapping (M1).
        let start = unsafe { self.base.add(pages.start * PAGE_SIZE) };
        system::in_memory(start, &mut there).then_some(there)
    }

    /// Has the system bring a page to memory that it has elsewhere; false where it cannot.
    #[cfg(not(any(loom, shuttle, miri)))]
    pub(crate) fn read_in(&self, page: usize) -> bool {
        assert!(page < self.len / PAGE_SIZE, "page {page} lies past the mapping");
        // SAFETY: the assertion keeps the result inside the mapping (M1).
        let start = unsafe { self.base.add(page * PAGE_SIZE) };
        // SAFETY: this page is ours (M1).
        unsafe { system::read_in(start, PAGE_SIZE) }
    }

    /// Whether all addresses are mapped still, by whomever.
    #[cfg(not(any(loom, shuttle, miri)))]
    pub(crate) fn is_mapped(&self) -> bool {
        // SAFETY: these pages are ours (M1), or were.
        unsafe { system::is_mapped(self.base, self.len) }
    }

    /// Gives `pages` back to the system: they read as zeros and cost nothing until touched.
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

    /// Takes `pages` away for good: they cost nothing, and who touches them is stopped.
    ///
    /// # Safety
    ///
    /// - Nobody refers to these pages any more.
    pub(crate) unsafe fn close(&self, pages: Range<usize>) -> Result<(), HostError> {
        if pages.is_empty() {
            return Ok(());
        }
        assert!(pages.end <= self.len / PAGE_SIZE, "pages {pages:?} lie past the mapping");
        let bytes = pages.len() * PAGE_SIZE;
        // SAFETY: the assertion keeps the result inside the mapping (M1).
        let start = unsafe { self.base.add(pages.start * PAGE_SIZE) };
        // SAFETY: these pages are ours (M1), and the caller vouches for references to them.
        let closed = unsafe { system::close(start, bytes) };
        closed.map_err(|source| HostError::Reserve { bytes: bytes as u64, source })
    }

    /// As [`Mapping::discard`], for many ranges. Where some are refused, the others are given back
    /// all the same.
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
        if *self.kept.get_mut() {
            // SAFETY: with `self` everyone is gone who borrowed the mapping.
            let closed = unsafe { self.close(0..self.len / PAGE_SIZE) };
            // Where the system refuses, the memory stays with the addresses.
            drop(closed);
            return;
        }
        // SAFETY: made by `system::reserve` with this length; `self` is gone after this, and
        // with it everyone who borrowed the mapping.
        unsafe { system::release(self.base, self.len) };
    }
}

#[cfg(not(miri))]
mod system {
    use super::{Access, Core};
    use crate::machine::PAGE_SIZE;
    use crate::memory::HostError;
    #[cfg(not(any(loom, shuttle)))]
    use rustix::io::Errno;
    use rustix::mm::{
        Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munlock,
        munmap,
    };
    use std::io;
    use std::ops::Range;
    use std::ptr::{self, NonNull};

    pub(super) fn check_page_size() -> Result<(), HostError> {
        match rustix::param::page_size() {
            PAGE_SIZE => Ok(()),
            system_bytes => Err(HostError::PageSize { system_bytes }),
        }
    }

    pub(super) fn reserve(len: usize, access: Access, core: Core) -> io::Result<NonNull<u8>> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        let total = len + 2 * PAGE_SIZE;
        // SAFETY: a new mapping at an address of the kernel's choosing disturbs nobody.
        let guard = unsafe { mmap_anonymous(ptr::null_mut(), total, ProtFlags::empty(), flags)? };
        // SAFETY: `guard` starts a mapping of `len` and two pages.
        let base = unsafe { guard.cast::<u8>().add(PAGE_SIZE) };
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        match prepare(base, len, access, core) {
            Ok(()) => Ok(base),
            Err(error) => {
                // SAFETY: mapped above with this length, and nobody has seen it yet.
                unsafe { release(base, len) };
                Err(error)
            }
        }
    }

    /// Makes the middle of a fresh reservation what it is to be.
    fn prepare(base: NonNull<u8>, len: usize, access: Access, core: Core) -> io::Result<()> {
        let start = base.as_ptr().cast();
        let protection = match access {
            Access::Open => MprotectFlags::READ | MprotectFlags::WRITE,
            Access::Zeros => MprotectFlags::READ,
            Access::Closed => MprotectFlags::empty(),
        };
        // SAFETY: `reserve` has just mapped these pages and nobody else knows of them.
        unsafe {
            // A program that locks whatever it maps (`mlockall`) would have all of it touched here.
            munlock(start, len)?;
            mprotect(start, len, protection)?;
            if core == Core::LeftOut {
                advise_if_known(madvise(start, len, Advice::LinuxDontDump))?;
            }
            advise_if_known(madvise(start, len, Advice::LinuxNoHugepage))?;
            advise_if_known(madvise(start, len, Advice::LinuxDontFork))
        }
    }

    /// # Safety
    ///
    /// - The pages belong to a live `Mapping`.
    pub(super) unsafe fn open(start: NonNull<u8>, bytes: usize) -> io::Result<()> {
        let start = start.as_ptr().cast();
        // Of a program that has locked its memory the system would fill these pages now. Where it
        // refuses, it does.
        // SAFETY: changes no byte.
        let _ = unsafe { munlock(start, bytes) };
        // SAFETY: these pages were closed or zeros, which nobody wrote to.
        unsafe { Ok(mprotect(start, bytes, MprotectFlags::READ | MprotectFlags::WRITE)?) }
    }

    /// # Safety
    ///
    /// - The pages belong to a live `Mapping`.
    #[cfg(not(any(loom, shuttle)))]
    pub(super) unsafe fn read_in(start: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: writes nothing.
        let read = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxPopulateRead) };
        // Where there is no memory for it now, there may be later.
        !matches!(read, Err(Errno::FAULT | Errno::HWPOISON))
    }

    /// # Safety
    ///
    /// - The pages belong to a live `Mapping`, unless other code unmapped them.
    #[cfg(not(any(loom, shuttle)))]
    pub(super) unsafe fn is_mapped(start: NonNull<u8>, bytes: usize) -> bool {
        // SAFETY: for memory without a file this looks at the mappings, and does no more; for any
        // other it does nothing either, with this flag.
        unsafe { libc::msync(start.as_ptr().cast(), bytes, libc::MS_ASYNC) == 0 }
    }

    /// # Safety
    ///
    /// - The pages belong to a live `Mapping`.
    #[cfg(not(any(loom, shuttle)))]
    pub(super) unsafe fn wipe_on_fork(start: NonNull<u8>, bytes: usize) -> io::Result<()> {
        for advice in [Advice::LinuxDoFork, Advice::LinuxWipeOnFork] {
            // SAFETY: changes nothing but what a child gets.
            unsafe { madvise(start.as_ptr().cast(), bytes, advice)? };
        }
        Ok(())
    }

    /// Whether a guard page is locked: no system call says so but one that is refused for that.
    pub(super) fn is_locked(base: NonNull<u8>) -> bool {
        let guard = base.as_ptr().wrapping_sub(PAGE_SIZE).cast();
        // SAFETY: nothing is on a guard page that could be discarded.
        let discarded = unsafe { madvise(guard, PAGE_SIZE, Advice::LinuxDontNeed) };
        discarded == Err(rustix::io::Errno::INVAL)
    }

    /// Whether each of as many pages is in memory as `there` is long; false if that is not known.
    pub(super) fn in_memory(start: NonNull<u8>, there: &mut [u8]) -> bool {
        let bytes = there.len() * PAGE_SIZE;
        // SAFETY: the vector has a byte for each page asked about, wherever they are.
        unsafe { libc::mincore(start.as_ptr().cast(), bytes, there.as_mut_ptr()) == 0 }
    }

    /// A kernel built without an advice has nothing to be advised against.
    fn advise_if_known(outcome: rustix::io::Result<()>) -> io::Result<()> {
        match outcome {
            Err(rustix::io::Errno::INVAL) => Ok(()),
            other => Ok(other?),
        }
    }

    /// # Safety
    ///
    /// - The pages belong to a live `Mapping`.
    pub(super) unsafe fn populate(start: NonNull<u8>, bytes: usize) {
        // Refused by kernels before 5.14, and where there is no memory.
        // SAFETY: writes nothing.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxPopulateWrite) };
    }

    /// # Safety
    ///
    /// - The pages belong to a live `Mapping`.
    /// - No reference to plain data on them is alive.
    pub(super) unsafe fn discard(start: NonNull<u8>, bytes: usize) -> io::Result<()> {
        // SAFETY: the caller's contract.
        unsafe { Ok(madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontNeed)?) }
    }

    /// # Safety
    ///
    /// - The pages, counted from `base`, belong to a live `Mapping`.
    /// - No reference to plain data on them is alive.
    pub(super) unsafe fn discard_all(base: NonNull<u8>, ranges: &[Range<usize>]) -> io::Result<()> {
        let vector = |pages: &Range<usize>| libc::iovec {
            // SAFETY: the caller's contract.
            iov_base: unsafe { base.add(pages.start * PAGE_SIZE) }.as_ptr().cast(),
            iov_len: pages.len() * PAGE_SIZE,
        };
        let vectors: Vec<_> = ranges.iter().map(vector).collect();
        // SAFETY: the caller's contract.
        unsafe { crate::memory::discard::discard(&vectors) }
    }

    /// # Safety
    ///
    /// - The pages belong to a live `Mapping`, and nobody refers to them.
    pub(super) unsafe fn close(start: NonNull<u8>, bytes: usize) -> io::Result<()> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        // SAFETY: replaces pages of ours, to which nobody refers, by a part of the guards.
        unsafe { mmap_anonymous(start.as_ptr().cast(), bytes, ProtFlags::empty(), flags)? };
        Ok(())
    }

    /// # Safety
    ///
    /// - `base` and `len` are those of one `reserve`, not yet released.
    pub(super) unsafe fn release(base: NonNull<u8>, len: usize) {
        // SAFETY: a guard page precedes `base`, so the whole reservation is unmapped at once.
        // It fails only when splitting a VMA at its limit, which a whole VMA never does;
        // the address space would then merely stay reserved.
        let _ = unsafe { munmap(base.as_ptr().sub(PAGE_SIZE).cast(), len + 2 * PAGE_SIZE) };
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
    pub(super) unsafe fn close(start: NonNull<u8>, bytes: usize) -> io::Result<()> {
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
