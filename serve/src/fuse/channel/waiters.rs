//! Threads for requests that wait: for a backing disk, or for a command that takes its time.
//!
//! ```text
//!   give --> queue --> take: an idle thread, or a new one, up to threads_max
//! ```
//!
//! They are not the threads that work on data. So a disk that stalls delays only requests that need
//! it. No such thread exists before the first such request.
//!
//! Invariants
//! - W1. For every request in the queue an idle thread was woken, or a busy thread will look when
//!   it is done. So no request stays in the queue.
//! - W2. There are at most `threads_max` threads, and at most `QUEUE_MAX` requests in the queue.
//!   One more is given back.
//!
//! Lock: one, a leaf, around the queue and the counts. A thread is started under it, and takes it
//! only later.

use host::Rank;
use host::sync::unmodelled::Condvar;
use host::unmodelled::RankedMutex;
use std::collections::VecDeque;
use std::thread::JoinHandle;

/// The most threads for requests that wait. A disk's queue commonly holds so many at a time.
pub(super) const THREADS_MAX: usize = 32;
/// The most requests that wait for a thread.
const QUEUE_MAX: usize = super::roles::ASIDE_MAX;

/// The threads. `T` is a request with everything that it needs.
pub(crate) struct Waiters<T> {
    threads_max: usize,
    state: RankedMutex<State<T>>,
    came: Condvar,
}

struct State<T> {
    queue: VecDeque<T>,
    /// Threads that wait, or were woken and have not looked yet.
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    /// No more requests will come.
    closed: bool,
}

impl<T> Waiters<T> {
    /// Up to `threads_max` threads, of which none exists yet.
    pub(crate) fn new(threads_max: usize) -> Self {
        let state = State { queue: VecDeque::new(), idle: 0, threads: Vec::new(), closed: false };
        Self { threads_max, state: RankedMutex::new(Rank::Leaf, state), came: Condvar::new() }
    }

    /// Has a request answered by a thread that runs `thread`, which calls [`Waiters::take`] until
    /// it gives `None`. The request is given back if there is no thread and no room for it.
    pub(crate) fn give(&self, request: T, thread: impl FnOnce() + Send + 'static) -> Result<(), T> {
        let mut state = self.state.lock();
        if state.queue.len() >= QUEUE_MAX {
            return Err(request);
        }
        if state.idle <= state.queue.len() && state.threads.len() < self.threads_max {
            let started = host::thread::spawn("fuse-waiter", thread);
            match started {
                Ok(handle) => state.threads.push(handle),
                Err(_) if state.threads.is_empty() => return Err(request),
                Err(_) => {} // a thread that exists will take it
            }
        }
        state.queue.push_back(request);
        drop(state);
        self.came.notify_one();
        Ok(())
    }

    /// The next request. `None` if there will be none.
    pub(crate) fn take(&self) -> Option<T> {
        let mut state = self.state.lock();
        loop {
            if let Some(request) = state.queue.pop_front() {
                return Some(request);
            }
            if state.closed {
                return None;
            }
            state.idle += 1;
            state = state.sleep(&self.came);
            state.idle -= 1;
        }
    }

    /// Waits until every given request is answered and the threads have ended.
    pub(crate) fn join(&self) {
        let threads = {
            let mut state = self.state.lock();
            state.closed = true;
            std::mem::take(&mut state.threads)
        };
        self.came.notify_all();
        for handle in threads {
            // A thread that panicked left its request unanswered.
            let _ = handle.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};
    use std::sync::{Arc, Barrier, Mutex, PoisonError};

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
        let waiters = Arc::new(Waiters::new(THREADS_MAX));
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
        let waiters = Arc::new(Waiters::new(THREADS_MAX));
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
        while !waiters.state.lock().queue.is_empty() {
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
