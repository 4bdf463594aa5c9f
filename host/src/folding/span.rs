//! The address range of a region: the bytes that its client holds, and the calls that move its
//! pages out and in.
//!
//! ```text
//!                    move_out                                     fill
//!    span    | page | page | .... |  <-- missing -->  | page |  <-------- bytes
//!              |      |                                 ^
//!              v      v            fill_from            |
//!    staging  | segment of 64 pages | segment | ...  ---'
//! ```
//!
//! A span has two halves. [`SpanMemory`] belongs to the client. There is one, and it alone lends
//! the bytes. [`Span`] belongs to the code that folds pages, and counts in pages. It can take pages
//! away and put bytes in their place while the client reads and writes. A thread that touches a
//! missing page waits in [`fault`](crate::fault) until the page is back.
//!
//! This module cannot check that the bytes put in are those that were taken out. If they were not,
//! a borrower would see them change. [`Span::fill`] and [`Span::fill_from`] are therefore `unsafe`.
//! Their caller answers for the store behind the span, as a swap device answers for its pages.
//! `region` argues for it in one file, `promises.rs`.
//!
//! Invariants
//! - S1: this module touches no byte of the client. The system moves pages.
//! - S2: memory that the client may refer to stays mapped as long as the client's half lives. Pages
//!   that it gave back ([`SpanMemory::unmap`]) are never lent again.
//!
//! Lock: none. The caller sees to it that one thread at a time moves a page.

use super::closing::{Closing, UNMAPPED};
use super::contents::{self, SEGMENT_PAGES};
use super::error::{FaultError, FaultMode, refused};
use super::fault_path::{FaultPath, Way};
use super::transfer::{Transfer, transfer};
use crate::machine::{PAGE_SIZE, die_at, max_map_count};
use crate::memory::{HostError, Mapping};
use rustix::io::Errno;
use std::ops::Range;
use std::sync::Arc;

/// The message about a page that left without a request from here. An address follows it.
pub const GONE: &str = "a page is gone that nobody took away: other code has used madvise, mremap \
                        or mmap on the region's bytes; the page was";

/// The request that the system refuses for locked pages.
const GUARDING_LOCKED: &str = "putting guards on pages that the program has locked by mlock \
                               (unlock them, or use another mode)";

/// The half of a span for the code that folds it. All methods count in pages of the span, and panic
/// if the span has no such pages: a broken caller.
#[derive(Debug)]
pub struct Span {
    pub(super) mapping: Mapping,
    pub(crate) path: Arc<FaultPath>,
}

impl Span {
    /// Reserves `pages` pages. None is registered yet, so a first touch is an ordinary one.
    ///
    /// # Errors
    ///
    /// If there is no address space, or the userfaultfd is the parent process's.
    pub fn reserve(
        path: &Arc<FaultPath>,
        pages: usize,
    ) -> Result<(Arc<Span>, SpanMemory), FaultError> {
        path.expect_own()?;
        let mapping = path.prepare(Mapping::reserve_for_parts(pages)?)?;
        let span = Arc::new(Span { mapping, path: Arc::clone(path) });
        Ok((Arc::clone(&span), SpanMemory { span, gone: Vec::new() }))
    }

    /// Pages of the span.
    pub fn pages(&self) -> usize {
        self.mapping.range().len() / PAGE_SIZE
    }

    /// The addresses of the span.
    pub fn range(&self) -> Range<usize> {
        self.mapping.range()
    }

    /// How its faults are served.
    pub fn mode(&self) -> FaultMode {
        self.path.mode()
    }

    /// Whether a page that is out is closed, so that its touch is a SIGSEGV.
    pub fn closes(&self) -> bool {
        matches!(self.path.way(), Way::Closing(_))
    }

    /// Whether a forked child has the pages, and may touch them.
    pub fn outlives_fork(&self) -> bool {
        self.path.outlives_fork()
    }

    /// The page at an address; `None` if the address is not one of this span.
    pub fn page_at(&self, address: usize) -> Option<usize> {
        let range = self.mapping.range();
        range.contains(&address).then(|| (address - range.start) / PAGE_SIZE)
    }

    /// Registers `pages`, none of which is registered yet. From now on a touch of a missing page of
    /// them is a fault.
    ///
    /// # Errors
    ///
    /// If the system refuses. None of them is registered then.
    pub fn register(&self, pages: Range<usize>) -> Result<(), FaultError> {
        let range = self.addresses(&pages);
        match self.path.way() {
            Way::Userfault(uffd) => uffd.register(&range),
            Way::Closing(closing) => {
                closing.expect_own()?;
                if touched_runs(self, pages.clone()).map(|run| run.len()).sum::<usize>()
                    == pages.len()
                {
                    // Mostly the program has touched all of them. They stay open.
                    return Ok(());
                }
                let refused = |error| match (error, self.mode()) {
                    (Errno::NOMEM, _) => FaultError::Mappings { max: max_map_count() },
                    (Errno::INVAL, FaultMode::Guards) => refused(GUARDING_LOCKED)(error),
                    _ => refused("closing pages")(error),
                };
                // All are closed before this looks, so that no page is touched after the look.
                // SAFETY: the pages are ours, and keep their bytes.
                unsafe { closing.close(&range) }.map_err(refused)?;
                self.open_touched(&**closing, pages).map_err(refused)
            }
        }
    }

    /// Opens those of closed pages that have contents. If this fails, all of them are open.
    fn open_touched(&self, closing: &dyn Closing, pages: Range<usize>) -> Result<(), Errno> {
        // One call opens a run, however long, because each piece of it would split a mapping.
        let mut run = pages.start..pages.start;
        let opened = touched_runs(self, pages.clone())
            .chain(std::iter::once(pages.end..pages.end))
            .try_for_each(|next| {
                if run.end == next.start && !next.is_empty() {
                    run.end = next.end;
                    return Ok(());
                }
                let whole = std::mem::replace(&mut run, next);
                // SAFETY: the pages are ours, and have their bytes.
                unsafe { closing.open(&self.addresses(&whole)) }
            });
        opened.inspect_err(|_| {
            let range = self.addresses(&pages);
            // SAFETY: as above; pages without contents read as zeros.
            if unsafe { closing.open(&range) }.is_err() {
                die_at(UNMAPPED, range.start);
            }
        })
    }

    /// Puts `bytes`, which are whole pages, in the place of missing pages from `first` on. Threads
    /// that wait for them are woken. The transfer stops at a page that is there; that page stays as
    /// it is.
    ///
    /// # Panics
    ///
    /// If `bytes` are not whole pages, or the span has no such pages: a broken caller.
    ///
    /// # Safety
    ///
    /// Of each page that is missing, one of these holds:
    /// - the bytes are what was moved out last;
    /// - the page was never there, or read as zeros when it left, and the bytes are zeros;
    /// - the client gave up all it had borrowed of the page when the page left, and has not looked
    ///   at it since.
    ///
    /// ```compile_fail,E0133
    /// use ramfold_host::{PAGE_SIZE, Span, Transfer};
    /// fn safe(span: &Span) -> Transfer {
    ///     span.fill(0, &[0; PAGE_SIZE])
    /// }
    /// ```
    pub unsafe fn fill(&self, first: usize, bytes: &[u8]) -> Transfer {
        assert!(bytes.len().is_multiple_of(PAGE_SIZE), "whole pages");
        let count = bytes.len() / PAGE_SIZE;
        // SAFETY: the source is a borrowed slice of as many pages. By the caller's contract the
        // bytes are the client's own.
        unsafe { self.copy_in(first, count, bytes.as_ptr().addr()) }
    }

    /// # Safety
    ///
    /// - `source` is readable for `count` pages.
    /// - Its pages may be put in place, by the conditions of [`Span::fill`].
    pub(crate) unsafe fn copy_in(&self, first: usize, count: usize, source: usize) -> Transfer {
        let to = self.addresses(&(first..first + count)).start;
        match self.path.way() {
            Way::Userfault(uffd) => transfer(count, |done| {
                let skip = done * PAGE_SIZE;
                // SAFETY: the caller's contract, for the pages that are not done yet.
                unsafe { uffd.copy(to + skip, source + skip, count - done) }
            }),
            // SAFETY: the caller's contract.
            Way::Closing(closing) => unsafe { closing.copy_in(to, source, count) },
        }
    }

    /// Puts zeros in the place of missing pages from `first` on that no thread has touched since
    /// they were registered or discarded. `zeros` is as many zero bytes as they have. The transfer
    /// stops at a page that is there.
    ///
    /// Without a userfaultfd nobody knows what the system's swap has. So there the pages are opened
    /// as they are.
    ///
    /// # Panics
    ///
    /// If `zeros` are not whole pages, or the span has no such pages: a broken caller.
    ///
    /// # Safety
    ///
    /// The conditions are those of [`Span::fill`].
    pub unsafe fn fill_untouched(&self, first: usize, zeros: &[u8]) -> Transfer {
        let Way::Closing(closing) = self.path.way() else {
            // SAFETY: the caller's contract.
            return unsafe { self.fill(first, zeros) };
        };
        assert!(zeros.len().is_multiple_of(PAGE_SIZE), "whole pages");
        let count = zeros.len() / PAGE_SIZE;
        let to = self.addresses(&(first..first + count)).start;
        // SAFETY: the caller's contract.
        unsafe { closing.open_as_they_are(to, count) }
    }

    /// Makes the next touch of `pages` a fault, if it would not be one without this. False if the
    /// system refuses. They stay as they are then.
    pub fn close(&self, pages: Range<usize>) -> bool {
        let Way::Closing(closing) = self.path.way() else { return true };
        // SAFETY: the pages are ours, and keep their bytes.
        unsafe { closing.close(&self.addresses(&pages)) }.is_ok()
    }

    /// Wakes the threads that wait for `pages`, which are there.
    ///
    /// # Errors
    ///
    /// If the system refuses, because the descriptor was closed.
    pub fn wake(&self, pages: Range<usize>) -> Result<(), FaultError> {
        match self.path.way() {
            Way::Userfault(uffd) => uffd.wake(&self.addresses(&pages)),
            // Whoever touched a page of them brings it in itself.
            Way::Closing(_) => Ok(()),
        }
    }

    /// Which of `pages`, 64 at most, have contents in memory or in the system's swap: a bit for
    /// each, the first lowest. `None` if the system does not tell. May be called in a signal
    /// handler.
    ///
    /// # Panics
    ///
    /// If these are more than 64 pages, or the span has no such pages: a broken caller.
    pub fn touched(&self, pages: Range<usize>) -> Option<u64> {
        assert!(pages.len() <= SEGMENT_PAGES, "a bit for each page");
        contents::touched(&self.path, &self.addresses(&pages))
    }

    /// Which of `pages`, 64 at most, are in memory: a bit for each, the first lowest. 0 if the
    /// system does not tell.
    ///
    /// # Panics
    ///
    /// If these are more than 64 pages, or the span has no such pages: a broken caller.
    pub fn resident(&self, pages: Range<usize>) -> u64 {
        assert!(pages.len() <= SEGMENT_PAGES, "a bit for each page");
        contents::in_memory(&self.addresses(&pages)).unwrap_or(0)
    }

    /// Why a page that should be in memory cannot be read by its client, in words; mostly `None`.
    /// The caller sees to it that the page is not moved meanwhile. May be called in a signal
    /// handler.
    pub fn unreachable(&self, page: usize) -> Option<&'static str> {
        let range = self.addresses(&(page..page + 1));
        if let Way::Closing(closing) = self.path.way() {
            // Mostly another thread has opened it a moment ago.
            // SAFETY: the page is in memory, with the client's contents.
            let opened = unsafe { closing.open_as_they_are(range.start, 1) };
            return (opened.pages == 0).then_some("the system does not open a page that is there:");
        }
        // Without the page map, a page in the swap looks like one that is gone.
        let pagemap = self.path.pagemap()?;
        if contents::in_page_map(pagemap, &range)? == 0 {
            return Some(GONE);
        }
        // The system gives an error here if it would answer an access by a signal.
        let in_swap = contents::in_memory(&range)? == 0;
        (in_swap && !self.mapping.read_in(page))
            .then_some("the system cannot read a page back from its swap")
    }

    /// Whether all addresses are mapped, which includes those that were given back. They are not if
    /// other code has unmapped or moved a part of them.
    pub fn is_mapped(&self) -> bool {
        self.mapping.is_mapped()
    }

    /// Drops the contents of pages.
    ///
    /// # Safety
    ///
    /// - There is no reference to their bytes.
    pub(super) unsafe fn discard(&self, pages: Range<usize>) -> Result<(), HostError> {
        match self.path.way() {
            Way::Closing(closing) if !pages.is_empty() => {
                let range = self.addresses(&pages);
                let refused = |error: Errno| HostError::Advise {
                    advice: "discarding pages",
                    bytes: range.len() as u64,
                    source: error.into(),
                };
                // SAFETY: the caller's contract.
                unsafe { closing.discard(&range) }.map_err(refused)
            }
            // SAFETY: the caller's contract.
            _ => unsafe { self.mapping.discard(pages) },
        }
    }

    /// Takes pages away for good, and what a file has of them. After the first step no code, for
    /// example a system call of another thread, puts anything in the file any more.
    ///
    /// # Safety
    ///
    /// - There is no reference to their bytes.
    unsafe fn take_away(&self, pages: Range<usize>) -> Result<(), HostError> {
        // SAFETY: the caller's contract.
        unsafe { self.mapping.unmap(pages.clone())? };
        if let Way::Closing(closing) = self.path.way() {
            // SAFETY: the caller's contract.
            unsafe { closing.empty(&self.addresses(&pages)) };
        }
        Ok(())
    }

    /// Lets go of what the region's process has in common with a forked child that does not have
    /// the region. Called in the child, which may have been in the middle of anything.
    pub fn let_go(&self) {
        if let Way::Closing(closing) = self.path.way() {
            closing.let_go();
        }
    }

    pub(crate) fn addresses(&self, pages: &Range<usize>) -> Range<usize> {
        let range = self.mapping.range();
        assert!(
            pages.start <= pages.end && pages.end <= range.len() / PAGE_SIZE,
            "pages of the span"
        );
        range.start + pages.start * PAGE_SIZE..range.start + pages.end * PAGE_SIZE
    }
}

impl Drop for Span {
    /// The addresses may be another span's as soon as they are given back, so the file is emptied
    /// first.
    fn drop(&mut self) {
        if self.closes() {
            // If the system refuses, it gives the memory back with the file.
            // SAFETY: the client's half, which lends the bytes, is gone, because it holds this one.
            let _ = unsafe { self.take_away(0..self.pages()) };
        }
    }
}

/// Runs of pages of a span that have contents, as far as the system tells. None is longer than a
/// segment.
fn touched_runs(span: &Span, pages: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    pages.clone().step_by(SEGMENT_PAGES).flat_map(move |first| {
        let there = span.touched(first..pages.end.min(first + SEGMENT_PAGES)).unwrap_or(0);
        runs(there).map(move |(at, count)| first + at..first + at + count)
    })
}

/// Runs of set bits: first and length, from the lowest on.
fn runs(mut bits: u64) -> impl Iterator<Item = (usize, usize)> {
    std::iter::from_fn(move || {
        let first = bits.trailing_zeros();
        let count = bits.checked_shr(first)?.trailing_ones();
        bits &= u64::MAX.checked_shl(first + count).unwrap_or(0);
        Some((first as usize, count as usize))
    })
}

/// The client's half of a span, which lends its bytes. There is one for each span.
#[derive(Debug)]
pub struct SpanMemory {
    span: Arc<Span>,
    /// Ranges of pages that were given back: disjoint, in order.
    gone: Vec<Range<usize>>,
}

impl SpanMemory {
    /// Bytes of address space, including those that were given back.
    #[expect(clippy::len_without_is_empty, reason = "a span has at least one page")]
    pub fn len(&self) -> usize {
        self.span.mapping.range().len()
    }

    /// The bytes of a range of byte offsets. `None` if it reaches past the end or into pages that
    /// were given back.
    #[inline]
    pub fn bytes(&self, range: Range<usize>) -> Option<&[u8]> {
        self.check(&range)?;
        // SAFETY: the range lies in the mapping, which outlives the borrow, and was not given back
        // (S2). Writers need `&mut self`. The fault path brings a missing page back before the
        // access completes.
        Some(unsafe {
            std::slice::from_raw_parts(
                self.span.mapping.base().as_ptr().add(range.start),
                range.len(),
            )
        })
    }

    /// The same as [`SpanMemory::bytes`], for bytes that may also be written.
    #[inline]
    pub fn bytes_mut(&mut self, range: Range<usize>) -> Option<&mut [u8]> {
        self.check(&range)?;
        // SAFETY: as in `bytes`; `&mut self` makes this the only reference.
        Some(unsafe {
            std::slice::from_raw_parts_mut(
                self.span.mapping.base().as_ptr().add(range.start),
                range.len(),
            )
        })
    }

    /// Drops the resident pages of `pages`. If nothing else has their contents, they read as zeros
    /// then.
    ///
    /// # Errors
    ///
    /// If the system refuses. It may have dropped the first of them.
    pub fn discard(&mut self, pages: Range<usize>) -> Result<(), HostError> {
        // SAFETY: because of `&mut self` there is no reference to the bytes.
        unsafe { self.span.discard(pages) }
    }

    /// Gives `pages` back for good. Their addresses stay reserved, and a thread that touches them
    /// gets a SIGSEGV.
    ///
    /// # Errors
    ///
    /// If the system refuses. Nothing has changed then.
    pub fn unmap(&mut self, pages: Range<usize>) -> Result<(), HostError> {
        // Room in the list is made first, because a range that is unmapped must be in it.
        self.gone.reserve(1);
        // SAFETY: because of `&mut self` there is no reference to the bytes, and by S2 there will
        // be none.
        unsafe { self.span.take_away(pages.clone())? };
        self.insert(pages);
        Ok(())
    }

    /// How many ranges of pages were given back. Ranges that meet are one.
    pub fn gone_ranges(&self) -> usize {
        self.gone.len()
    }

    /// Whether some of `pages` were given back.
    pub fn is_gone(&self, pages: &Range<usize>) -> bool {
        let next = self.gone.partition_point(|gone| gone.end <= pages.start);
        !pages.is_empty() && self.gone.get(next).is_some_and(|gone| gone.start < pages.end)
    }

    #[inline]
    fn check(&self, range: &Range<usize>) -> Option<()> {
        let fits = range.start <= range.end && range.end <= self.len();
        let pages = range.start / PAGE_SIZE..range.end.div_ceil(PAGE_SIZE);
        (fits && (self.gone.is_empty() || !self.is_gone(&pages))).then_some(())
    }

    /// Adds a range, and joins it with those that it meets.
    fn insert(&mut self, mut pages: Range<usize>) {
        if pages.is_empty() {
            return;
        }
        let from = self.gone.partition_point(|gone| gone.end < pages.start);
        let to = self.gone.partition_point(|gone| gone.start <= pages.end);
        if let Some(first) = self.gone[from..to].first() {
            pages.start = pages.start.min(first.start);
        }
        if let Some(last) = self.gone[from..to].last() {
            pages.end = pages.end.max(last.end);
        }
        self.gone.splice(from..to, [pages]);
    }
}
