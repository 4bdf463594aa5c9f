//! The statistics of a region.

use super::config::FaultCosts;
use super::outcome::Refusal;

/// A region's pages and faults. Pages are 4096 bytes. Counts start when the region is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RegionStats {
    /// Pages of the region.
    pub pages: u64,
    /// Pages in memory that are in registered chunks (see [`RegionStats::unregistered_pages`]).
    pub resident_pages: u64,
    /// Pages in staging: out of the region, not yet compressed.
    pub staged_pages: u64,
    /// Pages in the store.
    pub stored_pages: u64,
    /// Pages on the disk behind the store, including dead copies that went there.
    pub disk_pages: u64,
    /// Pages that came back and whose copy in the store is yet to be discarded.
    pub dead_copies: u64,
    /// Pages of chunks from which nothing was ever paged out. Only the system knows how many of
    /// them are in memory.
    pub unregistered_pages: u64,
    /// Bytes of compressed and raw objects in the store.
    pub compr_data_size: u64,
    /// Bytes that describe the region's groups. Its slots are in the store's statistics.
    pub metadata_bytes: u64,
    /// The most pages that may be in memory or staging; `None` means any number.
    pub limit_pages: Option<u64>,
    /// Faults served.
    pub faults: u64,
    /// Faults on pages that no thread had touched before.
    pub first_touches: u64,
    /// Faults on pages that were still in staging, because the page-out was too early.
    pub staged_faults: u64,
    /// Faults on pages in the store.
    pub stored_faults: u64,
    /// Faults on pages in the store that read the disk behind it.
    pub disk_faults: u64,
    /// Pages brought back from staging or the store, including by prefetching and around faults.
    pub pages_in: u64,
    /// Pages of `pages_in` that a fault on another page brought: ahead of a walk, or in its quad or
    /// stretch.
    pub pages_around: u64,
    /// The per cent of the stored pages beside a faulting page that were wanted too. It is measured
    /// in groups whose pages each wait for a fault of their own. There is one value for quads (4
    /// aligned pages) and one for stretches (16); this is the larger. [`FaultCosts`] say from which
    /// per cent on a fault brings in its quad or its stretch.
    pub density: u64,
    /// The costs of a fault and a page, as measured lately, or as the pager's settings say.
    pub fault_costs: FaultCosts,
    /// Pages moved out of the region.
    pub pages_out: u64,
    /// Pages that could not be moved out because they were used by the system, or shared with a
    /// forked child.
    pub busy: u64,
    /// Pages that the store refused. They came back to memory.
    pub refused: u64,
    /// Why the store refused the last of these.
    pub last_refusal: Option<Refusal>,
    /// Mappings that the region has made: see
    /// [`PagerConfig::mappings_max`](crate::PagerConfig::mappings_max).
    pub mappings: u64,
    /// Faults that waited for the limit.
    pub waits: u64,
    /// Nanoseconds that faults took to serve. The time that the system takes to deliver them is not
    /// included.
    pub stall_ns: u64,
}

/// Where the pages of a [`Plot`](crate::Plot) are. Pages are 4096 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PlotStats {
    /// Pages of the plot.
    pub pages: u64,
    /// Pages in memory that are in registered chunks.
    pub resident_pages: u64,
    /// Pages in staging: out of the region, not yet compressed.
    pub staged_pages: u64,
    /// Pages in the store.
    pub stored_pages: u64,
    /// Pages of chunks from which nothing was ever paged out.
    pub unregistered_pages: u64,
}

impl RegionStats {
    /// Faults on pages that had been paged out.
    pub fn refaults(&self) -> u64 {
        self.staged_faults + self.stored_faults
    }
}
