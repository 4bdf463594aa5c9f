//! The address range in which the memory lies that folds.
//!
//! ```text
//!   START                                                   START + LEN_MAX
//!   | brk's memory | small mappings | mappings, lowest free place first ...  |
//! ```
//!
//! A core file has what the program has, and nothing of the reserve. Otherwise it would be as long
//! as the whole range, and a pipe to a collector of core files would be given all of it.
//!
//! Invariant: all of the range is reserved without access. What the program does not have there has
//! no access, and core files leave it out. Lock: none; the range is reserved once.

use crate::floor::passage::{PASSAGE, pass};
use crate::places::{CHUNK, GROUP_PAGES, MAPPING_MIN, PAGE};
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

/// Where it begins. A filter compares the upper bits of addresses with these.
pub(crate) const START: usize = 0x1b00_0000_0000;
pub(crate) const LEN_MAX: usize = 1 << 40; // 1 TiB

const _: () = assert!(START.is_multiple_of(LEN_MAX), "one comparison tells what is in it");
const _: () = assert!(PASSAGE + PAGE == START, "the passage is just before it");

/// The sizes to try: a program may limit its address space.
const SIZES: [usize; 3] = [LEN_MAX, 1 << 36, 1 << 34];
/// The part of it for `brk`, and that for small mappings.
const PART: usize = 16;

const RESERVED: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

static LEN: AtomicUsize = AtomicUsize::new(0);

/// Whether an address may be of the arena, in any process.
pub(crate) fn contains(address: usize) -> bool {
    address & !(LEN_MAX - 1) == START
}

/// What is reserved.
pub(crate) fn range() -> Range<usize> {
    // relaxed: it changes only before there is a thread that asks.
    START..START + LEN.load(Ordering::Relaxed)
}

/// The part for `brk`.
pub(crate) fn brk_range() -> Range<usize> {
    START..START + range().len() / PART
}

/// The part for mappings of a length. Small ones are side by side, so that they fill groups.
pub(crate) fn range_for(len: usize) -> Range<usize> {
    let small = brk_range().end..brk_range().end + range().len() / PART;
    if len < MAPPING_MIN { small } else { small.end..range().end }
}

/// Reserves it.
///
/// # Errors
///
/// The system's number.
///
/// The passage is made: a filter of a program before this one may be in force.
pub(crate) fn reserve() -> Result<(), i32> {
    let mut error = libc::ENOMEM;
    for len in SIZES {
        let flags = (RESERVED | libc::MAP_FIXED_NOREPLACE) as usize;
        // SAFETY: a new mapping that replaces no other.
        let mapped = unsafe { pass(libc::SYS_mmap, [START, len, 0, flags, usize::MAX, 0]) };
        if mapped == START as isize {
            // relaxed: there is one thread.
            LEN.store(len, Ordering::Relaxed);
            join();
            hide(&range());
            return Ok(());
        }
        error = if mapped < 0 { -mapped as i32 } else { libc::EEXIST };
    }
    Err(error)
}

/// Touches one page, so that the kernel keeps one list of mappings for all of it. Otherwise parts
/// that were touched apart from each other could not become one mapping again.
fn join() {
    let access = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    // SAFETY: the page is ours, and nothing uses it.
    unsafe {
        if pass(libc::SYS_mprotect, [START, PAGE, access, 0, 0, 0]) == 0 {
            (START as *mut u8).write_volatile(1);
        }
        pass(libc::SYS_mprotect, [START, PAGE, 0, 0, 0, 0]);
        pass(libc::SYS_madvise, [START, PAGE, libc::MADV_DONTNEED as usize, 0, 0, 0]);
    }
}

/// Takes memory away, and keeps the addresses.
///
/// # Errors
///
/// The system's number.
///
/// # Safety
///
/// The range is whole pages of the arena, whose content nobody needs.
pub(crate) unsafe fn release(range: &Range<usize>) -> Result<(), i32> {
    let flags = (RESERVED | libc::MAP_FIXED) as usize;
    // SAFETY: the caller's contract.
    let mapped =
        unsafe { pass(libc::SYS_mmap, [range.start, range.len(), 0, flags, usize::MAX, 0]) };
    if mapped < 0 {
        return Err(-mapped as i32);
    }
    hide(range);
    Ok(())
}

/// Has a core file leave out a range. If the system refuses, it is longer.
pub(crate) fn hide(range: &Range<usize>) {
    // SAFETY: it changes no byte.
    let _ = unsafe { advise(range, libc::MADV_DONTDUMP) };
}

/// Has a core file have a range. If the system refuses, it is shorter.
pub(crate) fn show(range: &Range<usize>) {
    // SAFETY: it changes no byte.
    let _ = unsafe { advise(range, libc::MADV_DODUMP) };
}

/// Changes the access of pages.
///
/// # Errors
///
/// The system's number.
///
/// # Safety
///
/// The range is whole pages of the arena. Code that touches them expects the change.
pub(crate) unsafe fn protect(range: &Range<usize>, access: i32) -> Result<(), i32> {
    let arguments = [range.start, range.len(), access as usize, 0, 0, 0];
    // SAFETY: the caller's contract.
    let answer = unsafe { pass(libc::SYS_mprotect, arguments) };
    if answer < 0 { Err(-answer as i32) } else { Ok(()) }
}

/// Gives advice about pages.
///
/// # Errors
///
/// The system's number.
///
/// # Safety
///
/// As for `protect`, for what the advice does.
pub(crate) unsafe fn advise(range: &Range<usize>, advice: i32) -> Result<(), i32> {
    let arguments = [range.start, range.len(), advice as usize, 0, 0, 0];
    // SAFETY: the caller's contract.
    let answer = unsafe { pass(libc::SYS_madvise, arguments) };
    if answer < 0 { Err(-answer as i32) } else { Ok(()) }
}

/// The pages of a group that are in memory, as bits. If the system does not tell, all of them.
pub(crate) fn present(group: usize) -> u64 {
    let Some(pages) = in_memory::<GROUP_PAGES>(group) else { return u64::MAX };
    let pages = pages.iter().enumerate().filter(|(_, byte)| **byte & 1 != 0);
    pages.fold(0, |all, (page, _)| all | 1 << page)
}

/// Whether pages of a chunk are in memory. If the system does not tell, they are.
pub(crate) fn is_touched(chunk: usize) -> bool {
    in_memory::<{ CHUNK / PAGE }>(chunk).is_none_or(|pages| pages.iter().any(|byte| byte & 1 != 0))
}

/// Of pages from an address on, a byte for each, which is odd if the page is in memory. `None` if
/// the system does not tell.
fn in_memory<const N: usize>(start: usize) -> Option<[u8; N]> {
    let mut pages = [1u8; N];
    let arguments = [start, N * PAGE, pages.as_mut_ptr() as usize, 0, 0, 0];
    // SAFETY: the vector has a byte for each page.
    let answer = unsafe { pass(libc::SYS_mincore, arguments) };
    (answer >= 0).then_some(pages)
}
