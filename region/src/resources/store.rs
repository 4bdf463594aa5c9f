//! The store of a region: it keeps the region's pages by number.
//!
//! ```text
//!   zram    a device of the region's own        dropped with it, whole zspages at a time
//!   zswap   an area of a cache that is shared   emptied at its end: leaves are taken out of its
//!             `---- memory --> the cache's disk    table, and drained by the worker, or at once
//! ```
//!
//! A device of its own costs a pool with partly filled zspages, which is less than a megabyte.
//! Dropping the region is then cheap, because no object is looked at. A cache has one limit for all
//! of its regions, and may have a disk behind it.
//!
//! Invariant: only a thread that has the lock of a page's group changes what the store has for the
//! page. The cache may move the page to its disk meanwhile, which a reader does not notice.
//!
//! Lock: none here; the caller has the group's, and the store takes a stream's and a cell's.

use crate::terms::{Refusal, RegionConfig, RegionError, StoreConfig};
use host::{PAGE_SIZE, Rank, RankedMutex};
use std::sync::Arc;
use zram::{Density, Memory, TierPass, TiersConfig, Zram, ZramConfig};
use zswap::{Area, FreeWhen, GroupId, Loaded, Zswap};

/// Pages that become denser in one turn: some milliseconds of work. A fork waits for a turn.
const TURN_PAGES: u64 = 16;

/// The store of one region.
pub(crate) struct Store {
    kind: Kind,
    /// Set by a test: reads fail.
    #[cfg(test)]
    broken: std::sync::atomic::AtomicBool,
}

enum Kind {
    Zram {
        device: Box<Zram>,
        /// What makes its pages denser, until the thread that does it has taken it.
        pass: RankedMutex<Option<TierPass>>,
    },
    Zswap {
        area: Area,
        cache: Arc<Zswap>,
        group: GroupId,
    },
}

/// The result of a read that does not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Read {
    Done,
    /// The page is on the cache's disk: see [`Store::fetch`].
    OnDisk,
    /// The page is damaged.
    Failed,
}

impl Store {
    pub(crate) fn new(
        memory: &Arc<Memory>,
        pages: usize,
        config: &RegionConfig,
    ) -> Result<Store, RegionError> {
        let kind = match &config.store {
            StoreConfig::Zram => {
                let device = Box::new(device(memory, pages, config)?);
                let tiers = config.tiers.filter(has_tiers);
                let begin = |config| TierPass::begin(&device, config, TURN_PAGES);
                let pass = tiers.map(begin).transpose().map_err(RegionError::Tiers)?;
                Kind::Zram { device, pass: RankedMutex::new(Rank::Leaf, pass) }
            }
            StoreConfig::Zswap { .. } if config.tiers.is_some_and(|it| has_tiers(&it)) => {
                return Err(RegionError::NoTiers);
            }
            StoreConfig::Zswap { cache, group } => {
                if !Arc::ptr_eq(cache.memory(), memory) {
                    return Err(RegionError::OtherMemory);
                }
                if cache.group(*group).is_none() {
                    return Err(RegionError::OtherGroup);
                }
                cache.prepare().map_err(RegionError::Algorithm)?;
                let area = cache.add_private_area(pages as u64).map_err(RegionError::Cache)?;
                Kind::Zswap { area, cache: Arc::clone(cache), group: *group }
            }
        };
        Ok(Store {
            kind,
            #[cfg(test)]
            broken: Default::default(),
        })
    }

    /// Whether pages may get to a disk.
    pub(crate) fn has_disk(&self) -> bool {
        match &self.kind {
            Kind::Zram { .. } => false,
            Kind::Zswap { cache, .. } => cache.config().backing.is_some(),
        }
    }

    /// Whether a signal handler may run all the code that reads such pages.
    pub(crate) fn reads_in_handler(&self) -> bool {
        match &self.kind {
            Kind::Zram { .. } => true,
            Kind::Zswap { cache, .. } => cache.reads_a_file(),
        }
    }

    /// Stores a page, if there is room without making any.
    pub(crate) fn write(&self, page: usize, data: &[u8]) -> Result<(), Refusal> {
        let page = page as u64;
        match &self.kind {
            Kind::Zram { device: zram, .. } => Ok(zram.write_page_if_room(page, data)?),
            Kind::Zswap { area, group, .. } => Ok(area.store_if_room(page, data, *group)?),
        }
    }

    /// Compacts, runs what is deferred, and writes back if there is a disk. False means that trying
    /// again is of no use. The caller holds no lock.
    pub(crate) fn make_room(&self) -> bool {
        match &self.kind {
            Kind::Zram { device: zram, .. } => {
                zram.make_room();
                true
            }
            Kind::Zswap { cache, group, .. } => cache.make_room(*group),
        }
    }

    /// How often in a row room may be made for one page. Other threads may take what a cache frees.
    pub(crate) fn room_tries(&self) -> u32 {
        match &self.kind {
            Kind::Zram { .. } => 1,
            Kind::Zswap { .. } => 256,
        }
    }

    /// Fills `data` with a stored page, unless that is on a disk. The fault path may call this: see
    /// [`Zram::read_last`] and [`Area::peek_in_memory`].
    pub(crate) fn read(&self, page: usize, data: &mut [u8]) -> Read {
        #[cfg(test)]
        // relaxed: one thread.
        if self.broken.load(std::sync::atomic::Ordering::Relaxed) {
            return Read::Failed;
        }
        let page = page as u64;
        match &self.kind {
            Kind::Zram { device: zram, .. } => match zram.read_last(page, data) {
                Ok(()) => Read::Done,
                Err(_) => Read::Failed,
            },
            Kind::Zswap { area, .. } => match area.peek_in_memory(page, data) {
                Ok(Loaded::Memory) => Read::Done,
                Ok(Loaded::Disk) => Read::OnDisk,
                Ok(Loaded::Absent) | Err(_) => Read::Failed,
            },
        }
    }

    /// Starts loading a stored page, which is about to be read.
    pub(crate) fn prefetch(&self, page: usize) {
        match &self.kind {
            Kind::Zram { device: zram, .. } => zram.prefetch_page(page as u64),
            Kind::Zswap { area, .. } => area.prefetch(page as u64),
        }
    }

    /// Fills `data` with a stored page, wherever it is. False if that failed. It may wait for the
    /// disk, so the caller holds no lock. A signal handler may call it if
    /// [`Store::reads_in_handler`] is true: see [`Area::peek`].
    pub(crate) fn fetch(&self, page: usize, data: &mut [u8]) -> bool {
        match &self.kind {
            Kind::Zram { .. } => self.read(page, data) == Read::Done,
            Kind::Zswap { area, .. } => {
                matches!(area.peek(page as u64, data), Ok(Loaded::Memory | Loaded::Disk))
            }
        }
    }

    /// For tests: makes every later read fail.
    #[cfg(test)]
    pub(crate) fn break_reads(&self) {
        // relaxed: one thread.
        self.broken.store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// Forgets pages.
    pub(crate) fn discard(&self, first: usize, count: usize) {
        let pages = first as u64..(first + count) as u64;
        match &self.kind {
            Kind::Zram { device: zram, .. } => {
                let discarded = zram.discard_pages(pages);
                debug_assert!(discarded.is_ok(), "the pages are the device's");
            }
            Kind::Zswap { area, .. } => area.invalidate_pages(pages, FreeWhen::Soon),
        }
    }

    /// Forgets copies of pages that came back.
    pub(crate) fn drop_copies(&self, first: usize, count: usize) {
        match &self.kind {
            Kind::Zram { .. } => self.discard(first, count),
            Kind::Zswap { area, .. } => area.drop_copies(first as u64..(first + count) as u64),
        }
    }

    /// The region ends. What it has in a cache belongs to no region from now on. It is freed soon,
    /// or before this returns. A device is freed when it is dropped.
    pub(crate) fn leave(&self, soon: bool) {
        if let Kind::Zswap { area, .. } = &self.kind {
            let free = if soon { FreeWhen::Soon } else { FreeWhen::Now };
            area.invalidate_pages(0..area.pages(), free);
        }
    }

    /// Bytes that dropping the store frees, and that are not yet counted as pending.
    pub(crate) fn pending_bytes(&self) -> u64 {
        match &self.kind {
            Kind::Zram { device: zram, .. } => zram.compr_data_size(),
            // The area was left, and the cache itself counts that as pending.
            Kind::Zswap { .. } => 0,
        }
    }

    /// Bytes of the region's objects.
    pub(crate) fn compr_data_size(&self) -> u64 {
        match &self.kind {
            Kind::Zram { device: zram, .. } => zram.compr_data_size(),
            Kind::Zswap { area, .. } => area.stat().compr_data_size,
        }
    }

    /// About the bytes of frames that become free with the region's objects.
    pub(crate) fn frame_bytes(&self) -> u64 {
        match &self.kind {
            Kind::Zram { device: zram, .. } => zram.object_bytes_resident(),
            Kind::Zswap { area, .. } => area.stat().compr_data_size,
        }
    }

    /// Pages on the cache's disk.
    pub(crate) fn disk_pages(&self) -> u64 {
        match &self.kind {
            Kind::Zram { .. } => 0,
            Kind::Zswap { area, .. } => area.stat().disk_pages,
        }
    }

    /// How dense its pages become while they stay out. [`Density::Fast`] without tiers.
    pub(crate) fn density(&self) -> Density {
        self.zram().map_or(Density::Fast, Zram::density)
    }

    /// The work on the tiers of its pages, once.
    pub(crate) fn take_pass(&self) -> Option<TierPass> {
        match &self.kind {
            Kind::Zram { pass, .. } => pass.lock().take(),
            Kind::Zswap { .. } => None,
        }
    }

    /// The device, for its counters.
    pub(crate) fn zram(&self) -> Option<&Zram> {
        match &self.kind {
            Kind::Zram { device: zram, .. } => Some(zram),
            Kind::Zswap { .. } => None,
        }
    }
}

/// A device of as many pages, which the fault path can read at once.
fn device(memory: &Arc<Memory>, pages: usize, config: &RegionConfig) -> Result<Zram, RegionError> {
    let density = config.tiers.map_or(Density::Fast, |tiers| tiers.density);
    let device = ZramConfig::new(&config.name, (pages * PAGE_SIZE) as u64);
    let mut device = device.with_tiers(density);
    device.algorithm = config.algorithm.clone();
    device.chain_order = config.chain_order;
    device.mem_limit = config.store_limit;
    let zram = Zram::new(Arc::clone(memory), device).map_err(RegionError::Store)?;
    zram.prepare().map_err(RegionError::Codec)?;
    Ok(zram)
}

fn has_tiers(config: &TiersConfig) -> bool {
    config.density != Density::Fast
}
