//! Tells the process that made something from a child that it has forked since.
//!
//! ```text
//!   parent   | 1 | ...        --fork-->        child   | 0 | ...
//!              a page that the system empties for a child (MADV_WIPEONFORK)
//! ```
//!
//! The number of the process would tell as well, but each look would be a system call.
//!
//! Invariant: the byte is 1 exactly in the process that made it or settled in it. Lock: none.

use super::error::FaultError;
use crate::memory::{Access, Core, Mapping};
use std::sync::atomic::{AtomicU8, Ordering};

/// A byte that is 1 in the process that made it, or that settled in it, and 0 in a child of that
/// one.
#[derive(Debug)]
pub struct Home(Mapping);

impl Home {
    /// A home of this process.
    ///
    /// # Errors
    ///
    /// If the system refuses a page, or to empty it for children (before Linux 4.14).
    pub fn new() -> Result<Home, FaultError> {
        let home = Home(Mapping::reserve(1, Access::Open, Core::LeftOut)?);
        let refused = |source| FaultError::Refused { request: "MADV_WIPEONFORK", source };
        home.0.wipe_on_fork().map_err(refused)?;
        home.settle();
        Ok(home)
    }

    /// Makes it a home of this process too.
    pub fn settle(&self) {
        // Release pairs with the Acquire in `is_here`, so that a thread that finds itself at home
        // finds what was done for that.
        self.byte().store(1, Ordering::Release);
    }

    /// Whether this process made it or has settled in it. May be called in a signal handler.
    pub fn is_here(&self) -> bool {
        // Acquire pairs with the Release in `settle`, so that a thread that finds itself at home
        // finds what was done for that.
        self.byte().load(Ordering::Acquire) == 1
    }

    fn byte(&self) -> &AtomicU8 {
        // SAFETY: the mapping is a page long, and lives as long as `self`. This is the only way to
        // a reference to it.
        unsafe { self.0.base().cast::<AtomicU8>().as_ref() }
    }
}
