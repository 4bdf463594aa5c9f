//! What can go wrong in the allocator, worded for a person who must act.
//!
//! Invariant: an operation that returns one of these changed nothing.

use std::fmt;

use host::{HostError, Pfn};

/// Why an object could not be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AllocError {
    /// Zero bytes, or more than a page.
    BadLength {
        /// The length asked for, in bytes.
        len: usize,
    },
    /// The pool holds as many object bytes as its limit allows.
    OverLimit {
        /// The limit, in bytes.
        limit: u64,
    },
    /// No frames, or more in a run than there can be.
    BadRun {
        /// The frames asked for.
        frames: u32,
    },
    /// No run of free frames is left in the arena.
    OutOfFrames,
    /// The page allocator handed out a frame that has an owner. This is a defect of this library:
    /// no byte is touched, and the run is used no more.
    FrameInUse {
        /// The number of the frame.
        pfn: Pfn,
    },
    /// The descriptor table is full.
    OutOfDescriptors,
    /// The table of cells is full.
    OutOfCells,
    /// The system does not open more of what is reserved.
    NotOpened,
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AllocError::BadLength { len } => {
                write!(f, "an object is 1 to {} bytes long, not {len}", super::geometry::SIZE_MAX)
            }
            AllocError::OverLimit { limit } => {
                write!(
                    f,
                    "the pool's memory limit of {limit} bytes is reached; free objects, or set a \
                 higher limit"
                )
            }
            AllocError::BadRun { frames } => {
                write!(f, "a run has 1 to {} frames, not {frames}", buddy::RUN_FRAMES_MAX)
            }
            AllocError::OutOfFrames => f.write_str(
                "no frames are left in the arena; build the memory with more `arena_frames`",
            ),
            AllocError::FrameInUse { pfn } => write!(
                f,
                "the page allocator handed out {pfn}, which is in use: a defect of this \
                 library, please report it; the run is used no more, and no byte was touched"
            ),
            AllocError::OutOfDescriptors => f.write_str(
                "the table of zspage descriptors is full; build the memory with more \
                 `arena_frames`, which it is made for",
            ),
            AllocError::OutOfCells => {
                f.write_str("the table of cells is full; build the memory with more `entries_max`")
            }
            AllocError::NotOpened => f.write_str(
                "the system opens no more of the reserved memory (see /proc/sys/vm/max_map_count, \
                 which bounds the mappings of a process, `ulimit -d` and \
                 /proc/sys/vm/overcommit_memory)",
            ),
        }
    }
}

impl std::error::Error for AllocError {}

/// Why a memory could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum MemoryError {
    /// The system refused a reservation.
    Host(HostError),
    /// A number of frames or cells is out of range.
    BadConfig {
        /// What is wrong.
        what: &'static str,
    },
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MemoryError::Host(error) => write!(f, "cannot reserve address space: {error}"),
            MemoryError::BadConfig { what } => f.write_str(what),
        }
    }
}

impl std::error::Error for MemoryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            MemoryError::Host(error) => Some(error),
            MemoryError::BadConfig { .. } => None,
        }
    }
}

impl From<HostError> for MemoryError {
    fn from(error: HostError) -> MemoryError {
        MemoryError::Host(error)
    }
}

/// The leaf is not one of this pool's, or no longer: read the table that named it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleLeaf;

impl fmt::Display for StaleLeaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the leaf belongs to another pool, or was given back")
    }
}

impl std::error::Error for StaleLeaf {}

/// The raw handle names no object of this pool: it was freed, is another pool's, or was made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleHandle;

impl fmt::Display for StaleHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the handle names no object of this pool, or no longer")
    }
}

impl std::error::Error for StaleHandle {}

/// The handle belongs to another pool, and nothing was done. If it was to be consumed, it comes
/// back in the error.
#[derive(Debug)]
pub struct ForeignHandle<H>(
    /// The handle, still owned by the caller; `()` if it was only lent.
    pub H,
);

impl<H> fmt::Display for ForeignHandle<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the handle belongs to another pool")
    }
}

impl<H: fmt::Debug> std::error::Error for ForeignHandle<H> {}

/// A structure that contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolDefect(
    /// What was found where.
    pub String,
);

impl fmt::Display for PoolDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PoolDefect {}

pub(crate) fn expect_equal<T: PartialEq + fmt::Debug>(
    what: impl fmt::Display,
    counted: T,
    kept: T,
) -> Result<(), PoolDefect> {
    if counted == kept {
        return Ok(());
    }
    Err(PoolDefect(format!("{what}: counted {counted:?}, kept {kept:?}")))
}
