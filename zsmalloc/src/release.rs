//! Giving free memory back after a while: the worker of a memory.
//!
//! ```text
//!   free frames held   > limit / 32 -------- 1 s -------->  released down to limit / 64
//! ```
//!
//! The thread is started by the first run that takes the free frames over the threshold, sleeps
//! otherwise, and ends with the memory: it holds no strong reference while it sleeps.
//!
//! Lock: `State`, a leaf; held to read and set flags only.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::memory::Memory;

/// Free frames above limit / this are given back.
const RELEASE_ABOVE_DIVISOR: u64 = 32;
/// A release stops at limit / this.
const RELEASE_TO_DIVISOR: u64 = 64;
/// Never bothers for less than this, in bytes.
const RELEASE_MIN: u64 = 1 << 20;
/// How long free frames wait for reuse.
const HYSTERESIS: Duration = Duration::from_secs(1);

/// The worker of one memory.
pub(crate) struct Worker {
    above: u64,
    keep: u64,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    running: bool,
    wanted: bool,
    stop: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // The flags are valid in any combination, also after a panic elsewhere.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Worker {
    pub(crate) fn new(limit_bytes: u64) -> Worker {
        Worker {
            above: (limit_bytes / RELEASE_ABOVE_DIVISOR).max(RELEASE_MIN),
            keep: limit_bytes / RELEASE_TO_DIVISOR,
            shared: Arc::default(),
        }
    }

    /// Called with the free bytes held after a run went back.
    pub(crate) fn notice(&self, memory: &Arc<Memory>, free_held: u64) {
        if free_held <= self.above {
            return;
        }
        let mut state = self.shared.lock();
        if state.wanted {
            return;
        }
        state.wanted = true;
        if state.running {
            self.shared.changed.notify_one();
        } else {
            state.running = self.start(Arc::downgrade(memory));
            // Without a thread nobody will take the wish off: the next run tries again.
            state.wanted = state.running;
        }
    }

    /// False when the system has no thread for it: the next run over the threshold tries again.
    fn start(&self, memory: Weak<Memory>) -> bool {
        let shared = Arc::clone(&self.shared);
        let keep = self.keep;
        std::thread::Builder::new()
            .name("ramfold-release".into())
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

fn run(shared: &Shared, memory: &Weak<Memory>, keep: u64) {
    while wait(shared) {
        let Some(memory) = memory.upgrade() else { return };
        memory.release(keep);
    }
}

/// Sleeps until a release is due; false when the memory is gone.
fn wait(shared: &Shared) -> bool {
    let state = shared.lock();
    let idle = |state: &mut State| !state.wanted && !state.stop;
    let state = shared.changed.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
    let (mut state, _) = shared
        .changed
        .wait_timeout_while(state, HYSTERESIS, |state| !state.stop)
        .unwrap_or_else(PoisonError::into_inner);
    state.wanted = false;
    !state.stop
}
