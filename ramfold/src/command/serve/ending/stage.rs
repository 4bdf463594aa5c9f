//! How far the ending of a server with a mount has come, and what is said at each step.
//!
//! | stage | at a signal | closed |
//! |---|---|---|
//! | `Serving` | `Unmounted`; in use or covered: `Refused` | `Gone`; without other doors `Ended` |
//! | `Refused` | `Unmounted`; in use: `Leaving`, lazily; covered: `Leaving` | the same |
//! | `Unmounted` | none, and after `CLOSING` `Leaving` | `Ended` |
//! | `Leaving` | the process ends | `Ended` |
//! | `Gone` | `Ended` | |
//!
//! Invariant: what keeps the server is told before a stage is left in which it is waited for.
//! Locks: none.

use std::time::Duration;

use serve::fuse::{Fuse, UnmountError};

use crate::command::serve::watch::Log;

/// For so long nothing is said of a tree that is unmounted. The system needs a moment to close it.
pub(super) const CLOSING: Duration = Duration::from_secs(1);

/// How far it has come.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Serving,
    /// It was not unmounted, and the reason was told.
    Refused,
    /// Unmounted here, and perhaps still in use.
    Unmounted,
    /// Still in use, or it cannot be unmounted. The next signal ends the process.
    Leaving,
    /// Unmounted from outside.
    Gone,
    Ended,
}

impl Stage {
    /// Whether the server ends once the tree is closed, whatever else it serves.
    pub(super) fn is_ending(self) -> bool {
        matches!(self, Stage::Unmounted | Stage::Leaving)
    }

    pub(super) fn signalled(self, tree: &Fuse, log: &Log) -> Stage {
        match self {
            Stage::Gone => return Stage::Ended,
            // Some send two at once.
            Stage::Unmounted => return self,
            _ => {}
        }
        let at = tree.directory().display();
        match tree.unmount() {
            Ok(()) => Stage::Unmounted,
            Err(UnmountError::Busy) if self == Stage::Serving => {
                let next = "The next signal unmounts it lazily";
                log.complain(format!("{at} is in use: {}; not stopped. {next}", users(tree)));
                Stage::Refused
            }
            Err(error @ UnmountError::Covered(_)) if self == Stage::Serving => {
                log.complain(format!("{at}: {error}; not stopped"));
                Stage::Refused
            }
            Err(_) => leave(tree, log),
        }
    }
}

/// What ends a server that waits.
const UNTIL: &str = "ends when it is closed, or at once at the next signal";

/// Unmounts it lazily.
fn leave(tree: &Fuse, log: &Log) -> Stage {
    let users = users(tree);
    match tree.unmount_lazily() {
        Ok(()) => log.mention(format!("unmounted lazily, still in use: {users}; {UNTIL}")),
        Err(error) => {
            let (at, next) = (tree.directory().display(), "ends at once at the next signal");
            log.complain(format!("cannot unmount {at}: {error}; {next}, and its users get errors"));
        }
    }
    Stage::Leaving
}

/// Says what keeps a tree that nobody wants any more. It may be mounted elsewhere too.
pub(super) fn tell_open(tree: &Fuse, log: &Log) {
    let (at, holders) = (tree.directory().display(), tree.holders());
    let unseen = "a mount of it that this process does not see, or a file of it that is open";
    let who = if holders.is_empty() { unseen.to_owned() } else { holders.join(", ") };
    log.complain(format!("{at}: still in use: {who}; {UNTIL}"));
}

/// What uses a tree, as far as the system tells.
pub(super) fn users(tree: &Fuse) -> String {
    let holders = tree.holders();
    if holders.is_empty() {
        "a file or a directory of it is open".to_owned()
    } else {
        holders.join(", ")
    }
}
