//! Why a request failed, and the Linux error number that reports it.
//!
//! ```text
//!                 reads, discards, flushes     writes
//!   OutOfRange            EINVAL               ENOSPC
//!   ReadOnly              EPERM                EPERM
//!   NoSpace               ENOSPC               ENOSPC
//!   NoMemory              ENOMEM               ENOMEM
//!   Corrupt, Backing,     EIO                  EIO
//!   Defect
//! ```
//!
//! Invariant: each variant has one number, except `OutOfRange`, which has one for writes and one
//! for all other requests. A test states the table row by row.

use std::{error, fmt, io};

/// Operation not permitted.
const EPERM: i32 = 1;
/// Input/output error.
const EIO: i32 = 5;
/// Cannot allocate memory.
const ENOMEM: i32 = 12;
/// Invalid argument.
const EINVAL: i32 = 22;
/// No space left on device.
const ENOSPC: i32 = 28;

/// Why a request failed. Each variant asks for a different action.
#[derive(Debug)]
#[non_exhaustive]
pub enum DiskError {
    /// The request does not lie within the disk: the client is at fault.
    OutOfRange {
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Bytes that the disk has.
        size: u64,
    },
    /// The disk is read-only.
    ReadOnly,
    /// The store has reached its limit: raise the limit, or discard something.
    NoSpace,
    /// The machine has no memory for this request. The request may succeed later.
    NoMemory,
    /// The stored bytes do not decode to what was written.
    Corrupt {
        /// First byte of the page that is lost.
        offset: u64,
    },
    /// The file or device underneath failed.
    Backing(io::Error),
    /// The disk is broken in itself: report it to its makers. The text says what was found.
    Defect(String),
}

impl DiskError {
    /// The Linux error number for a client that asked to read, discard or flush.
    pub fn errno(&self) -> i32 {
        match self {
            Self::OutOfRange { .. } => EINVAL,
            Self::ReadOnly => EPERM,
            Self::NoSpace => ENOSPC,
            Self::NoMemory => ENOMEM,
            Self::Corrupt { .. } | Self::Backing(_) | Self::Defect(_) => EIO,
        }
    }

    /// The Linux error number for a client that asked to write or to write zeros. It is that of
    /// [`errno`](Self::errno), except that a write past the end is "no space", because NBD requires
    /// that.
    pub fn write_errno(&self) -> i32 {
        match self {
            Self::OutOfRange { .. } => ENOSPC,
            other => other.errno(),
        }
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfRange { offset, len, size } => {
                write!(f, "{len} bytes at offset {offset} do not lie within a disk of {size} bytes")
            }
            Self::ReadOnly => f.write_str("the disk is read-only"),
            Self::NoSpace => f.write_str("the disk has reached its memory limit"),
            Self::NoMemory => f.write_str("not enough memory for this request"),
            Self::Corrupt { offset } => {
                write!(f, "the page at offset {offset} is damaged and cannot be read")
            }
            Self::Backing(_) => f.write_str("the backing file or device failed"),
            Self::Defect(found) => f.write_str(found),
        }
    }
}

impl error::Error for DiskError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Backing(source) => Some(source),
            _ => None,
        }
    }
}

impl From<io::Error> for DiskError {
    fn from(source: io::Error) -> Self {
        Self::Backing(source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error;

    #[test]
    fn every_error_has_the_number_a_client_expects() {
        let past_end = DiskError::OutOfRange { offset: 4096, len: 1, size: 4096 };
        let backing = DiskError::from(io::Error::from(io::ErrorKind::TimedOut));
        let rows = [
            (past_end, 22, 28),
            (DiskError::ReadOnly, 1, 1),
            (DiskError::NoSpace, 28, 28),
            (DiskError::NoMemory, 12, 12),
            (DiskError::Corrupt { offset: 0 }, 5, 5),
            (backing, 5, 5),
            (DiskError::Defect("two owners".into()), 5, 5),
        ];
        for (error, errno, write_errno) in rows {
            assert_eq!(error.errno(), errno, "{error}");
            assert_eq!(error.write_errno(), write_errno, "{error}, when writing");
        }
    }

    #[test]
    fn a_backing_failure_keeps_its_cause() {
        let error = DiskError::from(io::Error::other("cable pulled"));
        let cause = error.source().expect("a backing error has a source");
        assert_eq!(cause.to_string(), "cable pulled");
        assert!(DiskError::NoSpace.source().is_none());
    }
}
