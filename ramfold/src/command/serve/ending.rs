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
//! signal. Without a mount the second signal ends the process wherever it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use serve::fuse::{Fuse, UnmountError};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::failure::Failure;
use crate::output::{complain, mention};

/// Exit code after a signal too many.
const INTERRUPTED: i32 = 1;

/// Something that may be a reason to end.
enum Event {
    Signal,
    Unmounted,
}

/// What is watched, from before there is anything to end.
pub(super) struct Ending {
    events: Receiver<Event>,
    sender: Sender<Event>,
    /// The next signal ends the process.
    armed: Arc<AtomicBool>,
}

impl Ending {
    /// Watches for signals. `patient`: the first one does not arm the second.
    pub(super) fn watch(patient: bool) -> Result<Ending, Failure> {
        let failed = |error| Failure::about("cannot watch for signals", error);
        let armed = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            // In this order: the signal that arms must not be the one that ends.
            flag::register_conditional_shutdown(signal, INTERRUPTED, Arc::clone(&armed))
                .map_err(failed)?;
            if !patient {
                flag::register(signal, Arc::clone(&armed)).map_err(failed)?;
            }
        }
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
        let (sender, events) = channel();
        let signalled = sender.clone();
        let watch = move || {
            // Until nobody waits any more.
            signals.forever().try_for_each(|_| signalled.send(Event::Signal)).unwrap_or_default();
        };
        thread::Builder::new().name("signals".into()).spawn(watch).map_err(failed)?;
        Ok(Ending { events, sender, armed })
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
        let mut stage = Stage::Serving;
        while let Ok(event) = self.events.recv() {
            stage = match (event, tree) {
                (Event::Signal, None) => break,
                (Event::Signal, Some(tree)) => stage.signalled(tree),
                (Event::Unmounted, _) if others && !stage.is_last() => {
                    mention("the tree is unmounted; the other doors stay open");
                    Stage::Gone
                }
                (Event::Unmounted, _) => break,
            };
            if stage.is_last() {
                self.arm();
            }
            if stage == Stage::Ended {
                break;
            }
        }
        self.arm();
    }

    fn arm(&self) {
        // Release pairs with the load in the signal handler, which ends the process: nothing that
        // was said before is lost.
        self.armed.store(true, Ordering::Release);
    }
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
    /// Whether the server will end, however long it takes.
    fn is_last(self) -> bool {
        matches!(self, Stage::Leaving | Stage::Ended)
    }

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
