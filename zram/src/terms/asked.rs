//! Work on stored pages: they are marked idle, written back, recompressed.
//!
//! ```text
//!   written ---> idle ---> recompressed ---> written back
//!                 ^  any read or write      |  read: from the backing disk, where it stays
//!                 `------------------------'   written or discarded: its block is free again
//! ```
//!
//! This file has the requests and their results. `idle`, `write_back` and `recompress` do the work.
//!
//! Invariant: one write-back or recompression of a device runs at a time. A second one waits.
//!
//! Source: `Documentation/admin-guide/blockdev/zram.rst` for names, units and errors.

use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::time::Duration;

use disk::DiskError;

/// Input/output error.
const EIO: i32 = 5;
/// Cannot allocate memory.
const ENOMEM: i32 = 12;
/// No such device.
const ENODEV: i32 = 19;
/// Invalid argument.
const EINVAL: i32 = 22;
/// No space left on device.
const ENOSPC: i32 = 28;
/// Numerical result out of range.
const ERANGE: i32 = 34;

/// The pages that are marked idle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Idle {
    /// Every page that is stored in memory and is not same-filled.
    All,
    /// Those of them that were not read or written for so long.
    OlderThan(Duration),
}

/// The pages that are written back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Pages marked idle.
    Idle,
    /// Pages stored uncompressed.
    Huge,
    /// Pages that are both.
    HugeIdle,
    /// Pages that no algorithm could make smaller.
    Incompressible,
    /// Pages with these numbers.
    Pages(Vec<RangeInclusive<u64>>),
}

/// A write-back: pages go to the backing disk, the largest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteBack {
    /// The pages to write back.
    pub pages: Selection,
    /// The most pages to write back.
    pub max_pages: Option<u64>,
}

impl From<Selection> for WriteBack {
    fn from(pages: Selection) -> WriteBack {
        WriteBack { pages, max_pages: None }
    }
}

/// The result of a write-back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WriteBackReport {
    /// Pages that are on the backing disk now.
    pub pages: u64,
    /// Bytes of memory that their objects took.
    pub bytes: u64,
    /// Pages that were chosen, and were used before they were written. They stay in memory.
    pub used: u64,
}

/// The pages that are recompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum RecompressKind {
    /// All pages that are compressed with an algorithm of a lower priority.
    #[default]
    All,
    /// Those of them marked idle.
    Idle,
    /// Those of them stored uncompressed.
    Huge,
    /// Those of them that are both.
    HugeIdle,
}

/// A recompression: pages are compressed with another algorithm, the largest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recompress {
    /// The pages to recompress.
    pub kind: RecompressKind,
    /// The priority of the algorithm to use: 1 to 3.
    pub priority: u8,
    /// Only objects of at least this many bytes are tried, and are kept only if they become shorter
    /// than that. 0 means any.
    pub threshold: usize,
    /// The most attempts.
    pub max_pages: Option<u64>,
}

impl Recompress {
    /// Every page, with the algorithm of `priority`.
    pub fn with(priority: u8) -> Recompress {
        Recompress { kind: RecompressKind::All, priority, threshold: 0, max_pages: None }
    }
}

/// The result of a recompression.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct RecompressReport {
    /// Pages that are stored in the new form.
    pub pages: u64,
    /// Bytes by which their objects are shorter.
    pub bytes_saved: u64,
    /// Pages that did not get into a smaller size class, and stay unchanged.
    pub no_smaller: u64,
    /// Pages that were chosen, and were used before they were compressed.
    pub used: u64,
}

/// Why pages could not be marked, written back or recompressed. Pages that were done before stay
/// done.
#[derive(Debug)]
#[non_exhaustive]
pub enum PostError {
    /// The device has no backing disk.
    NoBacking,
    /// The device has no such page.
    OutOfRange {
        /// The page asked for.
        page: u64,
        /// Pages of the device.
        pages: u64,
    },
    /// The machine has no memory for it.
    NoMemory,
    /// No block of the backing disk is free.
    NoSpace,
    /// The limit on write-back is used up.
    LimitReached,
    /// The backing disk failed. Every other page was tried.
    Backing(io::Error),
    /// A page does not decode to what was written.
    Corrupt {
        /// Its number.
        page: u64,
    },
    /// The request makes no sense. The text says why.
    Invalid(&'static str),
}

impl PostError {
    /// The Linux error number that the kernel's attributes return.
    pub fn errno(&self) -> i32 {
        match self {
            PostError::NoBacking => ENODEV,
            PostError::OutOfRange { .. } => ERANGE,
            PostError::NoMemory => ENOMEM,
            PostError::NoSpace => ENOSPC,
            PostError::LimitReached | PostError::Corrupt { .. } => EIO,
            PostError::Backing(error) => error.raw_os_error().unwrap_or(EIO),
            PostError::Invalid(_) => EINVAL,
        }
    }
}

impl fmt::Display for PostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PostError::NoBacking => f.write_str("the device has no backing disk"),
            PostError::OutOfRange { page, pages } => {
                write!(f, "there is no page {page}: the device has {pages}")
            }
            PostError::NoMemory => f.write_str("not enough memory"),
            PostError::NoSpace => f.write_str("no block of the backing disk is free"),
            PostError::LimitReached => f.write_str("the limit on write-back is used up"),
            PostError::Backing(_) => f.write_str("the backing disk failed"),
            PostError::Corrupt { page } => write!(f, "page {page} is damaged and cannot be read"),
            PostError::Invalid(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for PostError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PostError::Backing(source) => Some(source),
            _ => None,
        }
    }
}

/// A failure of the backing disk, whatever error it returned. Its offsets and limits are not those
/// of the device.
pub(crate) fn backing_error(error: DiskError) -> io::Error {
    match error {
        DiskError::Backing(error) => error,
        DiskError::NoSpace => io::Error::from_raw_os_error(ENOSPC),
        other => io::Error::other(other),
    }
}

/// Why a page could not be taken out of memory, in the words of post-processing.
pub(crate) fn post_error(page: u64, error: &DiskError) -> PostError {
    match error {
        DiskError::Corrupt { .. } => PostError::Corrupt { page },
        _ => PostError::NoMemory,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A write-back once reported missing memory for a context as a damaged page.
    #[test]
    fn a_page_that_is_not_taken_out_is_damaged_or_there_is_no_memory() {
        let lost = post_error(3, &DiskError::Corrupt { offset: 12288 });
        assert!(matches!(lost, PostError::Corrupt { page: 3 }), "{lost}");
        let later = post_error(3, &DiskError::NoMemory);
        assert!(matches!(later, PostError::NoMemory), "{later}");
    }

    #[test]
    fn every_error_has_the_kernels_number() {
        let rows = [
            (PostError::NoBacking, 19),
            (PostError::OutOfRange { page: 9, pages: 8 }, 34),
            (PostError::NoMemory, 12),
            (PostError::NoSpace, 28),
            (PostError::LimitReached, 5),
            (PostError::Backing(io::Error::from_raw_os_error(28)), 28),
            (PostError::Backing(io::Error::other("gone")), 5),
            (PostError::Corrupt { page: 1 }, 5),
            (PostError::Invalid("no"), 22),
        ];
        for (error, errno) in rows {
            assert_eq!(error.errno(), errno, "{error}");
        }
        assert_eq!(PostError::Backing(backing_error(DiskError::NoSpace)).errno(), 28);
    }
}
