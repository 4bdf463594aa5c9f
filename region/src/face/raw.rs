//! A region for other languages: it lends no bytes, and tells where they are.
//!
//! ```text
//!   Region       discard(&mut self), pin borrows      the compiler knows who uses which byte
//!   RawRegion    discard(&self), pin until unpin      the caller knows
//! ```
//!
//! Invariant: `pins` has each range that is pinned with the number of its pins, and each of them is
//! counted in its groups.
//!
//! Locks: that of the pins, with nothing else; those of the region.

use super::control::RegionControl;
use super::ending::Teardown;
use super::life::{Life, limit_pages};
use crate::places::Chunks;
use crate::state::Folded;
use crate::terms::{PageRange, PlotStats, RegionConfig, RegionError, RegionStats};
use crate::upkeep::Pager;
use host::fault::begin_call;
use host::{Lock, PAGE_SIZE, Rank, SpanAddress};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// A region whose bytes are reached by their address alone.
///
/// What a [`Region`](crate::Region) may be used for, and what not, holds for this too. In addition
/// the caller has to know what the compiler knows of a `Region`. No thread uses bytes that are
/// discarded meanwhile, and none uses any after this was dropped.
///
/// ```
/// # use ramfold_region::{Memory, MemoryConfig, Pager, PagerConfig, RawRegion, RegionConfig};
/// # let memory = Memory::new(MemoryConfig::for_disk(1 << 20))?;
/// # let pager = match Pager::new(memory, &PagerConfig::default()) {
/// #     Ok(pager) => pager,
/// #     Err(error) => {
/// #         eprintln!("skipped: needs {error}");
/// #         return Ok(());
/// #     }
/// # };
/// let region = RawRegion::map(&pager, 1 << 20, &RegionConfig::default())?;
/// region.pin(0..5000)?; // in one function
/// assert!(region.discard(0..8192).is_err());
/// region.unpin(0..5000)?; // and in another
/// region.discard(0..8192)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RawRegion {
    address: SpanAddress,
    /// Ranges of bytes that are pinned, and how often.
    pins: Lock<BTreeMap<(usize, usize), usize>>,
    folded: Arc<Folded>,
    /// It is dropped last, because it waits for all other owners of the folding half.
    life: Life,
}

impl RawRegion {
    /// A region of `bytes` bytes, rounded up to a page, all zeros.
    ///
    /// # Errors
    ///
    /// Those of [`Region::map`](crate::Region::map).
    pub fn map(
        pager: &Arc<Pager>,
        bytes: usize,
        config: &RegionConfig,
    ) -> Result<RawRegion, RegionError> {
        let pages = Life::pages(pager, bytes)?;
        let (span, address) = SpanAddress::reserve(&pager.shared.path, pages)?;
        let life = Life::begin(pager, span, config)?;
        let pins = Lock::new(Rank::Leaf, BTreeMap::new());
        Ok(RawRegion { address, pins, folded: life.folded(), life })
    }

    /// The first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.address.as_ptr()
    }

    /// Bytes, a multiple of 4096.
    #[expect(clippy::len_without_is_empty, reason = "a region has at least one page")]
    pub fn len(&self) -> usize {
        self.address.len()
    }

    /// The right to move the region's pages.
    pub fn control(&self) -> RegionControl {
        RegionControl::of(&self.folded)
    }

    /// Brings the pages of a range to memory, and keeps them there until as many calls of
    /// [`RawRegion::unpin`] with this range as of this one. Any thread may make them.
    ///
    /// # Errors
    ///
    /// [`RegionError::OutOfRange`], or if the system refuses to watch the pages, or a page cannot
    /// be brought back. Nothing is pinned then.
    pub fn pin(&self, range: Range<usize>) -> Result<(), RegionError> {
        let pages = self.reachable(&range)?;
        // A forked child finds the table whole, because a fork waits for the call.
        let _call = begin_call();
        self.folded.pin(&pages)?;
        *self.pins.lock().entry((range.start, range.end)).or_default() += 1;
        Ok(())
    }

    /// Takes one pin off a range.
    ///
    /// # Errors
    ///
    /// [`RegionError::NotPinned`] if this very range has none.
    pub fn unpin(&self, range: Range<usize>) -> Result<(), RegionError> {
        let pages = self.reachable(&range)?;
        let _call = begin_call();
        if !self.take_pin((range.start, range.end)) {
            return Err(RegionError::NotPinned { start: range.start, end: range.end });
        }
        self.folded.unpin(Chunks::groups_of(&pages));
        Ok(())
    }

    /// Takes all pins off the ranges in a part of the region, whose user is gone.
    pub(super) fn unpin_all(&self, part: &Range<usize>) {
        let _call = begin_call();
        let is_in = |&(start, end): &(usize, usize)| part.start <= start && end <= part.end;
        let pinned: BTreeMap<_, _> = {
            let mut pins = self.pins.lock();
            let all = std::mem::take(&mut *pins).into_iter();
            let (inside, outside) = all.partition(|(range, _)| is_in(range));
            *pins = outside;
            inside
        };
        for ((start, end), count) in pinned {
            let groups = Chunks::groups_of(&PageRange::touched(&(start..end)));
            (0..count).for_each(|_| self.folded.unpin(groups.clone()));
        }
    }

    /// Where the pages of a part of the region are. Bounds are those of groups.
    pub(super) fn places(&self, part: &Range<usize>) -> PlotStats {
        let _call = begin_call();
        self.folded.places_of(&(part.start / PAGE_SIZE..part.end / PAGE_SIZE))
    }

    /// Whether this process made it, and did not get it by a fork.
    pub(super) fn is_own(&self) -> bool {
        self.expect_own().is_ok()
    }

    /// An error in a forked child.
    pub(super) fn expect_own(&self) -> Result<(), RegionError> {
        Ok(self.folded.shared.path.expect_own()?)
    }

    /// Takes one pin of a range out of the table, if there is one.
    fn take_pin(&self, range: (usize, usize)) -> bool {
        let mut pins = self.pins.lock();
        let Some(count) = pins.get_mut(&range) else { return false };
        *count -= 1;
        if *count == 0 {
            pins.remove(&range);
        }
        true
    }

    /// Forgets the content of a range, so that it reads as zeros. Bounds are multiples of 4096. No
    /// thread may use the range meanwhile.
    ///
    /// # Errors
    ///
    /// [`RegionError::Pinned`] if a page of it is pinned; those of
    /// [`Region::discard`](crate::Region::discard). Nothing has changed then.
    pub fn discard(&self, range: Range<usize>) -> Result<(), RegionError> {
        let _call = begin_call();
        let pages = PageRange::whole(range.clone(), self.len())?;
        if self.is_pinned(&pages) {
            return Err(RegionError::Pinned { start: range.start, end: range.end });
        }
        self.folded.discard(&pages, || Ok(self.address.discard(pages.clone())?))
    }

    fn is_pinned(&self, pages: &Range<usize>) -> bool {
        let (start, end) = (pages.start * PAGE_SIZE, pages.end * PAGE_SIZE);
        let meets = |pinned: &Range<usize>| pinned.start < end && pinned.end > start;
        let pins = self.pins.lock();
        pins.keys().any(|&(first, last)| {
            let pages = PageRange::touched(&(first..last));
            meets(&(pages.start * PAGE_SIZE..pages.end * PAGE_SIZE))
        })
    }

    /// Sets how many bytes of the region may be in memory; `None` means all of them.
    ///
    /// # Errors
    ///
    /// [`RegionError::LimitTooSmall`], or another error if the system refuses to watch the region.
    pub fn set_resident_limit(&self, bytes: Option<usize>) -> Result<(), RegionError> {
        let _call = begin_call();
        self.folded.limit_to(bytes.map(limit_pages).transpose()?)
    }

    /// How many bytes of the region may be in memory; `None` means all of them.
    pub fn resident_limit(&self) -> Option<usize> {
        self.folded.limit.pages().map(|pages| pages as usize * PAGE_SIZE)
    }

    /// Where the pages are, and what faults have cost.
    pub fn stats(&self) -> RegionStats {
        let _call = begin_call();
        self.folded.stats()
    }

    /// Ends the region. With [`Teardown::Range`] this returns in microseconds, whatever the size.
    pub fn teardown(mut self, teardown: Teardown) {
        self.life.teardown = teardown;
    }

    /// The pages of a range, unless this is a forked child that does not have them.
    fn reachable(&self, range: &Range<usize>) -> Result<Range<usize>, RegionError> {
        if !self.folded.span.outlives_fork() {
            self.folded.shared.path.expect_own()?;
        }
        let (start, end, len) = (range.start, range.end, self.len());
        if start > end || end > len {
            return Err(RegionError::OutOfRange { start, end, len });
        }
        Ok(PageRange::touched(range))
    }
}

impl std::fmt::Debug for RawRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawRegion")
            .field("range", &self.folded.span.range())
            .finish_non_exhaustive()
    }
}
