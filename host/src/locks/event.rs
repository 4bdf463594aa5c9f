//! Something that happened: a count that threads can wait on, and that a signal handler may raise.

use super::futex::Futex;
use crate::sync::atomic::Ordering;
use std::time::Duration;

/// A count of happenings. Whoever waits names the count it has seen, so none is missed.
#[derive(Debug)]
pub struct Event(Futex);

impl Event {
    /// Nothing has happened yet.
    pub fn new() -> Event {
        Event(Futex::new(0))
    }

    /// How often it has happened, modulo 2^32.
    pub fn seen(&self) -> u32 {
        // Acquire pairs with the Release in `raise`, so that what was done before is seen.
        self.0.word().load(Ordering::Acquire)
    }

    /// It has happened: wakes all who wait. Fit for a signal handler.
    pub fn raise(&self) {
        // Release pairs with the Acquire in `seen`.
        self.0.word().fetch_add(1, Ordering::Release);
        self.0.wake_all();
    }

    /// Waits until it has happened since `seen`, or `timeout` is over, or for no reason.
    pub fn wait(&self, seen: u32, timeout: Duration) {
        self.0.wait_for(seen, timeout);
    }
}

impl Default for Event {
    fn default() -> Event {
        Event::new()
    }
}
