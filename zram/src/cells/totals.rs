//! Totals that many threads add to and any thread may read.
//!
//! Each thread enters its own changes in order, but they may come between those of other threads.
//! So a total may be negative for a moment. It is shown as 0 then.
//!
//! Locks: none.

use std::sync::atomic::{AtomicU64, Ordering};

/// Adds to a counter.
pub(crate) fn bump(counter: &AtomicU64, by: u64) {
    // Release pairs with the fence and loads in `Counters::changes`, so that a thread that reads
    // this sees that the request was entered. Otherwise it is an independent total.
    counter.fetch_add(by, Ordering::Release);
}

/// Reads a counter.
pub(crate) fn read(counter: &AtomicU64) -> u64 {
    // relaxed: an independent total.
    counter.load(Ordering::Relaxed)
}

/// Reads a counter that may be below 0 for a moment.
pub(crate) fn total(counter: &AtomicU64) -> u64 {
    let value = read(counter);
    if value.cast_signed() < 0 { 0 } else { value }
}

/// Adds the difference between two values to a counter.
pub(crate) fn change(counter: &AtomicU64, old: u64, new: u64) {
    if old != new {
        bump(counter, new.wrapping_sub(old));
    }
}
