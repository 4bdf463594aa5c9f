//! Threads that start at the same moment.
//!
//! ```text
//!   work of its own ... | barrier: asleep until all are there | count: awake until all are there |
//! ```
//!
//! A barrier wakes one thread after the other, tens of microseconds apart; the count lets those
//! that are awake already go on together. There may be more threads than CPUs: they yield.
//!
//! Invariant: a gate is passed once by each of its threads.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// See the module documentation.
pub(crate) struct Gate {
    threads: u32,
    barrier: Barrier,
    awake: AtomicU32,
}

impl Gate {
    /// For so many threads.
    pub(crate) fn new(threads: u32) -> Gate {
        Gate { threads, barrier: Barrier::new(threads as usize), awake: AtomicU32::new(0) }
    }

    /// Returns when all threads are here.
    pub(crate) fn pass(&self) {
        self.barrier.wait();
        // relaxed: nothing is handed over but the moment; the barrier did the rest.
        self.awake.fetch_add(1, Ordering::Relaxed);
        // relaxed: as above.
        while self.awake.load(Ordering::Relaxed) < self.threads {
            thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn nobody_passes_before_the_last_is_there() {
        let (gate, start) = (Gate::new(3), Instant::now());
        thread::scope(|scope| {
            for wait in [0, 0, 20].map(Duration::from_millis) {
                let gate = &gate;
                scope.spawn(move || {
                    thread::sleep(wait);
                    gate.pass();
                    assert!(start.elapsed() >= Duration::from_millis(20));
                });
            }
        });
    }
}
