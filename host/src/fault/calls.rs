//! Which threads are in the middle of a call that may hold what a fault waits for.
//!
//! ```text
//!   page_out: begin --> locks a group ... --signal--> the program's handler touches a page
//!                                                       `--> fault: the group's lock is taken,
//!                                                            by the thread that waits for it
//! ```
//!
//! Such a fault would wait for its own thread, with every signal blocked, and others would wait for
//! both. So the calls of a program's threads are noted here, and a fault of a thread that is noted
//! ends the process with a word. Threads of ours need no note: no handler of the program's runs in
//! them.
//!
//! Invariant: a slot belongs to the thread whose number it has until that thread empties it. A
//! thread has one slot at most: of calls within calls the outermost is noted.
//!
//! A signal handler reads this, and so does the thread that serves faults by messages. Therefore it
//! is a table of atomics and no thread-local, which a handler in a shared library might be the
//! first to make.

use rustix::thread::gettid;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};

/// Calls that are noted at a time; those of more threads are not.
const CALLS_MAX: usize = 128;
const EMPTY: u64 = 0;

/// The table.
pub(super) struct Calls {
    /// Calls that are noted.
    noted: AtomicU32,
    /// Calls that were begun, so that two of one thread can be told apart.
    begun: AtomicU32,
    /// The call's number in the upper half, its thread's in the lower.
    slots: [AtomicU64; CALLS_MAX],
}

impl Calls {
    pub(super) const fn new() -> Calls {
        Calls {
            noted: AtomicU32::new(0),
            begun: AtomicU32::new(0),
            slots: [const { AtomicU64::new(EMPTY) }; CALLS_MAX],
        }
    }

    /// Notes a call of this thread, until the result is dropped.
    pub(super) fn begin(&'static self) -> Call {
        let thread = this_thread();
        // relaxed: a count, and a number that is only compared.
        let (before, number) = (
            self.noted.fetch_add(1, Ordering::Relaxed),
            self.begun.fetch_add(1, Ordering::Relaxed),
        );
        let within = before > 0 && self.call_of(thread).is_some();
        let slot = if within { None } else { self.take(entry(number, thread), thread) };
        // SeqCst pairs with nothing but the compiler: a handler that interrupts this thread from
        // here on finds the note.
        compiler_fence(Ordering::SeqCst);
        Call { calls: self, slot, thread_bound: PhantomData }
    }

    /// A slot for `entry`, if one is free.
    fn take(&'static self, entry: u64, thread: u32) -> Option<&'static AtomicU64> {
        let home = thread as usize % CALLS_MAX;
        self.slots[home..].iter().chain(&self.slots[..home]).find(|slot| {
            // relaxed: who has to find it is this thread, or reads a message that the system sent
            // for this thread after it.
            slot.compare_exchange(EMPTY, entry, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        })
    }

    /// The call that a thread is in, as a number of its own. Fit for a signal handler.
    pub(super) fn call_of(&self, thread: u32) -> Option<u64> {
        // relaxed: as in `take`.
        let entries = self.slots.iter().map(|slot| slot.load(Ordering::Relaxed));
        entries.into_iter().find(|&entry| entry != EMPTY && entry as u32 == thread)
    }

    /// Whether this thread is in a call. Fit for a signal handler, and a load where nobody is.
    pub(super) fn has_this_thread(&self) -> bool {
        // relaxed: this thread's own note is seen in any case.
        self.noted.load(Ordering::Relaxed) > 0 && self.call_of(this_thread()).is_some()
    }

    /// Forgets all notes, in a forked child: they are of its parent's threads.
    pub(super) fn abandon(&self) {
        // relaxed: no thread of the child is in a call.
        self.slots.iter().for_each(|slot| slot.store(EMPTY, Ordering::Relaxed));
        // relaxed: as above.
        self.noted.store(0, Ordering::Relaxed);
    }

    /// How many were begun.
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
    /// None within another call, or where the table is full.
    slot: Option<&'static AtomicU64>,
    /// A thread ends the calls that it has begun.
    thread_bound: PhantomData<*const ()>,
}

impl Drop for Call {
    fn drop(&mut self) {
        // SeqCst pairs with nothing but the compiler: what was held is given up by now.
        compiler_fence(Ordering::SeqCst);
        if let Some(slot) = self.slot {
            // relaxed: as in `Calls::take`.
            slot.store(EMPTY, Ordering::Relaxed);
        }
        // relaxed: a count.
        self.calls.noted.fetch_sub(1, Ordering::Relaxed);
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
