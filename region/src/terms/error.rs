//! Why something could not be done to a region.
//!
//! ```text
//!    Empty, Unaligned, OutOfRange, Unmapped, LimitTooSmall, OtherMemory, OtherGroup,
//!    UnknownLength, TooManyMappings, NotPinned, Pinned, FieldFull, NoTiers
//!                                             the caller asked for what cannot be
//!    SignalBlocked                            the thread could not touch the region
//!    Gone                                     the region was dropped
//!    Unreadable                               its store fails
//!    Store, Cache, Algorithm, Codec, Tiers, Tending, Host, FaultPath, Thread
//!                                             refused by what is below: see `source`
//! ```
//!
//! Invariant: an error means that no byte of the region has changed. Pages may have gone out or
//! come in.

use host::{FaultError, FaultMode, HostError};
use std::fmt;
use zram::{DiskError, PostError, ZramError};
use zswap::{AlgorithmError, ZswapError};

/// Why something could not be done to a region. No byte has changed then, although pages may have
/// gone out or come in already.
#[derive(Debug)]
#[non_exhaustive]
pub enum RegionError {
    /// A region has at least one byte.
    Empty,
    /// A bound of the range is not a multiple of 4096. Only whole pages are given back and emptied.
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
    /// The limit is below the least that there can be.
    LimitTooSmall {
        /// Bytes asked for.
        bytes: usize,
        /// The least limit there can be, in bytes.
        min: usize,
    },
    /// This thread has the signal blocked by which it would bring pages in, so it could not touch
    /// the region.
    SignalBlocked {
        /// How faults are served: `SIGBUS` or `SIGSEGV`.
        mode: FaultMode,
    },
    /// The region was dropped.
    Gone,
    /// A stored page cannot be brought back, because the disk behind the cache fails, or the
    /// cache's memory does. The page stays where it was.
    Unreadable {
        /// Its first byte.
        byte: usize,
    },
    /// The cache keeps its pages in a memory that is not the pager's.
    OtherMemory,
    /// The group belongs to another cache.
    OtherGroup,
    /// The range is not pinned, or was pinned with other bounds.
    NotPinned {
        /// First byte asked for.
        start: usize,
        /// The byte after the last.
        end: usize,
    },
    /// Part of the range is pinned, so its content may be in use.
    Pinned {
        /// First byte asked for.
        start: usize,
        /// The byte after the last.
        end: usize,
    },
    /// No part of the field that is long enough is free.
    FieldFull {
        /// Bytes asked for.
        bytes: usize,
    },
    /// The iterator for a vector does not say how many elements it gives at most.
    UnknownLength,
    /// The regions of the pager have made all the mappings that they may make.
    TooManyMappings {
        /// Mappings that they may make.
        max: u64,
    },
    /// Pages of the region stay as they left: it has no tiers. A region over a cache cannot have
    /// some.
    NoTiers,
    /// The settings of the tiers are not valid.
    Tiers(std::io::Error),
    /// There is no memory to make pages denser.
    Tending(PostError),
    /// The cache has no room for an area.
    Cache(ZswapError),
    /// The contexts of the cache's algorithm could not be made.
    Algorithm(AlgorithmError),
    /// The store could not be made.
    Store(ZramError),
    /// The contexts of the algorithm could not be made.
    Codec(DiskError),
    /// The system refused memory or address space.
    Host(HostError),
    /// The system refused to watch pages.
    Fault(FaultError),
    /// The system refused to start a thread.
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
            RegionError::SignalBlocked { mode } => write!(
                f,
                "this thread has {} blocked, by which it would bring pages in: unblock it \
                 (pthread_sigmask) in each thread that touches the region, or have a thread serve \
                 faults (FaultMode::Thread)",
                mode.signal_name()
            ),
            RegionError::Gone => f.write_str("the region was dropped"),
            RegionError::Unreadable { byte } => {
                write!(f, "the page at byte {byte} cannot be read back from the store")
            }
            RegionError::OtherMemory => {
                f.write_str("the cache's memory is another one than the pager's")
            }
            RegionError::OtherGroup => f.write_str("the group is another cache's"),
            RegionError::NotPinned { start, end } => {
                write!(f, "the bytes {start}..{end} were not pinned, or not as one range")
            }
            RegionError::Pinned { start, end } => {
                write!(f, "part of the bytes {start}..{end} is pinned: unpin it first")
            }
            RegionError::FieldFull { bytes } => {
                write!(f, "the field has no {bytes} bytes in a row free: make it longer")
            }
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
            RegionError::NoTiers => f.write_str(
                "the region has no tiers: give it a store of its own, and settings of tiers with \
                 the density balanced or dense",
            ),
            RegionError::Tiers(error) => error.fmt(f),
            RegionError::Tending(error) => error.fmt(f),
            RegionError::Cache(error) => error.fmt(f),
            RegionError::Algorithm(error) => error.fmt(f),
            RegionError::Store(error) => error.fmt(f),
            RegionError::Codec(error) => error.fmt(f),
            RegionError::Host(error) => error.fmt(f),
            RegionError::Fault(error) => error.fmt(f),
            RegionError::Thread(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

impl std::error::Error for RegionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RegionError::Tiers(error) => Some(error),
            RegionError::Tending(error) => Some(error),
            RegionError::Cache(error) => Some(error),
            RegionError::Algorithm(error) => Some(error),
            RegionError::Store(error) => Some(error),
            RegionError::Codec(error) => Some(error),
            RegionError::Host(error) => Some(error),
            RegionError::Fault(error) => Some(error),
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

impl From<FaultError> for RegionError {
    fn from(error: FaultError) -> RegionError {
        match error {
            FaultError::Host(error) => RegionError::Host(error),
            error => RegionError::Fault(error),
        }
    }
}
