//! What the regions of a pager share.
//!
//! `R` is the type of a region. Nothing here looks into it. The list holds regions, and a fetcher
//! gets the region that it reads for.
//!
//! Invariant: the list has each region from `add` to `remove`, and keeps none of them alive. The
//! parts that are made on first need are set once and never replaced.
//!
//! Lock: that of the list of regions, held to read or change the list.

use super::buffers::Buffers;
use super::fetchers::{Fetchers, Fetching};
use crate::neighbours::{Worth, of_fault};
use crate::places::Mappings;
use crate::terms::{FaultCosts, PagerConfig, RegionError};
use host::fault::FaultThread;
use host::unmodelled::RankedMutex;
use host::{Event, FaultMode, FaultPath, PAGE_SIZE, Rank, SEGMENT_PAGES, Staging};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use zram::Memory;

/// What the regions of a pager share.
pub(crate) struct Shared<R> {
    pub(crate) memory: Arc<Memory>,
    pub(crate) path: Arc<FaultPath>,
    pub(crate) staging: Arc<Staging>,
    pub(crate) mappings: Arc<Mappings>,
    fault_costs: Option<FaultCosts>,
    /// The cost of a fault besides its page. It is measured for the first region.
    fault_overhead: OnceLock<Duration>,
    pub(crate) buffers: Buffers,
    /// Buffers for pages from a disk. The first region that may have such pages makes them.
    pub(crate) read_buffers: OnceLock<Buffers>,
    /// In signal mode, the fetchers for disks that are not files. The first such region starts
    /// them.
    pub(crate) fetchers: OnceLock<Fetchers<R>>,
    /// Raised when pages were read from a disk, or when reading failed.
    pub(crate) fetched: Event,
    /// Raised when there is work for the pager's thread.
    pub(crate) work: Event,
    /// Raised when a region was brought below its limit.
    pub(crate) room: Event,
    /// Raised when the pager ends.
    pub(crate) over: Event,
    regions: RankedMutex<Vec<Weak<R>>>,
    stop: AtomicBool,
    /// The thread that serves faults in thread mode. It lives as long as any region, and so as long
    /// as one may be touched.
    faults: OnceLock<FaultThread>,
}

impl<R> Shared<R> {
    /// The resources of a pager whose regions keep their pages in `memory`.
    pub(crate) fn new(
        memory: Arc<Memory>,
        config: &PagerConfig,
    ) -> Result<Arc<Shared<R>>, RegionError> {
        let path = match config.fault_mode {
            Some(mode) => FaultPath::open(mode)?,
            None => FaultPath::open_any()?,
        };
        let segments = (config.staging_bytes / (SEGMENT_PAGES * PAGE_SIZE)).clamp(2, 1 << 20);
        let shared = Arc::new(Shared {
            staging: Staging::reserve(&path, segments as u32)?,
            memory,
            buffers: Buffers::new(Rank::FaultBuffer),
            read_buffers: OnceLock::new(),
            fetchers: OnceLock::new(),
            fetched: Event::new(),
            work: Event::new(),
            room: Event::new(),
            over: Event::new(),
            regions: RankedMutex::new(Rank::Leaf, Vec::new()),
            stop: AtomicBool::new(false),
            faults: OnceLock::new(),
            fault_costs: config.fault_costs,
            mappings: Mappings::of_pager(config.mappings_max, path.mode()),
            fault_overhead: OnceLock::new(),
            path,
        });
        if shared.path.mode() == FaultMode::Thread {
            let faults = FaultThread::start(Arc::clone(&shared.path));
            // It is set here, once.
            drop(shared.faults.set(faults.map_err(RegionError::Thread)?));
        }
        Ok(shared)
    }

    /// The thread that serves faults, in thread mode.
    pub(crate) fn fault_thread(&self) -> Option<&FaultThread> {
        self.faults.get()
    }

    /// The most bytes that staging and the buffers for decoded pages take.
    pub(crate) fn buffer_bytes(&self) -> u64 {
        let staged = self.staging.in_memory() * SEGMENT_PAGES * PAGE_SIZE;
        let read = self.read_buffers.get().map_or(0, Buffers::heap_bytes);
        staged as u64 + read + self.buffers.heap_bytes() + self.staging.heap_bytes()
    }

    /// The costs that a new region assumes.
    pub(crate) fn worth(&self) -> Worth {
        let measure = || of_fault(&self.path);
        match self.fault_costs {
            Some(costs) => Worth::fixed(costs),
            None => Worth::measured(*self.fault_overhead.get_or_init(measure)),
        }
    }

    /// Adds a region to the list.
    pub(crate) fn add(&self, region: &Arc<R>) {
        let mut regions = self.regions.lock();
        regions.retain(|region| region.strong_count() > 0);
        regions.push(Arc::downgrade(region));
    }

    /// Takes a region off the list.
    pub(crate) fn remove(&self, region: &Arc<R>) {
        let gone = Arc::downgrade(region);
        self.regions.lock().retain(|region| !Weak::ptr_eq(region, &gone));
    }

    /// How many regions are in the list.
    pub(crate) fn count(&self) -> usize {
        self.regions.lock().len()
    }

    /// All regions, one after the other. A thread that drops a region waits until this has let it
    /// go.
    pub(crate) fn alive(&self) -> impl Iterator<Item = Arc<R>> + use<R> {
        let regions = self.regions.lock().clone();
        regions.into_iter().filter_map(|region| region.upgrade())
    }

    /// Says that the pager ends.
    pub(crate) fn end(&self) {
        // Release pairs with the Acquire in `is_over`, so that a thread ends after what the pager
        // did until now.
        self.stop.store(true, Ordering::Release);
        self.work.raise();
    }

    /// Whether the pager ends.
    pub(crate) fn is_over(&self) -> bool {
        // Acquire pairs with the Release in `end`, so that a thread ends after what the pager did
        // before.
        self.stop.load(Ordering::Acquire)
    }
}

impl<R: Fetching> Shared<R> {
    /// Makes what a region needs if its pages may be on a disk. These are buffers, because a fault
    /// makes none. If the disk must not be read in a signal handler, they are also threads.
    pub(crate) fn prepare_reads(&self, in_handler: bool) -> Result<(), RegionError> {
        self.read_buffers.get_or_init(|| Buffers::new(Rank::ReadBuffer));
        let elsewhere = !in_handler && self.path.mode() != FaultMode::Thread;
        if elsewhere && self.fetchers.get().is_none() {
            let fetchers = Fetchers::start().map_err(RegionError::Thread)?;
            // If two regions start fetchers at once, those of the second end.
            drop(self.fetchers.set(fetchers));
        }
        Ok(())
    }
}
