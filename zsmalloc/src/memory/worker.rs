//! The worker of a memory: what is done when nobody asks for it.
//!
//! ```text
//!   objects were freed      -- at rest for a tick -->   the pool is compacted
//!   free frames > bound     ------- 1 s ----------->    released down to half of it
//!     and 1 MiB of untouched ones taken ----------->    as many released: see `owed`
//!   a pool was compacted    ----------------------->    sparse pageblocks evacuated, and all free
//!                                                       frames released
//!   jobs were deferred      --- 1 ms -------------->    run
//!   a buffer of freed objects is full ------------>     they are given back
//! ```
//!
//! The bound is 1/32 of the bytes that are expected, or 1/128 of the resident bytes if that is
//! less. Otherwise free frames between zspages, too short for the next one, could pile up to a
//! share of a size that is far away.
//!
//! The thread is started by the first call that has work for it, sleeps while there is none, and
//! ends with the memory: it holds no strong reference while it sleeps. A pool in use is left alone:
//! compaction would take its locks and move what is about to change again.
//!
//! If the system has no thread to give, wishes stay, and the next zspage that goes back tries
//! again. Work that panics is counted, and tried again at the next tick by the same thread.
//!
//! Invariant: a memory has at most one such thread. A wish is set in `State` under its lock, and
//! stays there until the thread takes it in `due`. Hints outside of `State` may be lost: the next
//! free sets them again.
//!
//! Lock: `State`, a leaf; held to read and set what is wanted.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use host::faults::{Operation, guard};
use host::sync::unmodelled::Condvar;
use host::unmodelled::RankedMutex;
use host::{FailureInjector, Rank};

use super::owed::Owed;

/// Free frames above the expected bytes / this are given back,
const EXPECTED_DIVISOR: u64 = 32;
/// or above resident bytes / this.
const RESIDENT_DIVISOR: u64 = 128;
/// Never bothers for less than this, in bytes.
const RELEASE_MIN: u64 = 1 << 20; // 1 MiB
/// How often the worker looks while there is work; a pool without a change between two looks is at
/// rest.
const TICK: Duration = Duration::from_millis(250);
/// How long a job waits before it runs. A thread that drops several things has then dropped all of
/// them before the worker takes a CPU, and the locks of the system's memory management.
const LINGER: Duration = Duration::from_millis(1);
/// Ticks that free frames wait for reuse.
const RELEASE_TICKS: u32 = 4; // 1 s

/// What a worker does for its memory.
pub(crate) trait Chores: Send + Sync + 'static {
    /// Bytes of frames that are resident.
    fn frame_bytes(&self) -> u64;
    /// Runs the jobs that are queued.
    fn run_jobs(&self);
    /// Frees what fills the pools' buffers.
    fn drain(&self);
    /// Releases so many free frames, as far as more than `keep` bytes of them are held.
    fn repay(&self, frames: u64, keep: u64);
    /// Compacts the pools that are at rest. False while one is in use.
    fn compact_at_rest(&self) -> bool;
    /// Returns everything that is free to the system.
    fn give_back_whole(self: &Arc<Self>);
    /// Returns free frames to the system, except `keep` bytes of them.
    fn give_back(&self, keep: u64);
}

/// The worker of one memory.
pub(crate) struct Worker {
    /// False: no thread is ever started.
    allowed: bool,
    /// In a model, a thread that flushes does the jobs that the worker would do.
    modelled: bool,
    expected_bytes: u64,
    shared: Arc<Shared>,
    faults: Option<Arc<FailureInjector>>,
}

/// How the thread fares that compacts and releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WorkerStatus {
    /// Whether it was started.
    pub running: bool,
    /// How often the system refused to start it.
    pub refused: u64,
    /// How often its work panicked, which ended that work and not the thread.
    pub panicked: u64,
}

struct Shared {
    state: RankedMutex<State>,
    changed: Condvar,
    /// A release is wanted already: a free need not say so again.
    releasing: AtomicBool,
    /// There are wishes and no thread.
    unstarted: AtomicBool,
    owed: Owed,
}

#[derive(Default)]
struct State {
    status: WorkerStatus,
    /// Some pool has had objects freed since it was last compacted.
    stirred: bool,
    /// Ticks until a release, once one is wanted.
    release_in: Option<u32>,
    /// All that is free is to be released at once.
    release_now: bool,
    /// Jobs are queued.
    jobs: bool,
    /// When the tick ends that has begun.
    tick_end: Option<Instant>,
    /// A pool has a full buffer of objects to be freed.
    drain: bool,
    /// Enough frames are owed.
    repay: bool,
    stop: bool,
}

impl State {
    fn is_idle(&self) -> bool {
        !(self.is_waiting() || self.is_urgent())
    }

    /// There is work for the next tick.
    fn is_waiting(&self) -> bool {
        self.stirred || self.release_in.is_some()
    }

    /// There is work that waits for no tick.
    fn is_urgent(&self) -> bool {
        self.release_now || self.jobs || self.drain || self.repay || self.stop
    }

    /// What is left of a tick, which begins when work for its end was first seen: work that is
    /// urgent comes between and does not put it off.
    fn rest_of_tick(&mut self) -> Duration {
        let now = Instant::now();
        self.tick_end.get_or_insert(now + TICK).saturating_duration_since(now)
    }
}

impl Shared {
    fn new() -> Shared {
        Shared {
            state: RankedMutex::new(Rank::Leaf, State::default()),
            changed: Condvar::new(),
            releasing: AtomicBool::new(false),
            unstarted: AtomicBool::new(false),
            owed: Owed::default(),
        }
    }

    /// Does some work. Where that panics, it is not known what is left to do: pools are looked at
    /// again.
    fn survive(&self, work: impl FnOnce()) {
        if catch_unwind(AssertUnwindSafe(work)).is_err() {
            let mut state = self.state.lock();
            state.status.panicked += 1;
            state.stirred = true;
        }
    }
}

impl Worker {
    pub(crate) fn new(
        expected_bytes: u64,
        allowed: bool,
        faults: Option<Arc<FailureInjector>>,
    ) -> Worker {
        Worker {
            // A thread of the system's is none of loom's.
            allowed: allowed && !cfg!(loom),
            modelled: allowed && cfg!(loom),
            expected_bytes,
            shared: Arc::new(Shared::new()),
            faults,
        }
    }

    pub(crate) fn status(&self) -> WorkerStatus {
        self.shared.state.lock().status
    }

    /// Called with the free bytes held after a run went back.
    pub(crate) fn notice_free(&self, memory: &Arc<impl Chores>, free_held: u64) {
        // relaxed: a hint; the next free looks again.
        if self.shared.unstarted.load(Ordering::Relaxed) {
            self.want(memory, |_| {});
        }
        // relaxed: a hint. A free that reads an old value is followed by others, or leaves frames
        // to the next release.
        let asked = &self.shared.releasing;
        if self.allowed
            && free_held > bound(self.expected_bytes, &**memory)
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

    /// Called when untouched frames were taken although so many free bytes are held.
    pub(crate) fn notice_untouched(&self, memory: &Arc<impl Chores>, frames: u32, free_held: u64) {
        if !self.allowed || free_held <= bound(self.expected_bytes, &**memory) {
            return;
        }
        if self.shared.owed.owe(frames) {
            self.want(memory, |state| state.repay = true);
        }
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn owed(&self) -> &Owed {
        &self.shared.owed
    }

    /// Called when the first object of a pool was freed since its last compaction.
    pub(crate) fn notice_stirred(&self, memory: &Arc<impl Chores>) {
        self.want(memory, |state| state.stirred = true);
    }

    /// Asks for all free frames to be released without delay. False if there is no worker.
    pub(crate) fn release_now(&self, memory: &Arc<impl Chores>) -> bool {
        self.want(memory, |state| state.release_now = true)
    }

    /// Asks for the queued jobs to be run. False if there is no worker.
    pub(crate) fn run_jobs(&self, memory: &Arc<impl Chores>) -> bool {
        self.modelled || self.want(memory, |state| state.jobs = true)
    }

    /// Called when a pool has a buffer full of objects that are to be freed. Never waits: where
    /// the worker is being told something else, it hears of the next full buffer, or of this one at
    /// its next tick.
    pub(crate) fn notice_full(&self) {
        if let Some(mut state) = self.shared.state.try_lock()
            && state.status.running
            && !std::mem::replace(&mut state.drain, true)
        {
            self.shared.changed.notify_one();
        }
    }

    /// False if there is no thread to do it.
    fn want(&self, memory: &Arc<impl Chores>, wish: impl FnOnce(&mut State)) -> bool {
        if !self.allowed {
            return false;
        }
        let mut state = self.shared.state.lock();
        wish(&mut state);
        if state.status.running {
            self.shared.changed.notify_one();
            return true;
        }
        let running = self.start(Arc::downgrade(memory));
        state.status.running = running;
        state.status.refused += u64::from(!running);
        // relaxed: a hint.
        self.shared.unstarted.store(!running, Ordering::Relaxed);
        running
    }

    fn start(&self, memory: Weak<impl Chores>) -> bool {
        if guard(self.faults.as_deref(), Operation::Thread).is_err() {
            return false;
        }
        let shared = Arc::clone(&self.shared);
        let expected_bytes = self.expected_bytes;
        host::thread::spawn("ramfold-worker", move || run(&shared, &memory, expected_bytes)).is_ok()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.state.lock().stop = true;
        self.shared.changed.notify_all();
    }
}

/// What is due.
#[derive(Default)]
struct Due {
    jobs: bool,
    drain: bool,
    repay: bool,
    compact: bool,
    release: Option<Kept>,
}

/// What a release leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kept {
    Nothing,
    /// Half of the bound.
    Half,
}

/// Bytes of free frames that may be held.
fn bound(expected_bytes: u64, memory: &impl Chores) -> u64 {
    let resident = memory.frame_bytes();
    (expected_bytes / EXPECTED_DIVISOR).min(resident / RESIDENT_DIVISOR).max(RELEASE_MIN)
}

fn run(shared: &Shared, memory: &Weak<impl Chores>, expected_bytes: u64) {
    // A free or a discard that wakes this thread goes on.
    host::cpu::let_wakers_finish();
    while let Some(due) = wait(shared) {
        let Some(memory) = memory.upgrade() else { return };
        // A fork waits for the work, so that no lock stays locked in the child.
        let _inside = host::fork::begin_round();
        shared.survive(|| work(shared, &memory, due, expected_bytes));
    }
}

fn work(shared: &Shared, memory: &Arc<impl Chores>, due: Due, expected_bytes: u64) {
    // First, so that whatever comes of the rest, frees from here on ask for the next release.
    if due.release.is_some() {
        // relaxed: a hint.
        shared.releasing.store(false, Ordering::Relaxed);
    }
    if due.jobs {
        memory.run_jobs();
    }
    if due.drain {
        memory.drain();
    }
    if due.repay {
        memory.repay(shared.owed.take(), bound(expected_bytes, &**memory));
    }
    if due.compact && !memory.compact_at_rest() {
        shared.state.lock().stirred = true;
    }
    match due.release {
        Some(Kept::Nothing) => memory.give_back_whole(),
        Some(Kept::Half) => memory.give_back(bound(expected_bytes, &**memory) / 2),
        None => {}
    }
}

/// Sleeps until there is work, and a tick more if the work does not hurry. `None` if the memory is
/// gone.
fn wait(shared: &Shared) -> Option<Due> {
    let mut state = shared.state.lock().sleep_while(&shared.changed, |state| state.is_idle());
    let rest = state.rest_of_tick();
    let (mut state, _) = state.sleep_while_for(&shared.changed, rest, |state| !state.is_urgent());
    if state.jobs {
        let hurries = |state: &State| state.stop || state.drain || state.repay;
        (state, _) = state.sleep_while_for(&shared.changed, LINGER, |state| !hurries(state));
    }
    (!state.stop).then(|| due(&mut state))
}

/// What is to be done: what is urgent, and at the end of the tick the rest. What is urgent without
/// end does not put the rest off.
fn due(state: &mut State) -> Due {
    let release = std::mem::take(&mut state.release_now).then_some(Kept::Nothing);
    let (jobs, drain) = (std::mem::take(&mut state.jobs), std::mem::take(&mut state.drain));
    let repay = std::mem::take(&mut state.repay);
    let urgent = Due { jobs, drain, repay, release, ..Due::default() };
    if !state.is_waiting() {
        state.tick_end = None;
        return urgent;
    }
    if !state.rest_of_tick().is_zero() {
        return urgent;
    }
    state.tick_end = None;
    let compact = std::mem::take(&mut state.stirred);
    state.release_in = state.release_in.map(|ticks| ticks - 1);
    let release = state.release_in == Some(0);
    if release {
        state.release_in = None;
    }
    Due { compact, release: urgent.release.or(release.then_some(Kept::Half)), ..urgent }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn urgent_work_does_not_put_the_rest_off() {
        let mut state = State { stirred: true, release_in: Some(1), ..State::default() };
        let mut next = |ended: bool| {
            state.jobs = true;
            if ended {
                state.tick_end = Some(Instant::now());
            }
            let due = due(&mut state);
            (due.jobs, due.compact, due.release, state.tick_end.is_some())
        };
        assert_eq!(next(false), (true, false, None, true), "the tick has begun");
        assert_eq!(next(true), (true, true, Some(Kept::Half), false), "and ended");
        state.jobs = true;
        assert!(due(&mut state).jobs && state.tick_end.is_none(), "nothing waits for a tick");
    }

    #[test]
    fn what_is_owed_is_asked_for_at_once() {
        let mut state = State { repay: true, stirred: true, ..State::default() };
        assert!(state.is_urgent());
        let due = due(&mut state);
        assert!(due.repay && !due.compact && !state.repay);
    }

    #[test]
    fn work_that_panics_is_counted_and_asked_for_again() {
        let shared = Shared::new();
        let state = || {
            let state = shared.state.lock();
            (state.status.panicked, state.stirred)
        };
        shared.survive(|| {});
        assert_eq!(state(), (0, false));
        shared.survive(|| panic!("on purpose"));
        assert_eq!(state(), (1, true));
    }
}
