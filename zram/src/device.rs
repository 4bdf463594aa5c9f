//! A device: what it is made of, and the attributes that can be set while it is in use.
//!
//! Invariants
//! - I1 `disksize` is a multiple of a page and never changes.
//! - I2 the watermark is that of the pool's geometry: a longer blob is stored as the raw page.
//!
//! Locks: none of its own; see `page` for the order of those it uses.

use std::sync::Arc;

use codec::{Codec, Streams};
use disk::Disk;
use zsmalloc::deferred::QueueConfig;
use zsmalloc::{ChainSize, LockDesign, Memory, PAGE_SIZE, Pool, PoolConfig, Rule, Slots, cpu};

use crate::ages::Ages;
use crate::backing::Backing;
use crate::counters::Counters;
use crate::entries::Entries;
use crate::error::ZramError;
use crate::free::Free;
use crate::settings::Settings;
use crate::slot_flags::PRIORITIES;
use crate::values::Values;

/// Algorithms beside the device's own.
const SECONDARY: usize = PRIORITIES - 1; // 3
/// Bytes of the largest disk: its cells fill the 32 bits of an entry number half.
const DISKSIZE_MAX: u64 = 1 << 43; // 8 TiB
const _: () =
    assert!(DISKSIZE_MAX / PAGE_SIZE as u64 <= 1 << u32::BITS, "a page's number is a u32");

/// What a device is made with.
#[derive(Clone)]
pub struct ZramConfig {
    /// The device's name, as `stat` shows it.
    pub name: String,
    /// Bytes of the disk, rounded up to a page: what a client may store, not what it may take.
    pub disksize: u64,
    /// Algorithm and level of what is written: priority 0.
    pub algorithm: Codec,
    /// The algorithms that pages may be recompressed with: priorities 1 to 3.
    pub recompression: [Option<Codec>; SECONDARY],
    /// Where pages are written back to; the device's alone. The first 2 TiB are used.
    pub backing: Option<Arc<dyn Disk>>,
    /// Pages are written back as they are stored, and decompressed when they are read; else they
    /// are written back as the client wrote them.
    pub compressed_writeback: bool,
    /// Note when each page was accessed last: 4 bytes a page, where something is stored.
    pub track_ages: bool,
    /// Chain order N: at most 2^N frames per zspage, 0 to 4.
    pub chain_order: u32,
    /// How size classes are chosen.
    pub rule: Rule,
    /// How the allocator's locks are laid out.
    pub design: LockDesign,
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
            recompression: [const { None }; SECONDARY],
            backing: None,
            compressed_writeback: false,
            track_ages: false,
            chain_order: 3,
            rule: Rule::LeastWaste,
            design: LockDesign::default(),
            mem_limit: 0,
            read_only: false,
            free: Free::default(),
            deferred: QueueConfig::default(),
        }
    }
}

impl std::fmt::Debug for ZramConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ZramConfig")
            .field("name", &self.name)
            .field("disksize", &self.disksize)
            .field("algorithm", &self.algorithm)
            .field("recompression", &self.recompression)
            .field("backing_bytes", &self.backing.as_ref().map(|disk| disk.size_bytes()))
            .field("compressed_writeback", &self.compressed_writeback)
            .field("track_ages", &self.track_ages)
            .field("chain_order", &self.chain_order)
            .field("rule", &self.rule)
            .field("design", &self.design)
            .field("mem_limit", &self.mem_limit)
            .field("read_only", &self.read_only)
            .field("free", &self.free)
            .field("deferred", &self.deferred)
            .finish()
    }
}

/// A compressed RAM disk; it is a [`disk::Disk`].
pub struct Zram {
    pub(crate) config: ZramConfig,
    pub(crate) watermark: usize,
    pub(crate) slots: Arc<Slots>,
    pub(crate) streams: Streams,
    pub(crate) values: Arc<Values>,
    pub(crate) counters: Arc<Counters>,
    /// With [`Free::Entries`].
    pub(crate) entries: Option<Arc<Entries>>,
    /// With `track_ages`.
    pub(crate) ages: Option<Ages>,
    pub(crate) settings: Settings,
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
        let ZramConfig { rule, design, deferred, .. } = config;
        let pool = PoolConfig { chain, rule, design, deferred, ..PoolConfig::default() };
        let pool = Pool::new(memory, pool)?;
        let settings = Settings::default();
        settings.hold.set_limit(&pool, config.mem_limit);
        let watermark = pool.geometry().huge_watermark();
        let pages = config.disksize / PAGE_SIZE as u64;
        let ages = config.track_ages.then(|| Ages::new(&pool, pages)).transpose()?;
        let backing = config.backing.clone().map(|disk| Backing::new(disk, &pool)).transpose()?;
        let slots = Arc::new(Slots::new(pool, pages)?);
        let counters = Arc::default();
        let entries = match config.free {
            Free::Entries => Some(Entries::new(deferred, &slots, &counters)?),
            _ => None,
        };
        Ok(Zram {
            watermark,
            slots,
            streams: Streams::for_cpus(cpu::count()),
            values: Arc::new(Values { backing, ..Values::default() }),
            counters,
            entries,
            ages,
            settings,
            config,
        })
    }

    /// What the device was made with; sizes rounded.
    pub fn config(&self) -> &ZramConfig {
        &self.config
    }

    /// The algorithms there are.
    pub(crate) fn codecs(&self) -> impl Iterator<Item = &Codec> {
        std::iter::once(&self.config.algorithm).chain(self.config.recompression.iter().flatten())
    }

    /// The algorithm of a priority; `None` where there is none.
    pub(crate) fn codec(&self, priority: u8) -> Option<&Codec> {
        match priority {
            0 => Some(&self.config.algorithm),
            other => self.config.recompression.get(usize::from(other) - 1)?.as_ref(),
        }
    }

    /// Sets the bytes that objects may take at most; 0 = no limit. What is stored stays.
    pub fn set_mem_limit(&self, bytes: u64) {
        self.settings.hold.set_limit(&self.slots.pool, bytes);
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
