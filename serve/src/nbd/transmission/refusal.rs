//! Why a request is answered with an error: a number of NBD's, and words.
//!
//! Invariant: the number is one that the protocol knows. Locks: none.

use super::wire;
use disk::DiskError;

/// An error in the form in which the client is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// One of NBD's error numbers.
    pub(super) number: u32,
    /// Words for people, sent if the form of the reply has room for them.
    pub(super) why: &'static str,
}

impl Refusal {
    /// The request itself is wrong.
    pub(super) const fn invalid(why: &'static str) -> Self {
        Self { number: wire::EINVAL, why }
    }

    /// The disk failed to read, discard, prefetch or flush.
    pub(super) fn of(error: &DiskError) -> Self {
        Self { number: number(error.errno()), why: words(error) }
    }

    /// The disk failed to write.
    pub(super) fn of_write(error: &DiskError) -> Self {
        Self { number: number(error.write_errno()), why: words(error) }
    }
}

/// The number for an `errno`. The protocol knows only a few numbers, which are those of Linux. Any
/// other failure is told as `EIO`.
fn number(errno: i32) -> u32 {
    const KNOWN: [u32; 4] = [wire::EPERM, wire::ENOMEM, wire::EINVAL, wire::ENOSPC];
    u32::try_from(errno).ok().filter(|errno| KNOWN.contains(errno)).unwrap_or(wire::EIO)
}

fn words(error: &DiskError) -> &'static str {
    match error {
        DiskError::OutOfRange { .. } => "beyond the end of the disk",
        DiskError::ReadOnly => "the disk is read-only",
        DiskError::NoSpace => "the disk has reached its memory limit",
        DiskError::NoMemory => "the server is out of memory",
        DiskError::Corrupt { .. } => "a stored page is damaged",
        _ => "the disk failed",
    }
}
