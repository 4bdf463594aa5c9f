//! One size class: its zspages by fullness, and the slots in them.
//!
//! ```text
//!   take_slot     the fullest zspage with room -> its lowest free slot
//!   note_given    after slots were given back: regrouped, or forgotten when it became empty
//! ```
//!
//! The zspage is chosen as the kernel chooses it (`find_get_zspage`). The slot is the lowest free
//! one, where the kernel takes the one freed last. So a frame that no object has reached stays
//! untouched, except in one zspage among many (`charge`).
//!
//! Invariants
//! - I1 `objects` = sum of the slots in use over the zspages.
//! - I2 no zspage stays without objects: the thread that emptied it takes it out and releases it.
//!
//! A class may have several shards, each with zspages and a lock of its own. A CPU allocates from
//! its own shard, and an object is freed in its zspage's. Zspages with room go to another shard
//! when that one has none, or when the class is compacted.
//!
//! Lock: `Class::state`, rank Class; two shards of a class by trying the second. Frames are taken
//! and given back outside it.

mod entries;
mod fullness;
mod handles;
mod stock;

use host::sync::atomic::{AtomicBool, Ordering};
use host::{Lock, LockGuard};

use crate::numbers::{CellNumber, ClassIndex, MemoryError, Place, SHARDS_MAX, Shape, Slot};
use crate::zspages::{Descriptor, DescriptorHeap, DescriptorId, Header, Zspage};
use entries::Entries;
pub use fullness::GROUPS;
pub(crate) use fullness::{Descriptors, group_of};
use fullness::{Fullness, Layout};

pub(crate) use stock::Stocks;

/// A shard of a class with so many zspages is large: one more adds little to it, even if all of the
/// new one is touched before it is used.
const LARGE: usize = 32;

/// The most shards that a class gets unasked, because each may hold one partly filled zspage more.
const SHARDS_UNASKED: usize = 4;

/// Shards of each class, where so many were asked for.
///
/// # Errors
///
/// [`MemoryError`] when there are to be none, or too many.
pub(crate) fn shards_asked(asked: Option<usize>) -> Result<usize, MemoryError> {
    match asked {
        None => Ok(host::cpu::count().min(SHARDS_UNASKED)),
        Some(shards @ 1..=SHARDS_MAX) => Ok(shards),
        Some(_) => Err(MemoryError::BadConfig { what: "a class has 1 to 8 shards" }),
    }
}

/// A class of one pool, or one shard of it: the zspages that one group of CPUs allocates from.
/// Alone on its cache lines, since other threads lock the neighbours.
#[repr(align(64))]
pub(crate) struct Class {
    pub(crate) index: ClassIndex,
    pub(crate) shape: Shape,
    pub(crate) shard: usize,
    /// Which lock this is: its number among all shards of the pool's classes.
    pub(crate) number: usize,
    layout: Layout,
    /// Zspages with objects and room may be here: worth a look for other shards.
    partial: AtomicBool,
    /// When it last took a new zspage it had so many that all of the new one will be used.
    large: AtomicBool,
    state: Apart<Lock<State>>,
}

/// A value on cache lines of its own, apart from what every operation reads.
#[repr(align(64))]
struct Apart<T>(T);
const _: () = assert!(
    cfg!(any(loom, shuttle)) || size_of::<Apart<Lock<State>>>() == 128,
    "a lock and what it protects are two cache lines"
);

/// What the class lock protects.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// Slots in use. Each is behind one of fewer than 2^32 cells, except those that threads are
    /// about to publish.
    pub(crate) objects: u32,
    /// Allocations and frees so far, modulo 2^32: tells a check what moved while it looked
    /// elsewhere.
    pub(crate) operations: u32,
    /// Zspages, and entries, that departed from this class, less those that came back to it. Modulo
    /// 2^32; see `pool::leaving`.
    pub(crate) departed: u32,
    /// Handles made here less those freed here, modulo 2^32. Only the sum over the shards has a
    /// meaning.
    pub(crate) handles: u32,
    /// Free entries for handles, and for raw ones.
    pub(crate) entries: Entries,
    pub(crate) fullness: Fullness,
    pub(crate) raw_entries: Entries,
}

/// What is known of the bytes of a slot that was just taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    /// The system zeroed them a moment ago, most likely: a zspage is filled from its first slot up,
    /// and has holes later. They are in a cache.
    Fresh,
    /// They were touched before they were freed, most likely.
    Old,
    /// The same, and every frame of the zspage is touched.
    Touched,
}

impl Age {
    /// The age of the slot `object`, which was just taken in a zspage.
    #[inline(always)]
    fn of(object: u8, zspage: Header<'_>) -> Age {
        match zspage.use_and_touched() {
            (_, true) => Age::Touched,
            (in_use, false) if u16::from(object) + 1 == in_use => Age::Fresh,
            (_, false) => Age::Old,
        }
    }
}

impl Class {
    /// A class that `lock` protects, without objects.
    pub(crate) fn new(
        index: ClassIndex,
        shape: Shape,
        (shard, number): (usize, usize),
        lock: Lock<State>,
    ) -> Class {
        let layout = Layout::new(shape);
        let (partial, large) = (AtomicBool::new(false), AtomicBool::new(false));
        Class { index, shape, shard, number, layout, partial, large, state: Apart(lock) }
    }

    /// Whether a new zspage is one among many.
    pub(crate) fn is_large(&self) -> bool {
        // relaxed: a hint.
        self.large.load(Ordering::Relaxed)
    }

    /// Sets the hint by how many zspages there are; the lock is held.
    pub(crate) fn hint_large(&self, zspages: usize) {
        set_hint(&self.large, zspages >= LARGE);
    }

    /// Whether another shard may find a zspage here.
    pub(crate) fn may_have_partial(&self) -> bool {
        // relaxed: a hint.
        self.partial.load(Ordering::Relaxed)
    }

    /// Sets the hint; the lock is held.
    #[inline]
    pub(crate) fn hint_partial(&self, partial: bool) {
        set_hint(&self.partial, partial);
    }

    /// What its zspages have in common.
    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The place of an object of `len` bytes in a slot of the class.
    #[inline]
    pub(crate) fn place(&self, slot: Slot, len: usize) -> Place {
        Place::new(slot, self.index, self.shape.size - len as u16)
    }

    /// How the class finds its descriptors.
    #[inline]
    pub(crate) fn descriptors<'a>(&'a self, heap: &'a DescriptorHeap) -> Descriptors<'a> {
        Descriptors { headers: heap.headers(), layout: &self.layout }
    }

    /// Starts loading the class, before its lock is taken.
    #[inline]
    pub(crate) fn prefetch(&self) {
        host::prefetch_bytes((&raw const *self).cast(), size_of_val(self));
    }

    pub(crate) fn try_lock(&self) -> Option<LockGuard<'_, State>> {
        self.state.0.try_lock()
    }

    #[inline]
    pub(crate) fn lock(&self) -> LockGuard<'_, State> {
        self.state.0.lock()
    }
}

/// Sets a hint only if it changes, because other CPUs read its cache line.
#[inline]
pub(crate) fn set_hint(hint: &AtomicBool, to: bool) {
    // relaxed: a hint.
    if hint.load(Ordering::Relaxed) != to {
        // relaxed: a hint.
        hint.store(to, Ordering::Relaxed);
    }
}

impl State {
    /// Takes a slot of a zspage that has room, for `owner` (`NONE`: not known yet).
    #[inline(always)]
    pub(crate) fn take_slot(
        &mut self,
        of: &Descriptors<'_>,
        owner: CellNumber,
    ) -> Option<(Slot, Age)> {
        let descriptor = self.fullness.fullest_with_room()?;
        let zspage = of.get(descriptor);
        self.fullness.fill_fullest(of, zspage.in_use());
        Some(self.take_lowest(zspage, owner))
    }

    /// Takes the lowest free slot of a zspage that has one.
    #[inline(always)]
    pub(crate) fn take_slot_in(
        &mut self,
        of: &Descriptors<'_>,
        descriptor: DescriptorId,
        owner: CellNumber,
    ) -> (Slot, Age) {
        let zspage = of.get(descriptor);
        let in_use = zspage.in_use();
        self.fullness.regroup(of, Zspage { id: descriptor, header: *zspage }, in_use, in_use + 1);
        self.take_lowest(zspage, owner)
    }

    #[inline(always)]
    fn take_lowest(&mut self, zspage: Descriptor<'_>, owner: CellNumber) -> (Slot, Age) {
        let object = zspage.take_lowest(owner).expect("a zspage with room has a free slot");
        self.objects += 1;
        self.operated(1);
        let slot = zspage.slot(object);
        (slot, Age::of(slot.object, *zspage))
    }

    /// Gives back what [`State::take_slot_in`] gave. The zspage stays, even if it is empty.
    pub(crate) fn untake(&mut self, of: &Descriptors<'_>, descriptor: DescriptorId, slot: Slot) {
        let zspage = of.get(descriptor);
        zspage.give(usize::from(slot.object));
        let in_use = zspage.in_use();
        let regrouped = Zspage { id: descriptor, header: *zspage };
        self.fullness.regroup(of, regrouped, in_use + 1, in_use);
        self.objects -= 1;
    }

    /// Takes note that `given` slots of a zspage were given back. True if it is empty. It is out of
    /// the class then, and the caller releases it after the lock.
    #[inline(always)]
    pub(crate) fn note_given(
        &mut self,
        of: &Descriptors<'_>,
        zspage: Zspage<'_>,
        given: usize,
    ) -> bool {
        let in_use = zspage.header.in_use();
        self.fullness.regroup(of, zspage, in_use + given, in_use);
        self.objects -= given as u32;
        self.operated(given as u32);
        let empty = in_use == 0;
        if empty {
            self.fullness.leave(*of, zspage.id);
            self.departs();
        }
        empty
    }

    /// As [`State::note_given`], for one slot that was given back. `in_use` are left.
    #[inline(always)]
    pub(crate) fn note_one_given(
        &mut self,
        of: &Descriptors<'_>,
        zspage: Zspage<'_>,
        in_use: usize,
    ) -> bool {
        self.count_freed(1);
        self.drain_one(of, zspage, in_use)
    }

    /// As [`State::note_one_given`], where the object is counted with others.
    #[inline(always)]
    pub(crate) fn drain_one(
        &mut self,
        of: &Descriptors<'_>,
        zspage: Zspage<'_>,
        in_use: usize,
    ) -> bool {
        self.fullness.drain_one(of, zspage, in_use);
        let empty = in_use == 0;
        if empty {
            self.fullness.leave(*of, zspage.id);
            self.departs();
        }
        empty
    }

    /// Counts objects of handles that were freed with [`State::drain_one`].
    #[inline(always)]
    pub(crate) fn count_freed_handles(&mut self, freed: u32) {
        self.handles = self.handles.wrapping_sub(freed);
        self.count_freed(freed);
    }

    /// Counts objects that were freed with [`State::drain_one`].
    #[inline(always)]
    pub(crate) fn count_freed(&mut self, freed: u32) {
        self.objects -= freed;
        self.operated(freed);
    }

    /// Objects were allocated or freed, or what is kept of them changed.
    #[inline(always)]
    pub(crate) fn operated(&mut self, count: u32) {
        self.operations = self.operations.wrapping_add(count);
    }

    /// A zspage, or a chain of entries, is in no class from here on, and on its way: to be given
    /// back, or to a class.
    #[inline]
    pub(crate) fn departs(&mut self) {
        self.departed = self.departed.wrapping_add(1);
    }

    /// A zspage or chain that departed from this class is in it again, or was built for it. A
    /// recount that sees the arrival has seen the departure.
    pub(crate) fn arrives(&mut self) {
        self.departed = self.departed.wrapping_sub(1);
    }

    /// Takes a zspage out of the class, with its objects.
    pub(crate) fn remove(&mut self, of: &Descriptors<'_>, descriptor: DescriptorId) {
        self.fullness.leave(*of, descriptor);
        self.objects -= of.header(descriptor).in_use() as u32;
        self.operated(1);
    }

    /// Enters a zspage, with its objects; room for it was reserved.
    pub(crate) fn insert(&mut self, of: &Descriptors<'_>, descriptor: DescriptorId) {
        self.fullness.enter(of, descriptor);
        self.objects += of.header(descriptor).in_use() as u32;
        self.operated(1);
    }
}
