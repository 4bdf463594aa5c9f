//! The way in which the pages of spans leave and come back, opened once for many spans.
//!
//! ```text
//!   FaultMode     Signal                 Thread                   Protection       Guards
//!   a touch       SIGBUS                 a message to a thread    SIGSEGV          SIGSEGV
//!   pages move    `Uffd`                 `Uffd`                   `Protection`     `Guards`
//!   needs         Linux 6.8,             Linux 6.8,               /proc/self/mem   Linux 6.15
//!                 userfaultfd allowed    a privilege
//! ```
//!
//! Invariant: a path does not change its mode. Lock: none.

use super::closing::Closing;
use super::error::{FaultError, FaultMode, exhausted};
use super::guards::Guards;
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
    /// Why ways that were tried before are not used, in their order.
    refusals: Vec<FaultError>,
    /// The page map of this process (`/proc/self/pagemap`), if it may be read.
    pagemap: Option<File>,
}

/// What moves pages.
#[derive(Debug)]
pub(crate) enum Way {
    Userfault(Uffd),
    Closing(Box<dyn Closing>),
}

impl FaultPath {
    /// Opens a way for faults that are served in `mode`.
    ///
    /// # Errors
    ///
    /// [`FaultError`] says what is missing, or what to change.
    pub fn open(mode: FaultMode) -> Result<Arc<FaultPath>, FaultError> {
        FaultPath::by(Way::open(mode)?, mode, Vec::new())
    }

    /// Opens the first of three ways that the system allows. [`FaultMode::Signal`] is the fastest
    /// one that needs no privilege. With [`FaultMode::Protection`] a forked child has the pages.
    /// The last is [`FaultMode::Guards`].
    ///
    /// # Errors
    ///
    /// [`FaultError::NoWay`] if the system refuses all. Other errors say what has run out.
    pub fn open_any() -> Result<Arc<FaultPath>, FaultError> {
        let mut refusals = Vec::new();
        for mode in [FaultMode::Signal, FaultMode::Protection, FaultMode::Guards] {
            match Way::open(mode) {
                Ok(way) => return FaultPath::by(way, mode, refusals),
                Err(refusal) if refusal.is_of_a_way() => refusals.push(refusal),
                Err(error) => return Err(error),
            }
        }
        Err(FaultError::NoWay { refusals })
    }

    fn by(
        way: Way,
        mode: FaultMode,
        refusals: Vec<FaultError>,
    ) -> Result<Arc<FaultPath>, FaultError> {
        let pagemap = match File::open("/proc/self/pagemap") {
            Ok(pagemap) => Some(pagemap),
            // It may be there later, and without it pages in the system's swap would be overlooked.
            Err(error) => match Errno::from_io_error(&error).and_then(exhausted) {
                Some(exhausted) => return Err(exhausted),
                None => None,
            },
        };
        Ok(Arc::new(FaultPath { way, mode, refusals, pagemap }))
    }

    /// How faults are served.
    pub fn mode(&self) -> FaultMode {
        self.mode
    }

    /// Why the system refused the ways that [`FaultPath::open_any`] tried before this one, in their
    /// order.
    pub fn refusals(&self) -> &[FaultError] {
        &self.refusals
    }

    /// The userfaultfd, if the way has one.
    pub(crate) fn uffd(&self) -> Option<&Uffd> {
        match &self.way {
            Way::Userfault(uffd) => Some(uffd),
            Way::Closing(_) => None,
        }
    }

    /// Whether a forked child has the pages.
    pub(crate) fn outlives_fork(&self) -> bool {
        self.mode == FaultMode::Protection
    }

    /// Makes a new mapping one that this way can serve. It is kept from forked children if they
    /// cannot have it. Pages of a userfaultfd that are shared with a child cannot leave, and a
    /// guarded file would be its parent's.
    pub(crate) fn prepare(&self, mapping: Mapping) -> Result<Mapping, FaultError> {
        let refused = |source| FaultError::Refused { request: "a mapping of a file", source };
        let mapping = match &self.way {
            Way::Closing(closing) => closing.back(mapping).map_err(refused)?,
            Way::Userfault(_) => mapping,
        };
        self.keep_from_children(&mapping)?;
        Ok(mapping)
    }

    /// Keeps memory from forked children, if they do not have the pages either.
    pub(crate) fn keep_from_children(&self, mapping: &Mapping) -> Result<(), FaultError> {
        if self.outlives_fork() {
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
            Way::Closing(closing) => closing.is_open(),
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
            Way::Closing(closing) => closing.expect_own(),
        }
    }
}

impl Way {
    fn open(mode: FaultMode) -> Result<Way, FaultError> {
        Ok(match mode {
            FaultMode::Signal | FaultMode::Thread => Way::Userfault(Uffd::open(mode)?),
            FaultMode::Protection => Way::Closing(Box::new(Protection::new()?)),
            FaultMode::Guards => Way::Closing(Box::new(Guards::new()?)),
        })
    }
}
