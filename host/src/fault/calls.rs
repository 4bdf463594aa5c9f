//! Notes which threads are in the middle of a call that may hold what a fault waits for.
//!
//! ```text
//!   page_out: begin --> locks a group ... --signal--> the program's handler touches a page
//!                                                       `--> fault: the group's lock is taken,
//!                                                            by the thread that waits for it
//! ```
//!
//! Such a fault would wait for its own thread, with every signal blocked, and others would wait for
//! both. The calls of the program's threads are therefore noted here. A fault of a thread that is
//! noted ends the process with a message. Threads of ours need no note, because no handler of the
//! program runs in them.
//!
//! Invariant: a slot belongs to the thread whose number it has, until that thread empties it. A
//! thread has at most one slot. Of nested calls the outermost is noted.
//!
//! A signal handler reads this table, and so does the thread that serves faults by messages. It is
//! therefore a table of atomics. In a shared library the first access to a thread-local may
//! allocate, and a handler may be the first. Lock: none.

use crate::sync::fork::{self, InProcess};
use rustix::thread::gettid;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};

/// Calls that are noted at a time. The calls of further threads are not.
const CALLS_MAX: usize = 128;
const EMPTY: u64 = 0;

/// The table of calls.
pub(super) struct Calls {
    /// Calls that are under way.
    under_way: AtomicU32,
    /// Calls that were begun. The number tells two calls of one thread apart.
    begun: AtomicU32,
    /// The number of the call in the upper half, and of its thread in the lower.
    slots: [AtomicU64; CALLS_MAX],
}

impl Calls {
    pub(super) const fn new() -> Calls {
        Calls {
            under_way: AtomicU32::new(0),
            begun: AtomicU32::new(0),
            slots: [const { AtomicU64::new(EMPTY) }; CALLS_MAX],
        }
    }

    /// Notes a call of this thread, until the result is dropped.
    pub(super) fn begin(&'static self) -> Call {
        let thread = this_thread();
        let within = self.has_this_thread();
        // relaxed: a count.
        self.under_way.fetch_add(1, Ordering::Relaxed);
        // relaxed: as above.
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        let slot = if within { None } else { self.take(entry(number, thread), thread) };
        // A fork waits until the outermost call has ended. The note comes first, so that a handler
        // that forks in between does not wait for its own thread. Without a note a nested call
        // would go inside once more, and might wait for a fork that waits for this one.
        let inside = slot.is_some().then(fork::go_inside);
        // SeqCst pairs with the compiler only, so that a handler that interrupts this thread from
        // here on finds the note.
        compiler_fence(Ordering::SeqCst);
        Call { calls: self, slot, inside, thread_bound: PhantomData }
    }

    /// A slot for `entry`, if one is free.
    fn take(&'static self, entry: u64, thread: u32) -> Option<&'static AtomicU64> {
        let home = thread as usize % CALLS_MAX;
        self.slots[home..].iter().chain(&self.slots[..home]).find(|slot| {
            // relaxed: only this thread has to find it, or a thread that reads a message which the
            // system sent for this thread later.
            slot.compare_exchange(EMPTY, entry, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        })
    }

    /// The entry of the call that a thread is in. May be called in a signal handler.
    pub(super) fn call_of(&self, thread: u32) -> Option<u64> {
        // relaxed: for the reason in `take`.
        let entries = self.slots.iter().map(|slot| slot.load(Ordering::Relaxed));
        entries.into_iter().find(|&entry| entry != EMPTY && entry as u32 == thread)
    }

    /// Whether this thread is in a call. May be called in a signal handler. It is one load while no
    /// thread is in a call.
    pub(super) fn has_this_thread(&self) -> bool {
        // relaxed: a thread always sees its own note.
        self.under_way.load(Ordering::Relaxed) > 0 && self.call_of(this_thread()).is_some()
    }

    /// Forgets all notes in a forked child, because they belong to threads of its parent.
    pub(super) fn abandon(&self) {
        // relaxed: no thread of the child is in a call yet.
        self.slots.iter().for_each(|slot| slot.store(EMPTY, Ordering::Relaxed));
        // relaxed: as above.
        self.under_way.store(0, Ordering::Relaxed);
    }

    /// How many calls were begun, modulo 2^32.
    pub(super) fn begun(&self) -> u32 {
        // relaxed: a count.
        self.begun.load(Ordering::Relaxed)
    }
}

fn entry(number: u32, thread: u32) -> u64 {
    u64::from(number) << u32::BITS | u64::from(thread)
}

fn this_thread() -> u32 {
    gettid().as_raw_nonzero().get().cast_unsigned()
}

/// The note that this thread is in the middle of a call: see [`begin_call`](super::begin_call).
#[must_use = "the call ends when this is dropped"]
pub struct Call {
    calls: &'static Calls,
    /// `None` within another call, or if the table is full.
    slot: Option<&'static AtomicU64>,
    /// `None` within another call.
    inside: Option<InProcess>,
    /// A call ends in the thread that began it.
    thread_bound: PhantomData<*const ()>,
}

impl Drop for Call {
    fn drop(&mut self) {
        // SeqCst pairs with the compiler only, so that the locks of the call are given up by now.
        compiler_fence(Ordering::SeqCst);
        // Before the note goes, for the reason in `Calls::begin`.
        drop(self.inside.take());
        if let Some(slot) = self.slot {
            // relaxed: for the reason in `Calls::take`.
            slot.store(EMPTY, Ordering::Relaxed);
        }
        // relaxed: a count.
        self.calls.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("noted", &self.slot.is_some()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_in_a_call_from_the_outermost_begin_to_its_end() {
        static CALLS: Calls = Calls::new();
        assert!(!CALLS.has_this_thread());
        let outer = CALLS.begin();
        let noted = CALLS.call_of(this_thread());
        let inner = CALLS.begin();
        assert_eq!(CALLS.call_of(this_thread()), noted, "the outermost is noted");
        drop(inner);
        assert!(CALLS.has_this_thread());
        let other = std::thread::spawn(|| CALLS.has_this_thread()).join().expect("it asks only");
        assert!(!other, "another thread is in no call");
        drop(outer);
        assert!(!CALLS.has_this_thread());
        let again = CALLS.begin();
        assert_ne!(CALLS.call_of(this_thread()), noted, "another call");
        drop(again);
    }

    #[test]
    fn calls_of_more_threads_than_there_are_slots_go_on_without_a_note() {
        static CALLS: Calls = Calls::new();
        for slot in &CALLS.slots {
            slot.store(entry(1, u32::MAX), Ordering::Relaxed);
        }
        let call = CALLS.begin();
        assert!(call.slot.is_none() && !CALLS.has_this_thread());
        drop(call);
        assert!(CALLS.slots.iter().all(|slot| slot.load(Ordering::Relaxed) != EMPTY));
    }
}
