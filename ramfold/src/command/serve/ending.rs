//! When a server ends: at signals, at the end of its mount, or at the end of the command that it
//! runs for.
//!
//! ```text
//!              signal, nothing mounted                    .-> ends
//!   serving -- signal, mount not in use: unmounted -------'      third signal: the process ends
//!      |   \-- signal, mount in use: refused, users are named    |
//!      |           '-- signal: unmounted lazily -- waits until it is not in use --> ends
//!      |------ signal, another mount is over it: refused, and that mount is named
//!      |------ unmounted from outside, and nothing else is served --> ends
//!      '------ the command of --run has ended --> ends
//!
//!   with block devices: signal, one is open: refused, users are named -- signal --> ends, and they
//!   get errors
//! ```
//!
//! [`stage`] has the steps of a server with a mount.
//!
//! Invariants
//! - A process that has a disk of the mount open loses it only at the third signal. The first two
//!   signals name it.
//! - A process that has a block device open loses it only at the second signal.
//! - Without either, and while the server starts, the second signal ends the process at once. A
//!   signal within `REPEAT` of the first does not count, because some programs send two at once.
//! - A hangup is a signal like the others, unless it was ignored when the server started (`nohup`).
//! - However the process ends, its sockets are removed and its tree is unmounted. If that takes
//!   long, one more signal ends the process without it.
//!
//! Locks: `state`, a leaf, and `last`, of rank Ending. `last` is held while the last work is done,
//! which is our own. A second thread that ends the process waits for that work.

mod stage;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use host::Rank;
use host::unmodelled::RankedMutex;
use serve::fuse::{Fuse, UnmountError};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use super::blocks::Blocks;
use super::watch::Log;
use crate::line::Failure;
use stage::{CLOSING, Stage, tell_open, users};

/// Exit code after a signal too many.
const INTERRUPTED: i32 = 1;

/// Signals that are closer together count as one.
const REPEAT: Duration = Duration::from_millis(500);

/// The pause between two tries to end what is in use.
const RETRY: Duration = Duration::from_millis(100);
/// The same after a signal that found it in use.
const RETRY_ASKED: Duration = Duration::from_secs(1);
/// For so long it is waited until nothing uses a disk that nobody wants any more.
const GRACE: Duration = Duration::from_secs(5);

/// What may be a reason to end.
enum Event {
    Signal,
    Unmounted,
    /// The command of `--run` has ended.
    Finished,
    /// What stands on the mount changed, and may be gone.
    Changed,
    /// Nobody wants what stands on the mount any more.
    Abandoned,
}

/// What stands on the mounted tree, and has to go before it: a file system on its disk.
pub(crate) struct Upper {
    /// Builds it, in the tree at this directory.
    pub(crate) begin: Box<Begin>,
    /// Takes it down, lazily if it is in use and `true` is given. The error says who uses it.
    pub(crate) end: Box<End>,
}

type Begin = dyn Fn(&Path, Hints) -> Result<(), Failure>;
type End = dyn Fn(bool) -> Result<(), String>;

/// Tells the server that it should look whether it is to end.
#[derive(Clone)]
pub(crate) struct Hints(Sender<Event>);

impl Hints {
    /// What stands on the mount may be gone.
    pub(crate) fn changed(&self) {
        // If the receiver is gone, the server ends already.
        let _ = self.0.send(Event::Changed);
    }

    /// Nobody wants it any more: it ends as soon as it is not in use, or after `GRACE`.
    pub(crate) fn abandoned(&self) {
        let _ = self.0.send(Event::Abandoned);
    }
}

/// Watches for reasons to end, from before there is anything to end.
pub(super) struct Ending {
    events: Receiver<Event>,
    sender: Sender<Event>,
    arming: Arc<Arming>,
    /// Set when the tree is unmounted and nothing uses it any more.
    is_closed: Arc<AtomicBool>,
    log: Log,
}

/// What the next signal does.
struct Arming {
    state: RankedMutex<State>,
    /// What is done before the process ends.
    last: RankedMutex<Vec<Box<dyn Fn() + Send>>>,
    /// Set when the last work begins. Then one more signal ends the process at once. The signal
    /// handlers have it too, so it is shared.
    hurried: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    /// The time from which on a signal ends the process.
    armed: Option<Instant>,
    /// Whether a signal does not arm the next one, because the mount may be in use.
    patient: bool,
}

impl Arming {
    fn new() -> Arming {
        Arming {
            state: RankedMutex::new(Rank::Leaf, State::default()),
            last: RankedMutex::new(Rank::Ending, Vec::new()),
            hurried: Arc::default(),
        }
    }

    /// Makes the next signal end the process.
    fn arm(&self) {
        self.state.lock().armed = Some(Instant::now());
    }

    /// Makes every signal end the process, except one that comes within `REPEAT`.
    fn arm_later(&self) {
        self.state.lock().armed.get_or_insert_with(|| Instant::now() + REPEAT);
    }

    /// Notes a signal, and says whether it ends the process.
    fn signalled(&self) -> bool {
        let mut state = self.state.lock();
        if !state.patient && state.armed.is_none() {
            state.armed = Some(Instant::now() + REPEAT);
            return false;
        }
        state.armed.is_some_and(|since| since <= Instant::now())
    }

    /// Sets whether signals arm the next one. If they no longer do, what one armed before is
    /// undone.
    fn be_patient(&self, patient: bool) {
        let mut state = self.state.lock();
        state.patient = patient;
        state.armed = state.armed.filter(|_| !patient);
    }

    /// Does the last work. What was added last is done first.
    fn do_last(&self) {
        self.last.lock().iter().rev().for_each(|what| what());
    }

    /// Ends the process at once, after the last work, which removes its sockets.
    fn end(&self) -> ! {
        // Release pairs with the load in the signal handler, so that the next signal ends the
        // process at once. Removing a socket may wait for a file system that does not answer.
        self.hurried.store(true, Ordering::Release);
        self.do_last();
        signal_hook::low_level::exit(INTERRUPTED)
    }
}

impl Ending {
    /// Watches for signals.
    pub(super) fn watch(log: &Log) -> Result<Ending, Failure> {
        let failed = |error| Failure::about("cannot watch for signals", error);
        let arming = Arc::new(Arming::new());
        let mut watched = vec![SIGINT, SIGTERM];
        watched.extend((!is_hangup_ignored()).then_some(SIGHUP));
        for &signal in &watched {
            flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&arming.hurried))
                .map_err(failed)?;
        }
        let mut signals = Signals::new(&watched).map_err(failed)?;
        let (sender, events) = channel();
        let (signalled, arm) = (sender.clone(), Arc::clone(&arming));
        let watch = move || {
            for _ in signals.forever() {
                if arm.signalled() {
                    arm.end();
                }
                // If the receiver is gone, the server ends already.
                let _ = signalled.send(Event::Signal);
            }
        };
        // This thread takes the signals, because the main thread may be busy in a system call.
        host::thread::spawn_taking(&watched, "signals", watch).map_err(failed)?;
        Ok(Ending { events, sender, arming, is_closed: Arc::default(), log: log.clone() })
    }

    /// Adds work to do before the process ends, in whichever way. It must not wait, and may be done
    /// twice.
    pub(super) fn at_last(&self, what: impl Fn() + Send + 'static) {
        self.arming.last.lock().push(Box::new(what));
    }

    /// Unmounts a tree before the process ends, if it is still mounted. A mount without its server
    /// answers nothing, and keeps its directory from the next one.
    pub(super) fn unmount_at_last(&self, tree: &Arc<Fuse>) {
        let tree = Arc::clone(tree);
        self.at_last(move || {
            // Nothing can be told any more, and lazily it waits for nobody.
            let _ = tree.unmount_lazily();
        });
    }

    /// Watches for the end of a mount too.
    pub(super) fn watch_mount(&self, tree: &Arc<Fuse>) -> Result<(), Failure> {
        let (tree, sender) = (Arc::clone(tree), self.sender.clone());
        let is_closed = Arc::clone(&self.is_closed);
        let watch = move || {
            tree.wait();
            // relaxed: a flag that stands alone.
            is_closed.store(true, Ordering::Relaxed);
            // If the receiver is gone, the server ends already.
            let _ = sender.send(Event::Unmounted);
        };
        let spawned = host::thread::spawn("mount", watch);
        spawned.map(drop).map_err(|error| Failure::about("cannot start a thread", error))
    }

    /// Waits for the end of a command too. `wait` returns when it has ended.
    pub(super) fn watch_command(&self, wait: impl Fn() + Send + 'static) -> Result<(), Failure> {
        let sender = self.sender.clone();
        let watch = move || {
            wait();
            // If the receiver is gone, the server ends already.
            let _ = sender.send(Event::Finished);
        };
        let spawned = host::thread::spawn("command", watch);
        spawned.map(drop).map_err(|error| Failure::about("cannot start a thread", error))
    }

    /// Does the last work, because the server has ended by itself or did not start.
    pub(super) fn clean_up(&self) {
        self.arming.do_last();
    }

    /// Waits until it is time to end. The mount is not in use then. `others` says whether more than
    /// the mount is served. Returns whether a signal ended a server without a mount.
    pub(super) fn wait(&self, tree: Option<&Fuse>, others: bool) -> bool {
        let mut told = false;
        self.arming.be_patient(tree.is_some());
        let mut stage = Stage::Serving;
        while stage != Stage::Ended {
            let pause = if stage == Stage::Unmounted { CLOSING } else { Duration::MAX };
            stage = match (self.events.recv_timeout(pause), tree) {
                (Ok(Event::Finished) | Err(RecvTimeoutError::Disconnected), _) => Stage::Ended,
                (Ok(Event::Signal), None) => {
                    told = true;
                    Stage::Ended
                }
                // The thread of the signals could not end the process yet when this signal came.
                (Ok(Event::Signal), _) if stage == Stage::Leaving => self.arming.end(),
                (Ok(Event::Signal), Some(tree)) => {
                    // Armed before the message says that the next signal ends the process.
                    if stage == Stage::Refused {
                        self.arming.arm();
                    }
                    stage.signalled(tree, &self.log)
                }
                (Err(RecvTimeoutError::Timeout), Some(tree)) if stage == Stage::Unmounted => {
                    self.arming.arm();
                    tell_open(tree, &self.log);
                    Stage::Leaving
                }
                (Ok(Event::Unmounted), _) if others && !stage.is_ending() => {
                    self.log.mention("the tree is unmounted; the other doors stay open");
                    Stage::Gone
                }
                (Ok(Event::Unmounted), _) => Stage::Ended,
                (Ok(Event::Changed | Event::Abandoned) | Err(RecvTimeoutError::Timeout), _) => {
                    stage
                }
            };
        }
        self.be_impatient();
        told
    }

    /// Waits until it is time to end a server with block devices. They are stopped then, unless
    /// they are in use and a second signal came, or the command of `--run` has ended. Returns
    /// whether a signal ended it.
    pub(super) fn wait_for_blocks(&self, blocks: &Blocks) -> bool {
        self.arming.be_patient(true);
        let mut refused: Option<Instant> = None;
        let told = loop {
            match self.events.recv() {
                Ok(Event::Signal) => {}
                Ok(Event::Finished) | Err(_) => break false,
                Ok(_) => continue,
            }
            // Some send two at once, and looking took a while. The second one takes nothing from
            // anybody.
            let is_repeated = refused.is_some_and(|since| since.elapsed() < REPEAT);
            let Err(why) = blocks.try_stop() else { break true };
            if is_repeated {
                // A third one may have come while this looked.
                refused = Some(Instant::now());
                continue;
            }
            if refused.is_some() {
                break true;
            }
            let next = "the next signal stops it, and its users get errors";
            self.log.complain(format!("{why}; not stopped. End its users; {next}"));
            refused = Some(Instant::now());
        };
        self.be_impatient();
        told
    }

    /// If the server does not end by itself from here on, one more signal ends the process.
    fn be_impatient(&self) {
        self.arming.be_patient(false);
        self.arming.arm_later();
    }

    /// Builds what stands on the mount. No signal ends the process until it is gone.
    pub(super) fn build(&self, upper: &Upper, tree: &Fuse) -> Result<(), Failure> {
        self.arming.be_patient(true);
        (upper.begin)(tree.directory(), Hints(self.sender.clone()))
    }

    /// Waits until what stands on the mount is gone. It is taken down at a signal, unless it is in
    /// use: its users are named, and it goes when they have ended. False if it is still in use.
    pub(super) fn wait_for(&self, upper: &Upper) -> bool {
        let (mut said, mut until, mut pause) = (String::new(), None, Duration::MAX);
        loop {
            match self.events.recv_timeout(pause) {
                Ok(Event::Abandoned) => {
                    until = until.or_else(|| Some(Instant::now() + GRACE));
                    pause = RETRY;
                }
                Ok(Event::Signal) => {
                    said.clear();
                    pause = pause.min(RETRY_ASKED);
                }
                _ => {}
            }
            let Err(why) = (upper.end)(false) else { return true };
            if until.is_some_and(|until| until <= Instant::now()) {
                let lazily = (upper.end)(true);
                let left = lazily.map_or_else(|error| error, |()| "they lose it".to_owned());
                self.log.complain(format!("{why}; {left}"));
                return false;
            }
            if why != said {
                self.log.complain(format!("{why}; it stays mounted until they have ended"));
                said = why;
            }
        }
    }

    /// Unmounts the tree after what stood on it is gone. The system may need a moment until it has
    /// closed the disk.
    pub(super) fn leave(&self, tree: &Fuse) {
        let patience = Instant::now() + GRACE;
        let mut outcome = tree.unmount();
        while matches!(outcome, Err(UnmountError::Busy)) && Instant::now() < patience {
            std::thread::sleep(RETRY);
            outcome = tree.unmount();
        }
        if let Err(error) = outcome {
            let (at, users) = (tree.directory().display(), users(tree));
            let then = match tree.unmount_lazily() {
                Ok(()) => format!(" ({users}); unmounted lazily"),
                Err(_) => "; it stays mounted".to_owned(),
            };
            self.log.complain(format!("{at}: {error}{then}"));
        }
        self.be_impatient();
    }

    /// Waits until nothing uses the tree any more, and says what does if that takes long. One more
    /// signal ends the process.
    pub(super) fn wait_until_closed(&self, tree: &Fuse) {
        let until = Instant::now() + CLOSING;
        // relaxed: a flag that stands alone.
        while !self.is_closed.load(Ordering::Relaxed) {
            if until <= Instant::now() {
                tell_open(tree, &self.log);
                break;
            }
            // Whatever comes is a reason to look once more.
            let _ = self.events.recv_timeout(RETRY);
        }
        tree.wait();
    }
}

/// Whether SIGHUP is ignored, as `nohup` leaves it.
fn is_hangup_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (SIGHUP - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_arms_one_that_comes_later() {
        let arming = Arming::new();
        assert!(!arming.signalled(), "the first");
        arming.state.lock().armed = Some(Instant::now() + Duration::from_secs(3600));
        assert!(!arming.signalled(), "some send two at once");
        arming.state.lock().armed = Some(Instant::now());
        assert!(arming.signalled());
        arming.be_patient(true);
        assert!(!arming.signalled() && !arming.signalled(), "the mount may be in use");
        arming.arm();
        assert!(arming.signalled(), "the users were named and had a warning");
        arming.be_patient(false);
        arming.arm_later();
        assert!(arming.signalled(), "a warning that was given stands");
    }
}
