//! Operations that the system can refuse, as names for errors and for failure injection.
//!
//! ```text
//!   an arena    Reserve, Claim, Purge          an allocator above it    Frames
//!   a table     Reserve, Extend, Discard       threads above it         Thread
//! ```
//!
//! Invariant: [`Operation::ALL`] has every operation once. Lock: none.

use std::fmt;

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
