//! What may be done to a region's pages while its bytes are lent.
//!
//! Invariant: nothing here changes a byte. A call that covers many groups takes the region's gate
//! for one group at a time, so that dropping the region does not wait for all of them.
//!
//! Locks: the region's queue, a leaf. The calls into `Folded` take a gate, and under it one group
//! after the other.

use crate::places::Chunks;
use crate::state::Folded;
use crate::terms::{PageOut, PageRange, RegionError, RegionStats};
use crate::way_in::Why;
use host::PAGE_SIZE;
use host::fault::begin_call;
use std::ops::Range;
use std::sync::{Arc, Weak};
use std::time::Duration;
use zram::{Density, Tending, TiersConfig};

/// The right to move pages of a region out and in, which changes none of its bytes.
///
/// It does not keep the region alive. Once the region was dropped, all methods return
/// [`RegionError::Gone`]. Ranges are in bytes, with bounds that are multiples of 4096. An empty
/// range is allowed and does nothing.
#[derive(Clone)]
pub struct RegionControl {
    folded: Weak<Folded>,
}

impl RegionControl {
    pub(super) fn of(folded: &Arc<Folded>) -> RegionControl {
        RegionControl { folded: Arc::downgrade(folded) }
    }

    /// Pages a range out. When this returns, the range is compressed.
    ///
    /// # Errors
    ///
    /// [`RegionError`] if the range is not valid, or if the system refuses to watch it.
    pub fn page_out(&self, range: Range<usize>) -> Result<PageOut, RegionError> {
        self.with_pages(range, |folded, pages| folded.page_out(&pages))
    }

    /// Pages out the pages that came to memory first, until `pages` are out or none is left. It
    /// moves whole groups of 64.
    ///
    /// # Errors
    ///
    /// [`RegionError`] if the system refuses to watch the region, or if it was dropped.
    pub fn page_out_coldest(&self, pages: u64) -> Result<PageOut, RegionError> {
        self.with(|folded| {
            folded.learn_all()?;
            folded.page_out_coldest(pages)
        })
    }

    /// Brings in those pages of a range that are out.
    ///
    /// # Errors
    ///
    /// [`RegionError`] if the range is not valid.
    pub fn prefetch(&self, range: Range<usize>) -> Result<(), RegionError> {
        self.with_pages(range, |folded, pages| {
            Chunks::groups_of(&pages).try_for_each(|group| {
                let _gate = folded.enter()?;
                folded.bring_all(group, &pages, Why::Ahead).map(|_| ())
            })
        })
    }

    /// Makes a range leave memory before the rest of its region.
    ///
    /// # Errors
    ///
    /// [`RegionError`] if the range is not valid, or if the system refuses to watch the region.
    pub fn cold(&self, range: Range<usize>) -> Result<(), RegionError> {
        self.with_pages(range, |folded, pages| {
            folded.learn_all()?;
            folded.queue.lock().hasten(&Chunks::groups_of(&pages));
            Ok(())
        })
    }

    /// Makes the pages that are out as dense as the region's tiers can, however short they have
    /// rested. Nothing limits the CPU time: some hundred microseconds for a page, if the density is
    /// `Dense`. It is for a program that is about to rest, and for one that is about to be frozen.
    ///
    /// # Errors
    ///
    /// [`RegionError::NoTiers`], and [`RegionError::Tending`] if there is no memory for it.
    pub fn densify(&self) -> Result<(), RegionError> {
        let mut tending = None;
        // The region is let go after each slice, so that dropping it does not wait for all.
        while self.with(|folded| {
            folded.tend(|device| {
                if device.density() == Density::Fast {
                    return Err(RegionError::NoTiers);
                }
                let now = TiersConfig { age: Duration::ZERO, ..TiersConfig::new(device.density()) };
                let tending = tending.get_or_insert_with(|| Tending::begin(&now));
                tending.go_on(device).map_err(RegionError::Tending)
            })?
        })? {}
        Ok(())
    }

    /// Where the pages are, and what faults have cost.
    ///
    /// # Errors
    ///
    /// [`RegionError::Gone`] if the region was dropped.
    pub fn stats(&self) -> Result<RegionStats, RegionError> {
        self.with(|folded| Ok(folded.stats()))
    }

    /// Recounts the groups and compares their sums with the counters. Returns each contradiction in
    /// words. The pager and other controls wait meanwhile. No thread may be touching the region.
    ///
    /// # Errors
    ///
    /// [`RegionError::Gone`] if the region was dropped.
    pub fn check(&self) -> Result<Vec<String>, RegionError> {
        let _call = begin_call();
        let folded = self.folded.upgrade().ok_or(RegionError::Gone)?;
        folded.alone(|| folded.check())
    }

    fn with<R>(
        &self,
        work: impl FnOnce(&Folded) -> Result<R, RegionError>,
    ) -> Result<R, RegionError> {
        let _call = begin_call();
        let folded = self.folded.upgrade().ok_or(RegionError::Gone)?;
        drop(folded.enter()?);
        work(&folded)
    }

    fn with_pages<R>(
        &self,
        range: Range<usize>,
        work: impl FnOnce(&Folded, Range<usize>) -> Result<R, RegionError>,
    ) -> Result<R, RegionError> {
        self.with(|folded| {
            let pages = PageRange::whole(range, folded.span.pages() * PAGE_SIZE)?;
            work(folded, pages)
        })
    }
}

impl std::fmt::Debug for RegionControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RegionControl").finish_non_exhaustive()
    }
}
