//! How a thread of a device is told to stop, or to look at once, also while it sleeps.
//!
//! Lock: one, a leaf.

use std::time::Duration;

use host::Rank;
use host::sync::unmodelled::Condvar;
use host::unmodelled::RankedMutex;

/// What the thread was told and has not heard yet.
#[derive(Debug, PartialEq)]
enum Told {
    Nothing,
    Look,
    Stop,
}

#[derive(Debug)]
pub(crate) struct Stop {
    told: RankedMutex<Told>,
    changed: Condvar,
}

impl Stop {
    /// Nobody was told.
    pub(crate) fn new() -> Stop {
        Stop { told: RankedMutex::new(Rank::Leaf, Told::Nothing), changed: Condvar::new() }
    }

    /// Tells the thread.
    pub(crate) fn tell(&self) {
        *self.told.lock() = Told::Stop;
        self.changed.notify_all();
    }

    /// Ends the thread's sleep, or its next one if it does not sleep.
    pub(crate) fn wake(&self) {
        let mut told = self.told.lock();
        if *told == Told::Nothing {
            *told = Told::Look;
        }
        drop(told);
        self.changed.notify_all();
    }

    /// Sleeps. True when it is time to stop.
    pub(crate) fn sleep(&self, time: Duration) -> bool {
        let told = self.told.lock();
        let is_nothing = |told: &mut Told| *told == Told::Nothing;
        let mut told = told.sleep_while_for(&self.changed, time, is_nothing).0;
        if *told == Told::Look {
            *told = Told::Nothing;
        }
        *told == Told::Stop
    }
}
