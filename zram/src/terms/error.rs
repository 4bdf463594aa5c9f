//! Why a device could not be made.

use std::fmt;

use disk::DiskError;
use zsmalloc::{AllocError, MemoryError};

/// Why a device could not be made.
#[derive(Debug)]
#[non_exhaustive]
pub enum ZramError {
    /// A disk has at least one byte.
    NoSize,
    /// The disk has more than 8 TiB. A size beyond the memory's `entries_max` is not refused here.
    /// Instead, writes fail with "no memory" once the table of cells is full.
    TooLarge {
        /// The size asked for, in bytes.
        disksize: u64,
    },
    /// Chain orders are 0 to 4.
    BadChainOrder {
        /// The order asked for.
        order: u32,
    },
    /// The system refused to reserve address space.
    Memory(MemoryError),
}

impl fmt::Display for ZramError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ZramError::NoSize => f.write_str("the disk size must be at least one byte"),
            ZramError::TooLarge { disksize } => {
                write!(f, "a disk of {disksize} bytes is too large: at most 8T")
            }
            ZramError::BadChainOrder { order } => {
                write!(f, "chain order {order} does not exist: it is 0 to 4 (1 to 16 frames)")
            }
            ZramError::Memory(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ZramError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ZramError::Memory(error) => Some(error),
            _ => None,
        }
    }
}

impl From<MemoryError> for ZramError {
    fn from(error: MemoryError) -> ZramError {
        ZramError::Memory(error)
    }
}

/// An allocation that failed, in the client's terms.
pub(crate) fn disk_error(error: AllocError) -> DiskError {
    match error {
        AllocError::OverLimit { .. } => DiskError::NoSpace,
        // A broken allocator is not a lack of memory.
        AllocError::FrameInUse { .. } => DiskError::Defect(error.to_string()),
        _ => DiskError::NoMemory,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_allocator_is_told_as_such() {
        let told = disk_error(AllocError::FrameInUse { pfn: zsmalloc::Pfn::new(7) });
        assert_eq!(told.write_errno(), 5, "{told}");
        assert!(told.to_string().contains("frame 7, which is in use"), "{told}");
        assert!(matches!(disk_error(AllocError::OutOfFrames), DiskError::NoMemory));
    }
}
