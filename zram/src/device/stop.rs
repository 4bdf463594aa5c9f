//! How a thread of a device is told to stop, also while it sleeps.
//!
//! Lock: one, a leaf.

use std::time::Duration;

use host::Rank;
use host::sync::unmodelled::Condvar;
use host::unmodelled::RankedMutex;

#[derive(Debug)]
pub(crate) struct Stop {
    told: RankedMutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Nobody was told.
    pub(crate) fn new() -> Stop {
        Stop { told: RankedMutex::new(Rank::Leaf, false), changed: Condvar::new() }
    }

    /// Tells the thread.
    pub(crate) fn tell(&self) {
        *self.told.lock() = true;
        self.changed.notify_all();
    }

    /// Sleeps. True when it is time to stop.
    pub(crate) fn sleep(&self, time: Duration) -> bool {
        *self.told.lock().sleep_while_for(&self.changed, time, |told| !*told).0
    }
}
