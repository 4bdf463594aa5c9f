//! The words of all groups of the arena: which of them system calls use, and which have closed
//! pages.
//!
//! Invariant: that of a word. Lock: none; the bits of closed pages change under the lock of the
//! state.

use super::addresses;
use crate::floor::pin::PinWord;
use crate::floor::yard;
use crate::places::GROUP;
use core::ops::Range;
use core::sync::atomic::{AtomicUsize, Ordering};

static TABLE: AtomicUsize = AtomicUsize::new(0);

/// Makes the table. False if the system has no address space.
pub(crate) fn make() -> bool {
    let len = addresses::range().len() / GROUP * size_of::<PinWord>();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping.
    let table = unsafe { yard::map(0, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    // relaxed: there is one thread.
    TABLE.store(table.max(0) as usize, Ordering::Relaxed);
    table > 0
}

/// The words of the groups of a range, as far as it is in the arena.
fn words(range: &Range<usize>) -> &'static [PinWord] {
    let whole = addresses::range();
    let (start, end) = (range.start.max(whole.start), range.end.min(whole.end));
    if start >= end {
        return &[];
    }
    let first = (start - whole.start) / GROUP;
    let count = (end - whole.start).div_ceil(GROUP) - first;
    // relaxed: it is written before there are threads.
    let table = TABLE.load(Ordering::Relaxed) as *const PinWord;
    // SAFETY: the table has a word for each group of the arena, and stays; zeros are valid words.
    unsafe { core::slice::from_raw_parts(table.add(first), count) }
}

/// Pins the groups of a range. True if none of them has a closed page.
pub(crate) fn pin(range: &Range<usize>) -> bool {
    words(range).iter().fold(true, |open, word| word.pin() & open)
}

/// Takes the pins of `pin` back.
pub(crate) fn unpin(range: &Range<usize>) {
    words(range).iter().for_each(PinWord::unpin);
}

/// Notes that a group is about to have closed pages. False if it is pinned.
pub(crate) fn close(group: usize) -> bool {
    words(&(group..group + GROUP)).first().is_some_and(PinWord::close)
}

/// Notes that a group has no closed pages any more.
pub(crate) fn open(group: usize) {
    words(&(group..group + GROUP)).iter().for_each(PinWord::open);
}

/// In a forked child: no other thread is in a call.
pub(crate) fn settle(range: &Range<usize>) {
    words(range).iter().for_each(PinWord::settle);
}
