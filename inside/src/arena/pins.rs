//! A word for each group of the arena: system calls that use it now, and whether it has closed
//! pages.
//!
//! ```text
//!   bit 31          30 .. 0
//!   has closed      pins
//! ```
//!
//! A thread pins before its call and looks at the bit. The pager sets the bit and looks at the
//! pins. Both are one operation on one word, so one of them sees the other.
//!
//! Invariant: no page closes in a group that is pinned. Lock: none; the bit changes under the lock
//! of the state.

use super::addresses;
use crate::floor::yard;
use crate::places::GROUP;
use core::ops::Range;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

const CLOSED: u32 = 1 << 31;

const _: () = assert!(CLOSED > 1 << 22, "more pins than threads");

static TABLE: AtomicUsize = AtomicUsize::new(0);

/// Makes the table. False if the system has no address space.
pub(crate) fn make() -> bool {
    let len = addresses::range().len() / GROUP * size_of::<u32>();
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping.
    let table = unsafe { yard::map(0, len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    // relaxed: there is one thread.
    TABLE.store(table.max(0) as usize, Ordering::Relaxed);
    table > 0
}

/// The words of the groups of a range, as far as it is in the arena.
fn words(range: &Range<usize>) -> &'static [AtomicU32] {
    let whole = addresses::range();
    let (start, end) = (range.start.max(whole.start), range.end.min(whole.end));
    if start >= end {
        return &[];
    }
    let first = (start - whole.start) / GROUP;
    let count = (end - whole.start).div_ceil(GROUP) - first;
    // relaxed: it is written before there are threads.
    let table = TABLE.load(Ordering::Relaxed) as *const AtomicU32;
    // SAFETY: the table has a word for each group of the arena, and stays.
    unsafe { core::slice::from_raw_parts(table.add(first), count) }
}

/// Pins the groups of a range. True if none of them has a closed page.
pub(crate) fn pin(range: &Range<usize>) -> bool {
    // SeqCst pairs with that in `close`, so that either the pager sees the pin or this thread sees
    // the bit.
    let pin = |word: &AtomicU32| word.fetch_add(1, Ordering::SeqCst) & CLOSED == 0;
    words(range).iter().fold(true, |open, word| pin(word) & open)
}

/// Takes the pins of `pin` back.
pub(crate) fn unpin(range: &Range<usize>) {
    for word in words(range) {
        // In a child that was forked within the call, the pin is gone.
        let less = |word: u32| (word & !CLOSED != 0).then(|| word - 1);
        // Release pairs with the SeqCst in `close`, so that the call's work is seen. relaxed: a
        // failure reads nothing.
        let _ = word.fetch_update(Ordering::Release, Ordering::Relaxed, less);
    }
}

/// Notes that a group is about to have closed pages. False if it is pinned.
pub(crate) fn close(group: usize) -> bool {
    let words = words(&(group..group + GROUP));
    let Some(word) = words.first() else { return false };
    // SeqCst pairs with that in `pin`, so that either this thread sees the pin or the other one
    // sees the bit.
    let before = word.fetch_or(CLOSED, Ordering::SeqCst);
    if before & !CLOSED != 0 && before & CLOSED == 0 {
        // relaxed: nothing was closed.
        word.fetch_and(!CLOSED, Ordering::Relaxed);
    }
    before & !CLOSED == 0
}

/// Notes that a group has no closed pages any more.
pub(crate) fn open(group: usize) {
    for word in words(&(group..group + GROUP)) {
        // Release pairs with the SeqCst in `pin`, so that the pages are seen open.
        word.fetch_and(!CLOSED, Ordering::Release);
    }
}

/// In a forked child: no other thread is in a call.
pub(crate) fn settle(range: &Range<usize>) {
    for word in words(range) {
        // relaxed: there is one thread.
        if word.load(Ordering::Relaxed) & !CLOSED != 0 {
            // relaxed: as above.
            word.fetch_and(CLOSED, Ordering::Relaxed);
        }
    }
}
