//! Whole pages by number, for a client that uses nothing else and has pages of its own, such as a
//! region.
//!
//! ```text
//!   page number     0        1        2                 disksize / 4096 - 1
//!                 | 4096 b | 4096 b | 4096 b |   ...   | 4096 b |
//! ```
//!
//! Rule of buffers: a buffer that is passed to a device is not memory whose faults that device
//! serves. It is read and written while a slot's lock or a codec's stream is held, so a fault in it
//! would wait for itself.
//!
//! Invariant: the end of a request is checked before anything is done.
//!
//! Locks: those of `page`.

use std::ops::Range;

use disk::{DiskError, check_range};
use host::PAGE_SIZE;

use crate::device::Zram;

const PAGE_BYTES: u64 = PAGE_SIZE as u64;

impl Zram {
    /// Reads page `page` into `data`, which is 4096 bytes long. It is zeros if nothing is stored.
    ///
    /// A signal handler may call this if the algorithm needs no stream to decompress (lz4). It may
    /// interrupt any code except the device's own and its memory's. The call allocates nothing and
    /// does not panic. The only lock that it takes is the slot's, which it may wait for. By the
    /// rule of buffers, no thread that a fault interrupts has that lock. None of this holds with a
    /// backing disk, because that is read, with algorithms for recompression, or with shared pages.
    ///
    /// # Errors
    ///
    /// [`DiskError::OutOfRange`] for a page outside the disk, or a buffer of another length. After
    /// [`DiskError::Corrupt`] the content of `data` is undefined.
    pub fn read_page(&self, page: u64, data: &mut [u8]) -> Result<(), DiskError> {
        self.check_page(page, data.len())?;
        self.counted_read(self.load_page(page, data))
    }

    /// As [`Zram::read_page`], for an owner that keeps the page elsewhere from now on, and discards
    /// it here before long. So a page of a unit stays in it.
    ///
    /// After [`Zram::prepare`] a signal handler may call this, whatever the algorithms, and with
    /// tiers. It may interrupt any code except the device's own and its memory's. The call
    /// allocates nothing and does not panic. It may wait for the locks of the slot and of its unit,
    /// and for a stream. None of this holds with a backing disk, or with shared pages.
    ///
    /// # Errors
    ///
    /// Those of [`Zram::read_page`].
    pub fn read_last(&self, page: u64, data: &mut [u8]) -> Result<(), DiskError> {
        self.check_page(page, data.len())?;
        self.counted_read(self.load_last(page, data))
    }

    /// Starts loading the content of page `page`, which is about to be read.
    pub fn prefetch_page(&self, page: u64) {
        if page < self.pages() {
            self.slots.prefetch(page);
        }
    }

    /// Stores the 4096 bytes of `data` as page `page`.
    ///
    /// # Errors
    ///
    /// Those of [`Zram::read_page`], [`DiskError::ReadOnly`], [`DiskError::NoSpace`] at the limit,
    /// and [`DiskError::NoMemory`]. The page is unchanged then.
    pub fn write_page(&self, page: u64, data: &[u8]) -> Result<(), DiskError> {
        self.write_page_of(page, Zram::place_of(page), data)
    }

    /// As [`Zram::write_page`], for a client of which neighbouring pages do not belong together.
    /// `place` says which pages are likely to hold the same kind of data, for an algorithm that
    /// [samples](codec::Codec::with_sampled_shuffle). Otherwise each 2 MiB of the device are a
    /// place.
    ///
    /// # Errors
    ///
    /// Those of [`Zram::write_page`].
    pub fn write_page_of(&self, page: u64, place: u64, data: &[u8]) -> Result<(), DiskError> {
        self.check_writable()?;
        self.check_page(page, data.len())?;
        let _change = self.counters.change();
        self.counted_write(self.store_page(page, place, data))
    }

    /// As [`Zram::write_page`], for a caller that holds locks. At the limit it neither compacts nor
    /// runs what is deferred. [`Zram::make_room`] does both, and is called without locks.
    ///
    /// # Errors
    ///
    /// Those of [`Zram::write_page`].
    pub fn write_page_if_room(&self, page: u64, data: &[u8]) -> Result<(), DiskError> {
        self.check_writable()?;
        self.check_page(page, data.len())?;
        let _change = self.counters.change();
        self.counted_write(self.try_store_page(page, Zram::place_of(page), data))
    }

    /// Empties pages: they read as zeros, and what they held is freed. A range without pages is
    /// allowed anywhere up to the end of the disk.
    ///
    /// # Errors
    ///
    /// [`DiskError::OutOfRange`] if not all of them lie within the disk, or if the range ends
    /// before it starts. [`DiskError::ReadOnly`]. Nothing is emptied then.
    pub fn discard_pages(&self, pages: Range<u64>) -> Result<(), DiskError> {
        self.check_writable()?;
        if pages.start > pages.end || pages.end > self.pages() {
            return Err(self.out_of_range(pages.start, pages.end.saturating_sub(pages.start)));
        }
        self.discard_whole(&pages, &self.counters.change());
        Ok(())
    }

    fn check_page(&self, page: u64, len: usize) -> Result<(), DiskError> {
        if len != PAGE_SIZE {
            let offset = page.saturating_mul(PAGE_BYTES);
            return Err(DiskError::OutOfRange {
                offset,
                len: len as u64,
                size: self.config.disksize,
            });
        }
        check_range(self.pages(), page, 1).map_err(|_| self.out_of_range(page, 1))
    }

    /// The error for a range of pages, in bytes.
    fn out_of_range(&self, page: u64, pages: u64) -> DiskError {
        let bytes = |pages: u64| pages.saturating_mul(PAGE_BYTES);
        DiskError::OutOfRange { offset: bytes(page), len: bytes(pages), size: self.config.disksize }
    }
}
