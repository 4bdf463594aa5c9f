//! Totals that many threads add to and any thread may read.
//!
//! Each thread enters its own changes in order, but they may come between those of other threads.
//! So a total may be negative for a moment. It is shown as 0 then.
//!
//! Locks: none.

// A model of the counters sees their steps. A model of a whole device does not, because nothing in
// it depends on them.
#[cfg(all(test, loom))]
pub(crate) use loom::sync::atomic::{AtomicU64, Ordering, fence};
#[cfg(not(all(test, loom)))]
pub(crate) use std::sync::atomic::{AtomicU64, Ordering, fence};

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
    not_negative(read(counter))
}

/// A value as it is shown: 0 if it is below 0 for a moment.
pub(crate) fn not_negative(value: u64) -> u64 {
    if value.cast_signed() < 0 { 0 } else { value }
}

/// Adds the difference between two values to a counter.
pub(crate) fn change(counter: &AtomicU64, old: u64, new: u64) {
    if old != new {
        bump(counter, new.wrapping_sub(old));
    }
}
