//! A cache: what it is made of, and what can be set while it is in use.
//!
//! ```text
//!   Zswap ----.          Area ---.  Area ---.         handles; an area ends with its last
//!             v                  v          v
//!           Core  <--------- root of leaves ...       one pool, one order, one disk for all
//!             |
//!     pool, streams, words, algorithms, groups, order, backing
//! ```
//!
//! Invariants
//! - I1 every entry of every area is in the one pool, so one limit holds for all.
//! - I2 a limit of zero stores nothing.
//! - I3 the limit is kept once, by the pool.
//!
//! Locks: the list of areas, alone; those of `store` and `load` are named there.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use codec::same::Words;
use codec::{Stream, Streams};
use zsmalloc::{CellGuard, LEAF_CELLS, LeafSums, Memory, PAGE_SIZE, Pool, PoolConfig, Slots, cpu};

use crate::algorithms::Algorithms;
use crate::area::{Area, AreaInner};
use crate::backing::{Backing, Found};
use crate::config::{Limit, ZswapConfig};
use crate::counters::{Counters, Event, Pending};
use crate::entry::Held;
use crate::error::{AlgorithmError, ZswapError};
use crate::groups::{GroupId, GroupStat, Groups};
use crate::order::Orders;
use crate::refaults::Refaults;
use crate::shrink::Worker;
use crate::turn::Turn;

/// Bytes of the frames that one page's object can be the first to touch: it reaches into two.
const PAGE_BYTES_MAX: u64 = 2 * PAGE_SIZE as u64;
/// Pages of the largest area: its cells' numbers have 32 bits.
const PAGES_MAX: u64 = 1 << u32::BITS;

/// A compressed cache of pages in front of a disk.
pub struct Zswap {
    pub(crate) core: Arc<Core>,
    areas: Mutex<Areas>,
}

#[derive(Default)]
struct Areas {
    by_id: BTreeMap<u32, Weak<AreaInner>>,
    last: u32,
}

/// What all areas share.
pub(crate) struct Core {
    pub(crate) config: ZswapConfig,
    pub(crate) watermark: usize,
    pub(crate) pool: Arc<Pool>,
    pub(crate) streams: Streams,
    pub(crate) words: Words,
    pub(crate) algorithms: Algorithms,
    pub(crate) counters: Counters,
    pub(crate) groups: Groups,
    pub(crate) orders: Orders,
    pub(crate) backing: Option<Backing>,
    pub(crate) turn: Turn,
    pub(crate) worker: Worker,
    pub(crate) refaults: Refaults,
    /// The limit was met, and the accept threshold not yet.
    full: AtomicBool,
}

impl Zswap {
    /// An empty cache. Nothing is touched but a few kilobytes.
    ///
    /// # Errors
    ///
    /// [`ZswapError`]: a limit, chain order, disk or memory that cannot be.
    pub fn new(memory: Arc<Memory>, config: ZswapConfig) -> Result<Zswap, ZswapError> {
        let (chain, limit) = (config.check()?, config.limit.bytes()?);
        let pool_config = PoolConfig { chain, rule: config.rule, ..PoolConfig::default() };
        let pool = Pool::new(memory, pool_config)?;
        let disk = config.backing.as_ref().map(|disk| Backing::open(Arc::clone(disk), &pool));
        let backing = disk.transpose()?;
        let core = Core {
            watermark: pool.geometry().huge_watermark(),
            streams: Streams::for_cpus(cpu::count()),
            words: Words::default(),
            algorithms: Algorithms::new(config.algorithm.clone()),
            counters: Counters::for_cpus(cpu::count()),
            groups: Groups::new(&pool)?,
            orders: Orders::new(config.order, pool.memory().cells_max() as u64)?,
            backing,
            turn: Turn::new(),
            worker: Worker::default(),
            refaults: Refaults::default(),
            full: AtomicBool::new(false),
            pool,
            config,
        };
        core.set_limit(limit);
        Ok(Zswap { core: Arc::new(core), areas: Mutex::default() })
    }

    /// What the cache was made with.
    pub fn config(&self) -> &ZswapConfig {
        &self.core.config
    }

    /// The memory whose frames the pages are in.
    pub fn memory(&self) -> &Arc<Memory> {
        self.core.pool.memory()
    }

    /// An empty area of `pages` pages. It is gone, with what it holds, when the last handle to it
    /// is dropped, or by [`Zswap::remove_area`].
    ///
    /// # Errors
    ///
    /// [`ZswapError::BadArea`]; [`ZswapError::Memory`] when address space cannot be reserved.
    pub fn add_area(&self, pages: u64) -> Result<Area, ZswapError> {
        self.new_area(pages, false)
    }

    /// As [`Zswap::add_area`], but [`Zswap::area`] and [`Zswap::remove_area`] do not know it: for
    /// who lends the bytes of its pages, which nobody else may change.
    ///
    /// # Errors
    ///
    /// As [`Zswap::add_area`].
    pub fn add_private_area(&self, pages: u64) -> Result<Area, ZswapError> {
        self.new_area(pages, true)
    }

    fn new_area(&self, pages: u64, private: bool) -> Result<Area, ZswapError> {
        if !(1..=PAGES_MAX).contains(&pages) {
            return Err(ZswapError::BadArea { pages });
        }
        let slots = Slots::shared(Arc::clone(&self.core.pool), pages)?;
        let mut areas = self.areas();
        areas.by_id.retain(|_, area| area.strong_count() > 0);
        areas.last += 1;
        let id = areas.last;
        let area = Area::new(Arc::clone(&self.core), id, slots, pages, private);
        areas.by_id.insert(id, area.downgrade());
        Ok(area)
    }

    /// The area of a number.
    ///
    /// # Errors
    ///
    /// [`ZswapError::UnknownArea`].
    pub fn area(&self, id: u32) -> Result<Area, ZswapError> {
        let found = self.areas().by_id.get(&id).and_then(Weak::upgrade);
        let found = found.filter(|area| !area.is_private());
        found.map(Area::from_inner).ok_or(ZswapError::UnknownArea { id })
    }

    /// Removes an area: what it holds is freed soon, and stores through handles to it fail.
    ///
    /// # Errors
    ///
    /// [`ZswapError::UnknownArea`].
    pub fn remove_area(&self, id: u32) -> Result<(), ZswapError> {
        let area = self.area(id)?;
        self.areas().by_id.remove(&id);
        area.remove();
        Ok(())
    }

    /// The areas there are.
    pub(crate) fn all_areas(&self) -> Vec<Area> {
        let areas: Vec<_> = self.areas().by_id.values().filter_map(Weak::upgrade).collect();
        areas.into_iter().map(Area::from_inner).collect()
    }

    /// Has new entries made with another algorithm, by name: `zstd`, `zstd:7`. Entries of up to
    /// four algorithms can be stored at once; an old one is forgotten with its last entry.
    ///
    /// # Errors
    ///
    /// [`AlgorithmError`]: unknown, or its contexts cannot be built, or four others have entries.
    pub fn set_algorithm(&self, name: &str) -> Result<(), AlgorithmError> {
        let codec = name.parse().map_err(AlgorithmError::Unknown)?;
        let Core { algorithms, streams, counters, .. } = &*self.core;
        algorithms.switch(codec, streams, counters)
    }

    /// Sets the most bytes that compressed pages may take. What is stored stays, until it is
    /// written back.
    ///
    /// # Errors
    ///
    /// [`ZswapError::BadPercent`], [`ZswapError::UnknownMemory`].
    pub fn set_limit(&self, limit: Limit) -> Result<(), ZswapError> {
        self.core.set_limit(limit.bytes()?);
        Ok(())
    }

    /// A group with a limit in bytes of objects, whose pages may go to disk or not.
    ///
    /// # Errors
    ///
    /// [`ZswapError::TooManyGroups`]: there are 255.
    pub fn add_group(&self, limit: Option<u64>, writeback: bool) -> Result<GroupId, ZswapError> {
        let limit = limit.unwrap_or(u64::MAX);
        self.core.groups.add(limit, writeback).ok_or(ZswapError::TooManyGroups)
    }

    /// What the backing disk held when it was taken in use; `None` without one.
    pub fn backing_found(&self) -> Option<Found> {
        self.core.backing.as_ref().map(Backing::found)
    }

    /// Whether pages on the backing disk may be read by a signal handler: that disk is a file
    /// ([`Disk::file`](disk::Disk::file)), which is read past it.
    pub fn reads_a_file(&self) -> bool {
        self.core.backing.as_ref().is_some_and(Backing::reads_a_file)
    }

    /// Sets the limit of a group other than 0, in bytes of objects; `None` = no limit.
    pub fn set_group_limit(&self, group: GroupId, limit: Option<u64>) {
        self.core.groups.set_limit(group, limit.unwrap_or(u64::MAX));
    }

    /// Says whether the pages of a group may go to disk. Those in hand of a write-back that runs,
    /// 256 at most, still go, as in the kernel, which asks before it takes any.
    pub fn set_group_writeback(&self, group: GroupId, allowed: bool) {
        self.core.groups.set_writeback(group, allowed);
    }

    /// What a group holds; `None` for a group of another cache.
    pub fn group(&self, group: GroupId) -> Option<GroupStat> {
        self.core.groups.stat(group)
    }

    /// What every group holds.
    pub fn groups(&self) -> Vec<GroupStat> {
        self.core.groups.stats()
    }

    fn areas(&self) -> MutexGuard<'_, Areas> {
        // Nothing that runs under the lock can panic half-way.
        self.areas.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Zswap {
    /// Areas whose handles are held go on without the worker.
    fn drop(&mut self) {
        self.core.worker.stop();
    }
}

impl std::fmt::Debug for Zswap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Zswap").field("config", &self.core.config).finish_non_exhaustive()
    }
}

impl Core {
    /// Works with a stream. Its rank is kept here, as `codec` has none.
    pub(crate) fn with_stream<R>(&self, work: impl FnOnce(&mut Stream) -> R) -> R {
        let _held = host::Held::enter(host::Rank::Stream);
        self.streams.with(cpu::current_hint(), work)
    }

    /// Whole pages, or `u64::MAX`. The pool keeps it, which refuses what would not fit: of two that
    /// are set at once, one is the limit of both. Its 0 is no limit; ours is a byte there, in which
    /// nothing fits.
    fn set_limit(&self, bytes: u64) {
        self.pool.set_limit(if bytes == u64::MAX { 0 } else { bytes.max(1) });
    }

    /// Bytes; `u64::MAX` = none.
    #[inline]
    pub(crate) fn limit(&self) -> u64 {
        match self.pool.limit() {
            0 => u64::MAX,
            bytes => bytes & !(PAGE_SIZE as u64 - 1),
        }
    }

    /// Bytes from which on a cache that was full takes pages again: room for one is left, so that
    /// who makes room down to here has made some, whatever the percentage.
    pub(crate) fn accept_bytes(&self) -> u64 {
        let (limit, percent) = (self.limit(), u128::from(self.config.accept_threshold_percent));
        let accept = (u128::from(limit) * percent / 100) as u64;
        accept.min(limit.saturating_sub(PAGE_BYTES_MAX))
    }

    /// True while the cache is full: from when the limit is met until the accept threshold is.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        let used = self.pool.object_bytes_resident();
        if used >= self.limit() {
            self.met_limit();
            return true;
        }
        // relaxed: a hint; who races is a page late.
        if self.full.load(Ordering::Relaxed) {
            let full = used > self.accept_bytes();
            // relaxed: a hint.
            self.full.store(full, Ordering::Relaxed);
            return full;
        }
        false
    }

    /// The limit was met.
    pub(crate) fn met_limit(&self) {
        self.counters.happened(Event::PoolLimitHit, 1);
        // relaxed: a hint.
        self.full.store(true, Ordering::Relaxed);
    }

    /// Enters in the books that a cell, locked still, was given other content than `before`, and
    /// why; and lets go of what `before` held outside the cell.
    pub(crate) fn settle(&self, slot: &CellGuard<'_>, before: Held, group: GroupId, why: Event) {
        let (after, shard) = (Held::in_cell(slot), self.counters.here());
        let (old, new) = (before.tally(), after.tally());
        shard.happened(why, 1);
        if LeafSums(slot.leaf_word()).replace(old, new) {
            shard.replace(old, new);
        } else {
            self.counters.replace_pending(Pending::of(old), Pending::of(new));
            // The leaf's tokens may have been given up before this one came.
            self.orders.remove(slot.number());
        }
        if before.algorithm() != after.algorithm() {
            before.algorithm().into_iter().for_each(|it| shard.algorithm(it, false));
            after.algorithm().into_iter().for_each(|it| shard.algorithm(it, true));
        }
        let cell = slot.number();
        self.let_go(cell, before);
        if let Held::Blob { len, .. } = after {
            self.groups.charge(cell, group, len);
        }
    }

    /// The content of a cell is gone: what it held outside goes too.
    pub(crate) fn let_go(&self, cell: zsmalloc::CellNumber, before: Held) {
        match before {
            Held::Nothing => {}
            Held::Same(same) => self.words.release(same),
            Held::Blob { len, .. } => self.groups.uncharge(cell, len),
            Held::Disk { at, .. } => self.backing.iter().for_each(|backing| backing.free(at)),
        }
    }
}

const _: () = assert!(
    cfg!(loom) || PAGES_MAX.is_multiple_of(LEAF_CELLS as u64),
    "the largest area is made of whole leaves"
);

#[cfg(all(test, debug_assertions, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use zsmalloc::MemoryConfig;

    /// Threads that each have a stream and want another would wait for each other.
    #[test]
    #[should_panic(expected = "R1: waiting for a lock of rank Stream")]
    fn a_second_stream_is_caught() {
        let memory = MemoryConfig { worker: false, ..MemoryConfig::for_disk(1 << 20) };
        let memory = Memory::new(memory).expect("address space");
        let cache = Zswap::new(memory, ZswapConfig::new("ranks")).expect("a cache");
        cache.core.with_stream(|_| cache.core.with_stream(|_| ()));
    }
}
