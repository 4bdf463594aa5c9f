//! Descriptors that are kept for when there are no others.
//!
//! ```text
//!   accept: no descriptor left --> take one of the reserve and close it --> accept: it is used
//!                                                                               |
//!   refill, before each accept: <---------- its connection is over <------------'
//! ```
//!
//! Without one a client in the queue of a socket cannot even be told that it is not let in: it is
//! the system's until it is accepted, and accepting takes a descriptor.
//!
//! Lock: one, around the list, a leaf.

use rustix::fs::{Mode, OFlags};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A few open descriptors.
pub(crate) struct Reserve {
    kept: Mutex<Vec<OwnedFd>>,
    most: usize,
}

impl Reserve {
    /// As many as can be had, up to `most`.
    pub(crate) fn new(most: usize) -> Self {
        let reserve = Self { kept: Mutex::default(), most };
        reserve.refill();
        reserve
    }

    /// Takes back what was given away, as far as the system has descriptors; true if all is there.
    pub(crate) fn refill(&self) -> bool {
        let mut kept = self.kept();
        while kept.len() < self.most {
            let flags = OFlags::PATH | OFlags::CLOEXEC;
            let Ok(fd) = rustix::fs::open("/", flags, Mode::empty()) else { return false };
            kept.push(fd);
        }
        true
    }

    /// Gives one descriptor back to the process; false where none is left.
    pub(crate) fn release(&self) -> bool {
        self.kept().pop().is_some()
    }

    fn kept(&self) -> MutexGuard<'_, Vec<OwnedFd>> {
        // Whole after every statement.
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
