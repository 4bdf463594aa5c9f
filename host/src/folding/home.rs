//! Tells the process that made something from a child that it has forked since.
//!
//! ```text
//!   parent   | 1 | ...        --fork-->        child   | 0 | ...
//!              a page that the system empties for a child (MADV_WIPEONFORK)
//! ```
//!
//! The system's number of the process would not tell: a child in a new namespace of processes may
//! have its parent's. Besides, each look would be a system call.
//!
//! Invariant: the word is other than 0 exactly in the process that made it or settled in it. Lock:
//! none.

use super::error::FaultError;
use crate::memory::{Access, Core, Mapping};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};

/// A number that is there in the process that made it, or that settled in it, and not in a child of
/// that one.
#[derive(Debug)]
pub struct Home(Mapping);

impl Home {
    /// A home of this process, with number 1.
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

    /// Makes it a home of this process too, if it is not yet.
    pub fn settle(&self) {
        self.settle_as(NonZeroU32::MIN);
    }

    /// The same with a number. Returns the number that it has: another thread may have been first.
    pub fn settle_as(&self, number: NonZeroU32) -> NonZeroU32 {
        // Release pairs with the Acquire in `number`, so that a thread that finds itself at home
        // finds what was done for that. As an Acquire it pairs with that of another thread.
        let before =
            self.word().compare_exchange(0, number.get(), Ordering::AcqRel, Ordering::Acquire);
        before.err().and_then(NonZeroU32::new).unwrap_or(number)
    }

    /// Whether this process made it or has settled in it. May be called in a signal handler.
    pub fn is_here(&self) -> bool {
        self.number().is_some()
    }

    /// The number that this process gave it.
    pub fn number(&self) -> Option<NonZeroU32> {
        // Acquire pairs with the Release in `settle_as`, so that a thread that finds itself at home
        // finds what was done for that.
        NonZeroU32::new(self.word().load(Ordering::Acquire))
    }

    fn word(&self) -> &AtomicU32 {
        // SAFETY: the mapping is a page long, and lives as long as `self`. This is the only way to
        // a reference to it.
        unsafe { self.0.base().cast::<AtomicU32>().as_ref() }
    }
}
