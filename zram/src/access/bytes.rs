//! The device as a [`Disk`]: byte ranges cut into pages.
//!
//! ```text
//!   range     .....|xxxxxx|xxxxxxxx|xxxxxxxx|xxx.....
//!                   change  write    write   change        parts of pages are changed in place
//! ```
//!
//! Invariant: a request changes only the bytes of its range (D2). A part of a page is changed under
//! the lock of the page's cell, so two requests within one page keep each other's bytes (D5). Each
//! change is announced to the counters before it begins.
//!
//! Lock: none here. Pages are independent, and a request over several is not atomic.

use std::ops::Range;

use codec::same::Same;
use disk::{Allocation, Disk, DiskError, Extent, ExtentKind, check_range};
use host::PAGE_SIZE;

use crate::cells::Stored;
use crate::device::Zram;

/// A page, and the part of it that a request is about.
#[derive(Clone, Copy)]
struct Part {
    page: u64,
    start: usize,
    len: usize,
}

impl Part {
    fn is_whole(&self) -> bool {
        self.len == PAGE_SIZE
    }

    /// The bytes of its page that it takes.
    fn range(&self) -> Range<usize> {
        self.start..self.start + self.len
    }
}

/// The pages of a byte range.
fn parts(offset: u64, len: u64) -> impl Iterator<Item = Part> {
    let end = offset + len;
    let mut at = offset;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let start = (at % PAGE_SIZE as u64) as usize;
        let len = (PAGE_SIZE - start).min((end - at) as usize);
        let part = Part { page: at / PAGE_SIZE as u64, start, len };
        at += len as u64;
        Some(part)
    })
}

/// The pages that lie wholly in a byte range. If there is none, an empty range at its start.
fn whole_pages(offset: u64, len: u64) -> Range<u64> {
    let first = offset.div_ceil(PAGE_SIZE as u64);
    first..((offset + len) / PAGE_SIZE as u64).max(first)
}

impl Zram {
    fn read_parts(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        let mut rest = buf;
        for part in parts(offset, rest.len() as u64) {
            let (here, after) = rest.split_at_mut(part.len);
            rest = after;
            if part.is_whole() {
                self.load_page(part.page, here)?;
            } else {
                let mut page = [0; PAGE_SIZE];
                self.load_page(part.page, &mut page)?;
                here.copy_from_slice(&page[part.range()]);
            }
        }
        Ok(())
    }

    fn write_parts(&self, offset: u64, data: &[u8]) -> Result<(), DiskError> {
        let mut rest = data;
        for part in parts(offset, rest.len() as u64) {
            let (here, after) = rest.split_at(part.len);
            rest = after;
            if part.is_whole() {
                self.store_page(part.page, Zram::place_of(part.page), here)?;
            } else {
                self.change_page(part.page, |page| page[part.range()].copy_from_slice(here))?;
            }
        }
        Ok(())
    }

    /// The parts of pages at the ends of a range whose whole pages are `whole`. Parts of pages that
    /// hold nothing are left out.
    fn ends(&self, offset: u64, len: u64, whole: &Range<u64>) -> impl Iterator<Item = Part> {
        let page_bytes = PAGE_SIZE as u64;
        let head = (whole.start * page_bytes).min(offset + len) - offset;
        let tail_start = (whole.end * page_bytes).max(offset + head).min(offset + len);
        let tail = offset + len - tail_start;
        let ends = parts(offset, head).chain(parts(tail_start, tail));
        ends.filter(|part| self.peek(part.page) != Stored::Nothing)
    }

    /// Zeroes the parts of pages at the ends of a range.
    fn zero_ends(&self, offset: u64, len: u64, whole: &Range<u64>) -> Result<(), DiskError> {
        let mut ends = self.ends(offset, len, whole);
        ends.try_for_each(|part| self.change_page(part.page, |page| page[part.range()].fill(0)))
    }

    /// As `zero_ends`, for a discard, which is not refused when there is no room. The rest of a
    /// page must be stored before the page is gone. If there is no room for that, the page stays as
    /// it is.
    fn discard_ends(&self, offset: u64, len: u64, whole: &Range<u64>) -> Result<(), DiskError> {
        let zeroed =
            |part: Part| self.try_change_page(part.page, |page| page[part.range()].fill(0));
        self.ends(offset, len, whole).try_for_each(|part| match zeroed(part) {
            Err(DiskError::NoSpace | DiskError::NoMemory) => Ok(()),
            done => done,
        })
    }

    fn check_write(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.check_writable()?;
        check_range(self.config.disksize, offset, len)
    }

    fn kind_of(&self, page: u64) -> ExtentKind {
        match self.peek(page) {
            Stored::Nothing => ExtentKind::Hole,
            Stored::Same(Same::ZERO) => ExtentKind::Zero,
            Stored::Same(_)
            | Stored::Blob { .. }
            | Stored::Disk { .. }
            | Stored::Shared { .. }
            | Stored::Unit { .. }
            | Stored::Unknown => ExtentKind::Data,
        }
    }
}

impl Disk for Zram {
    fn size_bytes(&self) -> u64 {
        self.config.disksize
    }

    fn read_only(&self) -> bool {
        self.config.read_only
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        check_range(self.config.disksize, offset, buf.len() as u64)?;
        self.counted_read(self.read_parts(offset, buf))
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DiskError> {
        self.check_write(offset, data.len() as u64)?;
        let _change = self.counters.change();
        self.counted_write(self.write_parts(offset, data))
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.check_write(offset, len)?;
        let change = self.counters.change();
        // Whole pages come first, because at the limit they make room for the ends.
        let whole = whole_pages(offset, len);
        self.discard_whole(&whole, &change);
        self.counted_write(self.discard_ends(offset, len, &whole))
    }

    fn write_zeroes(&self, offset: u64, len: u64, keep: Allocation) -> Result<(), DiskError> {
        self.check_write(offset, len)?;
        let change = self.counters.change();
        let whole = whole_pages(offset, len);
        let zeroed = match keep {
            Allocation::MayUnmap => {
                self.discard_whole(&whole, &change);
                Ok(())
            }
            Allocation::Keep => whole.clone().try_for_each(|page| self.write_zero_page(page)),
        };
        self.counted_write(zeroed.and_then(|()| self.zero_ends(offset, len, &whole)))
    }

    fn would_wait(&self, offset: u64, len: u64) -> bool {
        let pages =
            offset / PAGE_SIZE as u64..offset.saturating_add(len).div_ceil(PAGE_SIZE as u64);
        self.values.backing.is_some() && self.block_states(pages).any(|state| state.written_back)
    }

    fn flush(&self) -> Result<(), DiskError> {
        Ok(()) // what was written is in the pool already
    }

    fn next_extent(&self, offset: u64, len: u64) -> Result<Extent, DiskError> {
        check_range(self.config.disksize, offset, len)?;
        let page_bytes = PAGE_SIZE as u64;
        let end = offset + len;
        let first = (offset / page_bytes).min(self.config.disksize / page_bytes - 1);
        let kind = self.kind_of(first);
        // Parts of the disk without a leaf are skipped, 2 MiB at a time.
        let behind = |page: u64| page + self.slots.absent(page).max(1);
        // The first page is not looked at twice. It may have another kind by now, and the run would
        // be empty.
        let mut page = behind(first);
        while page * page_bytes < end && self.kind_of(page) == kind {
            page = behind(page);
        }
        Ok(Extent { len: (page * page_bytes).min(end).saturating_sub(offset), kind })
    }
}
