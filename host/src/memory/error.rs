//! What can go wrong at the fence, worded for whoever must act.
//!
//! ```text
//!    HostError    the system refused (its answer is in `source`), or an impossible argument
//!    ClaimError   an allocator asked for frames it must not have: its bug, not the system's
//!    ForeignRun   a token went to the wrong arena, and comes back inside the error
//!    HostDefect   a recount found other numbers than are kept: our bug
//! ```

use super::operation::Operation;
use super::run::Run;
use std::fmt;
use std::io;

/// What may be in the way where reserved memory is not opened.
const LOOK_AT: &str = "see /proc/sys/vm/max_map_count, which bounds the mappings of a process, \
                       `ulimit -d` and /proc/sys/vm/overcommit_memory";

/// The system refused, or an argument was impossible.
#[derive(Debug)]
#[non_exhaustive]
pub enum HostError {
    /// Address space could not be reserved.
    Reserve {
        /// Bytes asked for, guard pages included.
        bytes: u64,
        /// The system's answer.
        source: io::Error,
    },
    /// Reserved memory could not be opened.
    Open {
        /// Bytes that were to be opened.
        bytes: u64,
        /// The system's answer.
        source: io::Error,
    },
    /// A size that no arena or table can have.
    Size {
        /// Elements (frames or entries) asked for.
        len: u64,
        /// The most there can be.
        max: u64,
    },
    /// The system's page is not 4096 bytes, so frames could not be returned one by one.
    PageSize {
        /// Bytes in the system's page.
        system_bytes: usize,
    },
    /// `madvise` failed on a mapping of ours.
    Advise {
        /// What was advised.
        advice: &'static str,
        /// Bytes advised.
        bytes: u64,
        /// The system's answer.
        source: io::Error,
    },
    /// A run was handed to an arena it does not come from.
    ForeignRun,
    /// A [`FailureInjector`](crate::FailureInjector) made this operation fail.
    Injected(Operation),
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostError::Reserve { bytes, source } => write!(
                f,
                "cannot reserve {bytes} bytes of address space: {source} \
                 (see `ulimit -v`, after mlockall also `ulimit -l`, and \
                 /proc/sys/vm/overcommit_memory, which must not be 2)"
            ),
            HostError::Open { bytes, source } => {
                write!(f, "cannot open {bytes} bytes of reserved memory: {source} ({LOOK_AT})")
            }
            HostError::Size { len, max } => {
                write!(f, "{len} frames or entries asked for; there must be 1 to {max}")
            }
            HostError::PageSize { system_bytes } => {
                write!(f, "this system's pages are {system_bytes} bytes; ramfold needs 4096")
            }
            HostError::Advise { advice, bytes, source } => {
                write!(f, "madvise({advice}) failed on {bytes} bytes: {source}")
            }
            HostError::ForeignRun => write!(f, "a run of frames was handed to the wrong arena"),
            HostError::Injected(operation) => write!(f, "injected failure of {operation}"),
        }
    }
}

impl std::error::Error for HostError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            HostError::Reserve { source, .. }
            | HostError::Open { source, .. }
            | HostError::Advise { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Why [`Arena::claim`](crate::Arena::claim) gave no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimError {
    /// Part of the run is claimed already: the allocator above is broken.
    InUse {
        /// The lowest frame found taken.
        pfn: u32,
    },
    /// The run is empty or reaches past the arena.
    OutOfRange {
        /// First frame asked for.
        pfn: u32,
        /// Frames asked for.
        frames: u32,
    },
    /// The system does not open the frames: no run is wrong, and later it may.
    NotOpened {
        /// First frame asked for.
        pfn: u32,
    },
    /// A [`FailureInjector`](crate::FailureInjector) made this claim fail.
    Injected,
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClaimError::InUse { pfn } => write!(f, "frame {pfn} is claimed already"),
            ClaimError::OutOfRange { pfn, frames } => {
                write!(f, "{frames} frames at {pfn} are not a run of this arena")
            }
            ClaimError::NotOpened { pfn } => {
                write!(f, "the system does not open frame {pfn} ({LOOK_AT})")
            }
            ClaimError::Injected => write!(f, "injected failure of a claim"),
        }
    }
}

impl std::error::Error for ClaimError {}

/// A run was handed to an arena it does not come from; here it is back.
#[derive(Debug)]
pub struct ForeignRun {
    /// The token, still good for its own arena.
    pub run: Run,
}

impl fmt::Display for ForeignRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        HostError::ForeignRun.fmt(f)
    }
}

impl std::error::Error for ForeignRun {}

/// An arena or a table that contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostDefect(
    /// What was found, after the invariant that it breaks.
    pub String,
);

impl fmt::Display for HostDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for HostDefect {}
