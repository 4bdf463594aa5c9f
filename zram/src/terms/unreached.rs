//! Why a device's memory is not at its target, and what helps.
//!
//! Invariant: each reason comes with what an operator can do about it.

use std::fmt;

use super::asked::PostError;

/// Why memory could not be brought down to its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unreached {
    /// There is no backing disk, and recompression makes nothing smaller.
    NoBacking,
    /// No block of the backing disk is free.
    BackingFull,
    /// The limit on write-back is used up.
    LimitReached,
    /// The backing disk fails.
    BackingFailed,
    /// Pages are damaged.
    Damaged,
    /// The machine has no memory for the work.
    NoMemory,
    /// Every page that is left was used before it could go.
    InUse,
    /// Pages are stored faster than others are moved away.
    Outrun,
}

impl From<&PostError> for Unreached {
    fn from(error: &PostError) -> Unreached {
        match error {
            PostError::NoBacking => Unreached::NoBacking,
            PostError::NoMemory => Unreached::NoMemory,
            PostError::NoSpace => Unreached::BackingFull,
            PostError::LimitReached => Unreached::LimitReached,
            PostError::Backing(_) => Unreached::BackingFailed,
            PostError::Corrupt { .. } => Unreached::Damaged,
            // These errors blame the numbers of a request, and here no request gave any.
            PostError::OutOfRange { .. } | PostError::Invalid(_) => Unreached::InUse,
        }
    }
}

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Unreached::NoBacking => {
                "no page gets smaller, and there is no backing device; start with one, or with a \
                 higher target"
            }
            Unreached::BackingFull => {
                "the backing device is full; discard what is not needed, or start with a larger one"
            }
            Unreached::LimitReached => {
                "the limit on write-back is used up; write more blocks to writeback_limit"
            }
            Unreached::BackingFailed => "the backing device fails; look at the system's log",
            Unreached::Damaged => "pages are damaged, and cannot be read; check names one",
            Unreached::NoMemory => "the machine has no memory for the work; end other programs",
            Unreached::InUse => {
                "every page that is left was used while it was to go; start with a higher target"
            }
            Unreached::Outrun => {
                "pages are stored faster than others are written back; start with a faster backing \
                 device, or with a higher target"
            }
        })
    }
}
