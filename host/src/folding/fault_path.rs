//! The way in which the pages of spans leave and come back, opened once for many spans.
//!
//! ```text
//!   FaultMode     Signal                 Thread                    Protection
//!   a touch       SIGBUS                 a message to a thread     SIGSEGV
//!   pages move    `Uffd`                 `Uffd`                    `Protection`
//!   needs         Linux 6.8,             Linux 6.8,                /proc/self/mem
//!                 userfaultfd allowed    a privilege
//! ```
//!
//! Invariant: a path does not change its mode. Lock: none.

use super::error::{FaultError, FaultMode, exhausted};
use super::protection::Protection;
use super::uffd::Uffd;
use crate::memory::Mapping;
use rustix::io::Errno;
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

/// A way to serve faults that spans share with the staging that their pages go through.
#[derive(Debug)]
pub struct FaultPath {
    way: Way,
    mode: FaultMode,
    /// Why a faster way is not used, if one was tried.
    instead_of: Option<FaultError>,
    /// The page map of this process (`/proc/self/pagemap`), if it may be read.
    pagemap: Option<File>,
}

/// What moves pages.
#[derive(Debug)]
pub(crate) enum Way {
    Userfault(Uffd),
    Protection(Protection),
}

impl FaultPath {
    /// Opens a way for faults that are served in `mode`.
    ///
    /// # Errors
    ///
    /// [`FaultError`] says what is missing, or what to change.
    pub fn open(mode: FaultMode) -> Result<Arc<FaultPath>, FaultError> {
        FaultPath::open_instead(mode, None)
    }

    /// Opens the fastest way that needs no privilege: [`FaultMode::Signal`], or
    /// [`FaultMode::Protection`] if the system has no userfaultfd or denies it.
    ///
    /// # Errors
    ///
    /// [`FaultError::NoWay`] if the system refuses both. Other errors say what has run out.
    pub fn open_any() -> Result<Arc<FaultPath>, FaultError> {
        match FaultPath::open(FaultMode::Signal) {
            Err(refusal @ (FaultError::Unsupported { .. } | FaultError::Denied { .. })) => {
                FaultPath::open_instead(FaultMode::Protection, Some(refusal))
            }
            opened => opened,
        }
    }

    fn open_instead(
        mode: FaultMode,
        instead_of: Option<FaultError>,
    ) -> Result<Arc<FaultPath>, FaultError> {
        let way = match mode {
            FaultMode::Signal | FaultMode::Thread => Uffd::open(mode).map(Way::Userfault),
            FaultMode::Protection => Protection::new().map(Way::Protection),
        };
        let (way, instead_of) = match (way, instead_of) {
            (Ok(way), instead_of) => (way, instead_of),
            (Err(FaultError::Unforced { source }), Some(refusal)) => {
                return Err(FaultError::NoWay { refusal: Box::new(refusal), source });
            }
            (Err(error), _) => return Err(error),
        };
        let pagemap = match File::open("/proc/self/pagemap") {
            Ok(pagemap) => Some(pagemap),
            // It may be there later, and without it pages in the system's swap would be overlooked.
            Err(error) => match Errno::from_io_error(&error).and_then(exhausted) {
                Some(exhausted) => return Err(exhausted),
                None => None,
            },
        };
        Ok(Arc::new(FaultPath { way, mode, instead_of, pagemap }))
    }

    /// How faults are served.
    pub fn mode(&self) -> FaultMode {
        self.mode
    }

    /// Why the system refused the way that [`FaultPath::open_any`] tried first, if it did.
    pub fn instead_of(&self) -> Option<&FaultError> {
        self.instead_of.as_ref()
    }

    /// The userfaultfd, if the way has one.
    pub(crate) fn uffd(&self) -> Option<&Uffd> {
        match &self.way {
            Way::Userfault(uffd) => Some(uffd),
            Way::Protection(_) => None,
        }
    }

    /// Keeps memory of a userfaultfd from forked children, because pages that are shared with one
    /// cannot leave. Closed pages can, and a child needs them.
    pub(crate) fn keep_from_children(&self, mapping: &Mapping) -> Result<(), FaultError> {
        if self.uffd().is_none() {
            return Ok(());
        }
        let refused = |source| FaultError::Refused { request: "MADV_DONTFORK", source };
        mapping.keep_from_children().map_err(refused)
    }

    /// Whether the descriptor still is what it was. `registered` is a range of which the
    /// userfaultfd knows.
    pub(crate) fn answers(&self, registered: &Range<usize>) -> bool {
        match &self.way {
            Way::Userfault(uffd) => uffd.wake(registered).is_ok(),
            Way::Protection(protection) => protection.is_open(),
        }
    }

    pub(crate) fn way(&self) -> &Way {
        &self.way
    }

    /// The page map. That of a forked child's parent says nothing about the child.
    pub(super) fn pagemap(&self) -> Option<&File> {
        self.pagemap.as_ref().filter(|_| self.expect_own().is_ok())
    }

    /// Checks that this is the process that opened the path.
    ///
    /// # Errors
    ///
    /// [`FaultError::Inherited`] in a child that was forked since.
    pub fn expect_own(&self) -> Result<(), FaultError> {
        match &self.way {
            Way::Userfault(uffd) => uffd.expect_own(),
            Way::Protection(protection) => protection.expect_own(),
        }
    }
}
