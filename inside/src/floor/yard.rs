//! The address range in which everything of ours lies: store, tables, stacks, heap.
//!
//! ```text
//!   | mapped | mapped | .... reserved, no access ...................... |
//!   start             next                                            end
//! ```
//!
//! A program's memory folds, and ours does not. One comparison tells which is which.
//!
//! A forked child has a copy of the yard: an heir goes on with it, and any other child drops it.
//!
//! Invariant: every mapping that our code makes lies here. Addresses are never used twice.
//!
//! Lock: none. `next` is moved by one atomic operation.

use super::call::call;
use core::ops::Range;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use host::PAGE_SIZE as PAGE;

/// The sizes to try: a program may limit its address space.
const SIZES: [usize; 3] = [1 << 40, 1 << 36, 1 << 33];
const FLAGS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

static START: AtomicUsize = AtomicUsize::new(0);
static NEXT: AtomicUsize = AtomicUsize::new(0);
static END: AtomicUsize = AtomicUsize::new(0);

/// Reserves the yard anew. False if the system has no such range. A forked child that is no heir
/// does this too.
pub(crate) fn reserve() -> bool {
    for size in SIZES {
        // SAFETY: a new mapping at an address that the kernel chooses.
        let start = unsafe { mmap(0, size, libc::PROT_NONE, FLAGS, -1, 0) };
        if start > 0 {
            // relaxed: threads that use these are made after this.
            START.store(start as usize, Ordering::Relaxed);
            NEXT.store(start as usize, Ordering::Relaxed);
            END.store(start as usize + size, Ordering::Relaxed);
            return true;
        }
    }
    false
}

/// Reserves it once for all tests of a process.
#[cfg(test)]
pub(crate) fn reserve_for_tests() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| assert!(reserve(), "address space"));
}

/// Forked children get the yard with all that is in it.
static INHERITED: AtomicBool = AtomicBool::new(false);

/// Says whether forked children get what is mapped in the yard from now on.
pub(crate) fn set_inherited(inherited: bool) {
    // relaxed: there is one thread.
    INHERITED.store(inherited, Ordering::Relaxed);
}

/// Whether forked children get the yard.
pub(crate) fn is_inherited() -> bool {
    // relaxed: it changes only before there is a second thread.
    INHERITED.load(Ordering::Relaxed)
}

/// The whole range.
pub(crate) fn range() -> Range<usize> {
    // relaxed: they change only before there is a thread that asks.
    START.load(Ordering::Relaxed)..END.load(Ordering::Relaxed)
}

/// A mapping in the yard, or a negative number for an error.
///
/// # Safety
///
/// The conditions are those of `mmap(2)`. With `MAP_FIXED` the address is in a mapping of ours.
pub(crate) unsafe fn map(at: usize, len: usize, prot: i32, flags: i32, fd: i32, off: i64) -> isize {
    let whole = len.next_multiple_of(PAGE);
    let fixed = flags & libc::MAP_FIXED != 0;
    let place = if fixed { at } else { place(whole) };
    if place == 0 {
        return -(libc::ENOMEM as isize);
    }
    // SAFETY: the place is ours: nobody else has it, or the caller says so.
    unsafe { mmap(place, len, prot, flags | libc::MAP_FIXED, fd, off) }
}

/// Gives the whole yard up, with all that is in it.
///
/// # Safety
///
/// The process has one thread, and nothing uses the yard after this until it is reserved anew.
pub(crate) unsafe fn drop_all() {
    let Range { start, end } = range();
    if start < end {
        // SAFETY: the caller's contract.
        unsafe { call(libc::SYS_munmap, [start, end - start, 0, 0, 0, 0]) };
    }
}

/// Takes `len` bytes of the range that nothing has used; 0 if there are none left.
fn place(len: usize) -> usize {
    // relaxed: only uniqueness matters.
    let place = NEXT.fetch_add(len, Ordering::Relaxed);
    if place + len <= END.load(Ordering::Relaxed) { place } else { 0 }
}

/// Gives memory back and keeps the addresses.
///
/// # Safety
///
/// The conditions are those of `munmap(2)`, for a mapping of ours.
pub(crate) unsafe fn unmap(at: usize, len: usize) -> isize {
    // SAFETY: the caller gives the mapping up.
    let answer = unsafe { mmap(at, len, libc::PROT_NONE, FLAGS | libc::MAP_FIXED, -1, 0) };
    answer.min(0)
}

unsafe fn mmap(at: usize, len: usize, prot: i32, flags: i32, fd: i32, off: i64) -> isize {
    let arguments = [at, len, prot as usize, flags as usize, fd as usize, off as usize];
    // SAFETY: the caller's contract.
    unsafe { call(libc::SYS_mmap, arguments) }
}
