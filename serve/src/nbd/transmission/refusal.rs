//! Why a request is answered with an error: NBD's number for it, and words.

use super::wire;
use disk::DiskError;

/// An error as the client is told it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// One of NBD's error numbers.
    pub(super) number: u32,
    /// For people; sent where the protocol has room for it.
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

/// The protocol knows a few numbers only, which are Linux's; any other failure is one of I/O.
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
