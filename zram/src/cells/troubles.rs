//! The failures of a device since it was made, by cause.
//!
//! `io_stat` has the kernel's two numbers, which do not say why a request failed. A write-back that
//! fails reports that to its caller, but the policy's thread has no caller.
//!
//! Invariant: a failed request or a write-back that ended early is in at most one of the counters.
//! A client's own error (a bad offset, a write to a read-only disk) is in none. Locks: none.

use std::io;

use disk::DiskError;

use super::totals::{AtomicU64, bump, read};
use crate::terms::PostError;

/// The system's number for "no space left on device".
const ENOSPC: i32 = 28;

/// One counter for each cause.
#[derive(Debug, Default)]
pub(crate) struct Troubles {
    over_limit: AtomicU64,
    no_memory: AtomicU64,
    damaged: AtomicU64,
    backing_full: AtomicU64,
    backing_no_space: AtomicU64,
    backing_failed: AtomicU64,
}

/// The number of failures by cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct TroubleStat {
    /// Writes refused because the memory limit was reached.
    pub over_limit: u64,
    /// Requests and write-backs for which the machine had no memory.
    pub no_memory: u64,
    /// Requests and write-backs that met a page that does not decode.
    pub damaged: u64,
    /// Write-backs that found no free block on the backing disk.
    pub backing_full: u64,
    /// Write-backs to a backing file whose file system had no space left for it.
    pub backing_no_space: u64,
    /// Requests and write-backs that the backing disk failed in another way.
    pub backing_failed: u64,
}

impl Troubles {
    /// How often each cause was noted.
    pub(crate) fn stat(&self) -> TroubleStat {
        TroubleStat {
            over_limit: read(&self.over_limit),
            no_memory: read(&self.no_memory),
            damaged: read(&self.damaged),
            backing_full: read(&self.backing_full),
            backing_no_space: read(&self.backing_no_space),
            backing_failed: read(&self.backing_failed),
        }
    }

    fn backing(&self, error: &io::Error) -> &AtomicU64 {
        match error.raw_os_error() {
            Some(ENOSPC) => &self.backing_no_space,
            _ => &self.backing_failed,
        }
    }

    /// A request failed.
    pub(crate) fn note(&self, error: &DiskError) {
        let counter = match error {
            DiskError::NoSpace => &self.over_limit,
            DiskError::NoMemory => &self.no_memory,
            DiskError::Corrupt { .. } => &self.damaged,
            DiskError::Backing(error) => self.backing(error),
            // `OutOfRange` and `ReadOnly` are the client's own errors.
            _ => return,
        };
        bump(counter, 1);
    }

    /// A write-back ended early, or some of its pages failed.
    pub(crate) fn note_post(&self, error: &PostError) {
        let counter = match error {
            PostError::NoSpace => &self.backing_full,
            PostError::NoMemory => &self.no_memory,
            PostError::Corrupt { .. } => &self.damaged,
            PostError::Backing(error) => self.backing(error),
            // These are the caller's choice, or the caller's limit.
            PostError::NoBacking
            | PostError::OutOfRange { .. }
            | PostError::LimitReached
            | PostError::Invalid(_) => return,
        };
        bump(counter, 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_a_counter_of_its_own_and_a_client_s_fault_has_none() {
        let troubles = Troubles::default();
        let full = || io::Error::from_raw_os_error(ENOSPC);
        let broken = || io::Error::from_raw_os_error(5);
        troubles.note(&DiskError::OutOfRange { offset: 1, len: 1, size: 1 });
        troubles.note(&DiskError::ReadOnly);
        troubles.note_post(&PostError::LimitReached);
        troubles.note(&DiskError::NoSpace);
        troubles.note(&DiskError::NoMemory);
        troubles.note(&DiskError::Corrupt { offset: 0 });
        troubles.note(&DiskError::Backing(broken()));
        troubles.note_post(&PostError::NoSpace);
        troubles.note_post(&PostError::Backing(full()));
        let counters = [
            &troubles.over_limit,
            &troubles.no_memory,
            &troubles.damaged,
            &troubles.backing_full,
            &troubles.backing_no_space,
            &troubles.backing_failed,
        ];
        assert_eq!(counters.map(read), [1; 6], "{troubles:?}");
    }
}
