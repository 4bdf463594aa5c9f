//! Zeros in place of memory whose pages are gone.
//!
//! Invariant: a range is a mapping as a whole before and after. Lock: none.

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use std::ops::Range;
use std::ptr;

/// Puts zeros over mappings, which can be read and written from then on. False if the system
/// refuses; then nothing is changed. It may be called in a signal handler.
///
/// # Safety
///
/// - The range is that of whole mappings of the caller's, which stay mapped meanwhile.
/// - All code that has access to the memory allows for others that change it at any time.
pub unsafe fn put_zeros(range: Range<usize>) -> bool {
    let start = ptr::with_exposed_provenance_mut(range.start);
    let access = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
    // SAFETY: the caller owns the mappings, and nobody relies on their bytes.
    unsafe { mmap_anonymous(start, range.len(), access, flags) }.is_ok()
}
