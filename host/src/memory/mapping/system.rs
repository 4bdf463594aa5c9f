//! The system calls behind a mapping.
//!
//! ```text
//!   madvise           one range a call; with another thread running, each call interrupts all CPUs
//!   process_madvise   1024 ranges a call, CPUs interrupted once for all (Linux 6.13; 6.16)
//! ```
//!
//! On 2000 ranges of 16 KiB while another thread ran, `madvise` took 11.3 us a range and
//! `process_madvise` 1.4 us. If the system refuses the latter, the former does the same.
//!
//! Invariant: M1 to M3 of [`Mapping`](super::Mapping). A range that the system refuses keeps no
//! other range from being given back. Lock: none.

use super::{Access, Core};
use crate::machine::PAGE_SIZE;
use crate::memory::HostError;
#[cfg(not(any(loom, shuttle)))]
use rustix::io::Errno;
#[cfg(not(any(loom, shuttle)))]
use rustix::mm::mmap;
use rustix::mm::{
    Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap_anonymous, mprotect, munlock, munmap,
};
use std::io;
use std::ops::Range;
#[cfg(not(any(loom, shuttle)))]
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

/// Ranges of one call, at most (`IOV_MAX`).
const RANGES_MAX: usize = 1024;
/// This process, for system calls that take a pidfd (`PIDFD_SELF`, Linux 6.14).
const PIDFD_SELF: libc::c_int = -10000;

pub(super) fn check_page_size() -> Result<(), HostError> {
    match rustix::param::page_size() {
        PAGE_SIZE => Ok(()),
        system_bytes => Err(HostError::PageSize { system_bytes }),
    }
}

/// Puts closed memory at addresses at which nothing is mapped. False if the system refuses.
#[cfg(not(any(loom, shuttle, miri)))]
pub(crate) fn close(range: Range<usize>) -> bool {
    let start = ptr::without_provenance_mut(range.start);
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
    // SAFETY: with this flag the system changes no memory that is there.
    let mapped = unsafe { mmap_anonymous(start, range.len(), ProtFlags::empty(), flags) };
    match mapped {
        // Systems before Linux 4.17 do not know the flag, and take the address for a wish.
        Ok(elsewhere) if elsewhere.addr() != range.start => {
            // SAFETY: it was mapped above, and no other code has seen it.
            let _ = unsafe { munmap(elsewhere, range.len()) };
            false
        }
        mapped => mapped.is_ok(),
    }
}

pub(super) fn reserve(len: usize, access: Access, core: Core) -> io::Result<NonNull<u8>> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
    let total = len + 2 * PAGE_SIZE;
    // SAFETY: a new mapping at an address that the kernel chooses changes no other memory.
    let guard = unsafe { mmap_anonymous(ptr::null_mut(), total, ProtFlags::empty(), flags)? };
    // SAFETY: `guard` starts a mapping of `len` and two pages.
    let base = unsafe { guard.cast::<u8>().add(PAGE_SIZE) };
    let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
    match prepare(base, len, access, core) {
        Ok(()) => Ok(base),
        Err(error) => {
            // SAFETY: mapped above with this length, and no other code has seen it yet.
            unsafe { release(base, len) };
            Err(error)
        }
    }
}

/// Puts a shared mapping of a file in the place of a reservation. The offset is the address.
///
/// # Safety
///
/// - The pages are a whole `Mapping`, and nothing refers to them.
#[cfg(not(any(loom, shuttle)))]
pub(super) unsafe fn share(base: NonNull<u8>, len: usize, file: BorrowedFd<'_>) -> io::Result<()> {
    let (start, offset) = (base.as_ptr(), base.addr().get() as u64);
    let flags = MapFlags::SHARED | MapFlags::NORESERVE | MapFlags::FIXED;
    // It is closed until it is unlocked, as in `reserve`. SAFETY: the caller's contract.
    unsafe { mmap(start.cast(), len, ProtFlags::empty(), flags, file, offset)? };
    prepare(base, len, Access::Open, Core::Kept)
}

/// Gives the middle of a fresh reservation its access rights and advice.
fn prepare(base: NonNull<u8>, len: usize, access: Access, core: Core) -> io::Result<()> {
    let start = base.as_ptr().cast();
    let protection = match access {
        Access::Open => MprotectFlags::READ | MprotectFlags::WRITE,
        Access::Zeros => MprotectFlags::READ,
        Access::Closed => MprotectFlags::empty(),
    };
    // SAFETY: `reserve` has just mapped these pages, and no other code knows of them.
    unsafe {
        // In a program that locks all that it maps (`mlockall`), `mprotect` would touch all of
        // it.
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
    // If the program has locked its memory, the system would fill these pages now. If it
    // refuses to unlock them, it does. SAFETY: changes no byte.
    let _ = unsafe { munlock(start, bytes) };
    // SAFETY: these pages were closed or read-only, and no code could write to them.
    unsafe { Ok(mprotect(start, bytes, MprotectFlags::READ | MprotectFlags::WRITE)?) }
}

/// # Safety
///
/// - The pages belong to a live `Mapping`.
#[cfg(not(any(loom, shuttle)))]
pub(super) unsafe fn read_in(start: NonNull<u8>, bytes: usize) -> bool {
    // SAFETY: writes nothing.
    let read = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxPopulateRead) };
    // There may be no memory for it now, but later.
    !matches!(read, Err(Errno::FAULT | Errno::HWPOISON))
}

/// # Safety
///
/// - The pages belong to a live `Mapping`, unless other code unmapped them.
#[cfg(not(any(loom, shuttle)))]
pub(super) unsafe fn is_mapped(start: NonNull<u8>, bytes: usize) -> bool {
    // SAFETY: for memory without a file this only looks at the mappings. With this flag it does
    // nothing to other memory either.
    unsafe { libc::msync(start.as_ptr().cast(), bytes, libc::MS_ASYNC) == 0 }
}

/// # Safety
///
/// - The pages belong to a live `Mapping`.
#[cfg(not(any(loom, shuttle)))]
pub(super) unsafe fn wipe_on_fork(start: NonNull<u8>, bytes: usize) -> io::Result<()> {
    for advice in [Advice::LinuxDoFork, Advice::LinuxWipeOnFork] {
        // SAFETY: this only changes what a forked child gets.
        unsafe { madvise(start.as_ptr().cast(), bytes, advice)? };
    }
    Ok(())
}

/// Makes a forked child get the pages. The system refuses only what is not mapped, which a child
/// does not get either.
///
/// # Safety
///
/// - The pages belong to a live `Mapping`.
#[cfg(not(any(loom, shuttle)))]
pub(super) unsafe fn inherit(start: NonNull<u8>, bytes: usize) {
    // SAFETY: this only changes what a forked child gets.
    let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxDoFork) };
}

/// Makes a forked child not get the pages.
///
/// # Safety
///
/// - The pages belong to a live `Mapping`.
#[cfg(not(any(loom, shuttle)))]
pub(super) unsafe fn keep_from_children(start: NonNull<u8>, bytes: usize) -> io::Result<()> {
    // SAFETY: this only changes what a forked child gets.
    unsafe { Ok(madvise(start.as_ptr().cast(), bytes, Advice::LinuxDontFork)?) }
}

/// Whether a guard page is locked. The only way to ask is a call that the system refuses for
/// locked pages.
pub(super) fn is_locked(base: NonNull<u8>) -> bool {
    let guard = base.as_ptr().wrapping_sub(PAGE_SIZE).cast();
    // SAFETY: a guard page has no contents that could be discarded.
    let discarded = unsafe { madvise(guard, PAGE_SIZE, Advice::LinuxDontNeed) };
    discarded == Err(rustix::io::Errno::INVAL)
}

/// Writes to each byte of `there` whether the page from `start` on is in memory. False if the
/// system does not tell.
pub(super) fn in_memory(start: NonNull<u8>, there: &mut [u8]) -> bool {
    let bytes = there.len() * PAGE_SIZE;
    // SAFETY: the vector has a byte for each page of the range, wherever the range is.
    unsafe { libc::mincore(start.as_ptr().cast(), bytes, there.as_mut_ptr()) == 0 }
}

/// The outcome of an advice. A kernel that was built without the advice does not need it.
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
    // Kernels before 5.14 refuse it, and others if they have no memory.
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
    unsafe { discard_vectors(&vectors) }
}

/// # Safety
///
/// - The pages belong to a live `Mapping`, and there is no reference to them.
pub(super) unsafe fn unmap(start: NonNull<u8>, bytes: usize) -> io::Result<()> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
    // SAFETY: this replaces pages of ours by a part of the guards. There is no reference to
    // them.
    unsafe { mmap_anonymous(start.as_ptr().cast(), bytes, ProtFlags::empty(), flags)? };
    Ok(())
}

/// # Safety
///
/// - `base` and `len` are those of one `reserve`, not yet released.
pub(super) unsafe fn release(base: NonNull<u8>, len: usize) {
    // SAFETY: a guard page precedes `base`, so the whole reservation is unmapped at once. It
    // could fail only by splitting a VMA when the process has as many as it may have. A whole
    // VMA is not split, and on a failure the address space would just stay reserved.
    let _ = unsafe { munmap(base.as_ptr().sub(PAGE_SIZE).cast(), len + 2 * PAGE_SIZE) };
}

/// Discards the pages of `ranges`, each an address and a length in bytes. If the system refuses
/// some, the others are discarded all the same, and the first refusal is the error.
///
/// # Safety
///
/// - The pages belong to a live `Mapping`.
/// - No reference to plain data on them is alive.
unsafe fn discard_vectors(ranges: &[libc::iovec]) -> io::Result<()> {
    let mut outcome = Ok(());
    for ranges in ranges.chunks(RANGES_MAX) {
        // SAFETY: the caller's contract.
        if ranges.len() == 1 || !unsafe { discard_at_once(ranges) } {
            for range in ranges {
                // SAFETY: the caller's contract.
                let discarded = unsafe { discard_one(range) };
                outcome = outcome.and(discarded);
            }
        }
    }
    outcome
}

/// Discards all ranges in one call; false if the system did not do all of them.
///
/// # Safety
///
/// Those of [`discard_vectors`].
unsafe fn discard_at_once(ranges: &[libc::iovec]) -> bool {
    let bytes: usize = ranges.iter().map(|range| range.iov_len).sum();
    // SAFETY: the vector is as long as the call is told. The caller vouches for its ranges.
    let advised = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            PIDFD_SELF,
            ranges.as_ptr(),
            ranges.len(),
            libc::MADV_DONTNEED,
            0,
        )
    };
    usize::try_from(advised) == Ok(bytes)
}

/// # Safety
///
/// Those of [`discard_vectors`].
unsafe fn discard_one(range: &libc::iovec) -> io::Result<()> {
    // SAFETY: the caller's contract.
    match unsafe { libc::madvise(range.iov_base, range.iov_len, libc::MADV_DONTNEED) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
