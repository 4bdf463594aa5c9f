//! Freeing an object.
//!
//! ```text
//!   moves counted, word, owner, header     no lock    -> the lock, and the slot, a moment ago
//!   class lock
//!     moves counted: as before?                       -> then that still stands
//!                    no: all of it again, with the lock held: this lock, and counted as before it?
//!                        no: from the beginning
//!     slot and entry back
//!   unlock                                            then frames back
//! ```
//!
//! Source: `zs_free` as study S0 changed it.
//!
//! Invariants
//! - I1 a handle is freed by its owner, so its word changes only by a move, which may be to a
//!   larger class.
//! - I2 objects move out of a shard, and zspages go to another one, under its lock. Both are
//!   counted after words and headers are written, before the lock is given up and before frames go
//!   back. Suppose that a thread holds the lock that it found, and sees the count of before its
//!   lookup. Then the lookup holds: a move under this lock would be seen counted. A move under
//!   another lock that made the frame or the descriptor a zspage of this lock was counted before
//!   that. To find the same twice would prove nothing. An old word may lead to the next life of a
//!   frame, or to none, and the word after it to another that looks alike.
//!
//! Locks: one class.

use host::LockGuard;
use host::sync::atomic::{AtomicU64, Ordering};

use crate::class::Descriptors;
use crate::class::{Class, State};
use crate::numbers::{CellNumber, Place};
use crate::pool::Leaving;
use crate::pool::Pool;
use crate::pool::{Found, Tables, place_in};
use crate::zspages::Zspage;

impl Pool {
    /// Frees the object of an entry that the caller owns at once. The caller tells the worker.
    #[inline(always)]
    pub(crate) fn free_entry(&self, entry: CellNumber) {
        let (tables, moves) = (self.tables(), self.moves());
        let cell = tables.handle_cell(entry);
        let place = place_in(cell);
        self.prefetch_class(place);
        let found = tables.find_at(place);
        let class = self.classes.at(found.lock);
        let state = self.lock(class);
        if self.moves() != moves {
            return self.free_moved((entry, cell), class, state);
        }
        self.free_found((entry, cell), class, state, tables, found);
    }

    /// The same where something moved before the lock was there.
    #[cold]
    #[inline(never)]
    fn free_moved<'p>(
        &'p self,
        (entry, cell): (CellNumber, &AtomicU64),
        mut class: &'p Class,
        mut state: LockGuard<'p, State>,
    ) {
        let tables = self.tables();
        loop {
            if let Some(found) = self.find_again(class, cell) {
                return self.free_found((entry, cell), class, state, tables, found);
            }
            drop(state);
            host::sync::hint::spin_loop();
            class = self.classes.at(tables.find(cell).lock);
            state = self.lock(class);
        }
    }

    /// Frees an object that was found and stays there, because its lock is held. This gives the
    /// lock up.
    #[inline(always)]
    fn free_found<'p>(
        &'p self,
        (entry, cell): (CellNumber, &AtomicU64),
        class: &'p Class,
        mut state: LockGuard<'p, State>,
        tables: Tables<'p>,
        found: Found<'p>,
    ) {
        let in_use = found.zspage.header.give(usize::from(found.object));
        // The next object of the class comes here, if it comes soon.
        found.zspage.header.prefetch_body();
        state.give_handle(entry, cell, &self.stocks);
        let of = tables.descriptors(class);
        let leaving = self.note_one_given(&of, class, &mut state, found.zspage, in_use);
        self.unlock_and_release(state, leaving);
    }

    /// Starts loading the class of an object, while its header is looked up, which says which
    /// shard it is; where there are several in use, that is not known yet.
    #[inline(always)]
    fn prefetch_class(&self, place: Place) {
        // relaxed: a hint.
        if !self.spread.load(Ordering::Relaxed) {
            self.class(place.class()).prefetch();
        }
    }

    /// Starts loading the header of an object's zspage, and its class.
    #[inline]
    pub(crate) fn prefetch_free(&self, place: Place) {
        self.prefetch_class(place);
        let descriptor = self.memory.owner(place.pfn());
        self.memory.descriptors.header(descriptor).prefetch();
    }

    /// Frees the object at `place`. The caller holds the lock of the cell that names it.
    pub(crate) fn free(&self, place: Place) {
        self.free_with_entry(place, CellNumber::NONE);
    }

    /// Frees an object that the caller keeps from moving, and an entry of the caller's (or `NONE`).
    pub(crate) fn free_with_entry(&self, place: Place, entry: CellNumber) {
        self.give_slot(place, entry);
        self.stir();
    }

    /// The same, of which the worker is not told.
    pub(crate) fn give_slot(&self, place: Place, entry: CellNumber) {
        let descriptor = self.memory.owner(place.pfn());
        let (class, mut state) = self.lock_zspage(descriptor);
        let header = self.memory.descriptors.header(descriptor);
        let in_use = header.give(usize::from(place.object()));
        if entry != CellNumber::NONE {
            state.give_entry(entry, &self.memory.leaves, &self.stocks);
        }
        let of = self.descriptors(class);
        let leaving =
            self.note_one_given(&of, class, &mut state, Zspage { id: descriptor, header }, in_use);
        self.unlock_and_release(state, leaving);
    }

    /// Takes note of a zspage after one slot of it was given back.
    #[inline(always)]
    fn note_one_given(
        &self,
        of: &Descriptors<'_>,
        class: &Class,
        state: &mut State,
        zspage: Zspage<'_>,
        in_use: usize,
    ) -> Leaving {
        let mut leaving = Leaving::NONE;
        if state.note_one_given(of, zspage, in_use) {
            leaving.push(&self.memory, zspage.id);
        } else {
            class.hint_partial(true);
        }
        leaving
    }

    #[inline(always)]
    fn unlock_and_release(&self, state: LockGuard<'_, State>, mut leaving: Leaving) {
        self.unlock(state, &mut leaving);
        self.release_any(leaving);
    }
}
