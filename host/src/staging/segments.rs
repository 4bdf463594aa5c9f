//! The memory of staging, in segments of 64 pages with one owner each.
//!
//! ```text
//!   reservation   | segment 0: 64 pages | segment 1 | ... | segment n - 1 |
//!   free            1                     0                 1
//!   present                               1011...1
//! ```
//!
//! The memory is registered with the userfaultfd whose spans move pages here. Otherwise the system
//! would refuse to move them.
//!
//! Invariant G1: a page of a segment is in memory exactly if its present bit is set, unless the
//! segment is warm. It is not written to while the bit is set. A segment has one owner, and only
//! the owner reads it. A segment whose pages the system did not take back has no owner. It is tried
//! again when there is no empty segment.
//!
//! Without a userfaultfd pages are copied to a segment. There one segment without an owner stays
//! *warm*: its pages are in memory without present bits, nobody reads them, and those of the next
//! owner overwrite them. Otherwise each copy would begin with a fault, in which the system zeroes a
//! new page.
//!
//! Invariant G2: with a userfaultfd, a page that is in memory without a present bit is zeros. Its
//! segment is *strewn* from before the page came until all pages of the segment were discarded.
//! Such pages come if a thread serves faults and the program locks its memory (`mlockall`). The
//! system then faults every page in, and only a page lets it go on.
//!
//! Lock: the list of free segments, a leaf.

use crate::fault::{Asker, Served, Server, Watch, watch};
use crate::folding::{FaultError, FaultMode, FaultPath, SEGMENT_PAGES, transfer};
use crate::locks::{Lock, Rank};
use crate::machine::PAGE_SIZE;
use crate::memory::{Access, Core, HostError, Mapping};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A fixed number of segments.
#[derive(Debug)]
pub struct Staging {
    /// In thread mode only. It is dropped before the addresses are given back.
    _watch: Option<Watch<'static>>,
    memory: Arc<StagingMemory>,
    free: Lock<FreeSegments>,
    segments: usize,
}

/// The addresses, and the pages that came there unasked.
#[derive(Debug)]
struct StagingMemory {
    mapping: Mapping,
    path: Arc<FaultPath>,
    /// Segments that are strewn (G2).
    strewn: Box<[AtomicBool]>,
    zeros: Box<[u8]>,
}

// SAFETY: it changes an atomic of its own and makes a system call, and does nothing else.
unsafe impl Server for StagingMemory {
    /// Puts zeros at `address`: the program locks its memory, and the system wants a page here.
    fn serve(&self, address: usize, _: Asker) -> Served {
        let range = self.mapping.range();
        if !range.contains(&address) {
            return Served::Foreign;
        }
        let page = (address - range.start) / PAGE_SIZE;
        // SeqCst pairs with the load in `is_strewn`, so that a thread that finds this page finds
        // the flag.
        self.strewn[page / SEGMENT_PAGES].store(true, Ordering::SeqCst);
        let place = range.start + page * PAGE_SIZE;
        // Only messages of a userfaultfd ask for a page of staging.
        let Some(uffd) = self.path.uffd() else { return Served::Foreign };
        let put = transfer(1, |_| {
            // SAFETY: there is no reference to a page of staging that is not there (G1).
            unsafe { uffd.copy(place, self.zeros.as_ptr().addr(), 1) }
        });
        if put.pages == 1 { Served::Filled } else { Served::Present }
    }
}

/// Segments without an owner. Each list has room for all of them.
#[derive(Debug)]
struct FreeSegments {
    empty: Vec<u32>,
    /// Segments that may have pages.
    unclean: Vec<u32>,
    warm: Option<u32>,
}

impl Staging {
    /// Reserves `segments` segments. No memory is touched.
    ///
    /// # Errors
    ///
    /// If there is no address space, or the system refuses to register it.
    pub fn reserve(path: &Arc<FaultPath>, segments: u32) -> Result<Arc<Staging>, FaultError> {
        let pages = segments as usize * SEGMENT_PAGES;
        let mapping = Mapping::reserve(pages, Access::Open, Core::LeftOut)?;
        path.expect_own()?;
        path.keep_from_children(&mapping)?;
        if let Some(uffd) = path.uffd() {
            uffd.register(&mapping.range())?;
        }
        let memory = Arc::new(StagingMemory {
            mapping,
            path: Arc::clone(path),
            strewn: (0..segments).map(|_| AtomicBool::new(false)).collect(),
            zeros: vec![0; PAGE_SIZE].into_boxed_slice(),
        });
        // In signal mode the system goes on with the error that it gets instead of a page.
        let served = path.mode() == FaultMode::Thread;
        let range = memory.mapping.range();
        let server = || watch(range, path.mode(), Arc::<StagingMemory>::clone(&memory));
        Ok(Arc::new(Staging {
            _watch: served.then(server).transpose()?,
            memory,
            free: Lock::new(
                Rank::Leaf,
                FreeSegments {
                    empty: (0..segments).rev().collect(),
                    unclean: Vec::with_capacity(segments as usize),
                    warm: None,
                },
            ),
            segments: segments as usize,
        }))
    }

    /// Takes a free segment; `None` if all are in use.
    ///
    /// # Errors
    ///
    /// If the system takes back the pages of no segment, for example because they are locked.
    pub fn take(self: &Arc<Staging>) -> Result<Option<Segment>, HostError> {
        let number = {
            let mut free = self.free.lock();
            if let Some(number) = free.warm.take() {
                let mut segment = self.segment(number, 0);
                segment.is_warm = true;
                return Ok(Some(segment));
            }
            match free.empty.pop() {
                Some(number) if !self.memory.is_strewn(number) => {
                    return Ok(Some(self.segment(number, 0)));
                }
                strewn @ Some(_) => strewn,
                None => free.unclean.pop(),
            }
        };
        let Some(number) = number else { return Ok(None) };
        let mut segment = self.segment(number, u64::MAX);
        if self.memory.copies() {
            // What is there is overwritten.
            (segment.present, segment.is_warm) = (0, true);
            return Ok(Some(segment));
        }
        let Err(error) = segment.clear() else { return Ok(Some(segment)) };
        // Dropping the segment puts it back.
        drop(segment);
        let hopeless = self.free.lock().unclean.len() == self.segments;
        if hopeless { Err(error) } else { Ok(None) }
    }

    fn segment(self: &Arc<Staging>, number: u32, present: u64) -> Segment {
        Segment { staging: Arc::clone(self), number, present, is_warm: false }
    }

    /// Number of segments.
    pub fn segments(&self) -> usize {
        self.segments
    }

    /// Number of segments in use.
    pub fn used(&self) -> usize {
        let free = self.free.lock();
        self.segments - free.empty.len() - usize::from(free.warm.is_some())
    }

    /// Number of segments that may have pages in memory: those in use, and the warm one.
    pub fn in_memory(&self) -> usize {
        self.segments - self.free.lock().empty.len()
    }

    /// The addresses of all segments.
    pub fn range(&self) -> Range<usize> {
        self.memory.mapping.range()
    }

    /// Bytes of heap that the lists and flags take.
    pub fn heap_bytes(&self) -> u64 {
        (self.segments * (2 * size_of::<u32>() + size_of::<AtomicBool>()) + PAGE_SIZE) as u64
    }

    /// Whether the descriptor by which pages move is still there. If the program closed a
    /// userfaultfd, missing pages would read as zeros.
    pub fn is_watched(&self) -> bool {
        self.memory.path.answers(&self.range())
    }
}

impl StagingMemory {
    /// Whether pages are copied to segments, and not moved.
    fn copies(&self) -> bool {
        self.path.uffd().is_none()
    }

    fn is_strewn(&self, segment: u32) -> bool {
        // SeqCst pairs with the store in `serve`, so that a thread that finds a page which came
        // unasked finds the flag (G2).
        self.strewn[segment as usize].load(Ordering::SeqCst)
    }
}

/// A segment with its owner. Dropping it discards its pages, or leaves them to the next owner.
#[derive(Debug)]
pub struct Segment {
    staging: Arc<Staging>,
    number: u32,
    present: u64,
    /// Pages without a present bit may be in memory too.
    is_warm: bool,
}

/// `count` places of a segment from `at` on; `None` if it has not as many.
fn places(at: usize, count: usize) -> Option<Range<usize>> {
    at.checked_add(count).filter(|&end| end <= SEGMENT_PAGES).map(|end| at..end)
}

impl Segment {
    /// The 4096 bytes of the page at place `at`; `None` if no page is there.
    pub fn page(&self, at: usize) -> Option<&[u8]> {
        if !self.has(at, 1) {
            return None;
        }
        let address = (self.number as usize * SEGMENT_PAGES + at) * PAGE_SIZE;
        // SAFETY: by G1 the page is in memory, is not written to, and stays while the segment is
        // borrowed.
        Some(unsafe {
            let base = self.staging.memory.mapping.base().as_ptr();
            std::slice::from_raw_parts(base.add(address), PAGE_SIZE)
        })
    }

    /// A bit for each page that is there, the first lowest.
    pub fn present(&self) -> u64 {
        self.present
    }

    /// Whether `count` pages from `at` on are there.
    pub(crate) fn has(&self, at: usize, count: usize) -> bool {
        places(at, count).is_some_and(|mut all| all.all(|page| self.present >> page & 1 == 1))
    }

    /// Records that pages may be in memory that have not arrived, because a copy failed.
    pub(crate) fn may_have_more(&mut self) {
        self.is_warm |= self.staging.memory.copies();
    }

    /// Records that `count` pages from `at` on have arrived.
    pub(crate) fn arrived(&mut self, at: usize, count: usize) {
        let all = places(at, count).expect("pages of the segment");
        all.for_each(|page| self.present |= 1 << page);
    }

    pub(crate) fn addresses(&self, at: usize, count: usize) -> Range<usize> {
        assert!(places(at, count).is_some(), "pages of the segment");
        let first = self.number as usize * SEGMENT_PAGES + at;
        let start = self.staging.range().start + first * PAGE_SIZE;
        start..start + count * PAGE_SIZE
    }

    /// Whether the segment may have pages that did not come from a span (G2).
    pub(crate) fn is_strewn(&self) -> bool {
        self.staging.memory.is_strewn(self.number)
    }

    /// Discards the pages.
    fn clear(&mut self) -> Result<(), HostError> {
        let first = self.number as usize * SEGMENT_PAGES;
        let strewn = &self.staging.memory.strewn[self.number as usize];
        // SeqCst pairs with the store in `StagingMemory::serve`, so that the flag of a page that
        // comes later stays. It is cleared first, because such a page is not discarded.
        let any = strewn.swap(false, Ordering::SeqCst) || self.present != 0 || self.is_warm;
        let pages = any.then_some(first..first + SEGMENT_PAGES);
        // SAFETY: because of `&mut self` there is no reference to the pages.
        unsafe { self.staging.memory.mapping.discard(pages.unwrap_or(0..0))? };
        (self.present, self.is_warm) = (0, false);
        Ok(())
    }

    /// Leaves the pages in memory for the next owner. False if another segment is warm already, or
    /// if pages move to segments.
    fn stay_warm(&self) -> bool {
        let has_pages = self.present != 0 || self.is_warm;
        if !self.staging.memory.copies() || !has_pages {
            return false;
        }
        let mut free = self.staging.free.lock();
        let stays = free.warm.is_none();
        free.warm = free.warm.or(Some(self.number));
        stays
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if self.stay_warm() {
            return;
        }
        // If the system refuses to discard the pages, none could be moved there.
        let empty = self.clear().is_ok();
        let mut free = self.staging.free.lock();
        if empty { free.empty.push(self.number) } else { free.unclean.push(self.number) }
    }
}
