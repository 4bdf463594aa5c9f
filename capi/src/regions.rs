//! Regions as C has them: large ones by themselves, small ones as plots of one field.
//!
//! ```text
//!   Folding -- Pager                                ramfold_pager
//!      |  `--- Field, made with the first small one
//!   Mapped::Own(RawRegion) | Mapped::Plot(Plot)     ramfold_region
//! ```
//!
//! Invariant: a region with settings of its own is never a plot, because plots share theirs.
//!
//! Lock: that of the field, of rank `Leaf`, while it is looked at.

use crate::code::{Code, Failure};
use host::unmodelled::RankedMutex;
use host::{PAGE_SIZE, Rank};
use region::{
    FaultMode, Field, Memory, PageOut, Pager, PagerConfig, Plot, PlotStats, RawRegion,
    RegionConfig, RegionError, RegionStats,
};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of the longest region that is a plot.
pub(crate) const PLOT_MAX: usize = 1 << 20; // 1 MiB
/// Bytes of the field of a pager: addresses for 32768 plots.
const FIELD_BYTES: usize = 8 << 30; // 8 GiB

/// The ways to serve a fault, by their numbers in the header; 0 is the best that there is.
const FAULT_MODES: [FaultMode; 4] =
    [FaultMode::Signal, FaultMode::Thread, FaultMode::Protection, FaultMode::Guards];

/// A pager, with the field that its small regions share.
pub(crate) struct Folding {
    pager: Arc<Pager>,
    field: RankedMutex<Option<Arc<Field>>>,
}

impl Folding {
    /// A pager in `memory`. Zeros stand for defaults.
    pub(crate) fn new(memory: Arc<Memory>, mode: u64, staging: u64) -> Result<Folding, Failure> {
        let fault_mode = fault_mode(mode)?;
        let mut config = PagerConfig { fault_mode, ..PagerConfig::default() };
        if staging > 0 {
            config.staging_bytes = staging as usize;
        }
        let pager = Pager::new(memory, &config)?;
        Ok(Folding { pager, field: RankedMutex::new(Rank::Leaf, None) })
    }

    /// The number of the way in which faults are served.
    pub(crate) fn mode(&self) -> i32 {
        let found = self.pager.fault_mode();
        FAULT_MODES.iter().position(|&mode| mode == found).map_or(0, |index| index as i32 + 1)
    }

    /// Maps a region with settings of its own.
    pub(crate) fn map(&self, bytes: usize, config: &RegionConfig) -> Result<Mapped, Failure> {
        Ok(Mapped::Own(RawRegion::map(&self.pager, bytes, config)?))
    }

    /// Maps a region that needs none: a plot, if it is small and there is room.
    pub(crate) fn map_plain(&self, bytes: usize) -> Result<Mapped, Failure> {
        let config = RegionConfig::default();
        if !(1..=PLOT_MAX).contains(&bytes) {
            return self.map(bytes, &config);
        }
        match self.field().and_then(|field| field.plot(bytes)) {
            Ok(plot) => Ok(Mapped::Plot(plot)),
            Err(RegionError::FieldFull { .. } | RegionError::Host(_)) => self.map(bytes, &config),
            Err(error) => Err(error.into()),
        }
    }

    fn field(&self) -> Result<Arc<Field>, RegionError> {
        if let Some(field) = &*self.field.lock() {
            return Ok(Arc::clone(field));
        }
        // It is made without the lock. Of two threads, one throws its field away.
        let made = Field::map(&self.pager, FIELD_BYTES, &RegionConfig::default())?;
        Ok(Arc::clone(self.field.lock().get_or_insert(made)))
    }
}

fn fault_mode(number: u64) -> Result<Option<FaultMode>, Failure> {
    let Some(index) = (number as usize).checked_sub(1) else { return Ok(None) };
    let mode = FAULT_MODES.get(index).copied().map(Some);
    mode.ok_or_else(|| Code::Unsupported.because(format_args!("no fault mode is {number}")))
}

/// What may be advised of a range, by its number in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    PageOut = 1,
    Prefetch = 2,
    Cold = 3,
    Discard = 4,
}

impl Advice {
    const ALL: [Advice; 4] = [Advice::PageOut, Advice::Prefetch, Advice::Cold, Advice::Discard];

    pub(crate) fn of(number: i32) -> Result<Advice, Failure> {
        let advice = Advice::ALL.into_iter().find(|&advice| advice as i32 == number);
        advice.ok_or_else(|| Code::Unsupported.because(format_args!("no advice is {number}")))
    }
}

/// A region, or a plot of one.
pub(crate) enum Mapped {
    Own(RawRegion),
    Plot(Plot),
}

impl Mapped {
    pub(crate) fn data(&self) -> *mut u8 {
        match self {
            Mapped::Own(region) => region.as_ptr(),
            Mapped::Plot(plot) => plot.as_ptr(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Mapped::Own(region) => region.len(),
            Mapped::Plot(plot) => plot.len(),
        }
    }

    pub(crate) fn pin(&self, offset: usize, size: usize) -> Result<(), Failure> {
        let range = range(offset, size)?;
        let pinned = match self {
            Mapped::Own(region) => region.pin(range),
            Mapped::Plot(plot) => plot.pin(range),
        };
        Ok(pinned?)
    }

    pub(crate) fn unpin(&self, offset: usize, size: usize) -> Result<(), Failure> {
        let range = range(offset, size)?;
        let unpinned = match self {
            Mapped::Own(region) => region.unpin(range),
            Mapped::Plot(plot) => plot.unpin(range),
        };
        Ok(unpinned?)
    }

    pub(crate) fn advise(&self, offset: usize, size: usize, advice: Advice) -> Result<(), Failure> {
        let range = range(offset, size)?;
        match (advice, self) {
            (Advice::PageOut, Mapped::Own(own)) => all_left(own.control().page_out(range)?)?,
            (Advice::PageOut, Mapped::Plot(plot)) => all_left(plot.page_out(range)?)?,
            (Advice::Prefetch, Mapped::Own(own)) => own.control().prefetch(range)?,
            (Advice::Prefetch, Mapped::Plot(plot)) => plot.prefetch(range)?,
            (Advice::Cold, Mapped::Own(own)) => own.control().cold(range)?,
            (Advice::Cold, Mapped::Plot(plot)) => plot.cold(range)?,
            (Advice::Discard, Mapped::Own(own)) => own.discard(range)?,
            (Advice::Discard, Mapped::Plot(plot)) => plot.discard(range)?,
        }
        Ok(())
    }

    /// Sets the limit; 0 means none.
    pub(crate) fn set_limit(&self, bytes: u64) -> Result<(), Failure> {
        let limit = limit(bytes);
        match self {
            Mapped::Own(region) => Ok(region.set_resident_limit(limit)?),
            Mapped::Plot(_) if limit.is_none() => Ok(()),
            Mapped::Plot(_) => Err(Code::Unsupported.because(
                "a region of at most 1 MiB without settings shares its memory with others: set a \
                 limit when it is mapped",
            )),
        }
    }

    /// Makes the pages that are out as dense as its tiers can.
    pub(crate) fn densify(&self) -> Result<(), Failure> {
        match self {
            Mapped::Own(region) => Ok(region.control().densify()?),
            Mapped::Plot(_) => Err(RegionError::NoTiers.into()),
        }
    }

    /// Where its pages are. Faults are counted for the whole field, so a plot has none.
    pub(crate) fn stats(&self) -> RegionStats {
        match self {
            Mapped::Own(region) => region.stats(),
            Mapped::Plot(plot) => of_plot(plot.stats()),
        }
    }
}

fn of_plot(stats: PlotStats) -> RegionStats {
    RegionStats {
        pages: stats.pages,
        resident_pages: stats.resident_pages,
        staged_pages: stats.staged_pages,
        stored_pages: stats.stored_pages,
        unregistered_pages: stats.unregistered_pages,
        ..RegionStats::default()
    }
}

/// A limit, of which 0 is none.
pub(crate) fn limit(bytes: u64) -> Option<usize> {
    (bytes > 0).then_some(bytes as usize)
}

fn all_left(out: PageOut) -> Result<(), Failure> {
    let Some(refusal) = out.refusal else { return Ok(()) };
    Err(Code::Limit.because(format_args!("{} pages stay in memory: {refusal}", out.refused)))
}

fn range(offset: usize, size: usize) -> Result<Range<usize>, Failure> {
    let end = offset.checked_add(size);
    Ok(offset..end.ok_or_else(|| Code::Argument.because("the range has no end"))?)
}

/// The bytes of so many pages.
pub(crate) fn bytes(pages: u64) -> u64 {
    pages * PAGE_SIZE as u64
}
