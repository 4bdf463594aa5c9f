//! A cache: how it is made, which areas it has, and which settings change while it is in use.
//!
//! ```text
//!   Zswap ----.          Area ---.  Area ---.         handles; an area ends with its last
//!             v                  v          v
//!           Core  <--------- root of leaves ...       one pool, one order, one disk for all
//! ```
//!
//! Invariant: the list has every area that has handles and was not removed, and keeps none of them
//! alive. Numbers of areas only go up. Limits, groups and the algorithm are the only settings that
//! change after `new`.
//!
//! Locks: that of the list of areas, and no other with it. `store` and `load` name theirs.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use host::unmodelled::RankedMutex;
use host::{HeldRank, Rank};
use zsmalloc::{LEAF_CELLS, Memory, Slots};

use crate::areas::{Area, AreaInner};
use crate::backing::{Backing, Found};
use crate::cells::GroupStat;
use crate::shared::Core;
use crate::terms::{AlgorithmError, GroupId, Limit, ZswapConfig, ZswapError};

/// Pages of the largest area, because numbers of cells have 32 bits.
const PAGES_MAX: u64 = 1 << u32::BITS; // 2^32 pages, 16 TiB

const _: () = assert!(
    cfg!(loom) || PAGES_MAX.is_multiple_of(LEAF_CELLS as u64),
    "the largest area is made of whole leaves"
);

/// A compressed cache of pages in front of a disk.
pub struct Zswap {
    pub(crate) core: Arc<Core>,
    areas: RankedMutex<Areas>,
}

#[derive(Default)]
struct Areas {
    by_id: BTreeMap<u32, Weak<AreaInner>>,
    last: u32,
}

impl Zswap {
    /// An empty cache. Only a few kilobytes of memory are touched.
    ///
    /// # Errors
    ///
    /// [`ZswapError`] if a limit, a chain order, the disk or the memory cannot be used.
    pub fn new(memory: Arc<Memory>, config: ZswapConfig) -> Result<Zswap, ZswapError> {
        let core = Arc::new(Core::new(memory, config)?);
        Ok(Zswap { core, areas: RankedMutex::new(Rank::Leaf, Areas::default()) })
    }

    /// What the cache was made with.
    pub fn config(&self) -> &ZswapConfig {
        &self.core.config
    }

    /// The memory whose frames the pages are in.
    pub fn memory(&self) -> &Arc<Memory> {
        self.core.pool.memory()
    }

    /// An empty area of `pages` pages. It is gone, with its pages, when the last handle to it is
    /// dropped or by [`Zswap::remove_area`].
    ///
    /// # Errors
    ///
    /// [`ZswapError::BadArea`]; [`ZswapError::Memory`] when address space cannot be reserved.
    pub fn add_area(&self, pages: u64) -> Result<Area, ZswapError> {
        self.new_area(pages, false)
    }

    /// As [`Zswap::add_area`], except that [`Zswap::area`] and [`Zswap::remove_area`] do not know
    /// the area. This is for a program that lends out the bytes of its pages, which no other
    /// program may change.
    ///
    /// # Errors
    ///
    /// Those of [`Zswap::add_area`].
    pub fn add_private_area(&self, pages: u64) -> Result<Area, ZswapError> {
        self.new_area(pages, true)
    }

    fn new_area(&self, pages: u64, private: bool) -> Result<Area, ZswapError> {
        if !(1..=PAGES_MAX).contains(&pages) {
            return Err(ZswapError::BadArea { pages });
        }
        let slots = Slots::shared(Arc::clone(&self.core.pool), pages)?;
        let mut areas = self.areas.lock();
        areas.by_id.retain(|_, area| area.strong_count() > 0);
        areas.last += 1;
        let id = areas.last;
        let area = Area::new(Arc::clone(&self.core), id, slots, pages, private);
        areas.by_id.insert(id, area.downgrade());
        Ok(area)
    }

    /// The area with a number.
    ///
    /// # Errors
    ///
    /// [`ZswapError::UnknownArea`].
    pub fn area(&self, id: u32) -> Result<Area, ZswapError> {
        let found = self.areas.lock().by_id.get(&id).and_then(Weak::upgrade);
        let found = found.filter(|area| !area.is_private());
        found.map(Area::from_inner).ok_or(ZswapError::UnknownArea { id })
    }

    /// Removes an area. Its pages are freed soon, and stores through handles to it fail.
    ///
    /// # Errors
    ///
    /// [`ZswapError::UnknownArea`].
    ///
    /// ```
    /// # use ramfold_zswap::{GroupId, Memory, MemoryConfig, Zswap, ZswapConfig};
    /// # let memory = Memory::new(MemoryConfig::for_disk(16 << 20))?;
    /// # let cache = Zswap::new(memory, ZswapConfig::new("cache"))?;
    /// let area = cache.add_area(512)?;
    /// cache.remove_area(area.id())?;
    /// assert!(cache.area(area.id()).is_err());
    /// assert!(area.store(7, &[1; 4096], GroupId::ROOT).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn remove_area(&self, id: u32) -> Result<(), ZswapError> {
        let area = self.area(id)?;
        self.areas.lock().by_id.remove(&id);
        area.remove();
        Ok(())
    }

    /// The areas there are.
    pub(crate) fn all_areas(&self) -> Vec<Area> {
        let areas: Vec<_> = self.areas.lock().by_id.values().filter_map(Weak::upgrade).collect();
        areas.into_iter().map(Area::from_inner).collect()
    }

    /// Compresses new entries with another algorithm, by name: `zstd`, `zstd:7`. Entries of up to
    /// four algorithms can be stored at once. An old algorithm is forgotten with its last entry.
    ///
    /// # Errors
    ///
    /// [`AlgorithmError`] if the algorithm is unknown, if its contexts cannot be built, or if four
    /// others have entries.
    ///
    /// ```
    /// # use ramfold_zswap::{Memory, MemoryConfig, Zswap, ZswapConfig};
    /// # let memory = Memory::new(MemoryConfig::for_disk(16 << 20))?;
    /// # let cache = Zswap::new(memory, ZswapConfig::new("cache"))?;
    /// cache.set_algorithm("zstd:7")?;
    /// assert!(cache.set_algorithm("best").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_algorithm(&self, name: &str) -> Result<(), AlgorithmError> {
        let codec = name.parse().map_err(AlgorithmError::Unknown)?;
        let Core { algorithms, streams, counters, .. } = &*self.core;
        algorithms.switch(codec, streams, counters)
    }

    /// Builds the contexts of the current algorithm, so that reading builds none. The contexts of
    /// others are built when [`Zswap::set_algorithm`] makes them current.
    ///
    /// # Errors
    ///
    /// [`AlgorithmError::Failed`].
    pub fn prepare(&self) -> Result<(), AlgorithmError> {
        let (_, codec) = self.core.algorithms.current();
        let _held = HeldRank::enter(Rank::Stream);
        self.core.streams.prepare(codec).map_err(AlgorithmError::Failed)
    }

    /// Sets the most bytes that compressed pages may take. Pages that are stored stay until they
    /// are written back.
    ///
    /// # Errors
    ///
    /// [`ZswapError::BadPercent`], [`ZswapError::UnknownMemory`].
    pub fn set_limit(&self, limit: Limit) -> Result<(), ZswapError> {
        self.core.set_limit(limit.bytes()?);
        Ok(())
    }

    /// Adds a group with a limit in bytes of objects. `writeback` says whether its pages may go to
    /// disk.
    ///
    /// # Errors
    ///
    /// [`ZswapError::TooManyGroups`] if there are 255 already.
    ///
    /// ```
    /// # use ramfold_zswap::{Memory, MemoryConfig, Zswap, ZswapConfig};
    /// # let memory = Memory::new(MemoryConfig::for_disk(16 << 20))?;
    /// # let cache = Zswap::new(memory, ZswapConfig::new("cache"))?;
    /// let area = cache.add_area(512)?;
    /// let nothing = cache.add_group(Some(0), false)?;
    /// let page: [u8; 4096] = std::array::from_fn(|at| (at / 9) as u8);
    /// assert!(area.store(7, &page, nothing).is_err(), "the group has no room");
    /// let group = cache.add_group(Some(1 << 20), false)?;
    /// area.store(7, &page, group)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_group(&self, limit: Option<u64>, writeback: bool) -> Result<GroupId, ZswapError> {
        let limit = limit.unwrap_or(u64::MAX);
        self.core.groups.add(limit, writeback).ok_or(ZswapError::TooManyGroups)
    }

    /// What the backing disk held when it was taken in use. `None` if there is no disk.
    pub fn backing_found(&self) -> Option<Found> {
        self.core.backing.as_ref().map(Backing::found)
    }

    /// Whether a signal handler may read pages on the backing disk. It may if the disk is a file
    /// ([`Disk::file`](disk::Disk::file)), because the cache then reads that file itself.
    pub fn reads_a_file(&self) -> bool {
        self.core.backing.as_ref().is_some_and(Backing::reads_a_file)
    }

    /// Sets the limit of a group other than 0, in bytes of objects. `None` means no limit.
    pub fn set_group_limit(&self, group: GroupId, limit: Option<u64>) {
        self.core.groups.set_limit(group, limit.unwrap_or(u64::MAX));
    }

    /// Says whether the pages of a group may go to disk. A write-back that runs may have up to 256
    /// of them in hand, and those still go. The kernel, too, asks only before it takes a page.
    pub fn set_group_writeback(&self, group: GroupId, allowed: bool) {
        self.core.groups.set_writeback(group, allowed);
    }

    /// What a group holds. `None` for a group of another cache.
    pub fn group(&self, group: GroupId) -> Option<GroupStat> {
        self.core.groups.stat(group)
    }

    /// What every group holds.
    pub fn groups(&self) -> Vec<GroupStat> {
        self.core.groups.stats()
    }
}

impl Drop for Zswap {
    /// Areas that still have handles go on without the worker.
    fn drop(&mut self) {
        self.core.worker.stop();
    }
}

impl std::fmt::Debug for Zswap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Zswap").field("config", &self.core.config).finish_non_exhaustive()
    }
}
