//! Threads for requests that wait: for a backing disk, or for a command that takes its time.
//!
//! ```text
//!   give --> queue --> take: an idle thread, or a new one, up to THREADS_MAX
//! ```
//!
//! They are apart from the threads that work on data, so that a disk which stalls stalls those who
//! read from it, and nobody else. There is none until the first such request.
//!
//! Invariants
//! - W1. Every request in the queue has an idle thread that was told, or a thread that will look
//!   when it is done; so nothing stays in the queue.
//! - W2. At most `THREADS_MAX` threads, and at most `QUEUE_MAX` requests in the queue; one more is
//!   given back.
//!
//! Lock: one, a leaf, around the queue and the counts.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Threads: as many requests a disk works on at a time, which is what its queue commonly holds.
const THREADS_MAX: usize = 32;
/// Requests that may wait for a thread.
const QUEUE_MAX: usize = super::roles::ASIDE_MAX;

/// The threads; `T` is a request with all it needs.
pub(crate) struct Waiters<T> {
    state: Mutex<State<T>>,
    came: Condvar,
}

struct State<T> {
    queue: VecDeque<T>,
    /// Threads that were told of nothing, or have not looked yet.
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    /// No more will be given.
    closed: bool,
}

impl<T> Waiters<T> {
    pub(crate) fn new() -> Self {
        let state = State { queue: VecDeque::new(), idle: 0, threads: Vec::new(), closed: false };
        Self { state: Mutex::new(state), came: Condvar::new() }
    }

    /// Has a request answered by a thread that runs `thread`, which calls [`Waiters::take`] until
    /// there is none; gives it back where that cannot be.
    pub(crate) fn give(&self, request: T, thread: impl FnOnce() + Send + 'static) -> Result<(), T> {
        let mut state = self.state();
        if state.queue.len() >= QUEUE_MAX {
            return Err(request);
        }
        if state.idle <= state.queue.len() && state.threads.len() < THREADS_MAX {
            let started = host::thread::spawn("fuse-waiter", thread);
            match started {
                Ok(handle) => state.threads.push(handle),
                Err(_) if state.threads.is_empty() => return Err(request),
                Err(_) => {} // one of those that there are
            }
        }
        state.queue.push_back(request);
        drop(state);
        self.came.notify_one();
        Ok(())
    }

    /// The next request; `None` when there will be none.
    pub(crate) fn take(&self) -> Option<T> {
        let mut state = self.state();
        loop {
            if let Some(request) = state.queue.pop_front() {
                return Some(request);
            }
            if state.closed {
                return None;
            }
            state.idle += 1;
            state = self.came.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }

    /// Waits until everything given is answered, and the threads have ended.
    pub(crate) fn join(&self) {
        let threads = {
            let mut state = self.state();
            state.closed = true;
            std::mem::take(&mut state.threads)
        };
        self.came.notify_all();
        for handle in threads {
            // One that panicked has left its request without an answer.
            let _ = handle.join();
        }
    }

    /// The lock is held for moves of whole values only, so what a dead thread left is whole.
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};
    use std::sync::{Arc, Barrier};

    type Job = Box<dyn FnOnce() + Send>;

    fn run(waiters: &Arc<Waiters<Job>>) -> impl FnOnce() + Send + 'static {
        let waiters = Arc::clone(waiters);
        move || {
            while let Some(job) = waiters.take() {
                job();
            }
        }
    }

    fn give(waiters: &Arc<Waiters<Job>>, job: impl FnOnce() + Send + 'static) -> bool {
        waiters.give(Box::new(job), run(waiters)).is_ok()
    }

    fn tell(sender: &Sender<usize>, number: usize) -> impl FnOnce() + Send + 'static {
        let sender = sender.clone();
        move || sender.send(number).expect("the test listens")
    }

    #[test]
    fn as_many_wait_at_a_time_as_there_may_be_threads() {
        let waiters = Arc::new(Waiters::new());
        // Passed only when all of them wait at the same moment.
        let barrier = Arc::new(Barrier::new(THREADS_MAX));
        let (told, answered) = channel();
        for number in 0..THREADS_MAX {
            let (barrier, tell) = (Arc::clone(&barrier), tell(&told, number));
            let job = move || {
                barrier.wait();
                tell();
            };
            assert!(give(&waiters, job));
        }
        let mut numbers: Vec<_> = answered.iter().take(THREADS_MAX).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..THREADS_MAX).collect::<Vec<_>>());
        waiters.join();
    }

    #[test]
    fn all_are_answered_before_the_end_and_one_too_many_is_given_back() {
        let waiters = Arc::new(Waiters::new());
        let (open, gate) = channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let (told, answered) = channel();
        for number in 0..THREADS_MAX {
            let (gate, tell) = (Arc::clone(&gate), tell(&told, number));
            let job = move || {
                let opened = gate.lock().unwrap_or_else(PoisonError::into_inner).recv();
                assert!(opened.is_err(), "nothing is sent");
                tell();
            };
            assert!(give(&waiters, job));
        }
        // The threads may not have taken their first ones yet.
        while !waiters.state().queue.is_empty() {
            std::thread::yield_now();
        }
        for number in 0..QUEUE_MAX {
            assert!(give(&waiters, tell(&told, THREADS_MAX + number)));
        }
        assert!(!give(&waiters, || unreachable!("it was given back")));
        drop(open);
        waiters.join();
        drop(told);
        assert_eq!(answered.iter().count(), THREADS_MAX + QUEUE_MAX);
    }
}
