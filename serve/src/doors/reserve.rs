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

use rustix::fs::{Mode, OFlags};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A few open descriptors.
pub(crate) struct Reserve {
    kept: Mutex<Vec<OwnedFd>>,
    most: usize,
}

impl Reserve {
    /// A reserve of up to `most` descriptors, as many as the process can have.
    pub(crate) fn new(most: usize) -> Self {
        let reserve = Self { kept: Mutex::default(), most };
        reserve.refill();
        reserve
    }

    /// Opens as many descriptors as are missing, until the process has none. True if none is
    /// missing.
    pub(crate) fn refill(&self) -> bool {
        let mut kept = self.kept();
        while kept.len() < self.most {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let Ok(fd) = rustix::fs::open("/", flags, Mode::empty()) else { return false };
            kept.push(fd);
        }
        true
    }

    /// Gives one descriptor back to the process. False if none is left.
    pub(crate) fn release(&self) -> bool {
        self.kept().pop().is_some()
    }

    fn kept(&self) -> MutexGuard<'_, Vec<OwnedFd>> {
        // The list is whole after every statement, so poison is ignored.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
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
        assert_eq!(reserve.kept().len(), 2);
    }
}
