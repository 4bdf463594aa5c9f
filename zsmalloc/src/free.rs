//! Freeing: one at a time, or many under one lock hold per class.
//!
//! ```text
//!   handle, batch   word, owner, header, unlocked -> class and shard, or what they were
//!                   (batch: sorted by class and shard)
//!                   class lock, all three read again   one hold per run of a class
//!                     slot and entry back
//!                   unlock                             then frames back, unless Release::Inside
//! ```
//!
//! Sources: `zs_free` as study S0 changed it; the drain of study S3 for the batch.
//!
//! Invariants
//! - I1 a handle is freed by its owner, so its word changes only by a move, and its class never.
//! - I2 objects of a shard move, and zspages leave it, under its lock alone. So what is read under
//!   a lock holds still if it names the lock's shard, and was not read across a move elsewhere that
//!   ended one zspage's life and began another's on the same frame. Moves are counted after their
//!   words are written and before their frames go back: whoever sees the new life sees the count.
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
pub(crate) const BATCH: usize = if cfg!(loom) { 4 } else { 512 };
/// Locks a pool has at most.
const LOCKS_MAX: usize = CLASSES * SHARDS_MAX;

/// A batch, sorted: which lock each run of entries needs.
struct Sorted {
    entries: [u32; BATCH],
    /// End of each run, by position of its class.
    ends: [u16; LOCKS_MAX],
}

/// Entries to be freed together: when asked to, and at the latest when dropped, so that a caller's
/// iterator that panics loses nothing it has given.
struct Batch<'p> {
    pool: &'p Pool,
    entries: [u32; BATCH],
    len: usize,
}

impl Batch<'_> {
    /// Adds entries while there are any; true when there is room for no more.
    fn fill(&mut self, entries: &mut impl Iterator<Item = u32>) -> bool {
        while self.len < BATCH
            && let Some(entry) = entries.next()
        {
            self.entries[self.len] = entry;
            self.len += 1;
        }
        self.len == BATCH
    }

    fn free(&mut self) {
        let len = std::mem::take(&mut self.len);
        if len > 0 {
            self.pool.free_entries(&self.entries[..len]);
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.free();
    }
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
        self.free_entry(handle.entry());
        Ok(())
    }

    /// Frees the object of an entry that the caller owns.
    #[inline(always)]
    pub(crate) fn free_entry(&self, entry: u32) {
        let (class, mut state, slot) = self.lock_object(entry);
        let mut leaving = Leaving::NONE;
        self.give_slot(class, slot);
        state.give_handle(entry, self);
        self.settle_zspage(class, &mut state, (slot.descriptor, 1), &mut leaving);
        self.unlock_and_release(state, leaving);
    }

    /// Frees the objects of many handles, 512 at a time: sorted by class, with one lock hold for
    /// all of a class. Where the iterator panics, those it gave before are freed.
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
        let mut batch = Batch { pool: self, entries: [0; BATCH], len: 0 };
        while batch.fill(&mut own) {
            batch.free();
        }
        batch.free();
        drop(own);
        if foreign.is_empty() { Ok(()) } else { Err(ForeignHandle(foreign)) }
    }

    /// Frees the objects of at most [`BATCH`] entries that the caller owns.
    pub(crate) fn free_entries(&self, entries: &[u32]) {
        let sorted = self.sort_by_lock(entries);
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
        // One by one, each where it is found: asked for again, it could be a stray again.
        strays.into_iter().for_each(|entry| self.free_entry(entry));
        self.release_any(leaving);
        self.stir();
    }

    /// Sorts a batch by the lock that each object's zspage is under, or was a moment ago.
    fn sort_by_lock(&self, entries: &[u32]) -> Sorted {
        let mut sorted = Sorted { entries: [0; BATCH], ends: [0; LOCKS_MAX] };
        let mut locks = [0_u16; BATCH];
        // One after the other on the way to a header, all of a batch side by side.
        for &entry in entries {
            host::prefetch(self.handle_cell(entry));
        }
        for &entry in entries {
            self.memory.prefetch_owner(self.place_of(entry).pfn());
        }
        for (&entry, lock) in entries.iter().zip(&mut locks) {
            let position = self.lock_of(entry);
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

    /// Where the object of an entry is, or was a moment ago; the caller owns it.
    #[inline(always)]
    pub(crate) fn place_of(&self, entry: u32) -> Place {
        // Acquire pairs with the Release of whoever published the object or moved it, so that the
        // frame's descriptor is seen, and its header, as they were then or later.
        let word = Word(self.handle_cell(entry).load(Ordering::Acquire));
        word.place().expect("a handle's cell names its object")
    }

    /// The position of the class, and shard, whose lock an object is under, or was a moment ago.
    #[inline(always)]
    fn lock_of(&self, entry: u32) -> usize {
        let place = self.place_of(entry);
        let header = self.memory.descriptors.header(self.memory.owner(place.pfn()));
        // The frame may be another zspage's by now, of a pool with more shards.
        self.position(place.class(), header.shard().min(self.shards - 1))
    }

    /// Locks the class that an object is in; gives its slot.
    #[inline(always)]
    fn lock_object(&self, entry: u32) -> (&Class, LockGuard<'_, State>, Slot) {
        loop {
            let class = &self.classes[self.lock_of(entry)];
            let state = self.lock(class);
            if let Some(slot) = self.slot_in(class, entry) {
                return (class, state, slot);
            }
            // It was moved meanwhile, or its zspage given to another shard.
            drop(state);
            host::sync::hint::spin_loop();
        }
    }

    /// The slot of an object, if its zspage is in `class`, whose lock is held (I2).
    #[inline(always)]
    fn slot_in(&self, class: &Class, entry: u32) -> Option<Slot> {
        // Acquire pairs with the Release in `count_move`: a word is seen as a counted move left it.
        let moves = self.moves.load(Ordering::Acquire);
        let slot = self.slot_of(self.place_of(entry));
        let shard = self.memory.descriptors.header(slot.descriptor).shard();
        // relaxed: read after the descriptor, whose Acquire shows the moves before its life.
        let still = self.moves.load(Ordering::Relaxed) == moves;
        (still && shard == class.shard).then_some(slot)
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
        let mut current = (DescriptorId::NONE, 0);
        for &entry in entries {
            let Some(slot) = self.slot_in(class, entry) else {
                strays.push(entry);
                continue;
            };
            if slot.descriptor != current.0 {
                self.settle_zspage(class, &mut state, current, leaving);
                current = (slot.descriptor, 0);
            }
            self.give_slot(class, slot);
            state.give_handle(entry, self);
            current.1 += 1;
        }
        self.settle_zspage(class, &mut state, current, leaving);
        if self.release == Release::Inside {
            self.release_any(std::mem::replace(leaving, Leaving::NONE));
        }
    }

    /// Gives a slot back, whose class lock is held; its zspage is to be settled.
    #[inline(always)]
    pub(crate) fn give_slot(&self, class: &Class, slot: Slot) {
        self.descriptors(class).get(slot.descriptor).give(usize::from(slot.object));
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
        self.give_slot(class, slot);
        if entry != 0 {
            state.give_entry(entry, self);
        }
        self.settle_zspage(class, &mut state, (slot.descriptor, 1), &mut leaving);
        self.unlock_and_release(state, leaving);
    }

    #[inline(always)]
    pub(crate) fn slot_of(&self, place: Place) -> Slot {
        let descriptor = self.memory.owner(place.pfn());
        Slot { descriptor, pfn: place.pfn(), object: place.object() }
    }

    /// Takes note of a zspage after so many slots of it were given back.
    #[inline(always)]
    pub(crate) fn settle_zspage(
        &self,
        class: &Class,
        state: &mut State,
        (descriptor, given): (DescriptorId, usize),
        leaving: &mut Leaving,
    ) {
        let of = self.descriptors(class);
        if descriptor == DescriptorId::NONE {
            return;
        }
        if state.settle(&of, descriptor, given) {
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
    pub(crate) fn release_any(&self, leaving: Leaving) {
        if !leaving.is_empty() {
            self.release_zspages(leaving);
        }
    }
}
