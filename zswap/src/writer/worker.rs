//! A thread that shrinks a cache in the background: how it is started, woken and ended.
//!
//! ```text
//!   ask --> started with its work, or woken --> wait: true, there is something to do
//!   stop ----------------------------------> wait: false, it ends
//! ```
//!
//! Invariants
//! - I1 the thread ends with its cache, which wakes it and waits for it.
//! - I2 a thread that a panic ended is replaced by the next `ask`.
//!
//! Lock: one, a leaf.

use std::thread::JoinHandle;

use host::Rank;
use host::sync::unmodelled::Condvar;
use host::unmodelled::RankedMutex;

/// A thread that shrinks in the background, started when it is first wanted.
pub(crate) struct Worker {
    state: RankedMutex<State>,
    news: Condvar,
}

#[derive(Default)]
struct State {
    asked: bool,
    stopped: bool,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// A worker whose thread is not started.
    pub(crate) fn new() -> Worker {
        let state = RankedMutex::new(Rank::Leaf, State::default());
        Worker { state, news: Condvar::new() }
    }

    /// There is something to do. Wakes the thread, or starts it with `work`.
    pub(crate) fn ask(&self, work: impl FnOnce() + Send + 'static) {
        let mut state = self.state.lock();
        if state.stopped {
            return;
        }
        state.asked = true;
        if state.thread.as_ref().is_none_or(JoinHandle::is_finished) {
            // If the system has no thread for us, stores that may wait make the room.
            state.thread = host::thread::spawn("zswap-shrink", work).ok();
        }
        self.news.notify_one();
    }

    /// True when there is something to do, false when the worker has to end.
    pub(crate) fn wait(&self) -> bool {
        let idle = |state: &mut State| !state.asked && !state.stopped;
        let mut state = self.state.lock().sleep_while(&self.news, idle);
        state.asked = false;
        !state.stopped
    }

    /// True once the worker has to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.stopped = true;
        let thread = state.thread.take();
        drop(state);
        self.news.notify_all();
        // A panic in the thread is not passed on. It left its work as a failed write-back does.
        thread.into_iter().for_each(|thread| drop(thread.join()));
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_died_is_replaced() {
        let worker = Worker::new();
        let dead = std::thread::spawn(|| {});
        let id = dead.thread().id();
        while !dead.is_finished() {
            std::thread::yield_now();
        }
        worker.state.lock().thread = Some(dead);
        worker.ask(|| {});
        let replaced = worker.state.lock().thread.as_ref().map(|thread| thread.thread().id());
        assert_ne!(replaced, Some(id));
        worker.stop();
    }
}
