//! Why something could not be done to a region.
//!
//! ```text
//!    Empty, Unaligned, OutOfRange, Unmapped, LimitTooSmall, OtherMemory, OtherGroup,
//!    UnknownLength, TooManyMappings
//!                                             the caller asked for what cannot be
//!    SignalBlocked                            the thread could not touch the region
//!    Gone                                     the region was dropped
//!    Unreadable                               its store fails
//!    Store, Cache, Algorithm, Codec, Host, Userfault, Thread
//!                                             refused by what is below: see `source`
//! ```

use host::{HostError, UserfaultError};
use std::fmt;
use zram::{DiskError, ZramError};
use zswap::{AlgorithmError, ZswapError};

/// Why something could not be done to a region. No byte has changed then, although pages may have
/// gone out or come in before.
#[derive(Debug)]
#[non_exhaustive]
pub enum RegionError {
    /// A region has at least one byte.
    Empty,
    /// Pages are given back and emptied whole: a bound of the range is no multiple of 4096.
    Unaligned {
        /// The bound.
        byte: usize,
    },
    /// The range is empty, backwards, or reaches past the end.
    OutOfRange {
        /// First byte asked for.
        start: usize,
        /// The byte after the last.
        end: usize,
        /// Bytes of the region.
        len: usize,
    },
    /// Part of the range was given back.
    Unmapped {
        /// First byte asked for.
        start: usize,
        /// The byte after the last.
        end: usize,
    },
    /// A limit below what is moved at a time.
    LimitTooSmall {
        /// Bytes asked for.
        bytes: usize,
        /// The least there can be.
        min: usize,
    },
    /// In [`FaultMode::Signal`](crate::FaultMode) this thread could not touch the region: it has
    /// `SIGBUS` blocked.
    SignalBlocked,
    /// The region was dropped.
    Gone,
    /// A stored page cannot be brought back, because the disk behind the cache fails, or the
    /// cache's memory. The page is where it was.
    Unreadable {
        /// Its first byte.
        byte: usize,
    },
    /// The cache keeps its pages in another memory than the pager.
    OtherMemory,
    /// The group is none of the cache's: it is another cache's.
    OtherGroup,
    /// A vector is made from an iterator, which does not say how many elements it has at most.
    UnknownLength,
    /// The regions of the pager have made the mappings that they may make.
    TooManyMappings {
        /// Mappings there may be.
        max: u64,
    },
    /// The cache has no room for an area.
    Cache(ZswapError),
    /// The cache's algorithm could not be made ready.
    Algorithm(AlgorithmError),
    /// The store could not be made.
    Store(ZramError),
    /// The algorithm could not be made ready.
    Codec(DiskError),
    /// The system refused memory or address space.
    Host(HostError),
    /// The system refused to watch pages.
    Userfault(UserfaultError),
    /// The system refused a thread.
    Thread(std::io::Error),
}

impl fmt::Display for RegionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegionError::Empty => f.write_str("a region has at least one byte"),
            RegionError::Unaligned { byte } => {
                write!(f, "byte {byte} is not the start of a page: ranges are multiples of 4096")
            }
            RegionError::OutOfRange { start, end, len } => {
                write!(f, "bytes {start}..{end} are no range of a region of {len} bytes")
            }
            RegionError::Unmapped { start, end } => {
                write!(f, "part of the bytes {start}..{end} was given back")
            }
            RegionError::LimitTooSmall { bytes, min } => {
                write!(f, "a limit of {bytes} bytes is too small: at least {min}")
            }
            RegionError::SignalBlocked => f.write_str(
                "this thread has SIGBUS blocked, by which it would bring pages in: unblock it \
                 (pthread_sigmask) in each thread that touches the region, or have a thread serve \
                 faults (FaultMode::Thread)",
            ),
            RegionError::Gone => f.write_str("the region was dropped"),
            RegionError::Unreadable { byte } => {
                write!(f, "the page at byte {byte} cannot be read back from the store")
            }
            RegionError::OtherMemory => {
                f.write_str("the cache's memory is another one than the pager's")
            }
            RegionError::OtherGroup => f.write_str("the group is another cache's"),
            RegionError::UnknownLength => f.write_str(
                "the iterator does not say how many elements it has at most: make a vector with \
                 room for them, and extend it",
            ),
            RegionError::TooManyMappings { max } => write!(
                f,
                "the regions have made {max} mappings, the most they may: discard the range, or \
                 give back longer ranges; or raise vm.max_map_count, of which they have an eighth, \
                 or PagerConfig::mappings_max"
            ),
            RegionError::Cache(error) => error.fmt(f),
            RegionError::Algorithm(error) => error.fmt(f),
            RegionError::Store(error) => error.fmt(f),
            RegionError::Codec(error) => error.fmt(f),
            RegionError::Host(error) => error.fmt(f),
            RegionError::Userfault(error) => error.fmt(f),
            RegionError::Thread(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

impl std::error::Error for RegionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RegionError::Cache(error) => Some(error),
            RegionError::Algorithm(error) => Some(error),
            RegionError::Store(error) => Some(error),
            RegionError::Codec(error) => Some(error),
            RegionError::Host(error) => Some(error),
            RegionError::Userfault(error) => Some(error),
            RegionError::Thread(error) => Some(error),
            _ => None,
        }
    }
}

impl From<HostError> for RegionError {
    fn from(error: HostError) -> RegionError {
        RegionError::Host(error)
    }
}

impl From<UserfaultError> for RegionError {
    fn from(error: UserfaultError) -> RegionError {
        RegionError::Userfault(error)
    }
}
