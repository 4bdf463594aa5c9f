//! Storing an object: a slot of its class, its frames charged, its bytes copied.
//!
//! ```text
//!   its class's shard -> a slot; an entry, for a handle     under the class lock
//!   no zspage has room: another shard's zspage, a larger class's slot, or a new zspage
//!   frames charged, bytes written                           no lock
//! ```
//!
//! Invariant: a slot in use always has an owner: an `Object`, from the moment that its class gave
//! it, and then the cell that the object is put in. If charging is refused or `fill` panics, the
//! object is dropped, and that frees the slot. Untouched frames are charged before a byte is
//! written.
//!
//! Locks: one class. No lock design takes more, because nothing is looked up. Another shard's is
//! tried meanwhile.

use host::LockGuard;
use host::sync::atomic::Ordering;

use super::object::Object;
use crate::class::{Age, Class, State};
use crate::leaves::LeafUse;
use crate::numbers::{AllocError, CellNumber, Slot};
use crate::pool::{Leaving, Pool};
use crate::zspages::zspage;

/// An object that is to be filled.
pub(crate) struct Reserved<'p> {
    pub(crate) object: Object<'p>,
    /// What is known of its bytes.
    pub(crate) age: Age,
    /// That of its slot.
    pub(crate) class: &'p Class,
}

impl Pool {
    /// Stores `bytes` in a slot of their class. No cell names the object yet: put it in a cell, or
    /// drop it to free it again.
    ///
    /// # Errors
    ///
    /// [`AllocError`]; nothing is stored then. The limit is checked before a frame is touched;
    /// threads that pass the check together may overshoot it by two frames each.
    pub fn store(&self, bytes: &[u8]) -> Result<Object<'_>, AllocError> {
        let fill = |slot: &mut [u8], age| self.write(slot, bytes, age);
        self.store_with(bytes.len(), None, fill)
    }

    /// An object of `len` bytes that `fill` has written, with an entry for a handle of the given
    /// kind. It is freed again if `fill` panics.
    #[inline]
    pub(crate) fn store_with(
        &self,
        len: usize,
        handle: Option<LeafUse>,
        fill: impl FnOnce(&mut [u8], Age),
    ) -> Result<Object<'_>, AllocError> {
        let class = self.class_for(len)?;
        let reserved = match self.reserve(class, len, handle) {
            Err(error) => self.reserve_again(error, class, len, handle)?,
            Ok(reserved) => reserved,
        };
        let Reserved { object, age, class } = reserved;
        let slot = object.place.slot();
        zspage::fill(&self.memory.arena, class.shape, slot, len, |to| fill(to, age));
        Ok(object)
    }

    /// The shard of a class that this thread stores objects of `len` bytes in.
    #[inline(always)]
    pub(crate) fn class_for(&self, len: usize) -> Result<&Class, AllocError> {
        let index = self.geometry().class_of(len).ok_or(AllocError::BadLength { len })?;
        Ok(self.shard(index, self.home(len)))
    }

    /// An object that is to be filled, with its frames counted, and an entry if one is wanted.
    // One function with what follows and with its caller: a call hands 40 bytes over in memory.
    #[inline(always)]
    pub(crate) fn reserve<'p>(
        &'p self,
        class: &'p Class,
        len: usize,
        handle: Option<LeafUse>,
    ) -> Result<Reserved<'p>, AllocError> {
        let reserved = self.take(class, len, handle)?;
        let slot = reserved.object.place.slot();
        if reserved.age == Age::Touched || self.is_charged(reserved.class, slot, len) {
            return Ok(reserved);
        }
        self.reserve_untouched(reserved, len)
    }

    /// The same for a slot with untouched frames.
    #[cold]
    fn reserve_untouched<'p>(
        &'p self,
        mut reserved: Reserved<'p>,
        len: usize,
    ) -> Result<Reserved<'p>, AllocError> {
        if self.reserve_as_guest(&mut reserved, len).is_some() {
            return Ok(reserved);
        }
        let Reserved { object, class, .. } = &reserved;
        match self.charge_untouched(class, object.place.slot(), len) {
            Ok(()) => Ok(reserved),
            Err(error) => self.charge_next_door(reserved, len).ok_or(error),
        }
    }

    /// As [`Pool::store`], past the limit if there is no other way. It is for a caller that frees a
    /// longer object in return.
    ///
    /// # Errors
    ///
    /// [`AllocError`], but not `OverLimit`.
    pub fn store_past_limit(&self, bytes: &[u8]) -> Result<Object<'_>, AllocError> {
        match self.store(bytes) {
            Err(AllocError::OverLimit { .. }) => {
                let class = self.class_for(bytes.len())?;
                let Reserved { object, age, class } = self.take(class, bytes.len(), None)?;
                let slot = object.place.slot();
                self.touch(class, slot, bytes.len());
                let fill = |to: &mut [u8]| self.write(to, bytes, age);
                zspage::fill(&self.memory.arena, class.shape, slot, bytes.len(), fill);
                Ok(object)
            }
            done => done,
        }
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

    /// An object that is to be filled, with an entry if one is wanted. Its frames are not counted
    /// yet, unless they are all touched.
    #[inline(always)]
    fn take<'p>(
        &'p self,
        class: &'p Class,
        len: usize,
        handle: Option<LeafUse>,
    ) -> Result<Reserved<'p>, AllocError> {
        class.prefetch();
        let mut state = match class.try_lock() {
            Some(state) => state,
            None => self.lock_met(class),
        };
        let mut entry = CellNumber::NONE;
        if let Some(kind) = handle {
            entry = state.take_entry(kind, &self.memory.leaves);
            if entry == CellNumber::NONE {
                (state, entry) = self.fetch_entry(class, state, kind)?;
            }
        }
        let (slot, age, class) = match state.take_slot(&self.descriptors(class), entry) {
            Some((slot, age)) => {
                drop(state);
                (slot, age, class)
            }
            None => self.take_of_others(class, state, len, entry)?,
        };
        let object = Object { pool: self, place: class.place(slot, len), entry };
        Ok(Reserved { object, age, class })
    }

    /// A slot of a zspage that another shard has, or a larger class, or that is new, for a class
    /// that has no room.
    #[cold]
    fn take_of_others<'p>(
        &'p self,
        class: &'p Class,
        mut state: LockGuard<'_, State>,
        len: usize,
        entry: CellNumber,
    ) -> Result<(Slot, Age, &'p Class), AllocError> {
        class.hint_partial(false);
        if self.take_over(class, &mut state)
            && let Some((slot, age)) = state.take_slot(&self.descriptors(class), entry)
        {
            return Ok((slot, age, class));
        }
        // This comes before the lock is given up, because the entry is now in no chain, and behind
        // no object.
        state.departs();
        drop(state);
        if let Some(guest) = self.take_as_guest(class, len, entry) {
            self.arrived(1);
            return Ok(guest);
        }
        self.take_of_new(class, entry).map(|(slot, age)| (slot, age, class))
    }

    /// Locks a class that another thread has locked: from now on each has a shard of its own.
    #[cold]
    fn lock_met<'p>(&'p self, class: &'p Class) -> LockGuard<'p, State> {
        // relaxed: a hint, stored once, because every CPU reads its cache line.
        if !self.spread.load(Ordering::Relaxed) {
            self.spread();
        }
        class.lock()
    }

    /// A slot of a new zspage. If there is none, the entry goes back.
    fn take_of_new(&self, class: &Class, entry: CellNumber) -> Result<(Slot, Age), AllocError> {
        let of = self.descriptors(class);
        let descriptor = match self.build_zspage(class, class.shape.frames.into()) {
            Ok(descriptor) => descriptor,
            Err(error) => return self.take_next_door(class, entry).ok_or(error),
        };
        let mut state = class.lock();
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
        // relaxed: totals. Only a reset lowers the most there were, so most often it stays.
        if frames > self.counters.frames_max.load(Ordering::Relaxed) {
            // relaxed: totals.
            self.counters.frames_max.fetch_max(frames, Ordering::Relaxed);
        }
        Ok(state.take_slot_in(&of, descriptor, entry))
    }
}
