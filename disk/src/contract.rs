//! The contract of a block device.
//!
//! Invariants every implementation keeps, and every caller may rely on:
//!
//! - D1. The size is fixed for the life of the disk and at most `i64::MAX`. The end of a range
//!   that passed [`check_range`] therefore fits in 64 bits, signed or not. The size need not be a
//!   multiple of anything.
//! - D2. A byte reads as the last change left it: what was written, or zero if it was zeroed,
//!   discarded or never written. Every request changes exactly the bytes of its range, wherever
//!   they lie in a page. There is one exception. If part of a page is discarded, and there is no
//!   room for the rest of the page, the page keeps all its bytes.
//! - D3. A request that does not lie within the disk fails with exactly
//!   [`DiskError::OutOfRange`], and changes nothing. An empty range up to and including the end
//!   of the disk succeeds.
//! - D4. On a disk that is read-only every change fails with [`DiskError::ReadOnly`], whatever its
//!   range. Reading, prefetching, asking for extents and flushing still work.
//! - D5. When a request returns, every later request sees its effect. Requests that do not overlap
//!   do not disturb each other, even within one page. If simultaneous requests overlap, each byte
//!   is as one of them left it.
//! - D6. A failed request may have been done in part, but only within its range. The rest of the
//!   range keeps its old content. After a failed read the content of the buffer is undefined.
//! - D7. An extent of kind `Zero` or `Hole` is a promise that its bytes read as zeros. `Data`
//!   promises nothing, so a disk that keeps no account of its holes says `Data` of everything.
//! - D8. A request that has returned changes nothing later, except in a range of which
//!   [`Disk::may_still_change`] says that it may.
//!
//! A disk is *sparse* if it also keeps that account. Then a page that was never written, or lay
//! wholly within a discard, is a hole and occupies nothing. The bytes are right on any disk. A
//! server tells its clients more about a sparse disk, and a sparse disk passes
//! [`conformance::run_sparse`](crate::conformance::run_sparse) too.
//!
//! The implementation checks the range and whether the disk is read-only, because only it knows its
//! size and mode for certain. Callers pass on unchecked what clients send. Callers split requests
//! that are too long for one buffer. An implementation takes any length that fits.
//!
//! Locks: an implementation may take locks, and holds none when it returns. A caller holds none
//! when it calls.

mod error;
mod extent;
mod file;
mod loops;
mod open;
mod range;

pub use error::DiskError;
pub use extent::{Allocation, Extent, ExtentKind};
pub use file::FileDisk;
pub use loops::loops_over;
pub use range::check_range;

use std::sync::Arc;

/// A block device: a fixed number of bytes, addressed by offset. They are zeros before the first
/// write.
///
/// The head of the module has the contract of every method. In short: the disk checks ranges, and
/// a range outside fails with [`DiskError::OutOfRange`]. Empty ranges succeed. A request touches
/// exactly its bytes, and distinct bytes never interfere. Nothing panics.
///
/// Three methods make a disk: its size, reading and writing. The others have defaults that are
/// right for any disk. A disk that can do better replaces them.
///
/// ```
/// use ramfold_disk::{Disk, DiskError, check_range};
/// use std::sync::{Arc, Mutex};
///
/// struct Plain(Mutex<Vec<u8>>);
///
/// impl Disk for Plain {
///     fn size_bytes(&self) -> u64 {
///         self.0.lock().unwrap().len() as u64
///     }
///
///     fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
///         check_range(self.size_bytes(), offset, buf.len() as u64)?;
///         buf.copy_from_slice(&self.0.lock().unwrap()[offset as usize..][..buf.len()]);
///         Ok(())
///     }
///
///     fn write(&self, offset: u64, data: &[u8]) -> Result<(), DiskError> {
///         check_range(self.size_bytes(), offset, data.len() as u64)?;
///         self.0.lock().unwrap()[offset as usize..][..data.len()].copy_from_slice(data);
///         Ok(())
///     }
/// }
///
/// ramfold_disk::conformance::run_sized("Plain", 24 * 4096, &|size| {
///     Arc::new(Plain(Mutex::new(vec![0; size as usize])))
/// });
/// ```
pub trait Disk: Send + Sync {
    /// Bytes on the disk. Fixed for the life of the disk.
    fn size_bytes(&self) -> u64;

    /// The request size and alignment at which the disk works best, a power of two. Other
    /// sizes and alignments work as well, only slower.
    fn block_size(&self) -> u32 {
        4096
    }

    /// Whether changes are refused. Fixed for the life of the disk.
    fn read_only(&self) -> bool {
        false
    }

    /// Fills `buf` with the bytes at `offset`.
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError>;

    /// Stores `data` at `offset`.
    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DiskError>;

    /// Says that a range is no longer needed. Afterwards pages wholly within it read as zeros. The
    /// parts of pages at its ends do too, unless the disk has no room for zeroing them. Then they
    /// keep their bytes. A sparse disk frees the pages wholly within the range, and never refuses a
    /// discard because it has no room or memory.
    ///
    /// A caller that needs zeros calls [`write_zeroes`](Self::write_zeroes), which may be refused.
    /// The default of this method calls it, with [`Allocation::MayUnmap`].
    fn discard(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.write_zeroes(offset, len, Allocation::MayUnmap)
    }

    /// Makes a range read as zeros, to its last byte. The default writes zeros, 4 KiB at a time.
    /// The range therefore goes on occupying its space, whatever `_keep` allows.
    fn write_zeroes(&self, offset: u64, len: u64, _keep: Allocation) -> Result<(), DiskError> {
        write_zeros(self, offset, len)
    }

    /// Says that a range will be read soon. Changes no content; the default only checks the
    /// range.
    fn prefetch(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        check_range(self.size_bytes(), offset, len)
    }

    /// Whether reading the range now would wait for something slower than memory. A server gives
    /// such a read to a thread that holds up no other request. This is an estimate. For a range
    /// outside the disk it is false.
    fn would_wait(&self, _offset: u64, _len: u64) -> bool {
        false
    }

    /// Whether a change that has returned may still be made in the range, again or for the first
    /// time. A disk on another machine says so of a change that had no reply, whether it was given
    /// up or repeated. Other data there may be overwritten at any later time, so a caller that can
    /// do without the range leaves it alone. The default says no.
    fn may_still_change(&self, _offset: u64, _len: u64) -> bool {
        false
    }

    /// A file that has this disk's bytes at the same offsets, if a read may go directly to that
    /// file. A signal handler reads that way, because it must not run code that it does not know.
    fn file(&self) -> Option<FileDisk> {
        None
    }

    /// Returns when everything written before is as durable as the disk can make it. The default
    /// returns at once, which is right for a disk in memory.
    fn flush(&self) -> Result<(), DiskError> {
        Ok(())
    }

    /// The run of one kind that starts at `offset`, cut off at `len` bytes.
    ///
    /// The run is at least one byte long unless `len` is 0, so a loop over a range makes progress.
    /// It may end before the kind changes, so that an implementation can bound its work. For an
    /// empty range the run is empty and its kind means nothing. A run that is said to read as zeros
    /// did so at some moment during the call. The default says that all of the range is data.
    fn next_extent(&self, offset: u64, len: u64) -> Result<Extent, DiskError> {
        check_range(self.size_bytes(), offset, len)?;
        Ok(Extent { len, kind: ExtentKind::Data })
    }
}

/// Writes zeros over a range, in pieces that end at multiples of [`ZEROS`]' length.
fn write_zeros<D: Disk + ?Sized>(disk: &D, offset: u64, len: u64) -> Result<(), DiskError> {
    if disk.read_only() {
        return Err(DiskError::ReadOnly);
    }
    check_range(disk.size_bytes(), offset, len)?;
    let (mut at, end) = (offset, offset + len);
    while at < end {
        let boundary = (at + 1).next_multiple_of(ZEROS.len() as u64).min(end);
        disk.write(at, &ZEROS[..(boundary - at) as usize])?;
        at = boundary;
    }
    Ok(())
}

/// The zeros that the default [`Disk::write_zeroes`] writes at once, 4 KiB.
const ZEROS: [u8; 4096] = [0; 4096];

impl<D: Disk + ?Sized> Disk for Arc<D> {
    fn size_bytes(&self) -> u64 {
        (**self).size_bytes()
    }

    fn block_size(&self) -> u32 {
        (**self).block_size()
    }

    fn read_only(&self) -> bool {
        (**self).read_only()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        (**self).read(offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DiskError> {
        (**self).write(offset, data)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        (**self).discard(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64, keep: Allocation) -> Result<(), DiskError> {
        (**self).write_zeroes(offset, len, keep)
    }

    fn prefetch(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        (**self).prefetch(offset, len)
    }

    fn would_wait(&self, offset: u64, len: u64) -> bool {
        (**self).would_wait(offset, len)
    }

    fn may_still_change(&self, offset: u64, len: u64) -> bool {
        (**self).may_still_change(offset, len)
    }

    fn file(&self) -> Option<FileDisk> {
        (**self).file()
    }

    fn flush(&self) -> Result<(), DiskError> {
        (**self).flush()
    }

    fn next_extent(&self, offset: u64, len: u64) -> Result<Extent, DiskError> {
        (**self).next_extent(offset, len)
    }
}
