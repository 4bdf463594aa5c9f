//! Whose slot it is.
//!
//! Invariant: who claims a free slot finds its words to be zeros. Lock: none.

use host::sync::atomic::{AtomicU64, Ordering};

/// Whose slot it is.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Owner(AtomicU64);

impl Owner {
    /// Makes process `pid` the owner, if there is none.
    pub fn claim(&self, pid: u64) -> bool {
        // Acquire pairs with the Release in `release`, so that the words are zeros. relaxed: a
        // failure reads nothing.
        self.0.compare_exchange(0, pid, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// The process; 0 if there is none.
    pub fn pid(&self) -> u64 {
        // relaxed: a figure of a moment ago.
        self.0.load(Ordering::Relaxed)
    }

    /// Makes the slot free.
    pub fn release(&self) {
        // Release pairs with the Acquire in `claim`, so that the next owner finds zeros.
        self.0.store(0, Ordering::Release);
    }
}
