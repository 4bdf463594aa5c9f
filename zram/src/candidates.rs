//! The pages that a post-processing has chosen, the largest first.
//!
//! ```text
//!   bytes of the object   ..64   ..128   ...   4032..4095   4096
//!   bucket                  0      1     ...       63         64      64 bytes wide
//!                                               <------------ taken from here
//! ```
//!
//! A chosen page carries the PP mark; an access takes it away, and who comes to process the page
//! finds that under the slot's lock. So pages are chosen without holding anything.
//!
//! Invariant: a page in a bucket was marked by this post-processing; what is left in them when it
//! ends loses its mark.
//!
//! Lock: one cell at a time. Source: the kernel's buckets of post-processing.

use std::ops::RangeInclusive;

use zsmalloc::{CellGuard, Content, PAGE_SIZE};

use crate::device::Zram;
use crate::entries::is_marked;
use crate::post::PostError;
use crate::slot_flags::{self, PP};

const BUCKET_BYTES: usize = 64;
const BUCKETS: usize = PAGE_SIZE / BUCKET_BYTES + 1; // 65

/// What a choice is made by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) page: u64,
    /// Bytes of its object.
    pub(crate) len: usize,
    /// Its client's bits.
    pub(crate) bits: u8,
}

impl Candidate {
    pub(crate) fn is_huge(&self) -> bool {
        self.len == PAGE_SIZE
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.bits & slot_flags::IDLE != 0
    }
}

/// Pages with the PP mark.
pub(crate) struct Candidates<'z> {
    zram: &'z Zram,
    buckets: [Vec<u32>; BUCKETS],
    /// The highest bucket that may have any.
    highest: usize,
}

impl<'z> Candidates<'z> {
    /// Chooses among the pages of `ranges` that are objects in memory.
    pub(crate) fn choose(
        zram: &'z Zram,
        ranges: &[RangeInclusive<u64>],
        wanted: impl Fn(&Candidate) -> bool,
    ) -> Result<Candidates<'z>, PostError> {
        let buckets = [const { Vec::new() }; BUCKETS];
        let mut chosen = Candidates { zram, buckets, highest: BUCKETS - 1 };
        let each = |candidate: &Candidate, slot: &mut CellGuard<'_>| {
            // Ranges may overlap: a page is chosen once.
            if candidate.bits & PP != 0 || !wanted(candidate) {
                return Ok(());
            }
            let bucket = &mut chosen.buckets[candidate.len / BUCKET_BYTES];
            bucket.try_reserve(1).map_err(|_| PostError::NoMemory)?;
            bucket.push(candidate.page as u32);
            slot_flags::set(slot, PP);
            Ok(())
        };
        zram.each_object(ranges, each)?;
        Ok(chosen)
    }

    /// Takes the next page out; its mark is the caller's business.
    pub(crate) fn pop(&mut self) -> Option<u64> {
        loop {
            if let Some(page) = self.buckets[self.highest].pop() {
                return Some(page.into());
            }
            self.highest = self.highest.checked_sub(1)?;
        }
    }
}

impl Drop for Candidates<'_> {
    fn drop(&mut self) {
        while let Some(page) = self.pop() {
            self.zram.unmark_post(page);
        }
    }
}

impl Zram {
    /// Calls `each` with every page of `ranges` that is an object and not about to be freed, its
    /// slot locked.
    pub(crate) fn each_object(
        &self,
        ranges: &[RangeInclusive<u64>],
        mut each: impl FnMut(&Candidate, &mut CellGuard<'_>) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        for range in ranges {
            let mut page = *range.start();
            while page <= *range.end() {
                let absent = self.slots.absent(page);
                if absent == 0 {
                    self.if_object(page, &mut each)?;
                }
                page += absent.max(1);
            }
        }
        Ok(())
    }

    fn if_object(
        &self,
        page: u64,
        each: &mut impl FnMut(&Candidate, &mut CellGuard<'_>) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        // A glance first: most pages of a disk are none.
        if !matches!(self.slots.peek(page), Content::Object { .. }) {
            return Ok(());
        }
        let Some(mut slot) = self.slots.lock(page) else { return Ok(()) };
        match slot.content() {
            Content::Object { len } if !is_marked(&slot) => {
                let candidate = Candidate { page, len, bits: slot.client() };
                each(&candidate, &mut slot)
            }
            _ => Ok(()),
        }
    }

    /// Locks the slot of a page that was chosen, and is as it was.
    pub(crate) fn lock_chosen(&self, page: u64) -> Option<(CellGuard<'_>, usize)> {
        let slot = self.slots.lock(page)?;
        match slot.content() {
            Content::Object { len } if slot.client() & PP != 0 => Some((slot, len)),
            _ => None,
        }
    }

    /// A chosen page is not processed after all.
    pub(crate) fn unmark_post(&self, page: u64) {
        if let Some(mut slot) = self.slots.lock(page) {
            slot_flags::clear(&mut slot, PP);
        }
    }

    /// Every page of the disk.
    pub(crate) fn all_pages(&self) -> [RangeInclusive<u64>; 1] {
        [0..=self.pages() - 1]
    }
}
