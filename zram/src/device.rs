//! A device: what it is made of, and the attributes that can be set while it is in use.
//!
//! Invariants
//! - I1 `disksize` is a multiple of a page and never changes.
//! - I2 the watermark is that of the pool's geometry: a longer blob is stored as the raw page.
//!
//! Locks: none of its own; see `page` for the order of those it uses.

use std::sync::Arc;

use codec::same::Words;
use codec::{Codec, Streams};
use zsmalloc::deferred::QueueConfig;
use zsmalloc::{ChainSize, Memory, PAGE_SIZE, Pool, PoolConfig, Rule, Slots, cpu};

use crate::counters::Counters;
use crate::entries::Entries;
use crate::error::ZramError;
use crate::free::Free;

/// Bytes of the largest disk: its cells fill the 32 bits of an entry number half.
const DISKSIZE_MAX: u64 = 1 << 43; // 8 TiB
const _: () =
    assert!(DISKSIZE_MAX / PAGE_SIZE as u64 <= 1 << u32::BITS, "a page's number is a u32");

/// What a device is made with.
#[derive(Clone, Debug)]
pub struct ZramConfig {
    /// The device's name, as `stat` shows it.
    pub name: String,
    /// Bytes of the disk, rounded up to a page: what a client may store, not what it may take.
    pub disksize: u64,
    /// Algorithm and level.
    pub algorithm: Codec,
    /// Chain order N: at most 2^N frames per zspage, 0 to 4.
    pub chain_order: u32,
    /// How each size class picks its chain length.
    pub rule: Rule,
    /// Bytes that objects may take at most; 0 = no limit.
    pub mem_limit: u64,
    /// Refuse writes.
    pub read_only: bool,
    /// How discarded pages are freed.
    pub free: Free,
    /// How much may be pending with [`Free::Entries`] and [`Free::Handles`].
    pub deferred: QueueConfig,
}

impl ZramConfig {
    /// The defaults of the kernel's driver where it has one, for a disk of `disksize` bytes.
    pub fn new(name: &str, disksize: u64) -> ZramConfig {
        ZramConfig {
            name: name.into(),
            disksize,
            algorithm: Codec::new(codec::Algorithm::Lz4),
            chain_order: 3,
            rule: Rule::LeastWaste,
            mem_limit: 0,
            read_only: false,
            free: Free::default(),
            deferred: QueueConfig::default(),
        }
    }
}

/// A compressed RAM disk; it is a [`disk::Disk`].
pub struct Zram {
    pub(crate) config: ZramConfig,
    pub(crate) codec: Codec,
    pub(crate) watermark: usize,
    pub(crate) slots: Arc<Slots>,
    pub(crate) streams: Streams,
    pub(crate) words: Arc<Words>,
    pub(crate) counters: Arc<Counters>,
    /// With [`Free::Entries`].
    pub(crate) entries: Option<Arc<Entries>>,
}

impl Zram {
    /// An empty device. Nothing is touched but a few kilobytes, whatever its size.
    ///
    /// # Errors
    ///
    /// [`ZramError`]: a size, chain order or memory that cannot be.
    pub fn new(memory: Arc<Memory>, mut config: ZramConfig) -> Result<Zram, ZramError> {
        let order = config.chain_order;
        let chain = ChainSize::from_order(order).ok_or(ZramError::BadChainOrder { order })?;
        if config.disksize == 0 {
            return Err(ZramError::NoSize);
        }
        if config.disksize > DISKSIZE_MAX {
            return Err(ZramError::TooLarge { disksize: config.disksize });
        }
        config.disksize = config.disksize.next_multiple_of(PAGE_SIZE as u64);
        let ZramConfig { rule, deferred, .. } = config;
        let pool =
            Pool::new(memory, PoolConfig { chain, rule, deferred, ..PoolConfig::default() })?;
        pool.set_limit(config.mem_limit);
        let watermark = pool.geometry().huge_watermark();
        let slots = Arc::new(Slots::new(pool, config.disksize / PAGE_SIZE as u64)?);
        let counters = Arc::default();
        let entries = match config.free {
            Free::Entries => Some(Entries::new(deferred, &slots, &counters)?),
            _ => None,
        };
        Ok(Zram {
            codec: config.algorithm.clone(),
            watermark,
            slots,
            streams: Streams::for_cpus(cpu::count()),
            words: Arc::default(),
            counters,
            entries,
            config,
        })
    }

    /// What the device was made with; sizes rounded.
    pub fn config(&self) -> &ZramConfig {
        &self.config
    }

    /// Sets the bytes that objects may take at most; 0 = no limit. What is stored stays.
    pub fn set_mem_limit(&self, bytes: u64) {
        self.slots.pool.set_limit(bytes);
    }

    /// Makes the present use the most that ever was.
    pub fn reset_mem_used_max(&self) {
        self.slots.pool.reset_mem_used_max();
    }

    /// Compacts the pool and returns free frames to the system; gives the frames freed.
    pub fn compact(&self) -> u64 {
        self.flush_entries();
        self.slots.pool.compact()
    }

    /// True when nothing was freed since the pool compacted itself, and nothing is pending: a
    /// device that is left alone for a second is settled.
    pub fn is_settled(&self) -> bool {
        self.counters.pending().objects == 0 && self.slots.pool.is_settled()
    }

    /// The memory whose frames the pages are in.
    pub fn memory(&self) -> &Arc<Memory> {
        self.slots.pool.memory()
    }

    /// The pool's `classes` table.
    pub fn classes(&self) -> zsmalloc::ClassTable {
        self.slots.pool.class_table()
    }
}

impl Drop for Zram {
    /// What is pending ends with the pool, and need not be looked at.
    fn drop(&mut self) {
        self.slots.pool.retire(std::iter::empty());
    }
}

impl std::fmt::Debug for Zram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Zram").field("config", &self.config).finish_non_exhaustive()
    }
}
