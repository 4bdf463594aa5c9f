//! Staging: where pages stand between a region and its store, still uncompressed.
//!
//! ```text
//!   reservation   | segment 0: 64 pages | segment 1 | ... | segment n - 1 |
//!   free            1                     0                 1
//!   present                               1011...1
//! ```
//!
//! Registered with the userfaultfd whose spans move pages here, without which the system refuses
//! to move them.
//!
//! Invariant G1: a page of a segment is in memory exactly when its present bit is set; it is not
//! written to while it is. A segment has one owner, who alone reads it. Segments whose pages the
//! system did not take back are nobody's, and are asked for again when there are no others.
//!
//! Lock: the list of free segments, a leaf.

use crate::PAGE_SIZE;
use crate::error::HostError;
use crate::mapping::{Access, Core, Mapping};
use crate::span::Userfault;
use crate::uffd::UserfaultError;
use crate::{Lock, Rank};
use std::ops::Range;
use std::sync::Arc;

/// Pages of a segment: the unit in which cold memory is found and moved.
pub const SEGMENT_PAGES: usize = 64; // 256 KiB

const _: () = assert!(SEGMENT_PAGES <= u64::BITS as usize, "a bit of a word for each page");

/// A fixed number of segments.
#[derive(Debug)]
pub struct Staging {
    mapping: Mapping,
    userfault: Arc<Userfault>,
    free: Lock<Free>,
    segments: usize,
}

/// Segments without an owner. Both lists have room for all.
#[derive(Debug)]
struct Free {
    empty: Vec<u32>,
    /// They may have pages.
    unclean: Vec<u32>,
}

impl Staging {
    /// Reserves `segments` segments; nothing is touched.
    ///
    /// # Errors
    ///
    /// When there is no address space, or the system refuses to register it.
    pub fn reserve(
        userfault: &Arc<Userfault>,
        segments: u32,
    ) -> Result<Arc<Staging>, UserfaultError> {
        let pages = segments as usize * SEGMENT_PAGES;
        let mapping = Mapping::reserve(pages, Access::Open, Core::LeftOut)?;
        userfault.uffd.register(&mapping.range())?;
        Ok(Arc::new(Staging {
            mapping,
            userfault: Arc::clone(userfault),
            free: Lock::new(
                Rank::Leaf,
                Free {
                    empty: (0..segments).rev().collect(),
                    unclean: Vec::with_capacity(segments as usize),
                },
            ),
            segments: segments as usize,
        }))
    }

    /// A free segment; `None` when all are in use.
    ///
    /// # Errors
    ///
    /// When the system does not take back the pages of any: they are locked, say.
    pub fn take(self: &Arc<Staging>) -> Result<Option<Segment>, HostError> {
        let number = {
            let mut free = self.free.lock();
            match free.empty.pop() {
                Some(number) => return Ok(Some(self.segment(number, 0))),
                None => free.unclean.pop(),
            }
        };
        let Some(number) = number else { return Ok(None) };
        let mut segment = self.segment(number, u64::MAX);
        let Err(error) = segment.clear() else { return Ok(Some(segment)) };
        // It is put back.
        drop(segment);
        let hopeless = self.free.lock().unclean.len() == self.segments;
        if hopeless { Err(error) } else { Ok(None) }
    }

    fn segment(self: &Arc<Staging>, number: u32, present: u64) -> Segment {
        Segment { staging: Arc::clone(self), number, present }
    }

    /// Segments there are.
    pub fn segments(&self) -> usize {
        self.segments
    }

    /// Segments in use.
    pub fn used(&self) -> usize {
        self.segments - self.free.lock().empty.len()
    }

    /// The addresses reserved.
    pub fn range(&self) -> Range<usize> {
        self.mapping.range()
    }

    /// Bytes of heap.
    pub fn heap_bytes(&self) -> u64 {
        (2 * self.segments * size_of::<u32>()) as u64
    }

    /// Whether the userfaultfd still answers. Where a program closed it, missing pages would read
    /// as zeros.
    pub fn is_watched(&self) -> bool {
        self.userfault.uffd.wake(&self.mapping.range()).is_ok()
    }
}

/// A segment, owned. Dropping it discards its pages.
#[derive(Debug)]
pub struct Segment {
    staging: Arc<Staging>,
    number: u32,
    present: u64,
}

/// `count` places of a segment from `at` on, if it has as many.
fn places(at: usize, count: usize) -> Option<Range<usize>> {
    at.checked_add(count).filter(|&end| end <= SEGMENT_PAGES).map(|end| at..end)
}

impl Segment {
    /// The page at `at`, if it is there.
    pub fn page(&self, at: usize) -> Option<&[u8]> {
        if !self.has(at, 1) {
            return None;
        }
        let address = (self.number as usize * SEGMENT_PAGES + at) * PAGE_SIZE;
        // SAFETY: the page is in memory, is not written to, and stays while the segment is borrowed
        // (G1).
        Some(unsafe {
            std::slice::from_raw_parts(self.staging.mapping.base().as_ptr().add(address), PAGE_SIZE)
        })
    }

    /// A bit for each page that is there.
    pub fn present(&self) -> u64 {
        self.present
    }

    /// Whether `count` pages from `at` on are there.
    pub(crate) fn has(&self, at: usize, count: usize) -> bool {
        places(at, count).is_some_and(|mut all| all.all(|page| self.present >> page & 1 == 1))
    }

    /// Pages from `at` on have arrived.
    pub(crate) fn arrived(&mut self, at: usize, count: usize) {
        let all = places(at, count).expect("pages of the segment");
        all.for_each(|page| self.present |= 1 << page);
    }

    pub(crate) fn addresses(&self, at: usize, count: usize) -> Range<usize> {
        assert!(places(at, count).is_some(), "pages of the segment");
        let first = self.number as usize * SEGMENT_PAGES + at;
        let start = self.staging.mapping.range().start + first * PAGE_SIZE;
        start..start + count * PAGE_SIZE
    }

    /// Discards the pages.
    fn clear(&mut self) -> Result<(), HostError> {
        let first = self.number as usize * SEGMENT_PAGES;
        let pages = (self.present != 0).then_some(first..first + SEGMENT_PAGES);
        // SAFETY: `&mut self`: nobody refers to the pages.
        unsafe { self.staging.mapping.discard(pages.unwrap_or(0..0))? };
        self.present = 0;
        Ok(())
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        // Where the system refuses to discard, nothing could be moved there.
        let empty = self.clear().is_ok();
        let mut free = self.staging.free.lock();
        if empty { free.empty.push(self.number) } else { free.unclean.push(self.number) }
    }
}
