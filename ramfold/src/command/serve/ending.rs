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
//! the others, unless it is ignored from outside (`nohup`).
//!
//! Lock: `patient`, for a flag and what follows from it.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use serve::fuse::{Fuse, UnmountError};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::failure::Failure;
use crate::output::{complain, mention};

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
}

/// What the next signal does.
#[derive(Default)]
struct Arming {
    /// It ends the process. In the hands of the signals' handlers, therefore shared.
    armed: Arc<AtomicBool>,
    /// A signal does not arm the next: there is somebody to be asked first.
    patient: Mutex<bool>,
}

impl Arming {
    fn arm(&self) {
        // Release pairs with the load in the signal handler, which ends the process: nothing that
        // was said before is lost.
        self.armed.store(true, Ordering::Release);
    }

    /// After a signal, and a while.
    fn arm_later(&self) {
        thread::sleep(REPEAT);
        let patient = self.patient();
        if !*patient {
            self.arm();
        }
    }

    fn patient(&self) -> MutexGuard<'_, bool> {
        // A flag is valid whoever panicked.
        self.patient.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on; what a signal armed before is taken back.
    fn be_patient(&self, patient: bool) {
        let mut now = self.patient();
        *now = patient;
        if patient {
            // Release pairs with the load in the signal handler, as in `arm`.
            self.armed.store(false, Ordering::Release);
        }
    }
}

impl Ending {
    /// Watches for signals.
    pub(super) fn watch() -> Result<Ending, Failure> {
        let failed = |error| Failure::about("cannot watch for signals", error);
        let arming = Arc::<Arming>::default();
        let mut watched = vec![SIGINT, SIGTERM];
        watched.extend((!is_hangup_ignored()).then_some(SIGHUP));
        for &signal in &watched {
            flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&arming.armed))
                .map_err(failed)?;
        }
        let mut signals = Signals::new(watched).map_err(failed)?;
        let (sender, events) = channel();
        let (signalled, arm) = (sender.clone(), Arc::clone(&arming));
        let watch = move || {
            for _ in signals.forever() {
                // Nobody waits any more, or not yet: then it is found later.
                let _ = signalled.send(Event::Signal);
                if !*arm.patient() {
                    arm.arm_later();
                }
            }
        };
        thread::Builder::new().name("signals".into()).spawn(watch).map_err(failed)?;
        Ok(Ending { events, sender, arming })
    }

    /// Watches for the end of a mount, too.
    pub(super) fn watch_mount(&self, tree: &Arc<Fuse>) -> Result<(), Failure> {
        let (tree, sender) = (Arc::clone(tree), self.sender.clone());
        let watch = move || {
            tree.wait();
            // Nobody waits for it where the server ends already.
            let _ = sender.send(Event::Unmounted);
        };
        let spawned = thread::Builder::new().name("mount".into()).spawn(watch);
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
                (Event::Signal, _) if stage == Stage::Leaving => std::process::exit(INTERRUPTED),
                (Event::Signal, Some(tree)) => {
                    // Before it is said that the next one ends at once.
                    if stage == Stage::Refused {
                        self.arming.arm();
                    }
                    stage.signalled(tree)
                }
                (Event::Unmounted, _) if others && stage != Stage::Leaving => {
                    mention("the tree is unmounted; the other doors stay open");
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
        let arming = Arc::clone(&self.arming);
        // Without a thread for it the next signal's own arms the one after it.
        let _ = thread::Builder::new().spawn(move || arming.arm_later());
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
    fn signalled(self, tree: &Fuse) -> Stage {
        if self == Stage::Gone {
            return Stage::Ended;
        }
        let who = || users(&tree.holders());
        match tree.unmount() {
            Ok(()) => Stage::Ended,
            Err(UnmountError::Busy) if self == Stage::Serving => {
                complain(&format!(
                    "{} is in use: {}; not stopped. The next signal unmounts it lazily",
                    tree.directory().display(),
                    who()
                ));
                Stage::Refused
            }
            Err(_) => {
                let users = who();
                if let Err(error) = tree.unmount_lazily() {
                    complain(&format!("cannot unmount {}: {error}", tree.directory().display()));
                }
                mention(&format!(
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
