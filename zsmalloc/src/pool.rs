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
//! Locks: cell, class, then a zone's. A class lock is not held while frames are taken or, but for
//! [`Release::Inside`], given back, nor while an object is stored; compaction copies payload under
//! it.

use std::sync::{Arc, Weak};

use host::sync::Mutex;
use host::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use host::{LockGuard, Table};

use crate::class::{Class, Slot, State};
use crate::deferred::QueueConfig;
use crate::descriptor::DescriptorId;
use crate::design::{LockDesign, Locks, Release, shards_of};
use crate::entries::Stock;
use crate::error::{AllocError, MemoryError};
use crate::fullness::Descriptors;
use crate::geometry::{ChainSize, ClassIndex, Geometry, Rule};
use crate::lag::{LAG_MAX, Lag};
use crate::leaf::LeafUse;
use crate::memory::Memory;
use crate::object::{Object, Reserved};
use crate::pending::Pending;
use crate::release::Leaving;
use crate::rest::Rest;
use crate::teardown::Retired;
use crate::write::Age;
use crate::zspage;

/// What a pool is built with; fixed for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Frames per zspage at most.
    pub chain: ChainSize,
    /// How the classes are chosen.
    pub rule: Rule,
    /// Which locks there are.
    pub design: LockDesign,
    /// When the frames of emptied zspages go back.
    pub release: Release,
    /// Shards of each class in the class design, 1 to [`SHARDS_MAX`]; `None`: one per CPU, four at
    /// most, used from when two threads first meet at a class. The other designs have one.
    pub shards: Option<usize>,
    /// How much [`Pool::free_deferred`] may leave pending; nothing of it exists before its first
    /// use.
    pub deferred: QueueConfig,
    /// Frees by which [`Pool::free_handle`] lags behind, so that it does not wait for memory: 0, 1,
    /// 2, 4 or 8. With 0 each is done at once.
    pub lag: usize,
}

/// The most shards a class can have.
pub const SHARDS_MAX: usize = 8;

/// Numbers that a class index has room for, so that none needs to be looked at before it is one.
const POSITIONS: usize = u8::MAX as usize + 1;

impl Default for PoolConfig {
    /// Chain order 4, sizes that fill their zspages, class locks, frames released outside them,
    /// frees that lag by 8. A pool of less than 8 MiB is denser with chain order 3.
    fn default() -> PoolConfig {
        let chain = ChainSize::from_order(4).expect("order 4 is a chain size");
        PoolConfig {
            chain,
            rule: Rule::Fitted,
            design: LockDesign::default(),
            release: Release::default(),
            shards: None,
            deferred: QueueConfig::default(),
            // A model's scenarios are of frees that are done when they return.
            lag: if cfg!(loom) { 0 } else { LAG_MAX },
        }
    }
}

/// A pool of compressed objects. See the module documentation.
pub struct Pool {
    pub(crate) memory: Arc<Memory>,
    pub(crate) id: u32,
    geometry: Geometry,
    /// Each class's shards, side by side.
    pub(crate) classes: Vec<Class>,
    pub(crate) shards: usize,
    /// Every CPU allocates from its own shard, not all of them from the first.
    pub(crate) spread: AtomicBool,
    /// Spread when asked to, or when threads meet.
    pub(crate) spread_asked: bool,
    /// It has more frames than caches hold, or had when it last took some.
    pub(crate) outgrown: AtomicBool,
    /// Where the first shard of a class is among `classes`, by class index.
    positions: Box<[u16; POSITIONS]>,
    pub(crate) counters: Counters,
    /// Moves of objects so far, a few counted as one, and of zspages to other shards; see free I2.
    pub(crate) moves: AtomicU64,
    pub(crate) locks: Locks,
    pub(crate) lag: Lag,
    pub(crate) release: Release,
    /// Free entries for handles, and for raw ones.
    pub(crate) handles: Stock,
    pub(crate) raw_handles: Stock,
    /// Held by the thread that compacts.
    pub(crate) compacting: Mutex<()>,
    pub(crate) rest: Rest,
    pub(crate) retired: Retired,
    pub(crate) pending: Pending,
}

/// On cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

/// Independent totals of a pool; on cache lines of their own, as what lies beside them is read by
/// every operation.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Counters {
    /// Frames of all zspages, and the most there ever were.
    pub(crate) frames: AtomicU64,
    pub(crate) frames_max: AtomicU64,
    /// Touched frames among them.
    pub(crate) resident: AtomicU64,
    /// Frames freed by compaction.
    pub(crate) compacted: AtomicU64,
    /// Of zspages that are counted above but in no class, being built or being given back, those
    /// that are not counted by the classes. By thread; only the sums mean something.
    pub(crate) departed: [Apart<AtomicU64>; SHARDS_MAX],
    pub(crate) arrived: [Apart<AtomicU64>; SHARDS_MAX],
    /// Bytes of objects at most, in touched frames; 0 = no limit.
    pub(crate) limit: AtomicU64,
    /// Leaves of clients' tables.
    pub(crate) leaves: AtomicU64,
    /// Bytes of the classes' arrays of zspages.
    pub(crate) position_bytes: AtomicU64,
}

impl Pool {
    /// An empty pool on `memory`.
    ///
    /// # Errors
    ///
    /// [`MemoryError`] when the memory has had too many pools.
    pub fn new(memory: Arc<Memory>, config: PoolConfig) -> Result<Arc<Pool>, MemoryError> {
        let geometry = Geometry::new(config.rule, config.chain);
        let locks = Locks::new(config.design);
        let shards = shards_of(&config)?;
        let lag = Lag::new(config.lag)?;
        let sharded = |index| (0..shards).map(move |shard| (index, shard));
        let class = |(number, (index, shard))| {
            Class::new(index, geometry.shape(index), (shard, number), locks.shared())
        };
        let classes: Vec<Class> =
            geometry.classes().flat_map(sharded).enumerate().map(class).collect();
        let mut positions = Box::new([0; POSITIONS]);
        for (position, index) in geometry.classes().enumerate() {
            positions[index.get()] = (position * shards) as u16;
        }
        let id = memory.pool_id()?;
        let pool = Arc::new_cyclic(|this| Pool {
            id,
            memory,
            geometry,
            classes,
            shards,
            spread: AtomicBool::new(config.shards.is_some()),
            spread_asked: config.shards.is_some(),
            outgrown: AtomicBool::new(false),
            positions,
            counters: Counters::default(),
            moves: AtomicU64::new(0),
            locks,
            lag,
            release: config.release,
            handles: Stock::new(LeafUse::Handles, id, shards),
            raw_handles: Stock::new(LeafUse::Raw, id, shards),
            compacting: Mutex::new(()),
            rest: Rest::default(),
            retired: Retired::default(),
            pending: Pending::new(config.deferred, Weak::clone(this)),
        });
        pool.memory.enter_pool(&pool);
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

    /// Stores `bytes` in a slot of their class. The object is nobody's yet: put it in a cell, or
    /// drop it to free it again.
    ///
    /// # Errors
    ///
    /// [`AllocError`]; nothing is stored then. The limit is checked before a frame is touched;
    /// threads that pass the check together may overshoot it by two frames each.
    pub fn store(&self, bytes: &[u8]) -> Result<Object<'_>, AllocError> {
        let fill = |slot: &mut [u8], age| self.write(slot, bytes, age);
        Ok(self.store_with(bytes.len(), None, fill)?.object(self, bytes.len()))
    }

    /// A slot for `len` bytes that `fill` has written, with an entry for a handle of the given
    /// kind: the caller makes it an object, or what its entry names.
    #[inline]
    pub(crate) fn store_with(
        &self,
        len: usize,
        handle: Option<LeafUse>,
        fill: impl FnOnce(&mut [u8], Age),
    ) -> Result<Reserved<'_>, AllocError> {
        let reserved = match self.reserve(len, handle) {
            Err(error) => self.reserve_again(error, len, handle)?,
            Ok(reserved) => reserved,
        };
        let Reserved { class, slot, .. } = reserved;
        // Freed again where `fill` panics.
        let object = reserved.object(self, len);
        zspage::fill(&self.memory.arena, class.shape, slot.at, len, |to| fill(to, slot.age()));
        std::mem::forget(object);
        Ok(reserved)
    }

    /// A slot for `len` bytes, its frames counted, with an entry where one is wanted.
    // One function with what follows and with its caller: a call hands 40 bytes over in memory.
    #[inline(always)]
    pub(crate) fn reserve(
        &self,
        len: usize,
        handle: Option<LeafUse>,
    ) -> Result<Reserved<'_>, AllocError> {
        let reserved = self.take_slot(len, handle)?;
        if reserved.slot.touched {
            return Ok(reserved);
        }
        match self.charge(reserved.class, reserved.slot.at, len) {
            Ok(()) => Ok(reserved),
            Err(error) => self.charge_next_door(reserved, len).ok_or(error),
        }
    }

    /// A slot for `len` bytes; its frames are not counted yet, unless they are all touched.
    #[inline(always)]
    pub(crate) fn take_slot(
        &self,
        len: usize,
        handle: Option<LeafUse>,
    ) -> Result<Reserved<'_>, AllocError> {
        let index = self.geometry.class_of(len).ok_or(AllocError::BadLength { len })?;
        let class = &self.classes[self.position(index, self.home(len))];
        class.prefetch();
        let (slot, entry) = self.take(class, handle)?;
        Ok(Reserved { class, slot, entry })
    }

    /// The first shard of a class.
    #[inline]
    pub(crate) fn class(&self, index: ClassIndex) -> &Class {
        &self.classes[self.position(index, 0)]
    }

    /// Where a shard of a class is among [`Pool::classes`].
    #[inline]
    pub(crate) fn position(&self, index: ClassIndex, shard: usize) -> usize {
        usize::from(self.positions[index.get()]) + shard
    }

    /// Which shard this thread allocates from.
    #[inline]
    fn home(&self, len: usize) -> usize {
        // relaxed: a hint.
        if self.shards == 1 || !self.spread.load(Ordering::Relaxed) && !cfg!(loom) {
            return 0;
        }
        // Under loom every thread is on the first CPU: there the length decides.
        if cfg!(loom) { len % self.shards } else { host::cpu::current_hint() % self.shards }
    }

    /// Every shard of every class.
    pub(crate) fn classes(&self) -> &[Class] {
        &self.classes
    }

    /// The classes, each as its shards.
    pub(crate) fn sharded(&self) -> std::slice::ChunksExact<'_, Class> {
        self.classes.chunks_exact(self.shards)
    }

    /// Shards of each class.
    pub fn shards(&self) -> usize {
        self.shards
    }

    /// Locks the shard that a zspage belongs to. The caller keeps an object of it from moving.
    #[inline]
    pub(crate) fn lock_zspage(&self, id: DescriptorId) -> (&Class, LockGuard<'_, State>) {
        let header = self.memory.descriptors.header(id);
        loop {
            let class = &self.classes[header.lock()];
            let state = self.lock(class);
            // Compaction may have given it to another shard before the lock was there.
            if header.lock() == class.number {
                return (class, state);
            }
        }
    }

    #[inline]
    pub(crate) fn descriptors<'p>(&'p self, class: &'p Class) -> Descriptors<'p> {
        class.descriptors(&self.memory.descriptors)
    }

    /// A zspage without objects, of frames that cost nothing yet but for the first `touched`, known
    /// to the caller alone and in transit: it is to arrive in its class, or to be given back.
    pub(crate) fn new_zspage(
        &self,
        class: &Class,
        touched: u32,
    ) -> Result<DescriptorId, AllocError> {
        self.departs();
        self.build_zspage(class, touched).inspect_err(|_| self.arrived(1))
    }

    fn build_zspage(&self, class: &Class, touched: u32) -> Result<DescriptorId, AllocError> {
        let frames = u32::from(class.shape.frames);
        let descriptor = self.memory.descriptors.alloc(class.shape, class.shard)?;
        let taken = self.memory.take_run(class.shard, frames);
        let (mut run, mut resident) =
            taken.inspect_err(|_| self.memory.descriptors.free(&[descriptor]))?;
        // A run brings touched frames along that the first object may not need.
        if touched < frames {
            resident -= self.memory.purge_from(&mut run, touched);
        }
        if resident > 0 && !self.count_brought(resident.into()) {
            // What the system refuses to take back is there, limit or not.
            resident -= self.memory.purge_from(&mut run, 0);
            // relaxed: a total; the frames counted are this thread's.
            self.counters.resident.fetch_add(u64::from(resident), Ordering::Relaxed);
        }
        let pfn = zspage::adopt(run);
        let zspage = self.descriptors(class).get(descriptor);
        zspage.reset(pfn, class.number, self.id);
        zspage.set_touched(resident == frames);
        self.memory.set_owner(pfn, descriptor);
        // relaxed: a total; the frames counted are this thread's.
        let others = self.counters.frames.fetch_add(u64::from(frames), Ordering::Relaxed);
        self.hint_outgrown(others + u64::from(frames));
        Ok(descriptor)
    }

    /// A slot of a class, and an entry where one is wanted (0 otherwise).
    #[inline(always)]
    fn take(&self, class: &Class, handle: Option<LeafUse>) -> Result<(Slot, u32), AllocError> {
        let mut state = match self.try_lock(class) {
            Some(state) => state,
            None => self.lock_met(class),
        };
        let mut entry = 0;
        if let Some(kind) = handle {
            entry = state.take_entry(kind, self);
            if entry == 0 {
                (state, entry) = self.fetch_entry(class, state, kind)?;
            }
        }
        match state.take_slot(&self.descriptors(class), entry) {
            Some(slot) => Ok((slot, entry)),
            None => Ok((self.take_of_others(class, state, entry)?, entry)),
        }
    }

    /// A slot of a zspage that another shard has, or that is new, for a class that has no room.
    #[cold]
    fn take_of_others(
        &self,
        class: &Class,
        mut state: LockGuard<'_, State>,
        entry: u32,
    ) -> Result<Slot, AllocError> {
        class.hint_partial(false);
        if self.take_over(class, &mut state)
            && let Some(slot) = state.take_slot(&self.descriptors(class), entry)
        {
            return Ok(slot);
        }
        // Before the lock is given up: the entry is now in no chain, and behind no object.
        state.departs();
        drop(state);
        self.take_of_new(class, entry)
    }

    /// Locks a class that another thread has locked: from now on each has a shard of its own.
    #[cold]
    fn lock_met<'p>(&'p self, class: &'p Class) -> LockGuard<'p, State> {
        // relaxed: a hint, stored once, as every CPU reads its cache line.
        if !self.spread.load(Ordering::Relaxed) {
            // relaxed: a hint.
            self.spread.store(true, Ordering::Relaxed);
        }
        self.lock(class)
    }

    /// A slot of a new zspage; where there is none, the entry goes back.
    fn take_of_new(&self, class: &Class, entry: u32) -> Result<Slot, AllocError> {
        let of = self.descriptors(class);
        let descriptor = match self.build_zspage(class, class.shape.frames.into()) {
            Ok(descriptor) => descriptor,
            Err(error) => return self.take_next_door(class, entry).ok_or(error),
        };
        let mut state = self.lock(class);
        if !self.reserve_position(&mut state) {
            drop(state);
            // The entry is on the way still when the zspage is not.
            self.departs();
            self.release_zspages(Leaving::of(&self.memory, descriptor));
            return self.take_next_door(class, entry).ok_or(AllocError::OutOfDescriptors);
        }
        state.insert(&of, descriptor);
        class.hint_large(state.fullness.zspages().len());
        state.arrives();
        // relaxed: totals. Compaction's own zspages replace others and do not count as use.
        let frames = self.counters.frames.load(Ordering::Relaxed);
        // relaxed: totals. The most there were only grows, but for a reset, so most often it stays.
        if frames > self.counters.frames_max.load(Ordering::Relaxed) {
            // relaxed: totals.
            self.counters.frames_max.fetch_max(frames, Ordering::Relaxed);
        }
        Ok(state.take_slot_in(&of, descriptor, entry))
    }

    /// Makes sure that a class has room for one zspage more; false when there is no memory.
    pub(crate) fn reserve_position(&self, state: &mut State) -> bool {
        let reserved = state.fullness.reserve();
        if reserved.is_err() {
            // The zspage that is given back now was in the totals.
            state.operated(1);
        }
        if let Ok(bytes @ 1..) = reserved {
            // relaxed: a total.
            self.counters.position_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        reserved.is_ok()
    }

    /// Gives back what classes that have become small no longer need for their zspages' numbers.
    pub(crate) fn shrink_positions(&self, class: &Class) {
        let mut state = self.lock(class);
        if let bytes @ 1.. = state.fullness.shrink() {
            state.operated(1);
            // relaxed: a total.
            self.counters.position_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
        }
    }
}
