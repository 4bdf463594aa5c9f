//! The users of a device, and the claim of a thread that is about to take it away.
//!
//! ```text
//!   open: holders 0 -> n        refused while claimed              EBUSY
//!   claim: reset, hot_remove    refused while it is held           EBUSY, naming the holders
//!     '-- given back after a reset; kept after a removal           ENODEV from then on
//! ```
//!
//! Invariant: a claimed device has no holders. Lock: a leaf, around the list of holders.

use std::collections::BTreeMap;
use std::sync::Arc;

use host::Rank;
use host::unmodelled::{RankedMutex, RankedMutexGuard};

use crate::attributes::{AttributeError, Errno};

/// The turn for work that only one thread may do at a time.
pub(crate) type Turn<'a> = RankedMutexGuard<'a, ()>;

/// Names a holder as it is now. It may have ended and passed on what it opened.
pub(crate) type Who = Arc<dyn Fn() -> String + Send + Sync>;

/// The users of a device.
pub(crate) struct Claims(RankedMutex<Holders>);

#[derive(Default)]
struct Holders {
    next: u64,
    /// The holders, each with its name if it gave one.
    open: BTreeMap<u64, Option<Who>>,
    claim: Claim,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum Claim {
    #[default]
    FreeDesign,
    Taken,
    Removed,
}

impl Claim {
    /// Succeeds if a device of this name may be opened or claimed.
    fn permits(self, device: &str) -> Result<(), AttributeError> {
        match self {
            Claim::FreeDesign => Ok(()),
            Claim::Taken => {
                Err(AttributeError::busy(format!("{device} is being reset or removed")))
            }
            Claim::Removed => Err(removed(device)),
        }
    }
}

impl Claims {
    /// No holders, and no claim.
    pub(crate) fn new() -> Claims {
        Claims(RankedMutex::new(Rank::Leaf, Holders::default()))
    }

    /// The names of the holders, without those that gave none.
    pub(crate) fn names(&self) -> Vec<String> {
        // They are called without the lock, because they ask the system.
        let open: Vec<Option<Who>> = self.0.lock().open.values().cloned().collect();
        names(&open)
    }

    /// The number of holders.
    pub(crate) fn count(&self) -> usize {
        self.0.lock().open.len()
    }

    /// Whether the device was removed.
    pub(crate) fn is_removed(&self) -> bool {
        self.0.lock().claim == Claim::Removed
    }

    /// A device of this name is opened. Returns the number of its holder.
    pub(crate) fn enter(&self, device: &str) -> Result<u64, AttributeError> {
        let mut holders = self.0.lock();
        holders.claim.permits(device)?;
        let number = holders.next;
        holders.next += 1;
        holders.open.insert(number, None);
        Ok(number)
    }

    /// Gives a holder its name.
    pub(crate) fn name(&self, number: u64, who: Who) {
        let before = self.0.lock().open.insert(number, Some(who));
        // What it has is foreign, and is dropped without the lock.
        drop(before);
    }

    /// A holder has closed the device.
    pub(crate) fn leave(&self, number: u64) {
        let who = self.0.lock().open.remove(&number);
        // What it has is foreign, and is dropped without the lock.
        drop(who);
    }

    /// Claims a device that is not open, so that it cannot be opened.
    pub(crate) fn claim(&self, device: &str) -> Result<Claimed<'_>, AttributeError> {
        match self.try_claim(device)? {
            None => Ok(Claimed { claims: self, then: Claim::FreeDesign }),
            Some(open) => Err(AttributeError::busy(format!("{device} {}", in_use(&open)))),
        }
    }

    /// Claims it, or returns the holders that have it open.
    fn try_claim(&self, device: &str) -> Result<Option<Vec<Option<Who>>>, AttributeError> {
        let mut holders = self.0.lock();
        holders.claim.permits(device)?;
        if !holders.open.is_empty() {
            return Ok(Some(holders.open.values().cloned().collect()));
        }
        holders.claim = Claim::Taken;
        Ok(None)
    }
}

/// The error of every request to a device that was removed.
pub(crate) fn removed(device: &str) -> AttributeError {
    AttributeError::new(Errno::NoDevice, format!("{device} was removed"))
}

fn names(open: &[Option<Who>]) -> Vec<String> {
    open.iter().flatten().map(|who| who()).collect()
}

/// Names the users of the device, and says what would help.
fn in_use(open: &[Option<Who>]) -> String {
    let named = names(open);
    let others = open.len() - named.len();
    let who = match (named.is_empty(), others) {
        (true, 1) => "somebody".to_owned(),
        (true, others) => format!("{others} holders"),
        (false, 0) => named.join(", "),
        (false, others) => format!("{} and {others} more", named.join(", ")),
    };
    format!("is in use by {who}; it has to be closed first")
}

/// A device that cannot be opened. Dropping this ends the claim, unless the device is removed for
/// good.
pub(crate) struct Claimed<'a> {
    claims: &'a Claims,
    then: Claim,
}

impl Claimed<'_> {
    /// Removes the device for good. The caller still has the turn in which it took the disk away.
    /// So a thread that waits for the next turn, to give the device a size, learns that it is gone.
    pub(crate) fn for_good(mut self, _turn: &Turn<'_>) {
        self.then = Claim::Removed;
    }
}

impl Drop for Claimed<'_> {
    fn drop(&mut self) {
        self.claims.0.lock().claim = self.then;
    }
}
