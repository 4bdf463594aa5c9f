//! Deferred jobs: work that a caller does not wait for, done by the memory's worker.
//!
//! ```text
//!   defer -> | 9 | 8 | 7 | ...  --oldest first-->  6 running (worker)   -> done
//!            +---+---+---+                         5 running (a flush)  -> done
//!              each with the bytes that are pending until it is done
//! ```
//!
//! A job is a closure: the queue knows nothing of what it frees. A thread that flushes does not
//! only wait. It runs the oldest jobs itself, until those are done that were there when it came.
//!
//! Invariants
//! - I1 a job is queued, then running, then done, once; also when it panics, which is counted.
//! - I2 `pending` is the sum of the bytes of the jobs that are not done.
//! - I3 tickets grow in the order of the queue: what is older than a ticket and not done is running
//!   or further ahead.
//! - I4 a job that flushes waits for older jobs only, so that no two wait for each other.
//!
//! Lock: `State`'s, a leaf, never held while a job runs. A job may take any lock, so a flush is
//! called with none held that a job might want.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};

use host::sync::Condvar;
use host::sync::atomic::{AtomicU64, Ordering};
use host::sync::thread::{self, ThreadId};
use host::{Rank, RankedMutex};

/// The most jobs that are queued. A thread that defers one more runs the oldest.
const JOBS_MAX: usize = 1024;
/// Pending bytes of a job at most, so that their sum does not wrap.
pub(super) const PENDING_MAX: u64 = 1 << 40; // 1 TiB
const _: () = assert!(PENDING_MAX.checked_mul(2 * JOBS_MAX as u64).is_some(), "the sum fits");

pub(super) type Work = Box<dyn FnOnce() + Send>;

/// What is deferred in a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DeferredStatus {
    /// Jobs queued or running.
    pub jobs: usize,
    /// The bytes that their callers said would be pending.
    pub pending_bytes: u64,
    /// Jobs that panicked so far, in any thread. The rest of their work was not done.
    pub panicked: u64,
}

/// The jobs of one memory.
pub(crate) struct Jobs {
    state: RankedMutex<State>,
    /// A job is done.
    done: Condvar,
    /// Bytes of the jobs that are not done.
    pending: AtomicU64,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    running: Vec<Running>,
    /// The ticket given last.
    last: u64,
    panicked: u64,
}

struct Job {
    ticket: u64,
    bytes: u64,
    work: Work,
}

#[derive(Clone, Copy)]
struct Running {
    ticket: u64,
    thread: ThreadId,
}

impl State {
    /// Whether a job with a ticket up to `last` is running.
    fn runs_up_to(&self, last: u64) -> bool {
        self.running.iter().any(|running| running.ticket <= last)
    }

    /// The newest job that a flush of this thread waits for (I4).
    fn newest_for(&self, thread: ThreadId) -> u64 {
        let own = self.running.iter().filter(|running| running.thread == thread);
        own.map(|running| running.ticket - 1).min().unwrap_or(self.last)
    }
}

impl Jobs {
    pub(crate) fn new() -> Jobs {
        let state = RankedMutex::new(Rank::Leaf, State::default());
        Jobs { state, done: Condvar::new(), pending: AtomicU64::new(0) }
    }

    /// Queues a job. If there is no room, the oldest are run first.
    pub(crate) fn push(&self, bytes: u64, work: Work) {
        // relaxed: a meter. Before the job can be done, so that it never falls below 0.
        self.pending.fetch_add(bytes, Ordering::Relaxed);
        let mut state = self.state.lock();
        while state.queue.len() >= JOBS_MAX {
            drop(state);
            self.run_oldest(u64::MAX);
            state = self.state.lock();
        }
        state.last += 1;
        let ticket = state.last;
        state.queue.push_back(Job { ticket, bytes, work });
    }

    /// Runs the jobs that are queued now: for the worker, which others may keep busy without end.
    pub(crate) fn run_all(&self) {
        let newest = self.state.lock().last;
        while self.run_oldest(newest) {}
    }

    /// Returns when every job that was deferred before is done, except those that this thread is
    /// running, and newer ones.
    pub(crate) fn flush(&self) {
        let newest = self.state.lock().newest_for(thread::current().id());
        while self.run_oldest(newest) {}
        let mut state = self.state.lock();
        while state.runs_up_to(newest) {
            state = state.sleep(&self.done);
        }
    }

    /// Bytes of the jobs that are not done.
    pub(crate) fn pending_bytes(&self) -> u64 {
        // relaxed: a meter.
        self.pending.load(Ordering::Relaxed)
    }

    pub(crate) fn status(&self) -> DeferredStatus {
        let state = self.state.lock();
        DeferredStatus {
            jobs: state.queue.len() + state.running.len(),
            pending_bytes: self.pending_bytes(),
            panicked: state.panicked,
        }
    }

    /// Runs the oldest job if its ticket is up to `newest`. False if there is none.
    fn run_oldest(&self, newest: u64) -> bool {
        let mut state = self.state.lock();
        if state.queue.front().is_none_or(|job| job.ticket > newest) {
            return false;
        }
        let Some(job) = state.queue.pop_front() else { return false };
        let thread = thread::current().id();
        state.running.push(Running { ticket: job.ticket, thread });
        drop(state);
        let panicked = catch_unwind(AssertUnwindSafe(job.work)).is_err();
        // relaxed: a meter.
        self.pending.fetch_sub(job.bytes, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.panicked += u64::from(panicked);
        state.running.retain(|running| running.ticket != job.ticket);
        drop(state);
        self.done.notify_all();
        true
    }
}
