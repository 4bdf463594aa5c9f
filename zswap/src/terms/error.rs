//! The errors of a cache, by request, and the Linux error number of each.
//!
//! ```text
//!   Zswap::new, add_area ---> ZswapError      set_algorithm ---> AlgorithmError
//!   store ------------------> StoreError      load, peek ------> LoadError
//! ```
//!
//! Invariant: a request that fails with one of these changed nothing. A page that was stored still
//! is.

use std::fmt;

use codec::{CodecError, ParseCodecError};
use disk::DiskError;
use zsmalloc::{AllocError, MemoryError};

/// The most codecs that one cache can ever be switched to. It keeps every codec that it knows, so
/// that a thread that decodes an entry borrows the codec without a lock.
pub(crate) const KNOWN_MAX: usize = 64;

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const ENOMEM: i32 = 12;
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;

/// Why a cache, an area or a group could not be made or found.
#[derive(Debug)]
#[non_exhaustive]
pub enum ZswapError {
    /// Chain orders are 0 to 4.
    BadChainOrder {
        /// The order asked for.
        order: u32,
    },
    /// A limit in percent is 0 to 100, an accept threshold 1 to 100.
    BadPercent {
        /// The percentage asked for.
        percent: u32,
    },
    /// The limit is in percent, and the machine does not say how much memory it has.
    UnknownMemory,
    /// An area has 1 to 2^32 pages.
    BadArea {
        /// The pages asked for.
        pages: u64,
    },
    /// No area has this number, or it was removed.
    UnknownArea {
        /// The number asked for.
        id: u32,
    },
    /// There are 255 groups already.
    TooManyGroups,
    /// A backing disk has at least two windows of 32 KiB.
    BackingTooSmall {
        /// Bytes that the disk has.
        bytes: u64,
    },
    /// The backing disk is read-only.
    BackingReadOnly,
    /// The backing disk belongs to something else: its first block is neither zeros nor the header
    /// of a cache.
    BackingForeign,
    /// The backing disk failed.
    Backing(DiskError),
    /// The system refused to reserve address space.
    Memory(MemoryError),
}

impl ZswapError {
    /// The Linux error number.
    pub fn errno(&self) -> i32 {
        match self {
            ZswapError::UnknownArea { .. } => ENOENT,
            ZswapError::TooManyGroups => ENOSPC,
            ZswapError::BackingReadOnly => EROFS,
            ZswapError::BackingForeign => EBUSY,
            ZswapError::Backing(error) => error.errno(),
            ZswapError::Memory(_) => ENOMEM,
            _ => EINVAL,
        }
    }
}

impl fmt::Display for ZswapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ZswapError::BadChainOrder { order } => {
                write!(f, "chain order {order} does not exist: it is 0 to 4 (1 to 16 frames)")
            }
            ZswapError::BadPercent { percent } => {
                write!(f, "{percent} percent: a limit is 0 to 100, an accept threshold 1 to 100")
            }
            ZswapError::UnknownMemory => {
                f.write_str("the system does not say how much memory there is: give bytes")
            }
            ZswapError::BadArea { pages } => {
                write!(f, "an area of {pages} pages: it has 1 to 2^32")
            }
            ZswapError::UnknownArea { id } => write!(f, "there is no area {id}"),
            ZswapError::TooManyGroups => f.write_str("there are 255 groups already"),
            ZswapError::BackingTooSmall { bytes } => {
                write!(f, "a backing disk of {bytes} bytes is too small: 64K at least")
            }
            ZswapError::BackingReadOnly => f.write_str("the backing disk is read-only"),
            ZswapError::BackingForeign => f.write_str(
                "the backing disk holds something else: zero its first 4096 bytes to give it up",
            ),
            ZswapError::Backing(error) => write!(f, "the backing disk: {error}"),
            ZswapError::Memory(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ZswapError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ZswapError::Backing(error) => Some(error),
            ZswapError::Memory(error) => Some(error),
            _ => None,
        }
    }
}

impl From<MemoryError> for ZswapError {
    fn from(error: MemoryError) -> ZswapError {
        ZswapError::Memory(error)
    }
}

/// Why a page was not stored. The caller keeps the page, and the cache holds its older content as
/// before.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// The page lies outside the area.
    OutOfRange {
        /// The page asked for.
        page: u64,
        /// Pages of the area.
        pages: u64,
    },
    /// A page has 4096 bytes.
    BadLength {
        /// Bytes given.
        len: usize,
    },
    /// The area was removed.
    AreaRemoved,
    /// No group of the cache has this number.
    UnknownGroup,
    /// The limit is reached, or it was and the cache is not down to its accept threshold.
    OverLimit,
    /// The group's limit is reached, and none of its pages could be written back.
    OverGroupLimit,
    /// The page does not compress, and such pages are refused.
    Incompressible,
    /// There are no frames for the page.
    NoMemory,
    /// There are no cells, or there is no room in the order.
    NoMetadata,
    /// The page allocator handed out a frame that is in use, which is a defect of this library.
    Defect(AllocError),
}

impl StoreError {
    /// The Linux error number.
    pub fn errno(&self) -> i32 {
        match self {
            StoreError::OutOfRange { .. } | StoreError::BadLength { .. } => EINVAL,
            StoreError::AreaRemoved | StoreError::UnknownGroup => ENOENT,
            StoreError::OverLimit | StoreError::OverGroupLimit => ENOSPC,
            StoreError::Incompressible => ENOSPC,
            StoreError::NoMemory | StoreError::NoMetadata => ENOMEM,
            StoreError::Defect(_) => EIO,
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::OutOfRange { page, pages } => out_of_range(f, *page, *pages),
            StoreError::BadLength { len } => bad_length(f, *len),
            StoreError::AreaRemoved => f.write_str("the area was removed"),
            StoreError::UnknownGroup => f.write_str("the cache has no such group"),
            StoreError::OverLimit => f.write_str("the cache has reached its memory limit"),
            StoreError::OverGroupLimit => f.write_str("the group has reached its memory limit"),
            StoreError::Incompressible => f.write_str("the page does not compress"),
            StoreError::NoMemory => f.write_str("not enough memory for this page"),
            StoreError::NoMetadata => f.write_str("the tables that describe pages are full"),
            StoreError::Defect(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for StoreError {}

impl From<AllocError> for StoreError {
    fn from(error: AllocError) -> StoreError {
        match error {
            AllocError::OverLimit { .. } => StoreError::OverLimit,
            // A broken allocator is not a lack of memory.
            AllocError::FrameInUse { .. } => StoreError::Defect(error),
            _ => StoreError::NoMemory,
        }
    }
}

/// Why a page was not loaded. The page stays where it was.
#[derive(Debug)]
#[non_exhaustive]
pub enum LoadError {
    /// The page lies outside the area.
    OutOfRange {
        /// The page asked for.
        page: u64,
        /// Pages of the area.
        pages: u64,
    },
    /// A page has 4096 bytes.
    BadLength {
        /// Bytes given.
        len: usize,
    },
    /// The stored bytes do not decode, or the disk returned other bytes than were written.
    Corrupt,
    /// There is no memory for the codec's contexts. There may be later.
    NoMemory,
    /// The backing disk failed.
    Backing(DiskError),
}

impl LoadError {
    /// The Linux error number.
    pub fn errno(&self) -> i32 {
        match self {
            LoadError::OutOfRange { .. } | LoadError::BadLength { .. } => EINVAL,
            LoadError::Corrupt => EIO,
            LoadError::NoMemory => ENOMEM,
            LoadError::Backing(error) => error.errno(),
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::OutOfRange { page, pages } => out_of_range(f, *page, *pages),
            LoadError::BadLength { len } => bad_length(f, *len),
            LoadError::Corrupt => f.write_str("the stored page is damaged"),
            LoadError::NoMemory => f.write_str("not enough memory for a decompression context"),
            LoadError::Backing(error) => write!(f, "the backing disk: {error}"),
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LoadError::Backing(error) => Some(error),
            _ => None,
        }
    }
}

fn out_of_range(f: &mut fmt::Formatter<'_>, page: u64, pages: u64) -> fmt::Result {
    write!(f, "page {page} is none of an area of {pages} pages")
}

fn bad_length(f: &mut fmt::Formatter<'_>, len: usize) -> fmt::Result {
    write!(f, "a page has 4096 bytes, not {len}")
}

/// Why the algorithm was not changed.
#[derive(Debug)]
#[non_exhaustive]
pub enum AlgorithmError {
    /// There is no such algorithm, or it does not have that level.
    Unknown(ParseCodecError),
    /// Its contexts could not be built.
    Failed(CodecError),
    /// Entries of four other algorithms are stored. There is room for another when the last entry
    /// of one of them is gone.
    TooMany,
    /// The cache was switched to so many different algorithms that it can know no more. It can
    /// still be switched to those.
    TooManyKnown,
}

impl AlgorithmError {
    /// The Linux error number.
    pub fn errno(&self) -> i32 {
        match self {
            AlgorithmError::Unknown(_) => ENOENT,
            AlgorithmError::Failed(_) => EINVAL,
            AlgorithmError::TooMany => EBUSY,
            AlgorithmError::TooManyKnown => ENOSPC,
        }
    }
}

impl fmt::Display for AlgorithmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AlgorithmError::Unknown(error) => error.fmt(f),
            AlgorithmError::Failed(error) => error.fmt(f),
            AlgorithmError::TooMany => f.write_str("entries of four other algorithms are stored"),
            AlgorithmError::TooManyKnown => {
                write!(
                    f,
                    "the cache has known {KNOWN_MAX} algorithms and levels: it takes no other"
                )
            }
        }
    }
}

impl std::error::Error for AlgorithmError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            AlgorithmError::Unknown(error) => Some(error),
            AlgorithmError::Failed(error) => Some(error),
            AlgorithmError::TooMany | AlgorithmError::TooManyKnown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_allocator_is_told_as_such() {
        let told = StoreError::from(AllocError::FrameInUse { pfn: zsmalloc::Pfn::new(7) });
        assert_eq!(told.errno(), EIO, "{told}");
        assert!(told.to_string().contains("frame 7, which is in use"), "{told}");
        assert_eq!(StoreError::from(AllocError::OutOfFrames).errno(), ENOMEM);
    }
}
