//! The worker of a memory: what is done when nobody asks for it.
//!
//! ```text
//!   objects were freed      -- at rest for a tick -->   the pool is compacted
//!   free frames > limit/32  ------- 1 s ----------->    released down to limit/64
//!   a pool was compacted    ----------------------->    all free frames released
//! ```
//!
//! The thread is started by the first free that has work for it, sleeps while there is none, and
//! ends with the memory: it holds no strong reference while it sleeps. A pool in use is left alone:
//! compaction would take its locks and move what is about to change again.
//!
//! Lock: `State`, a leaf; held to read and set what is wanted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::memory::Memory;

/// Free frames above limit / this are given back.
const RELEASE_ABOVE_DIVISOR: u64 = 32;
/// A release stops at limit / this.
const RELEASE_TO_DIVISOR: u64 = 64;
/// Never bothers for less than this, in bytes.
const RELEASE_MIN: u64 = 1 << 20;
/// How often the worker looks while there is work; a pool without a change between two looks is at
/// rest.
const TICK: Duration = Duration::from_millis(250);
/// Ticks that free frames wait for reuse.
const RELEASE_TICKS: u32 = 4; // 1 s

/// The worker of one memory.
pub(crate) struct Worker {
    /// False: no thread is ever started.
    allowed: bool,
    above: u64,
    keep: u64,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// A release is wanted already: a free need not say so again.
    releasing: AtomicBool,
}

#[derive(Default)]
struct State {
    running: bool,
    /// Some pool has had objects freed since it was last compacted.
    stirred: bool,
    /// Ticks until a release, once one is wanted.
    release_in: Option<u32>,
    /// All that is free is to be released at once.
    release_now: bool,
    stop: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The flags are valid in any combination, also after a panic elsewhere.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Worker {
    pub(crate) fn new(limit_bytes: u64, allowed: bool) -> Worker {
        Worker {
            // A thread of the system's is none of loom's.
            allowed: allowed && !cfg!(loom),
            above: (limit_bytes / RELEASE_ABOVE_DIVISOR).max(RELEASE_MIN),
            keep: limit_bytes / RELEASE_TO_DIVISOR,
            shared: Arc::default(),
        }
    }

    /// Called with the free bytes held after a run went back.
    pub(crate) fn notice_free(&self, memory: &Arc<Memory>, free_held: u64) {
        // relaxed: a hint. A free that reads an old value is followed by others, or leaves frames
        // to the next release.
        let asked = &self.shared.releasing;
        if self.allowed
            && free_held > self.above
            && !asked.load(Ordering::Relaxed)
            && !asked.swap(true, Ordering::Relaxed)
        {
            let wanted = self.want(memory, |state| {
                state.release_in.get_or_insert(RELEASE_TICKS);
            });
            if !wanted {
                // relaxed: a hint; the next free tries again.
                asked.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Called when the first object of a pool was freed since its last compaction.
    pub(crate) fn notice_stirred(&self, memory: &Arc<Memory>) {
        self.want(memory, |state| state.stirred = true);
    }

    /// Asks for all free frames to be released without delay; false where there is no worker.
    pub(crate) fn release_now(&self, memory: &Arc<Memory>) -> bool {
        self.want(memory, |state| state.release_now = true)
    }

    /// False where there is no thread to do it.
    fn want(&self, memory: &Arc<Memory>, wish: impl FnOnce(&mut State)) -> bool {
        if !self.allowed {
            return false;
        }
        let mut state = self.shared.lock();
        wish(&mut state);
        if state.running {
            self.shared.changed.notify_one();
        } else {
            // Without a thread the wish stays, and the next one tries again.
            state.running = self.start(Arc::downgrade(memory));
        }
        state.running
    }

    fn start(&self, memory: Weak<Memory>) -> bool {
        let shared = Arc::clone(&self.shared);
        let keep = self.keep;
        std::thread::Builder::new()
            .name("ramfold-worker".into())
            .spawn(move || run(&shared, &memory, keep))
            .is_ok()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.lock().stop = true;
        self.shared.changed.notify_all();
    }
}

/// What is due at a tick.
struct Due {
    settle: bool,
    /// Bytes of free frames to keep.
    release: Option<u64>,
}

fn run(shared: &Shared, memory: &Weak<Memory>, keep: u64) {
    while let Some(due) = wait(shared, keep) {
        let Some(memory) = memory.upgrade() else { return };
        if due.settle && !memory.settle() {
            shared.lock().stirred = true;
        }
        if let Some(keep) = due.release {
            // relaxed: a hint; frees from here on ask for the next release.
            shared.releasing.store(false, Ordering::Relaxed);
            memory.release(keep);
        }
    }
}

/// Sleeps until there is work, and a tick more; `None` when the memory is gone.
fn wait(shared: &Shared, keep: u64) -> Option<Due> {
    let idle = |state: &mut State| {
        !(state.stirred || state.release_in.is_some() || state.release_now || state.stop)
    };
    let state = shared.changed.wait_while(shared.lock(), idle);
    let state = state.unwrap_or_else(PoisonError::into_inner);
    let (mut state, _) = shared
        .changed
        .wait_timeout_while(state, TICK, |state| !state.stop && !state.release_now)
        .unwrap_or_else(PoisonError::into_inner);
    if state.stop {
        return None;
    }
    if std::mem::take(&mut state.release_now) {
        return Some(Due { settle: false, release: Some(0) });
    }
    let settle = std::mem::take(&mut state.stirred);
    state.release_in = state.release_in.map(|ticks| ticks - 1);
    let release = state.release_in == Some(0);
    if release {
        state.release_in = None;
    }
    Some(Due { settle, release: release.then_some(keep) })
}
