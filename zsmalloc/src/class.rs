//! One size class: its zspages by fullness, and the slots in them.
//!
//! ```text
//!   take_slot     active zspage, else head of the fullest group with room -> lowest free slot
//!   settle        after slots were given back: zspage unsorted, or forgotten when it became empty
//! ```
//!
//! The zspage is chosen as the kernel chooses it (`find_get_zspage`), the slot is the lowest free
//! one where the kernel takes the one freed last: a frame that no object reached is never touched.
//! A zspage that was chosen is active, and in no list, until it is full. The kernel chooses for
//! every allocation: it would leave a zspage for a fuller one that has just lost an object.
//!
//! Invariants
//! - I1 `objects` = sum of the slots in use over the zspages of all groups.
//! - I2 every zspage but the active one is in a list.
//! - I3 no zspage stays without objects: it is taken out and released by whoever emptied it.
//!
//! A class may have several shards, each with zspages and a lock of its own; a CPU allocates from
//! its own shard, an object is freed in its zspage's. Zspages with room go to another shard when
//! that one has none, or when the class is compacted.
//!
//! Lock: `Class::state`, rank Class; two shards of a class by trying the second. Frames are taken
//! and given back outside it.

use std::sync::Arc;

use host::sync::atomic::{AtomicBool, Ordering};
use host::{Lock, LockGuard, LockWord, Rank};

use crate::descriptor::{DescriptorId, body_words};
use crate::descriptor_heap::DescriptorHeap;
use crate::entries::Entries;
use crate::geometry::{ClassIndex, Shape};
use crate::group::{Groups, LISTS, List, Tenth};

/// Unsorted zspages filed before a zspage is chosen, at most.
const SORTED_AT_ONCE: usize = 8;

/// A class of one pool, or one shard of it: the zspages that one group of CPUs allocates from.
/// Alone on its cache lines, since other threads lock the neighbours.
#[repr(align(64))]
pub(crate) struct Class {
    pub(crate) index: ClassIndex,
    pub(crate) shape: Shape,
    pub(crate) shard: usize,
    /// Words of a descriptor's body.
    words: usize,
    tenth: Tenth,
    /// Zspages with objects and room may be in the lists: worth a look for other shards.
    partial: AtomicBool,
    state: Apart<Lock<State>>,
}

/// Apart from what every operation reads.
#[repr(align(64))]
struct Apart<T>(T);

/// What the class lock protects.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) groups: Groups,
    /// Allocated from, and in no list.
    active: DescriptorId,
    /// Slots in use.
    pub(crate) objects: u64,
    /// Zspages there are.
    pub(crate) zspages: u64,
    /// Allocations and frees so far: tells a check what moved while it looked elsewhere.
    pub(crate) operations: u64,
    /// Free entries for handles, and for raw ones.
    pub(crate) entries: Entries,
    pub(crate) raw_entries: Entries,
    /// Handles made here less those freed here; only the sum over the shards means something.
    pub(crate) handles: i64,
}

/// A slot that was taken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot {
    pub(crate) descriptor: DescriptorId,
    pub(crate) pfn: u32,
    pub(crate) object: u8,
}

impl Class {
    /// A class with a lock of its own, or one that uses `word`.
    pub(crate) fn new(
        index: ClassIndex,
        shape: Shape,
        shard: usize,
        word: Option<&Arc<LockWord>>,
    ) -> Class {
        let state = match word {
            None => Lock::new(Rank::Class, State::default()),
            Some(word) => Lock::sharing(Arc::clone(word), Rank::Class, State::default()),
        };
        let (words, tenth) = (body_words(shape), Tenth::of(shape.objects));
        let partial = AtomicBool::new(false);
        Class { index, shape, shard, words, tenth, partial, state: Apart(state) }
    }

    /// Whether another shard may find a zspage here.
    pub(crate) fn may_have_partial(&self) -> bool {
        // relaxed: a hint.
        self.partial.load(Ordering::Relaxed)
    }

    /// Sets the hint; the lock is held.
    #[inline]
    pub(crate) fn hint_partial(&self, partial: bool) {
        // relaxed: a hint, stored only when it changes, as other CPUs read its cache line.
        if self.partial.load(Ordering::Relaxed) != partial {
            // relaxed: a hint.
            self.partial.store(partial, Ordering::Relaxed);
        }
    }

    /// How the class finds its descriptors.
    #[inline]
    pub(crate) fn list<'a>(&self, heap: &'a DescriptorHeap) -> List<'a> {
        List { heap, shape: self.shape, words: self.words, tenth: self.tenth }
    }

    pub(crate) fn try_lock(&self) -> Option<LockGuard<'_, State>> {
        self.state.0.try_lock()
    }

    #[inline]
    pub(crate) fn lock(&self) -> LockGuard<'_, State> {
        self.state.0.lock()
    }
}

impl State {
    /// Takes a slot of a zspage that has room, for `owner` (0 = not known yet).
    #[inline(always)]
    pub(crate) fn take_slot(&mut self, list: &List<'_>, owner: u32) -> Option<Slot> {
        if self.active == DescriptorId::NONE {
            self.groups.sort(list, SORTED_AT_ONCE);
            let fullest = self.groups.fullest_with_room()?;
            self.activate(list, fullest);
        }
        Some(self.take_active(list, owner))
    }

    /// Takes the lowest free slot of the active zspage, which has one.
    #[inline(always)]
    pub(crate) fn take_active(&mut self, list: &List<'_>, owner: u32) -> Slot {
        let descriptor = self.active;
        let zspage = list.get(descriptor);
        let object = zspage.take_lowest(owner).expect("the active zspage has a free slot");
        let in_use = zspage.in_use();
        self.groups.recount(list, in_use - 1, in_use);
        if in_use == usize::from(list.shape.objects) {
            self.file_active(list);
        }
        self.objects += 1;
        self.operations += 1;
        Slot { descriptor, pfn: zspage.pfn(), object: object as u8 }
    }

    /// Makes a zspage with room the active one.
    pub(crate) fn activate(&mut self, list: &List<'_>, descriptor: DescriptorId) {
        self.file_active(list);
        self.groups.unfile(list, descriptor);
        self.active = descriptor;
    }

    /// Files the active zspage under its fullness; none is active then.
    pub(crate) fn file_active(&mut self, list: &List<'_>) {
        if let Some(active) = std::mem::take(&mut self.active).some() {
            self.groups.file(list, active);
        }
    }

    /// Takes back what [`State::take_active`] gave: its zspage is active again.
    pub(crate) fn untake(&mut self, list: &List<'_>, slot: Slot) {
        self.activate(list, slot.descriptor);
        list.get(slot.descriptor).give(usize::from(slot.object));
        self.given(list, slot.descriptor, 1);
    }

    /// Takes note of a zspage that `given` slots were given back of. True when it is empty: it is
    /// then out of the class, and the caller releases it after the lock.
    #[inline(always)]
    pub(crate) fn settle(
        &mut self,
        list: &List<'_>,
        descriptor: DescriptorId,
        given: usize,
    ) -> bool {
        self.given(list, descriptor, given);
        let empty = list.header(descriptor).in_use() == 0;
        if empty {
            if descriptor == self.active {
                self.active = DescriptorId::NONE;
            }
            self.groups.leave(list, descriptor);
            self.zspages -= 1;
        } else if descriptor != self.active {
            self.groups.unsort(list, descriptor);
        }
        empty
    }

    #[inline(always)]
    fn given(&mut self, list: &List<'_>, descriptor: DescriptorId, given: usize) {
        let in_use = list.header(descriptor).in_use();
        self.groups.recount(list, in_use + given, in_use);
        self.objects -= given as u64;
        self.operations += given as u64;
    }

    /// Enters a zspage that has no objects as the active one; the caller takes a slot of it before
    /// unlocking.
    pub(crate) fn insert_zspage(&mut self, list: &List<'_>, descriptor: DescriptorId) {
        self.groups.enter(list, descriptor);
        self.activate(list, descriptor);
        self.zspages += 1;
    }

    /// Takes a zspage with objects and room out of the class, for another shard of it; not the
    /// active one.
    pub(crate) fn take_partial(&mut self, list: &List<'_>) -> Option<DescriptorId> {
        self.groups.sort(list, SORTED_AT_ONCE);
        let partial = self.groups.fullest_with_room()?;
        self.remove(list, partial);
        Some(partial)
    }

    /// Enters a zspage that another shard gave up; both locks are held.
    pub(crate) fn adopt(&mut self, list: &List<'_>, descriptor: DescriptorId, shard: usize) {
        let zspage = list.header(descriptor);
        zspage.set_shard(shard);
        self.groups.count_in(list, zspage.in_use());
        self.groups.file(list, descriptor);
        self.objects += zspage.in_use() as u64;
        self.zspages += 1;
        self.operations += 1;
    }

    /// Takes any zspage out of the class, for a pool that is being dropped.
    pub(crate) fn take_any(&mut self, list: &List<'_>) -> Option<DescriptorId> {
        self.file_active(list);
        let any = (0..LISTS).find_map(|list| self.groups.head(list))?;
        self.remove(list, any);
        Some(any)
    }

    fn remove(&mut self, list: &List<'_>, descriptor: DescriptorId) {
        let in_use = list.header(descriptor).in_use();
        self.groups.unfile(list, descriptor);
        self.groups.count_out(list, in_use);
        self.objects -= in_use as u64;
        self.zspages -= 1;
        self.operations += 1;
    }
}
