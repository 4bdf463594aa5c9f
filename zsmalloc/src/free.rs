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

use crate::class::{Class, State};
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
/// The end of a list.
const END: u16 = u16::MAX;
const _: () = assert!(BATCH < END as usize, "a position in a batch is no end");

/// An object as its owner finds it without a lock: where it was a moment ago.
#[derive(Clone, Copy)]
struct Found {
    descriptor: DescriptorId,
    /// The lock it is under.
    lock: u16,
    object: u8,
}

/// A batch, as a list for each lock.
struct Sorted {
    found: [Found; BATCH],
    /// By position in the batch: the one before it in its list.
    next: [u16; BATCH],
    /// By lock: the last position in its list.
    heads: [u16; LOCKS_MAX],
    /// Locks whose list is, or was, not empty.
    locks: [u16; BATCH],
    locks_len: usize,
    /// Moves that were counted before the first look.
    moves: u64,
}

impl Sorted {
    #[inline(always)]
    fn push(&mut self, position: usize, found: Found) {
        let head = &mut self.heads[usize::from(found.lock)];
        if *head == END {
            self.locks[self.locks_len] = found.lock;
            self.locks_len += 1;
        }
        self.next[position] = std::mem::replace(head, position as u16);
        self.found[position] = found;
    }

    /// Takes the list of a lock.
    fn take(&mut self, class: &Class) -> u16 {
        std::mem::replace(&mut self.heads[class.number], END)
    }
}

/// What a lock hold leaves to be done.
struct Rest {
    /// Zspages that were emptied.
    leaving: Leaving,
    /// Entries whose object is no longer under the lock.
    strays: Vec<u32>,
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
            host::prefetch(self.pool.handle_cell(entry));
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
    fn free_entry(&self, entry: u32) {
        let (class, mut state, found) = self.lock_object(entry);
        let mut leaving = Leaving::NONE;
        self.give_slot(found);
        state.give_handle(entry, self);
        self.settle_zspage(class, &mut state, (found.descriptor, 1), &mut leaving);
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
    fn free_entries(&self, entries: &[u32]) {
        let mut sorted = self.sort_by_lock(entries);
        let mut rest = Rest { leaving: Leaving::NONE, strays: Vec::new() };
        // Those first that nobody holds.
        for index in 0..sorted.locks_len {
            let class = &self.classes[usize::from(sorted.locks[index])];
            if let Some(state) = self.try_lock(class) {
                self.free_list(class, state, entries, &mut sorted, &mut rest);
            }
        }
        for index in 0..sorted.locks_len {
            let class = &self.classes[usize::from(sorted.locks[index])];
            if sorted.heads[class.number] != END {
                self.free_list(class, self.lock(class), entries, &mut sorted, &mut rest);
            }
        }
        // One by one, each where it is found: asked for again, it could be a stray again.
        rest.strays.into_iter().for_each(|entry| self.free_entry(entry));
        self.release_any(rest.leaving);
        self.stir();
    }

    /// Sorts a batch by the lock that each object's zspage is under, or was a moment ago.
    fn sort_by_lock(&self, entries: &[u32]) -> Sorted {
        let nothing = Found { descriptor: DescriptorId::NONE, lock: 0, object: 0 };
        let mut sorted = Sorted {
            found: [nothing; BATCH],
            next: [END; BATCH],
            heads: [END; LOCKS_MAX],
            locks: [0; BATCH],
            locks_len: 0,
            moves: self.moves(),
        };
        for (position, &entry) in entries.iter().enumerate() {
            sorted.push(position, self.find(entry));
        }
        sorted
    }

    /// Where the object of an entry is, or was a moment ago; the caller owns it.
    #[inline(always)]
    fn find(&self, entry: u32) -> Found {
        // Acquire pairs with the Release of whoever published the object or moved it, so that the
        // frame's descriptor is seen, and its header, as they were then or later.
        let word = Word(self.handle_cell(entry).load(Ordering::Acquire));
        let place = word.place().expect("a handle's cell names its object");
        let descriptor = self.memory.owner(place.pfn());
        let lock = self.memory.descriptors.header(descriptor).lock();
        // The frame may be another zspage's by now, of a pool with more locks.
        let lock = lock.min(self.classes.len() - 1) as u16;
        Found { descriptor, lock, object: place.object() }
    }

    /// Moves that were counted.
    #[inline]
    fn moves(&self) -> u64 {
        // Acquire pairs with the Release in `count_move`: words are seen as counted moves left them.
        self.moves.load(Ordering::Acquire)
    }

    /// Locks the class that an object is in; gives where.
    #[inline(always)]
    fn lock_object(&self, entry: u32) -> (&Class, LockGuard<'_, State>, Found) {
        loop {
            let moves = self.moves();
            let found = self.find(entry);
            let class = &self.classes[usize::from(found.lock)];
            let state = self.lock(class);
            if self.moves() == moves {
                return (class, state, found);
            }
            if let Some(found) = self.find_in(class, entry) {
                return (class, state, found);
            }
            drop(state);
            host::sync::hint::spin_loop();
        }
    }

    /// The object of an entry, if its zspage is in `class`, whose lock is held (I2).
    #[cold]
    fn find_in(&self, class: &Class, entry: u32) -> Option<Found> {
        let moves = self.moves();
        let found = self.find(entry);
        (self.moves() == moves && usize::from(found.lock) == class.number).then_some(found)
    }

    /// Frees the objects of a batch that are under one lock, which this gives up; but for those
    /// whose zspage went to another shard.
    fn free_list(
        &self,
        class: &Class,
        mut state: LockGuard<'_, State>,
        entries: &[u32],
        sorted: &mut Sorted,
        rest: &mut Rest,
    ) {
        let still = self.moves() == sorted.moves;
        let (mut current, mut position) = ((DescriptorId::NONE, 0), sorted.take(class));
        while position != END {
            let at = usize::from(position);
            let (entry, seen) = (entries[at], sorted.found[at]);
            position = sorted.next[at];
            let found = if still { Some(seen) } else { self.find_in(class, entry) };
            let Some(found) = found else {
                rest.strays.push(entry);
                continue;
            };
            if found.descriptor != current.0 {
                self.settle_zspage(class, &mut state, current, &mut rest.leaving);
                current = (found.descriptor, 0);
            }
            self.give_slot(found);
            state.give_handle(entry, self);
            current.1 += 1;
        }
        self.settle_zspage(class, &mut state, current, &mut rest.leaving);
        if self.release == Release::Inside {
            self.release_any(std::mem::replace(&mut rest.leaving, Leaving::NONE));
        }
    }

    /// Gives a slot back, whose class lock is held; its zspage is to be settled.
    #[inline(always)]
    fn give_slot(&self, found: Found) {
        self.memory.descriptors.header(found.descriptor).give(usize::from(found.object));
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
        let descriptor = self.memory.owner(place.pfn());
        let (class, mut state) = self.lock_zspage(descriptor);
        let mut leaving = Leaving::NONE;
        self.memory.descriptors.header(descriptor).give(usize::from(place.object()));
        if entry != 0 {
            state.give_entry(entry, self);
        }
        self.settle_zspage(class, &mut state, (descriptor, 1), &mut leaving);
        self.unlock_and_release(state, leaving);
    }

    /// Takes note of a zspage after so many slots of it were given back.
    #[inline(always)]
    fn settle_zspage(
        &self,
        class: &Class,
        state: &mut State,
        (descriptor, given): (DescriptorId, usize),
        leaving: &mut Leaving,
    ) {
        if descriptor == DescriptorId::NONE {
            return;
        }
        let of = self.descriptors(class);
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
    fn release_any(&self, leaving: Leaving) {
        if !leaving.is_empty() {
            self.release_zspages(leaving);
        }
    }
}
