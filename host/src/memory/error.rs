//! The errors of memory, worded for the person who must act.
//!
//! ```text
//!    HostError    the system refused (its answer is in `source`), or an argument is impossible
//!    ClaimError   an allocator asked for frames that it must not have: its bug, not the system's
//!    ForeignRun   a token went to the wrong arena, and comes back inside the error
//!    HostDefect   a recount found other numbers than those that are kept: our bug
//!    Operation    an operation that the system can refuse, and a test can make fail
//! ```
//!
//! Invariant: an error of the system carries the system's answer. Lock: none.

use super::run::{Pfn, Run};
use std::fmt;
use std::io;

/// Settings that can keep the system from opening reserved memory.
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
    /// No arena or table can have this size.
    Size {
        /// Elements (frames or entries) asked for.
        len: u64,
        /// The most there can be.
        max: u64,
    },
    /// The page of the system is not 4096 bytes, so frames could not be returned one by one.
    PageSize {
        /// Bytes in the system's page.
        system_bytes: usize,
    },
    /// The system refused an advice (`madvise`) on a mapping of ours.
    Advise {
        /// The advice.
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

/// An operation that can be made to fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Operation {
    /// Reserving address space for an arena or a table.
    Reserve,
    /// Taking a run of frames from an allocator above the arena.
    Frames,
    /// Claiming a run of frames.
    Claim,
    /// Returning the memory of a run.
    Purge,
    /// Taking a part of a table that was not in use.
    Extend,
    /// Returning the memory of table pages.
    Discard,
    /// Starting a thread.
    Thread,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Operation; 7] = [
        Operation::Reserve,
        Operation::Frames,
        Operation::Claim,
        Operation::Purge,
        Operation::Extend,
        Operation::Discard,
        Operation::Thread,
    ];
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Reserve => "a reservation",
            Operation::Frames => "taking frames",
            Operation::Claim => "a claim",
            Operation::Purge => "a purge",
            Operation::Extend => "an extension",
            Operation::Discard => "a discard",
            Operation::Thread => "starting a thread",
        })
    }
}

/// Why [`Arena::claim`](crate::Arena::claim) gave no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClaimError {
    /// Part of the run is claimed already, so the allocator above is broken.
    InUse {
        /// The lowest frame that was found taken.
        pfn: Pfn,
    },
    /// The run is empty or reaches past the arena.
    OutOfRange {
        /// First frame asked for.
        pfn: Pfn,
        /// Frames asked for.
        frames: u32,
    },
    /// The system does not open the frames now. Nothing is wrong with the run, and a later claim
    /// may succeed.
    NotOpened {
        /// First frame asked for.
        pfn: Pfn,
    },
    /// A [`FailureInjector`](crate::FailureInjector) made this claim fail.
    Injected,
}

impl fmt::Display for ClaimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClaimError::InUse { pfn } => write!(f, "{pfn} is claimed already"),
            ClaimError::OutOfRange { pfn, frames } => {
                write!(f, "{frames} frames from {pfn} on are not a run of this arena")
            }
            ClaimError::NotOpened { pfn } => {
                write!(f, "the system does not open {pfn} ({LOOK_AT})")
            }
            ClaimError::Injected => write!(f, "injected failure of a claim"),
        }
    }
}

impl std::error::Error for ClaimError {}

/// A run was handed to an arena that it does not come from. The error gives it back.
#[derive(Debug)]
pub struct ForeignRun {
    /// The token, which is still valid for its own arena.
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
    /// The name of the broken invariant, and what was found.
    pub String,
);

impl fmt::Display for HostDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for HostDefect {}
