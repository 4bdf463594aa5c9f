//! Freeing: one at a time, or many under one lock hold per class.
//!
//! ```text
//!   handle, batch   word, unlocked -> pinned: class and zspage hold still
//!                   (batch: sorted by class and shard)
//!                   class lock, shard asked again    one hold per run of a class
//!                     slot and entry back
//!                   unlock                           then frames back, unless Release::Inside
//! ```
//!
//! Sources: `zs_free` as study S0 changed it; the drain of study S3 for the batch. S0 reads the
//! word again under the lock, because a move may have changed the place. Here a class has shards
//! and the zspage says which, so the place has to be right before the lock is known: the free pins
//! the object, as a reader does, and the mover lets it be. The entry goes back with the pin.
//!
//! Invariant: a handle is freed by its owner, so its word changes only by a move, and its class
//! never.
//!
//! Locks: one class. Of a batch, the classes that nobody holds come first, the others after that.

use host::LockGuard;
use host::sync::atomic::Ordering;

use crate::class::{Class, Slot, State};
use crate::descriptor::DescriptorId;
use crate::design::Release;
use crate::error::ForeignHandle;
use crate::geometry::CLASSES;
use crate::handle::Handle;
use crate::object::Object;
use crate::pool::{Pool, SHARDS_MAX};
use crate::release::Leaving;
use crate::word::{Place, Word};

/// Handles sorted together: what fits on a stack.
const BATCH: usize = if cfg!(loom) { 4 } else { 512 };
/// Locks a pool has at most.
const LOCKS_MAX: usize = CLASSES * SHARDS_MAX;

/// A batch, sorted: which lock each run of entries needs.
struct Sorted {
    entries: [u32; BATCH],
    /// End of each run, by position of its class.
    ends: [u16; LOCKS_MAX],
}

impl Pool {
    /// Frees the object of a handle.
    ///
    /// # Errors
    ///
    /// [`ForeignHandle`] with the handle when it is another pool's.
    pub fn free_handle(&self, handle: Handle) -> Result<(), ForeignHandle<Handle>> {
        if !self.owns(&handle) {
            return Err(ForeignHandle(handle));
        }
        let entry = handle.entry();
        let place = self.hold(entry);
        let slot = self.slot_of(place);
        let (class, mut state) = self.lock_zspage(place.class(), slot.descriptor);
        let mut leaving = Leaving::NONE;
        self.give(class, &mut state, slot, entry);
        self.settle_zspage(class, &mut state, slot.descriptor, &mut leaving);
        self.unlock_and_release(state, leaving);
        Ok(())
    }

    /// Frees the objects of many handles, 512 at a time: sorted by class, with one lock hold for
    /// all of a class.
    ///
    /// # Errors
    ///
    /// [`ForeignHandle`] with those that are another pool's; the others are freed.
    pub fn free_batch(
        &self,
        handles: impl IntoIterator<Item = Handle>,
    ) -> Result<(), ForeignHandle<Vec<Handle>>> {
        let mut foreign = Vec::new();
        let mut own = handles.into_iter().filter_map(|handle| {
            if self.owns(&handle) {
                return Some(handle.entry());
            }
            foreign.push(handle);
            None
        });
        let mut batch = [0; BATCH];
        loop {
            let mut len = 0;
            for (slot, entry) in batch.iter_mut().zip(&mut own) {
                *slot = entry;
                len += 1;
            }
            self.free_entries(&batch[..len]);
            if len < BATCH {
                break;
            }
        }
        drop(own);
        if foreign.is_empty() { Ok(()) } else { Err(ForeignHandle(foreign)) }
    }

    /// Frees the objects of at most [`BATCH`] entries that the caller owns.
    fn free_entries(&self, entries: &[u32]) {
        let sorted = self.sort_by_class(entries);
        let runs = || {
            let starts = std::iter::once(0).chain(sorted.ends.iter().copied().map(usize::from));
            let runs = starts.zip(&sorted.ends).map(|(start, &end)| start..usize::from(end));
            self.classes().iter().zip(runs).filter(|(_, run)| !run.is_empty())
        };
        let (mut busy, mut strays) = ([false; BATCH], Vec::new());
        let mut leaving = Leaving::NONE;
        for (index, (class, run)) in runs().enumerate() {
            match self.try_lock(class) {
                Some(state) => {
                    self.free_run(class, state, &sorted.entries[run], &mut leaving, &mut strays);
                }
                None => busy[index] = true,
            }
        }
        for (_, (class, run)) in runs().enumerate().filter(|&(index, _)| busy[index]) {
            let state = self.lock(class);
            self.free_run(class, state, &sorted.entries[run], &mut leaving, &mut strays);
        }
        for entry in strays {
            let place = self.held(entry);
            let (class, state) = self.lock_zspage(place.class(), self.memory.owner(place.pfn()));
            self.free_run(class, state, &[entry], &mut leaving, &mut Vec::new());
        }
        self.release_any(leaving);
        self.stir();
    }

    /// Pins the objects of a batch and sorts them by the lock that their zspages need.
    fn sort_by_class(&self, entries: &[u32]) -> Sorted {
        let mut sorted = Sorted { entries: [0; BATCH], ends: [0; LOCKS_MAX] };
        let (mut places, mut locks) = ([Word::default(); BATCH], [0_u16; BATCH]);
        // An exchange waits for its cache line, and what comes after waits for the exchange: so the
        // lines are asked for before.
        for &entry in entries {
            host::prefetch(self.handle_cell(entry));
        }
        for (&entry, place) in entries.iter().zip(&mut places) {
            let held = self.hold(entry);
            // One after the other on the way to the descriptors, all of a batch side by side.
            self.memory.prefetch_owner(held.pfn());
            *place = Word::default().with_place(held);
        }
        let places = places[..entries.len()].iter().filter_map(|word| word.place());
        for (place, lock) in places.zip(&mut locks) {
            let zspage = self.memory.descriptors.header(self.memory.owner(place.pfn()));
            let position = self.position(place.class(), zspage.shard());
            *lock = position as u16;
            sorted.ends[position] += 1;
        }
        let mut start = 0;
        for end in &mut sorted.ends[..self.classes().len()] {
            start += std::mem::replace(end, start);
        }
        for (&entry, &lock) in entries.iter().zip(&locks) {
            let next = &mut sorted.ends[usize::from(lock)];
            sorted.entries[usize::from(*next)] = entry;
            *next += 1;
        }
        sorted
    }

    /// Pins the object of an entry that the caller owns and is about to free; gives its place.
    #[inline]
    fn hold(&self, entry: u32) -> Place {
        let word = self.pin_last(self.handle_cell(entry), entry);
        word.place().expect("a handle's cell names its object")
    }

    /// The place of an object that [`Pool::hold`] has pinned.
    #[inline]
    fn held(&self, entry: u32) -> Place {
        // relaxed: the word holds still since this thread pinned it.
        let word = Word(self.handle_cell(entry).load(Ordering::Relaxed));
        word.place().expect("a handle's cell names its object")
    }

    /// Frees the objects of some entries of one class, whose lock this gives up; but for those
    /// whose zspage went to another shard.
    fn free_run(
        &self,
        class: &Class,
        mut state: LockGuard<'_, State>,
        entries: &[u32],
        leaving: &mut Leaving,
        strays: &mut Vec<u32>,
    ) {
        let mut current = DescriptorId::NONE;
        for &entry in entries {
            let slot = self.slot_of(self.held(entry));
            if self.memory.descriptors.header(slot.descriptor).shard() != class.shard {
                strays.push(entry);
                continue;
            }
            if slot.descriptor != current {
                self.settle_zspage(class, &mut state, current, leaving);
                current = slot.descriptor;
            }
            self.give(class, &mut state, slot, entry);
        }
        self.settle_zspage(class, &mut state, current, leaving);
        if self.release == Release::Inside {
            self.release_any(std::mem::replace(leaving, Leaving::NONE));
        }
    }

    /// Gives slot and entry of a handle back; the zspage is to be settled.
    #[inline(always)]
    fn give(&self, class: &Class, state: &mut State, slot: Slot, entry: u32) {
        state.give_slot(&self.list(class), slot);
        state.give_handle(entry, self);
    }

    /// Frees the object at `place`. The caller holds the lock of the cell that names it.
    pub(crate) fn free(&self, place: Place) {
        self.free_with_entry(place, 0);
    }

    /// Frees an object that nobody else knows, and the entry taken with it.
    pub(crate) fn free_unpublished(&self, object: &Object<'_>) {
        self.free_with_entry(object.place, object.entry);
    }

    /// Frees an object that the caller keeps from moving, and an entry of the caller's (0 = none).
    pub(crate) fn free_with_entry(&self, place: Place, entry: u32) {
        let slot = self.slot_of(place);
        let (class, mut state) = self.lock_zspage(place.class(), slot.descriptor);
        let mut leaving = Leaving::NONE;
        state.give_slot(&self.list(class), slot);
        if entry != 0 {
            state.give_entry(entry, self);
        }
        self.settle_zspage(class, &mut state, slot.descriptor, &mut leaving);
        self.unlock_and_release(state, leaving);
    }

    #[inline(always)]
    pub(crate) fn slot_of(&self, place: Place) -> Slot {
        let descriptor = self.memory.owner(place.pfn());
        Slot { descriptor, pfn: place.pfn(), object: place.object() }
    }

    /// Takes note of a zspage after slots of it were given back.
    #[inline(always)]
    fn settle_zspage(
        &self,
        class: &Class,
        state: &mut State,
        descriptor: DescriptorId,
        leaving: &mut Leaving,
    ) {
        let list = self.list(class);
        if descriptor == DescriptorId::NONE {
            return;
        }
        if state.settle(&list, descriptor) {
            leaving.push(self, descriptor);
        } else {
            class.hint_partial(true);
        }
    }

    #[inline(always)]
    fn unlock_and_release(&self, state: LockGuard<'_, State>, leaving: Leaving) {
        match self.release {
            Release::Outside => {
                drop(state);
                self.release_any(leaving);
            }
            Release::Inside => {
                self.release_any(leaving);
                drop(state);
            }
        }
        self.stir();
    }

    #[inline]
    fn release_any(&self, leaving: Leaving) {
        if !leaving.is_empty() {
            self.release_zspages(leaving);
        }
    }
}
