//! A disk in plain memory. All other disks are compared with it.
//!
//! ```text
//!   pages:  [ lock|None ] [ lock|Some ] [ lock|None ] ...      one per 4096 bytes of disk
//!                            |
//!                         4096 bytes                          Some: written since discarded
//! ```
//!
//! Invariant: a page is `None` if all its bytes are zeros and it occupies nothing. A `Some` holds a
//! whole page, also where the disk's last page is shorter. Only the thread with the page's lock
//! changes it.
//!
//! Locks: one per page, held while bytes of that page are copied, and never two at once.
//!
//! Memory for a page is allocated at its first write and freed when the page is discarded whole.

use crate::contract::{Allocation, Disk, DiskError, Extent, ExtentKind, check_range};
use host::Rank;
use host::unmodelled::{RankedMutex, RankedMutexGuard};
use std::ops::Range;

/// Bytes per page, the unit in which a [`RamDisk`] allocates.
const PAGE: usize = 4096;

/// A page's bytes, or `None` where the disk has a hole.
type Slot = Option<Box<[u8]>>;

/// A disk in plain memory.
///
/// ```
/// use ramfold_disk::{Disk, RamDisk};
/// let disk = RamDisk::new(1 << 20)?;
/// disk.write(5000, b"folded")?;
/// let mut word = [0; 8];
/// disk.read(4999, &mut word)?;
/// assert_eq!(&word, b"\0folded\0");
/// # Ok::<(), ramfold_disk::DiskError>(())
/// ```
#[derive(Debug)]
pub struct RamDisk {
    size_bytes: u64,
    pages: Vec<RankedMutex<Slot>>,
}

impl RamDisk {
    /// A disk of `size_bytes`, all holes.
    ///
    /// # Errors
    ///
    /// [`DiskError::NoMemory`] if there is no room for its page table.
    pub fn new(size_bytes: u64) -> Result<Self, DiskError> {
        let count = usize::try_from(size_bytes.div_ceil(PAGE as u64));
        let count = count.map_err(|_| DiskError::NoMemory)?;
        let mut pages = Vec::new();
        pages.try_reserve_exact(count).map_err(|_| DiskError::NoMemory)?;
        pages.resize_with(count, || RankedMutex::new(Rank::Leaf, None));
        Ok(Self { size_bytes, pages })
    }

    fn page(&self, index: usize) -> RankedMutexGuard<'_, Slot> {
        self.pages[index].lock()
    }

    /// Checks the range of a request, and splits it into pieces, one per page.
    fn pieces(&self, offset: u64, len: u64) -> Result<impl Iterator<Item = Piece>, DiskError> {
        check_range(self.size_bytes, offset, len)?;
        let (start, end) = (offset as usize, (offset + len) as usize);
        Ok((start / PAGE..end.div_ceil(PAGE)).map(move |page| Piece::of(page, start, end)))
    }

    /// The number of bytes in page `index`. The last page is short if the size is not a multiple of
    /// a page.
    fn bytes_of(&self, index: usize) -> usize {
        PAGE.min(self.size_bytes as usize - index * PAGE)
    }

    /// Zeroes `piece`. With `MayUnmap`, a page wholly within it becomes a hole.
    fn zero(&self, piece: &Piece, keep: Allocation) {
        let mut slot = self.page(piece.page);
        let whole = piece.within.len() == self.bytes_of(piece.page);
        if whole && keep == Allocation::MayUnmap {
            *slot = None;
        } else if let Some(bytes) = slot.as_mut() {
            bytes[piece.within.clone()].fill(0);
        }
    }

    fn kind_of(&self, index: usize) -> ExtentKind {
        match self.page(index).as_deref() {
            None => ExtentKind::Hole,
            Some(bytes) if bytes.iter().all(|&byte| byte == 0) => ExtentKind::Zero,
            Some(_) => ExtentKind::Data,
        }
    }
}

/// The part of a request that lies in one page.
struct Piece {
    page: usize,
    /// Its bytes in the page.
    within: Range<usize>,
    /// Its bytes in the request's buffer.
    buffer: Range<usize>,
}

impl Piece {
    /// The part of `start..end`, in bytes of the disk, that lies in `page`.
    fn of(page: usize, start: usize, end: usize) -> Self {
        let base = page * PAGE;
        let (first, last) = (start.max(base), end.min(base + PAGE));
        Self { page, within: first - base..last - base, buffer: first - start..last - start }
    }
}

/// A page of zeros. If there is no memory, it is an error and not an abort.
fn blank_page() -> Result<Box<[u8]>, DiskError> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(PAGE).map_err(|_| DiskError::NoMemory)?;
    bytes.resize(PAGE, 0);
    Ok(bytes.into_boxed_slice())
}

impl Disk for RamDisk {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        for piece in self.pieces(offset, buf.len() as u64)? {
            let target = &mut buf[piece.buffer];
            match self.page(piece.page).as_deref() {
                Some(bytes) => target.copy_from_slice(&bytes[piece.within]),
                None => target.fill(0),
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DiskError> {
        for piece in self.pieces(offset, data.len() as u64)? {
            let mut slot = self.page(piece.page);
            let bytes = match &mut *slot {
                Some(bytes) => bytes,
                empty => empty.insert(blank_page()?),
            };
            bytes[piece.within].copy_from_slice(&data[piece.buffer]);
        }
        Ok(())
    }

    fn write_zeroes(&self, offset: u64, len: u64, keep: Allocation) -> Result<(), DiskError> {
        self.pieces(offset, len)?.for_each(|piece| self.zero(&piece, keep));
        Ok(())
    }

    fn next_extent(&self, offset: u64, len: u64) -> Result<Extent, DiskError> {
        let mut extent = Extent { len: 0, kind: ExtentKind::Hole };
        for piece in self.pieces(offset, len)? {
            let kind = self.kind_of(piece.page);
            if extent.len > 0 && kind != extent.kind {
                break;
            }
            extent.kind = kind;
            extent.len += piece.within.len() as u64;
        }
        Ok(extent)
    }
}
