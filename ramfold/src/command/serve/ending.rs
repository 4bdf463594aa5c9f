//! When a server ends: signals, and the end of its mount.
//!
//! ```text
//!              signal, nothing mounted                    .-> ends
//!   serving -- signal, nobody uses the mount: unmounted --'      third signal: the process ends
//!      |   \-- signal, somebody does: refused, and who           |
//!      |           '-- signal: unmounted lazily -- waits until nobody uses it --> ends
//!      '------ unmounted from outside, and nothing else is served --> ends
//! ```
//!
//! Invariant: whoever has a disk open loses it only after two refusals that name them, by a third
//! signal. Without a mount, and while the server starts, a second signal ends the process wherever
//! it is; but not within `REPEAT` of the first, as some send two at once. A hangup is a signal as
//! the others, unless it is ignored from outside (`nohup`). However it ends, its sockets are
//! removed; where that takes long, one signal more does without.
//!
//! Locks: `state`, for a moment; `last`, while what is done last is done. Neither under the other.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serve::fuse::{Fuse, UnmountError};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use super::log::Log;
use crate::line::Failure;

/// Exit code after a signal too many.
const INTERRUPTED: i32 = 1;

/// Signals closer together than this are one.
const REPEAT: Duration = Duration::from_millis(500);

/// Something that may be a reason to end.
enum Event {
    Signal,
    Unmounted,
}

/// What is watched, from before there is anything to end.
pub(super) struct Ending {
    events: Receiver<Event>,
    sender: Sender<Event>,
    arming: Arc<Arming>,
    log: Log,
}

/// What the next signal does.
#[derive(Default)]
struct Arming {
    state: Mutex<State>,
    /// What is done before a signal ends the process.
    last: Mutex<Vec<Box<dyn Fn() + Send>>>,
    /// It has begun: one more signal ends the process wherever that is. In the hands of the
    /// signals' handlers, therefore shared.
    hurried: Arc<AtomicBool>,
}

#[derive(Default)]
struct State {
    /// From then on a signal ends the process.
    armed: Option<Instant>,
    /// A signal does not arm the next: there is somebody to be asked first.
    patient: bool,
}

impl Arming {
    /// The next signal ends the process.
    fn arm(&self) {
        self.state().armed = Some(Instant::now());
    }

    /// Any signal but one that comes soon.
    fn arm_later(&self) {
        self.state().armed.get_or_insert_with(|| Instant::now() + REPEAT);
    }

    /// A signal came: whether it is the last.
    fn signalled(&self) -> bool {
        let mut state = self.state();
        if !state.patient && state.armed.is_none() {
            state.armed = Some(Instant::now() + REPEAT);
            return false;
        }
        state.armed.is_some_and(|since| since <= Instant::now())
    }

    /// From now on; what a signal armed before is taken back.
    fn be_patient(&self, patient: bool) {
        let mut state = self.state();
        state.patient = patient;
        state.armed = state.armed.filter(|_| !patient);
    }

    /// Ends the process here and now, without anything of it that others would find.
    fn end(&self) -> ! {
        // Release pairs with the load in the signal handler, which ends the process: a socket may
        // lie where nobody answers.
        self.hurried.store(true, Ordering::Release);
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.iter().for_each(|what| what());
        signal_hook::low_level::exit(INTERRUPTED)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // It is valid whoever panicked.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ending {
    /// Watches for signals.
    pub(super) fn watch(log: &Log) -> Result<Ending, Failure> {
        let failed = |error| Failure::about("cannot watch for signals", error);
        let arming = Arc::<Arming>::default();
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
                // Nobody waits any more, or not yet: then it is found later.
                let _ = signalled.send(Event::Signal);
            }
        };
        // It takes them, too: the main thread may be busy in the kernel, with a mount say.
        host::thread::spawn_taking(&watched, "signals", watch).map_err(failed)?;
        Ok(Ending { events, sender, arming, log: log.clone() })
    }

    /// What a last signal does before it ends the process; it must wait for nobody.
    pub(super) fn at_last(&self, what: impl Fn() + Send + 'static) {
        let mut last = self.arming.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.push(Box::new(what));
    }

    /// Watches for the end of a mount, too.
    pub(super) fn watch_mount(&self, tree: &Arc<Fuse>) -> Result<(), Failure> {
        let (tree, sender) = (Arc::clone(tree), self.sender.clone());
        let watch = move || {
            tree.wait();
            // Nobody waits for it where the server ends already.
            let _ = sender.send(Event::Unmounted);
        };
        let spawned = host::thread::spawn("mount", watch);
        spawned.map(drop).map_err(|error| Failure::about("cannot start a thread", error))
    }

    /// Waits until it is time to end; nobody uses the mount then. `others`: more than the mount
    /// is served.
    pub(super) fn wait(&self, tree: Option<&Fuse>, others: bool) {
        self.arming.be_patient(tree.is_some());
        let mut stage = Stage::Serving;
        while let Ok(event) = self.events.recv() {
            stage = match (event, tree) {
                (Event::Signal, None) => break,
                // It came before it could end the process by itself.
                (Event::Signal, _) if stage == Stage::Leaving => self.arming.end(),
                (Event::Signal, Some(tree)) => {
                    // Before it is said that the next one ends at once.
                    if stage == Stage::Refused {
                        self.arming.arm();
                    }
                    stage.signalled(tree, &self.log)
                }
                (Event::Unmounted, _) if others && stage != Stage::Leaving => {
                    self.log.mention("the tree is unmounted; the other doors stay open");
                    Stage::Gone
                }
                (Event::Unmounted, _) => break,
            };
            if stage == Stage::Ended {
                break;
            }
        }
        // Where it does not end by itself from here on, one more signal does it.
        self.arming.be_patient(false);
        self.arming.arm_later();
    }
}

/// As `nohup` leaves it to those it starts.
fn is_hangup_ignored() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (SIGHUP - 1) & 1 == 1)
}

/// How far a server with a mount is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Serving,
    /// Somebody uses the mount, and was named.
    Refused,
    /// Unmounted lazily; somebody uses it still.
    Leaving,
    /// Unmounted from outside.
    Gone,
    Ended,
}

impl Stage {
    fn signalled(self, tree: &Fuse, log: &Log) -> Stage {
        if self == Stage::Gone {
            return Stage::Ended;
        }
        let who = || users(&tree.holders());
        match tree.unmount() {
            Ok(()) => Stage::Ended,
            Err(UnmountError::Busy) if self == Stage::Serving => {
                log.complain(format!(
                    "{} is in use: {}; not stopped. The next signal unmounts it lazily",
                    tree.directory().display(),
                    who()
                ));
                Stage::Refused
            }
            Err(_) => {
                let users = who();
                if let Err(error) = tree.unmount_lazily() {
                    log.complain(format!("cannot unmount {}: {error}", tree.directory().display()));
                }
                log.mention(format!(
                    "unmounted lazily, still in use: {users}; ends when it is closed, or at once \
                     at the next signal"
                ));
                Stage::Leaving
            }
        }
    }
}

fn users(holders: &[String]) -> String {
    if holders.is_empty() {
        "a file or a directory of it is open".to_owned()
    } else {
        holders.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_arms_one_that_comes_later() {
        let arming = Arming::default();
        assert!(!arming.signalled(), "the first");
        arming.state().armed = Some(Instant::now() + Duration::from_secs(3600));
        assert!(!arming.signalled(), "some send two at once");
        arming.state().armed = Some(Instant::now());
        assert!(arming.signalled());
        arming.be_patient(true);
        assert!(!arming.signalled() && !arming.signalled(), "there is somebody to be asked");
        arming.arm();
        assert!(arming.signalled(), "who was named has had a warning");
        arming.be_patient(false);
        arming.arm_later();
        assert!(arming.signalled(), "a warning that was given stands");
    }
}
