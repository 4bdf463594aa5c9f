//! A pool: the classes of one geometry, and objects stored in them.
//!
//! ```text
//!   store(bytes)   class lock: slot  ->  bytes copied, no lock  ->  Object, known to nobody else
//!   put            cell lock: back reference, word              ->  published
//!   free           cell lock, class lock: slot back             ->  frames back, no lock
//! ```
//!
//! The payload is copied outside the class lock: the slot belongs to the object already, and
//! without a back reference the mover leaves it alone.
//!
//! Invariants
//! - I1 `resident` counts the touched frames of this pool's zspages, `frames` all of them.
//! - I2 an object belongs to the pool whose leaf holds its cell.
//!
//! Locks: cell, class, then the zone's. A class lock is not held while frames are taken or given
//! back, nor while an object is stored; compaction copies payload under it.

use std::sync::Arc;

use host::sync::Mutex;
use host::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use host::{PAGE_SIZE, Run, Table};

use crate::class::{Class, Slot};
use crate::descriptor::DescriptorId;
use crate::error::{AllocError, MemoryError};
use crate::geometry::{CLASSES, ChainSize, ClassIndex, Geometry, Rule};
use crate::group::List;
use crate::handle::{HandleList, PoolName};
use crate::memory::Memory;
use crate::object::Object;
use crate::word::Place;
use crate::zspage;

/// What a pool is built with; fixed for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Frames per zspage at most.
    pub chain: ChainSize,
    /// How each class picks its chain length.
    pub rule: Rule,
}

impl Default for PoolConfig {
    /// Chain order 3 and the rule of current kernels.
    fn default() -> PoolConfig {
        let chain = ChainSize::from_order(3).expect("order 3 is a chain size");
        PoolConfig { chain, rule: Rule::LeastWaste }
    }
}

/// A pool of compressed objects. See the module documentation.
pub struct Pool {
    pub(crate) memory: Arc<Memory>,
    pub(crate) id: u32,
    geometry: Geometry,
    classes: Vec<Class>,
    /// Position in `classes` by class index.
    positions: Box<[u8; CLASSES]>,
    pub(crate) counters: Counters,
    pub(crate) handles: HandleList,
    /// Held by the thread that compacts.
    pub(crate) compacting: Mutex<()>,
    pub(crate) name: PoolName,
    /// Set by the first free after a compaction by the worker; operations at its last look.
    stirred: AtomicBool,
    looked_at: AtomicU64,
}

/// Independent totals of a pool.
#[derive(Default)]
pub(crate) struct Counters {
    /// Frames of all zspages, and the most there ever were.
    pub(crate) frames: AtomicU64,
    pub(crate) frames_max: AtomicU64,
    /// Touched frames among them.
    pub(crate) resident: AtomicU64,
    /// Frames freed by compaction.
    pub(crate) compacted: AtomicU64,
    /// Zspages that are counted above but in no class: being built, or being given back.
    pub(crate) in_transit: AtomicU64,
    /// Bytes of objects at most, in touched frames; 0 = no limit.
    pub(crate) limit: AtomicU64,
    /// Leaves of this pool: for tables, for single handles.
    pub(crate) leaves: AtomicU64,
    pub(crate) handle_leaves: AtomicU64,
}

impl Pool {
    /// An empty pool on `memory`.
    ///
    /// # Errors
    ///
    /// [`MemoryError`] when the memory has had too many pools.
    pub fn new(memory: Arc<Memory>, config: PoolConfig) -> Result<Arc<Pool>, MemoryError> {
        let geometry = Geometry::new(config.rule, config.chain);
        let classes: Vec<Class> =
            geometry.classes().map(|index| Class::new(index, geometry.shape(index))).collect();
        let mut positions = Box::new([0; CLASSES]);
        for (position, class) in classes.iter().enumerate() {
            positions[class.index.get()] = position as u8;
        }
        let pool = Arc::new(Pool {
            id: memory.pool_id()?,
            memory,
            geometry,
            classes,
            positions,
            counters: Counters::default(),
            handles: HandleList::new(),
            compacting: Mutex::new(()),
            name: PoolName::default(),
            stirred: AtomicBool::new(false),
            looked_at: AtomicU64::new(0),
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
        let index = self.geometry.class_of(bytes.len());
        let index = index.ok_or(AllocError::BadLength { len: bytes.len() })?;
        let class = self.class(index);
        let slot = self.take_slot(class)?;
        let slack = class.shape.size - bytes.len() as u16;
        let place = Place { pfn: slot.pfn, class: index, object: slot.object, slack };
        let object = Object { pool: self, descriptor: slot.descriptor, place };
        self.charge(class, place, bytes.len())?;
        zspage::write(&self.memory.arena, class.shape, place, bytes);
        Ok(object)
    }

    pub(crate) fn class(&self, index: ClassIndex) -> &Class {
        &self.classes[usize::from(self.positions[index.get()])]
    }

    pub(crate) fn classes(&self) -> &[Class] {
        &self.classes
    }

    pub(crate) fn list(&self, class: &Class) -> List<'_> {
        List { heap: &self.memory.descriptors, shape: class.shape }
    }

    /// Frees the object at `place`. The caller holds the lock of the cell that names it, or owns
    /// it unpublished.
    pub(crate) fn free(&self, place: Place) {
        let class = self.class(place.class);
        let mut state = class.lock();
        let descriptor = self.memory.owner(place.pfn);
        let slot = Slot { descriptor, pfn: place.pfn, object: place.object };
        let emptied = state.give_slot(&self.list(class), slot);
        if emptied.is_some() {
            self.departs();
        }
        drop(state);
        if let Some(descriptor) = emptied {
            self.release_zspage(class, descriptor);
        }
        self.stir();
    }

    /// Tells the worker, once, that there may be something to compact.
    fn stir(&self) {
        // relaxed: a hint. A free that reads an old value is followed by the worker's second look.
        if !self.stirred.load(Ordering::Relaxed) && !self.stirred.swap(true, Ordering::Relaxed) {
            self.memory.worker.notice_stirred(&self.memory);
        }
    }

    /// True when no object was freed since the worker compacted the pool.
    pub fn is_settled(&self) -> bool {
        // relaxed: a hint.
        !self.stirred.load(Ordering::Relaxed)
    }

    /// Compacts the pool if objects were freed and nothing changed since the last call; false
    /// while it is in use.
    pub(crate) fn settle(&self) -> bool {
        if self.is_settled() {
            return true;
        }
        let operations = self.operations();
        // relaxed: the worker alone looks.
        if self.looked_at.swap(operations, Ordering::Relaxed) != operations {
            return false;
        }
        self.compact();
        // relaxed: a hint; a free during the compaction is one more reason for the next.
        self.stirred.store(false, Ordering::Relaxed);
        true
    }

    /// A zspage was taken out of its class, whose lock is held, and is about to be given back.
    pub(crate) fn departs(&self) {
        // relaxed: a total, compared only when nothing moves.
        self.counters.in_transit.fetch_add(1, Ordering::Relaxed);
    }

    /// A zspage on its way is in its class, whose lock is held, or gone.
    pub(crate) fn arrived(&self) {
        // relaxed: a total, compared only when nothing moves.
        self.counters.in_transit.fetch_sub(1, Ordering::Relaxed);
    }

    /// Gives the frames of a zspage that departed back to the zone, touched as they are.
    pub(crate) fn release_zspage(&self, class: &Class, descriptor: DescriptorId) {
        let run = self.dissolve(class, descriptor);
        self.memory.give_run(run);
        self.arrived();
    }

    /// Gives the frames of a zspage that departed back to the zone, and their memory to the system.
    pub(crate) fn return_zspage(&self, class: &Class, descriptor: DescriptorId) {
        let mut run = self.dissolve(class, descriptor);
        self.memory.purge_run(&mut run);
        self.memory.give_run(run);
        self.arrived();
    }

    fn dissolve(&self, class: &Class, descriptor: DescriptorId) -> Run {
        let pfn = self.list(class).get(descriptor).pfn();
        self.memory.set_owner(pfn, DescriptorId::NONE);
        self.memory.descriptors.free(descriptor);
        let frames = u32::from(class.shape.frames);
        let run = zspage::surrender(&self.memory.arena, pfn, frames);
        let resident = self.memory.arena.resident_in(pfn, frames);
        // relaxed: totals; the frames counted are this thread's.
        self.counters.frames.fetch_sub(u64::from(frames), Ordering::Relaxed);
        self.counters.resident.fetch_sub(u64::from(resident), Ordering::Relaxed);
        run
    }

    /// A zspage without objects, known to the caller alone and in transit: it is to arrive in its
    /// class, or to be given back.
    pub(crate) fn new_zspage(&self, class: &Class) -> Result<DescriptorId, AllocError> {
        self.departs();
        self.build_zspage(class).inspect_err(|_| self.arrived())
    }

    fn build_zspage(&self, class: &Class) -> Result<DescriptorId, AllocError> {
        let frames = u32::from(class.shape.frames);
        let descriptor = self.memory.descriptors.alloc(class.shape)?;
        let taken = self.memory.take_run(frames);
        let (mut run, mut resident) =
            taken.inspect_err(|_| self.memory.descriptors.free(descriptor))?;
        if self.is_over_limit(u64::from(resident)) {
            // The run brings touched frames along that the first object may not need.
            resident -= self.memory.purge_run(&mut run);
        }
        let pfn = zspage::adopt(run);
        self.list(class).get(descriptor).reset(pfn, class.index);
        self.memory.set_owner(pfn, descriptor);
        // relaxed: totals; the frames counted are this thread's.
        self.counters.resident.fetch_add(u64::from(resident), Ordering::Relaxed);
        self.counters.frames.fetch_add(u64::from(frames), Ordering::Relaxed);
        Ok(descriptor)
    }

    fn take_slot(&self, class: &Class) -> Result<Slot, AllocError> {
        let list = self.list(class);
        if let Some(slot) = class.lock().take_slot(&list) {
            return Ok(slot);
        }
        let descriptor = self.new_zspage(class)?;
        // relaxed: totals. Compaction's own zspages replace others and do not count as use.
        let frames = self.counters.frames.load(Ordering::Relaxed);
        // relaxed: totals.
        self.counters.frames_max.fetch_max(frames, Ordering::Relaxed);
        let mut state = class.lock();
        state.insert_zspage(&list, descriptor);
        self.arrived();
        Ok(state.take_slot_of(&list, descriptor))
    }

    /// True when `frames` more touched frames would exceed the limit.
    fn is_over_limit(&self, frames: u64) -> bool {
        let limit = self.limit();
        // relaxed: a total; the overshoot of racing threads is bounded and documented in `store`.
        let resident = self.counters.resident.load(Ordering::Relaxed);
        limit != 0 && (resident + frames) * PAGE_SIZE as u64 > limit
    }

    /// Counts the frames that writing `len` bytes at `place` touches for the first time.
    fn charge(&self, class: &Class, place: Place, len: usize) -> Result<(), AllocError> {
        let arena = &self.memory.arena;
        let (first, last) = zspage::frames_of(class.shape, place, len);
        let untouched = (first..=last).filter(|&pfn| !arena.is_resident(pfn)).count() as u64;
        if untouched == 0 {
            return Ok(());
        }
        if self.is_over_limit(untouched) {
            return Err(AllocError::OverLimit { limit: self.limit() });
        }
        self.touch(class, place, len);
        Ok(())
    }

    /// Marks the frames of `len` bytes at `place` as touched, and counts those that were not.
    pub(crate) fn touch(&self, class: &Class, place: Place, len: usize) {
        let (first, last) = zspage::frames_of(class.shape, place, len);
        let arena = &self.memory.arena;
        let touched = (first..=last).filter(|&pfn| arena.mark_resident(pfn)).count() as u64;
        if touched > 0 {
            // relaxed: a total; `mark_resident` is true for one thread per frame.
            self.counters.resident.fetch_add(touched, Ordering::Relaxed);
        }
    }
}

impl Drop for Pool {
    /// Frees everything that is still stored. Leaves are given back by their holders or, here,
    /// lost to this memory until it is dropped itself.
    fn drop(&mut self) {
        for class in &self.classes {
            let list = self.list(class);
            loop {
                let mut state = class.lock();
                let Some(descriptor) = state.zspages(list).next() else { break };
                state.remove_zspage(&list, descriptor);
                self.departs();
                drop(state);
                self.release_zspage(class, descriptor);
            }
        }
        self.handles.drain(self);
    }
}
