//! Something that happened: a count that threads can wait on, and that a signal handler may raise.
//!
//! Invariant: a thread that waits names the count that it has seen, so it misses no raise. Lock:
//! none.

use super::futex::Futex;
use crate::sync::atomic::Ordering;
use std::time::Duration;

/// A count of happenings. See the module for how to wait for the next one.
#[derive(Debug)]
pub struct Event(Futex);

impl Event {
    /// An event that has not happened yet.
    pub fn new() -> Event {
        Event(Futex::new(0))
    }

    /// How often it has happened so far, modulo 2^32.
    pub fn seen(&self) -> u32 {
        // Acquire pairs with the Release in `raise`, so that this thread sees what was done before.
        self.0.word().load(Ordering::Acquire)
    }

    /// Counts one more happening and wakes all threads that wait. May be called in a signal
    /// handler.
    pub fn raise(&self) {
        // Release pairs with the Acquire in `seen`, so that a thread that sees this count sees what
        // happened.
        self.0.word().fetch_add(1, Ordering::Release);
        self.0.wake_all();
    }

    /// Waits until it has happened since `seen` was read, or until `timeout` is over. It may also
    /// return for no reason, so callers loop.
    pub fn wait(&self, seen: u32, timeout: Duration) {
        self.0.wait_for(seen, timeout);
    }
}

impl Default for Event {
    fn default() -> Event {
        Event::new()
    }
}
