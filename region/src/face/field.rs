//! A field: one region that many small users share. Each has a plot of it.
//!
//! ```text
//!   RawRegion  | plot 256 KiB | free ...      | plot 512 KiB        | free ...        |
//!                group          groups          two groups
//! ```
//!
//! A region of its own has a store, a place in the table of faults, and mappings. That is too much
//! for thousands of small arrays. A plot has whole groups, so that a pin or a discard of it touches
//! nobody else's pages. All plots of a field share its limit.
//!
//! Invariant: a group is in one plot, or free and all zeros, or it was lost, because the system
//! refused to discard it. Ranges that are free never meet.
//!
//! Lock: that of the free ranges, of rank `Leaf`, with nothing else.

use super::raw::RawRegion;
use crate::terms::{
    GROUP_PAGES, PageOut, PageRange, PlotStats, RegionConfig, RegionError, RegionStats,
};
use crate::upkeep::Pager;
use host::fault::begin_call;
use host::{Lock, PAGE_SIZE, Rank};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Bytes of a group, of which plots have whole ones.
const GROUP_BYTES: usize = GROUP_PAGES * PAGE_SIZE; // 256 KiB

/// One region that many small users share.
///
/// ```
/// # use ramfold_region::{Field, Memory, MemoryConfig, Pager, PagerConfig, RegionConfig};
/// # let memory = Memory::new(MemoryConfig::for_disk(1 << 30))?;
/// # let pager = match Pager::new(memory, &PagerConfig::default()) {
/// #     Ok(pager) => pager,
/// #     Err(error) => {
/// #         eprintln!("skipped: needs {error}");
/// #         return Ok(());
/// #     }
/// # };
/// let field = Field::map(&pager, 1 << 30, &RegionConfig::default())?;
/// let plots: Result<Vec<_>, _> = (0..3000).map(|_| field.plot(100_000)).collect();
/// assert_eq!(plots?.len(), 3000, "more than there can be regions");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Field {
    region: RawRegion,
    free: Lock<Free>,
}

impl Field {
    /// A field of `bytes` bytes, rounded up to 256 KiB.
    ///
    /// # Errors
    ///
    /// Those of [`Region::map`](crate::Region::map).
    pub fn map(
        pager: &Arc<Pager>,
        bytes: usize,
        config: &RegionConfig,
    ) -> Result<Arc<Field>, RegionError> {
        let groups = bytes.div_ceil(GROUP_BYTES);
        let region = RawRegion::map(pager, groups.saturating_mul(GROUP_BYTES), config)?;
        let free = Lock::new(Rank::Leaf, Free::all(groups));
        Ok(Arc::new(Field { region, free }))
    }

    /// A plot of `bytes` bytes, all zeros. It takes whole groups of 256 KiB of addresses, but only
    /// the pages that are touched take memory.
    ///
    /// # Errors
    ///
    /// [`RegionError::Empty`], [`RegionError::FieldFull`], and an error in a forked child, whose
    /// parent has the field.
    pub fn plot(self: &Arc<Field>, bytes: usize) -> Result<Plot, RegionError> {
        if bytes == 0 {
            return Err(RegionError::Empty);
        }
        self.region.expect_own()?;
        let _call = begin_call();
        let groups = self.free.lock().take(bytes.div_ceil(GROUP_BYTES));
        let groups = groups.ok_or(RegionError::FieldFull { bytes })?;
        let len = bytes.next_multiple_of(PAGE_SIZE);
        Ok(Plot { field: Arc::clone(self), groups, len })
    }

    /// An error in a forked child, whose parent has the field.
    ///
    /// # Errors
    ///
    /// [`RegionError::Fault`] there.
    pub fn expect_own(&self) -> Result<(), RegionError> {
        self.region.expect_own()
    }

    /// The first byte. All plots lie between it and `len` bytes further on.
    pub fn as_ptr(&self) -> *mut u8 {
        self.region.as_ptr()
    }

    /// Bytes of all plots that there can be, a multiple of 256 KiB.
    #[expect(clippy::len_without_is_empty, reason = "a field has at least one group")]
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// Pages all plots out. When this returns, they are compressed, except what it says. Plots that
    /// are made meanwhile may be left out.
    ///
    /// # Errors
    ///
    /// Those of [`RegionControl::page_out`](crate::RegionControl::page_out).
    pub fn page_out(&self) -> Result<PageOut, RegionError> {
        let taken = {
            let _call = begin_call();
            self.free.lock().taken(self.len() / GROUP_BYTES)
        };
        let control = self.region.control();
        let mut out = PageOut::default();
        for groups in taken {
            out += control.page_out(groups.start * GROUP_BYTES..groups.end * GROUP_BYTES)?;
        }
        Ok(out)
    }

    /// Sets how many bytes of all plots together may be in memory; `None` means all of them.
    ///
    /// # Errors
    ///
    /// Those of [`RawRegion::set_resident_limit`].
    pub fn set_resident_limit(&self, bytes: Option<usize>) -> Result<(), RegionError> {
        self.region.set_resident_limit(bytes)
    }

    /// As [`RegionControl::densify`](crate::RegionControl::densify), for the pages of all plots.
    ///
    /// # Errors
    ///
    /// Those of `RegionControl::densify`.
    pub fn densify(&self) -> Result<(), RegionError> {
        self.region.control().densify()
    }

    /// How many bytes of all plots together may be in memory; `None` means all of them.
    pub fn resident_limit(&self) -> Option<usize> {
        self.region.resident_limit()
    }

    /// Where the pages of all plots are.
    pub fn stats(&self) -> RegionStats {
        self.region.stats()
    }

    /// Bytes that are in no plot.
    pub fn free_bytes(&self) -> usize {
        let _call = begin_call();
        self.free.lock().groups() * GROUP_BYTES
    }
}

impl std::fmt::Debug for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Field").field("region", &self.region).finish_non_exhaustive()
    }
}

/// A part of a field. Ranges count from its first byte. Dropping it forgets its bytes, and takes
/// off what pins it has.
///
/// The rules of a [`RawRegion`] hold for it, with one difference. A touch after it was dropped is
/// not noticed: it reads what the next plot there has.
pub struct Plot {
    field: Arc<Field>,
    groups: Range<usize>,
    len: usize,
}

impl Plot {
    /// The first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.field.region.as_ptr().wrapping_add(self.groups.start * GROUP_BYTES)
    }

    /// Bytes, a multiple of 4096.
    #[expect(clippy::len_without_is_empty, reason = "a plot has at least one page")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The field that it is a part of.
    pub fn field(&self) -> &Arc<Field> {
        &self.field
    }

    /// Pages a range out. When this returns, the range is compressed.
    ///
    /// # Errors
    ///
    /// Those of [`RegionControl::page_out`](crate::RegionControl::page_out).
    pub fn page_out(&self, range: Range<usize>) -> Result<PageOut, RegionError> {
        self.field.region.control().page_out(self.whole(range)?)
    }

    /// Brings in those pages of a range that are out.
    ///
    /// # Errors
    ///
    /// Those of [`RegionControl::prefetch`](crate::RegionControl::prefetch).
    pub fn prefetch(&self, range: Range<usize>) -> Result<(), RegionError> {
        self.field.region.control().prefetch(self.whole(range)?)
    }

    /// Makes a range leave memory before the rest of its field.
    ///
    /// # Errors
    ///
    /// Those of [`RegionControl::cold`](crate::RegionControl::cold).
    pub fn cold(&self, range: Range<usize>) -> Result<(), RegionError> {
        self.field.region.control().cold(self.whole(range)?)
    }

    /// As [`RawRegion::pin`].
    ///
    /// # Errors
    ///
    /// Those of [`RawRegion::pin`].
    pub fn pin(&self, range: Range<usize>) -> Result<(), RegionError> {
        self.field.region.pin(self.within(range)?)
    }

    /// As [`RawRegion::unpin`].
    ///
    /// # Errors
    ///
    /// Those of [`RawRegion::unpin`].
    pub fn unpin(&self, range: Range<usize>) -> Result<(), RegionError> {
        self.field.region.unpin(self.within(range)?)
    }

    /// As [`RawRegion::discard`].
    ///
    /// # Errors
    ///
    /// Those of [`RawRegion::discard`].
    pub fn discard(&self, range: Range<usize>) -> Result<(), RegionError> {
        self.field.region.discard(self.whole(range)?)
    }

    /// Where its pages are.
    pub fn stats(&self) -> PlotStats {
        let (pages, places) =
            ((self.len / PAGE_SIZE) as u64, self.field.region.places(&self.bytes()));
        PlotStats { pages, unregistered_pages: places.unregistered_pages.min(pages), ..places }
    }

    /// A range with bounds of pages, in the field.
    fn whole(&self, range: Range<usize>) -> Result<Range<usize>, RegionError> {
        PageRange::whole(range.clone(), self.len)?;
        self.within(range)
    }

    /// A range, in the field.
    fn within(&self, range: Range<usize>) -> Result<Range<usize>, RegionError> {
        let (start, end, len) = (range.start, range.end, self.len);
        if start > end || end > len {
            return Err(RegionError::OutOfRange { start, end, len });
        }
        let first = self.groups.start * GROUP_BYTES;
        Ok(first + start..first + end)
    }

    /// All bytes of its groups, in the field.
    fn bytes(&self) -> Range<usize> {
        self.groups.start * GROUP_BYTES..self.groups.end * GROUP_BYTES
    }
}

impl Drop for Plot {
    fn drop(&mut self) {
        if !self.field.region.is_own() {
            // A forked child has a copy at most, which ends with it.
            return;
        }
        let _call = begin_call();
        self.field.region.unpin_all(&self.bytes());
        // A plot whose bytes are still there is not given away again.
        if self.field.region.discard(self.bytes()).is_ok() {
            self.field.free.lock().give(self.groups.clone());
        }
    }
}

impl std::fmt::Debug for Plot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Plot").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

/// The groups that are free: where each range starts, and how many it has.
#[derive(Debug)]
struct Free(BTreeMap<usize, usize>);

impl Free {
    fn all(groups: usize) -> Free {
        Free(BTreeMap::from([(0, groups)]))
    }

    /// Takes so many groups from the first range that has them, so that what is used lies together.
    fn take(&mut self, groups: usize) -> Option<Range<usize>> {
        let (&start, &len) = self.0.iter().find(|&(_, &len)| len >= groups)?;
        self.0.remove(&start);
        if len > groups {
            self.0.insert(start + groups, len - groups);
        }
        Some(start..start + groups)
    }

    /// Gives groups back, which join the ranges that they meet.
    fn give(&mut self, mut groups: Range<usize>) {
        if let Some((&start, &len)) = self.0.range(..groups.start).next_back()
            && start + len == groups.start
        {
            groups.start = start;
        }
        if let Some(len) = self.0.remove(&groups.end) {
            groups.end += len;
        }
        self.0.insert(groups.start, groups.len());
    }

    fn groups(&self) -> usize {
        self.0.values().sum()
    }

    /// The ranges between those that are free, of `len` groups.
    fn taken(&self, len: usize) -> Vec<Range<usize>> {
        let ends = std::iter::once(0).chain(self.0.iter().map(|(start, len)| start + len));
        let starts = self.0.keys().copied().chain(std::iter::once(len));
        ends.zip(starts).map(|(start, end)| start..end).filter(|taken| !taken.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_joins_its_neighbours() {
        let mut free = Free::all(10);
        let parts = [2, 3, 1, 4].map(|groups| free.take(groups).expect("free"));
        assert_eq!(parts, [0..2, 2..5, 5..6, 6..10]);
        assert!(free.take(1).is_none());
        free.give(2..5);
        free.give(6..10);
        assert_eq!((free.groups(), free.take(5)), (7, None), "no five in a row");
        free.give(5..6);
        assert_eq!(free.take(8), Some(2..10));
        free.give(0..2);
        free.give(2..10);
        assert_eq!(free.0, BTreeMap::from([(0, 10)]));
    }

    #[test]
    fn what_is_not_free_is_taken() {
        let mut free = Free::all(10);
        assert_eq!(free.taken(10), []);
        free.take(10).expect("free");
        free.give(2..4);
        assert_eq!(free.taken(10), [0..2, 4..10]);
        free.give(7..10);
        assert_eq!(free.taken(10), [0..2, 4..7]);
    }
}
