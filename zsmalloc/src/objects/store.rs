//! Storing an object: a slot of its class, its frames charged, its bytes copied.
//!
//! ```text
//!   its class's shard -> a slot; an entry, for a handle     under the class lock
//!   no zspage has room: another shard's zspage, or a new one
//!   frames charged, bytes written                           no lock
//! ```
//!
//! Invariant: a slot in use always has an owner: an `Object`, the entry of a handle, or the call
//! that fills it. If charging is refused or `fill` panics, that call frees the slot again.
//! Untouched frames are charged before a byte is written.
//!
//! Locks: one class, and in no lock design more than that, because nothing is looked up; another
//! shard's is tried meanwhile.

use host::LockGuard;
use host::sync::atomic::Ordering;

use super::object::{Object, Reserved};
use crate::class::{Age, Class, Slot, State};
use crate::leaves::LeafUse;
use crate::numbers::{AllocError, CellNumber};
use crate::pool::{Leaving, Pool};
use crate::zspages::zspage;

impl Pool {
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
        let index = self.geometry().class_of(len).ok_or(AllocError::BadLength { len })?;
        let class = &self.classes[self.position(index, self.home(len))];
        class.prefetch();
        let (slot, entry) = self.take(class, handle)?;
        Ok(Reserved { class, slot, entry })
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
                let reserved = self.take_slot(bytes.len(), None)?;
                let Reserved { class, slot, .. } = reserved;
                let object = reserved.object(self, bytes.len());
                self.touch(class, slot.at, bytes.len());
                let fill = |to: &mut [u8]| self.write(to, bytes, slot.age());
                zspage::fill(&self.memory.arena, class.shape, slot.at, bytes.len(), fill);
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

    /// A slot of a class, and an entry where one is wanted (`NONE` otherwise).
    #[inline(always)]
    fn take(
        &self,
        class: &Class,
        handle: Option<LeafUse>,
    ) -> Result<(Slot, CellNumber), AllocError> {
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
        entry: CellNumber,
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
        class.lock()
    }

    /// A slot of a new zspage; where there is none, the entry goes back.
    fn take_of_new(&self, class: &Class, entry: CellNumber) -> Result<Slot, AllocError> {
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
        // relaxed: totals. The most there were only grows, but for a reset, so most often it stays.
        if frames > self.counters.frames_max.load(Ordering::Relaxed) {
            // relaxed: totals.
            self.counters.frames_max.fetch_max(frames, Ordering::Relaxed);
        }
        Ok(state.take_slot_in(&of, descriptor, entry))
    }
}
