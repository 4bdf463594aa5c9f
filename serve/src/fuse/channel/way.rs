//! The way that requests come by, and why they do not come by io_uring.
//!
//! Invariant: there is one way for the life of a connection. Locks: none.

use std::fmt;
use std::io;
use std::path::Path;

/// The parameter of the kernel that allows FUSE over io_uring.
const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// How requests for files come from the kernel.
#[derive(Debug)]
pub enum FuseWay {
    /// By io_uring, from so many queues. What needs no answer comes by `/dev/fuse`.
    IoUring {
        /// Queues, one for each CPU that the system may have.
        queues: usize,
    },
    /// All by `/dev/fuse`.
    Device(NoRing),
}

impl FuseWay {
    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Self::IoUring { .. } => "io_uring",
            Self::Device(_) => "/dev/fuse",
        }
    }
}

/// Why requests do not come by io_uring.
#[derive(Debug)]
#[non_exhaustive]
pub enum NoRing {
    /// It was turned off.
    NotWanted,
    /// The kernel does not offer it.
    NotOffered,
    /// The system does not let this process make or use a ring.
    Refused(io::Error),
}

impl fmt::Display for NoRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotWanted => f.write_str("io_uring is turned off"),
            Self::NotOffered if Path::new(PARAMETER).exists() => {
                write!(f, "the kernel does not offer io_uring: {PARAMETER} was N at the mount")
            }
            Self::NotOffered => f.write_str("the kernel has no FUSE over io_uring (Linux 6.14)"),
            Self::Refused(error) => write!(
                f,
                "the system refuses io_uring: {error} (kernel.io_uring_disabled, a filter of \
                 system calls, or ulimit -n)"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_words() {
        let refused = NoRing::Refused(io::Error::from_raw_os_error(1));
        let said = [NoRing::NotWanted, NoRing::NotOffered, refused].map(|why| why.to_string());
        assert!(said.iter().all(|said| said.contains("io_uring")), "{said:?}");
    }
}
