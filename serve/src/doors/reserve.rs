//! Descriptors that are kept for the time when the process has no others.
//!
//! ```text
//!   accept: no descriptor left --> take one of the reserve and close it --> accept: it is used
//!                                                                               |
//!   refill, before each accept: <---------- its connection is over <------------'
//! ```
//!
//! Without such a descriptor a client in the queue of a socket could not even be told that it is
//! not let in. It must be accepted first, and accepting takes a descriptor.
//!
//! Invariant: it keeps at most `most` descriptors. Lock: one around the list, a leaf.

use host::Rank;
use host::unmodelled::RankedMutex;
use rustix::fs::{Mode, OFlags};
use std::os::fd::OwnedFd;

/// A few open descriptors.
pub(crate) struct Reserve {
    kept: RankedMutex<Vec<OwnedFd>>,
    most: usize,
}

impl Reserve {
    /// A reserve of up to `most` descriptors, as many as the process can have.
    pub(crate) fn new(most: usize) -> Self {
        let reserve = Self { kept: RankedMutex::new(Rank::Leaf, Vec::new()), most };
        reserve.refill();
        reserve
    }

    /// Opens as many descriptors as are missing, until the process has none. True if none is
    /// missing.
    pub(crate) fn refill(&self) -> bool {
        let mut kept = self.kept.lock();
        while kept.len() < self.most {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let Ok(fd) = rustix::fs::open("/", flags, Mode::empty()) else { return false };
            kept.push(fd);
        }
        true
    }

    /// Gives one descriptor back to the process. False if none is left.
    pub(crate) fn release(&self) -> bool {
        self.kept.lock().pop().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_released_is_taken_back() {
        let reserve = Reserve::new(2);
        assert!(reserve.release() && reserve.release());
        assert!(!reserve.release(), "there were two");
        assert!(reserve.refill());
        assert_eq!(reserve.kept.lock().len(), 2);
    }
}
