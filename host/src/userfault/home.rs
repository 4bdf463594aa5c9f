//! Which process this is: the one that made something, or a child that it has forked since.
//!
//! ```text
//!   parent   | 1 | ...        --fork-->        child   | 0 | ...
//!              a page that the system empties for a child (MADV_WIPEONFORK)
//! ```
//!
//! The process's number would tell as well, for a system call each time.

use super::error::UserfaultError;
use crate::memory::{Access, Core, Mapping};
use std::sync::atomic::{AtomicU8, Ordering};

/// A byte that is 1 in the process that made it, or settled in it, and 0 in a child of that.
#[derive(Debug)]
pub(crate) struct Home(Mapping);

impl Home {
    /// This process's.
    pub(crate) fn new() -> Result<Home, UserfaultError> {
        let home = Home(Mapping::reserve(1, Access::Open, Core::LeftOut)?);
        let refused = |source| UserfaultError::Refused { request: "MADV_WIPEONFORK", source };
        home.0.wipe_on_fork().map_err(refused)?;
        home.settle();
        Ok(home)
    }

    /// From now on it is this process's too.
    pub(crate) fn settle(&self) {
        // relaxed: who uses what it belongs to has that from this thread, or from one that did the
        // same.
        self.byte().store(1, Ordering::Relaxed);
    }

    /// Whether this process made it or has settled. Fit for a signal handler.
    pub(crate) fn is_here(&self) -> bool {
        // relaxed: as above.
        self.byte().load(Ordering::Relaxed) == 1
    }

    fn byte(&self) -> &AtomicU8 {
        // SAFETY: the mapping is a page long, and lives as long as `self`; nobody refers to it but
        // by this.
        unsafe { self.0.base().cast::<AtomicU8>().as_ref() }
    }
}
