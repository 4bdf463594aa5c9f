//! A device: its parts, and what all work on it uses.
//!
//! Invariants
//! - I1 `disksize` is a multiple of a page and never changes.
//! - I2 the watermark is that of the pool's geometry. A longer blob is stored as the raw page.
//!
//! Locks: none of its own. `decode` and `store` say in which order it uses others.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use codec::{Codec, CodecError, Stream, Streams};
use disk::DiskError;
use host::{HeldRank, PAGE_SIZE, Rank, cpu};
use zsmalloc::{ChainSize, Memory, MemoryError, Pool, PoolConfig, Slots};

use super::aside::Aside;
use super::generations::Generations;
use super::settings::Settings;
use crate::backing::Backing;
use crate::cells::{Ages, Counters, Sharing, Stored, Units, Values};
use crate::terms::{ZramConfig, ZramError};

/// Bytes of the largest disk. Its cells take half of the numbers that 32 bits can name.
const DISKSIZE_MAX: u64 = 1 << 43; // 8 TiB
/// Pages of a place, in which the same kind of data is likely: 2 MiB.
const PLACE_PAGES: u64 = 512;
const _: () =
    assert!(DISKSIZE_MAX / PAGE_SIZE as u64 <= 1 << u32::BITS, "a page's number is a u32");

/// A compressed RAM disk; it is a [`disk::Disk`].
pub struct Zram {
    pub(crate) config: ZramConfig,
    pub(crate) watermark: usize,
    pub(crate) slots: Arc<Slots>,
    pub(crate) streams: Streams,
    pub(crate) values: Arc<Values>,
    pub(crate) counters: Arc<Counters>,
    /// Slots that are emptied later.
    pub(crate) aside: Aside,
    /// With `track_ages`, or since there was a policy.
    ages: OnceLock<Ages>,
    pub(crate) settings: Settings,
    /// Tables that were trained from its pages, and the shipped ones with tiers.
    pub(crate) generations: Generations,
}

impl Zram {
    /// An empty device. Whatever its size, only a few kilobytes are touched.
    ///
    /// # Errors
    ///
    /// [`ZramError`] if a size or a chain order is not valid, or if memory cannot be reserved.
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
        let pool = PoolConfig { chain, rule: config.rule, ..PoolConfig::default() };
        let pool = Pool::new(memory, Aside::pool(&config, pool))?;
        let settings = Settings::default();
        settings.hold.set_limit(&pool, config.mem_limit);
        let watermark = pool.geometry().huge_watermark();
        let pages = config.disksize / PAGE_SIZE as u64;
        let ages = config.track_ages.then(|| Ages::new(&pool, pages)).transpose()?;
        let ages = ages.map_or_else(OnceLock::new, OnceLock::from);
        let backing = config.backing.clone().map(|disk| Backing::new(disk, &pool)).transpose()?;
        let slots = Arc::new(Slots::new(pool, pages)?);
        let shares = config.share_equal_pages;
        let sharing = shares.then(|| Sharing::new(&slots.pool, pages)).transpose()?;
        let has_units = config.has_units();
        let units = has_units.then(|| Units::new(&slots.pool, pages)).transpose()?;
        let counters = Arc::new(Counters::for_cpus(cpu::count()));
        let aside = Aside::new(&config, &slots, &counters)?;
        Ok(Zram {
            watermark,
            slots,
            streams: Streams::for_cpus(cpu::count()),
            values: Arc::new(Values { backing, sharing, units, ..Values::default() }),
            counters,
            aside,
            ages,
            settings,
            generations: Generations::new(),
            config,
        })
    }

    /// The configuration that the device was made with. Its sizes are rounded.
    pub fn config(&self) -> &ZramConfig {
        &self.config
    }

    /// The algorithms of the configuration.
    pub(crate) fn codecs(&self) -> impl Iterator<Item = &Codec> {
        std::iter::once(&self.config.algorithm).chain(self.config.recompression.iter().flatten())
    }

    /// The algorithm of a priority. `None` if the priority has none. Only a generation of tables
    /// takes a lock to find, and that is a leaf.
    pub(crate) fn codec(&self, priority: u8) -> Option<Cow<'_, Codec>> {
        let Some(other) = usize::from(priority).checked_sub(1) else {
            return Some(Cow::Borrowed(&self.config.algorithm));
        };
        match self.config.recompression.get(other)? {
            Some(codec) => Some(Cow::Borrowed(codec)),
            None => self.generations.codec(priority).map(Cow::Owned),
        }
    }

    /// When each page was last accessed, if that is noted.
    #[inline]
    pub(crate) fn ages(&self) -> Option<&Ages> {
        self.ages.get()
    }

    /// Notes from now on when each page is accessed, if that is not noted yet.
    pub(crate) fn note_ages(&self) -> Result<(), MemoryError> {
        if self.ages.get().is_none() {
            // Of two threads, either table will do.
            let _ = self.ages.set(Ages::new(&self.slots.pool, self.pages())?);
        }
        Ok(())
    }

    /// Pages of the disk.
    pub fn pages(&self) -> u64 {
        self.config.disksize / PAGE_SIZE as u64
    }

    /// The place of a page ([`Stream::set_place`]), unless its client knows better.
    pub(crate) fn place_of(page: u64) -> u64 {
        page / PLACE_PAGES
    }

    /// The content of a page's slot at a glance, without its lock. The priority means nothing.
    pub(crate) fn peek(&self, page: u64) -> Stored {
        Stored::of(self.slots.peek(page), 0)
    }

    /// Works with a stream. The rank of a stream's lock is kept here, because `codec` has none.
    pub(crate) fn with_stream<R>(&self, work: impl FnOnce(&mut Stream) -> R) -> R {
        let _held = HeldRank::enter(Rank::Stream);
        self.streams.with(cpu::current_hint(), work)
    }

    /// Builds beforehand what the algorithm needs to read and write pages, and what the algorithms
    /// for recompression and units need to be read. So reading builds nothing. An algorithm with
    /// streams needs this before a signal handler reads.
    ///
    /// # Errors
    ///
    /// [`DiskError::NoMemory`].
    pub fn prepare(&self) -> Result<(), DiskError> {
        let _held = HeldRank::enter(Rank::Stream);
        self.prepare_streams().map_err(|_| DiskError::NoMemory)
    }

    fn prepare_streams(&self) -> Result<(), CodecError> {
        let ZramConfig { algorithm, recompression, .. } = &self.config;
        if algorithm.needs_stream_to_decompress() {
            self.streams.prepare(algorithm)?;
        }
        let others = recompression.iter().flatten();
        let mut streamed = others.filter(|codec| codec.needs_stream_to_decompress());
        streamed.try_for_each(|codec| self.streams.prepare_to_read(codec))?;
        match self.values.units {
            Some(_) => self.streams.prepare_units(Units::FRAME_MAX),
            None => Ok(()),
        }
    }

    /// Compacts, and runs what is deferred. It is for a caller that was refused because there was
    /// no room, and that holds no lock that a deferred job might want.
    pub fn make_room(&self) {
        self.aside.flush();
        self.slots.pool.make_room();
    }

    /// Compacts the pool and returns free frames to the system. Returns the number of frames freed.
    pub fn compact(&self) -> u64 {
        self.aside.flush();
        self.slots.pool.compact()
    }

    /// True when nothing was freed since the pool compacted itself, and nothing is pending. A
    /// device that is left alone for a second becomes settled.
    pub fn is_settled(&self) -> bool {
        self.counters.pending().objects == 0 && self.slots.pool.is_settled()
    }

    /// The memory in whose frames the pages are.
    pub fn memory(&self) -> &Arc<Memory> {
        self.slots.pool.memory()
    }

    /// The pool's `classes` table.
    pub fn classes(&self) -> zsmalloc::ClassTable {
        self.slots.pool.class_table()
    }
}

impl Drop for Zram {
    /// Pending objects end with the pool, and need not be looked at.
    fn drop(&mut self) {
        self.slots.pool.retire(std::iter::empty());
    }
}

impl std::fmt::Debug for Zram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Zram").field("config", &self.config).finish_non_exhaustive()
    }
}
