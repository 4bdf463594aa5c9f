//! A pool: the classes of one geometry, and objects stored in them.
//!
//! ```text
//!   store(bytes)   class lock: slot  ->  bytes copied, no lock  ->  Object, known to nobody else
//!   put            cell lock: back reference, word              ->  published
//!   free           class lock: slot back                        ->  frames back, no lock
//! ```
//!
//! The payload is copied outside the class lock: the slot belongs to the object already, and
//! without a back reference the mover leaves it alone.
//!
//! Invariants
//! - I1 `resident` counts the touched frames of this pool's zspages, `frames` all of them.
//! - I2 an object belongs to the pool whose leaf holds its cell.
//!
//! Locks: cell, class, then a zone's. A class lock is not held while frames are taken or given
//! back, or while an object is stored. Compaction copies payload under it.

mod build;
mod charge;
mod classes;
mod counters;
mod leaving;
mod life;
mod locking;
#[cfg(not(feature = "study"))]
mod locks;
mod marks;
mod pending;
mod shards;
#[cfg(feature = "study")]
pub mod study;
mod tables;

use std::sync::{Arc, Weak};

use host::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use host::{Rank, RankedMutex, Table};

use crate::class::{Class, Descriptors, Stocks, shards_asked};
use crate::deferred::{LAG_MAX, Lag, QueueConfig};
use crate::memory::Memory;
use crate::numbers::{ChainSize, ClassIndex, Geometry, MemoryError, Rule};
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) use build::CACHED_FRAMES;
pub(crate) use classes::{Classes, Shards};
use counters::Counters;
pub(crate) use leaving::{AT_ONCE, Leaving};
use locks::Locks;
pub(crate) use locks::Moving;
use marks::{Rest, Retired};
pub(crate) use pending::Freed;
use pending::Pending;
#[cfg(feature = "study")]
use study as locks;
pub(crate) use tables::{Found, Tables, place_in};

/// What a pool is built with; fixed for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Frames per zspage at most.
    pub chain: ChainSize,
    /// How the classes are chosen.
    pub rule: Rule,
    /// Shards of each class, 1 to [`SHARDS_MAX`](crate::SHARDS_MAX). `None` is one per CPU and at
    /// most four, used once two threads have met at a class.
    pub shards: Option<usize>,
    /// How much [`Pool::free_deferred`] may leave pending. The queue does not exist before its
    /// first use.
    pub deferred: QueueConfig,
    /// Frees by which [`Pool::free_handle`] lags behind, so that it does not wait for memory: 0, 1,
    /// 2, 4 or 8. With 0 each is done at once.
    pub lag: usize,
    /// Bytes of touched frames below which an object goes to a slot of a larger class rather than
    /// touch one more. 0: never. Only with [`Rule::Fitted`], because the kernel's rules have the
    /// kernel's figures.
    pub guests_below: u64,
    /// What a study compares.
    #[cfg(feature = "study")]
    pub study: study::Study,
}

/// Bytes of touched frames of a pool that counts as small.
const GUESTS_BELOW: u64 = 3 << 20; // 3 MiB

/// The numbers that a class index has room for, so that an index needs no check before it is used.
const POSITIONS: usize = u8::MAX as usize + 1;

impl Default for PoolConfig {
    /// Chain order 4, sizes that fill their zspages, frees that lag by 8. A pool of less than 8 MiB
    /// is denser with chain order 3.
    fn default() -> PoolConfig {
        let chain = ChainSize::from_order(4).expect("order 4 is a chain size");
        PoolConfig {
            chain,
            rule: Rule::Fitted,
            shards: None,
            deferred: QueueConfig::default(),
            // A model's scenarios are of frees that are done when they return.
            lag: if cfg!(loom) { 0 } else { LAG_MAX },
            // They are of classes that are known in advance, too.
            guests_below: if cfg!(loom) { 0 } else { GUESTS_BELOW },
            #[cfg(feature = "study")]
            study: study::Study::default(),
        }
    }
}

/// A pool of compressed objects. See the module documentation.
pub struct Pool {
    pub(crate) memory: Arc<Memory>,
    pub(crate) id: u32,
    geometry: Geometry,
    pub(crate) classes: Classes,
    pub(crate) shards: usize,
    /// Every CPU allocates from its own shard, not all of them from the first.
    pub(crate) spread: AtomicBool,
    /// Whether it was spread by its configuration, and not because threads met.
    pub(crate) spread_asked: bool,
    /// It has more frames than caches hold, or had when it last took some.
    pub(crate) outgrown: AtomicBool,
    /// Where a class is among `classes`, by class index.
    positions: Box<[u16; POSITIONS]>,
    pub(crate) counters: Counters,
    /// Touched frames below which an object is a guest before it touches one more.
    pub(crate) guests_below: u64,
    /// Moves of objects so far, a few counted as one, and of zspages to other shards; see free I2.
    pub(crate) moves: AtomicU64,
    locks: Locks,
    pub(crate) lag: Lag,
    /// Free entries that no class has.
    pub(crate) stocks: Stocks,
    /// Held by the thread that compacts.
    pub(crate) compacting: RankedMutex<()>,
    pub(crate) rest: Rest,
    pub(crate) retired: Retired,
    pub(crate) pending: Pending,
    /// For jobs that have to find the pool later, if it is still there.
    pub(crate) this: Weak<Pool>,
}

impl Pool {
    /// An empty pool on `memory`.
    ///
    /// # Errors
    ///
    /// [`MemoryError`] when the memory has had too many pools.
    pub fn new(memory: Arc<Memory>, config: PoolConfig) -> Result<Arc<Pool>, MemoryError> {
        let geometry = Geometry::new(config.rule, config.chain);
        #[cfg(feature = "study")]
        let locks = Locks::new(config.study);
        #[cfg(not(feature = "study"))]
        let locks = Locks;
        let shards = locks.shards(shards_asked(config.shards)?);
        let lag = Lag::new(config.lag)?;
        let class = |(number, index)| {
            Class::new(index, geometry.shape(index), (0, number), locks.of_class())
        };
        let classes = geometry.classes().enumerate().map(class).collect();
        let mut positions = Box::new([0; POSITIONS]);
        for (position, index) in geometry.classes().enumerate() {
            positions[index.get()] = position as u16;
        }
        let id = memory.pool_id()?;
        let pool = Arc::new_cyclic(|this| Pool {
            id,
            memory,
            geometry,
            classes: Classes::new(classes, shards),
            shards,
            spread: AtomicBool::new(false),
            spread_asked: config.shards.is_some(),
            outgrown: AtomicBool::new(false),
            positions,
            counters: Counters::default(),
            guests_below: match config.rule {
                Rule::Fitted => config.guests_below / host::PAGE_SIZE as u64,
                Rule::LeastWaste | Rule::UsedPercent => 0,
            },
            moves: AtomicU64::new(0),
            locks,
            lag,
            stocks: Stocks::new(id, shards),
            compacting: RankedMutex::new(Rank::Compacting, ()),
            rest: Rest::default(),
            retired: Retired::default(),
            pending: Pending::new(config.deferred),
            this: Weak::clone(this),
        });
        // A model's threads are spread by the lengths that they store.
        if pool.spread_asked || cfg!(loom) {
            pool.spread();
        }
        pool.memory.enter(Weak::<Pool>::clone(&pool.this));
        Ok(pool)
    }

    /// The memory the pool lives in.
    pub fn memory(&self) -> &Arc<Memory> {
        &self.memory
    }

    /// The size classes.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// A lazily touched table for the client's own words.
    pub fn table<T: host::Zeroed>(&self, len: usize) -> Result<Table<T>, MemoryError> {
        Ok(Table::reserve(len)?)
    }

    /// Sets the most object bytes in touched frames; 0 = no limit. Objects already stored stay.
    pub fn set_limit(&self, bytes: u64) {
        // relaxed: an independent value, read by later allocations.
        self.counters.limit.store(bytes, Ordering::Relaxed);
    }

    /// The limit, in bytes; 0 = none.
    pub fn limit(&self) -> u64 {
        // relaxed: an independent value.
        self.counters.limit.load(Ordering::Relaxed)
    }

    /// The first shard of a class.
    #[inline]
    pub(crate) fn class(&self, index: ClassIndex) -> &Class {
        self.classes.first(self.position(index))
    }

    /// A shard of a class; the first where the others are not there.
    #[inline]
    pub(crate) fn shard(&self, index: ClassIndex, shard: usize) -> &Class {
        self.classes.shard(self.position(index), shard)
    }

    /// The shards of a class.
    pub(crate) fn shards_of(&self, index: ClassIndex) -> Shards<'_> {
        self.classes.of(self.position(index))
    }

    /// Where a class is among [`Pool::classes`].
    #[inline]
    pub(crate) fn position(&self, index: ClassIndex) -> usize {
        usize::from(self.positions[index.get()])
    }

    /// Allocations and frees so far, modulo 2^32.
    pub fn operations(&self) -> u32 {
        let operations = self.classes.iter().map(|class| class.lock().operations);
        operations.fold(0, u32::wrapping_add)
    }

    /// Shards of each class.
    pub fn shards(&self) -> usize {
        self.shards
    }

    #[inline]
    pub(crate) fn descriptors<'p>(&'p self, class: &'p Class) -> Descriptors<'p> {
        class.descriptors(&self.memory.descriptors)
    }
}
