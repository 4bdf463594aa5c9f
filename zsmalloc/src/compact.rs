//! Compaction: objects move from sparse zspages to full ones, and emptied zspages go back.
//!
//! ```text
//!   source: emptiest in use                target: fullest with room
//!   | a |   |   | b |   |   |   |   |      | x | x | x |   | x |   | x | x |
//!     |           `----------------------------------------^
//!     `-----------------------------------------^
//! ```
//!
//! After that at most one zspage of a class has free slots, and its frames are as touched as they
//! ever were. A second pass moves its objects to untouched frames, packed from the first one, so
//! that what compaction leaves is what a fresh fill would have taken: with chain order 4 the
//! half-empty zspages of 192 classes would otherwise hold more than the longer chain saves.
//!
//! Invariants
//! - I1 an object moves under the class lock and the lock of its cell, which the mover only tries:
//!   what is being read, written or published stays where it is, and its zspage with it.
//! - I2 a lock hold moves at most [`MOVES_MAX`] objects; in the second pass, those of one zspage.
//!
//! Locks: one compaction at a time, then class, then cells by trying. Frames go back outside the
//! class lock; payload is copied under it. Source: `zs_compact`.

use std::sync::PoisonError;

use host::PAGE_SIZE;
use host::sync::atomic::Ordering;

use crate::class::{Class, Slot, State};
use crate::descriptor::DescriptorId;
use crate::geometry::OBJECTS_MAX;
use crate::pool::Pool;
use crate::word::Place;
use crate::zspage;

/// Objects moved under one hold of a class lock, at most.
const MOVES_MAX: usize = 32;

/// What one lock hold did.
#[derive(Default)]
struct Step {
    moved: usize,
    /// The source, out of its lists, when no object is left in it.
    emptied: Option<DescriptorId>,
}

impl Pool {
    /// Compacts every class and returns the free frames to the system; gives the frames freed.
    /// Returns 0 at once while another thread compacts this pool.
    pub fn compact(&self) -> u64 {
        match self.compacting.try_lock() {
            Ok(_turn) => self.compact_all(),
            Err(_) => 0,
        }
    }

    /// Compacts, or waits for the thread that is doing so: for a store that hit the limit. The
    /// caller holds no lock of the pool's.
    pub fn make_room(&self) {
        if let Ok(_turn) = self.compacting.try_lock() {
            self.compact_all();
            return;
        }
        drop(self.compacting.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn compact_all(&self) -> u64 {
        let freed: u64 = self.classes().iter().rev().map(|class| self.merge(class)).sum();
        self.memory.release(0);
        self.classes().iter().for_each(|class| self.trim(class));
        self.memory.release(0);
        // relaxed: a total.
        self.counters.compacted.fetch_add(freed, Ordering::Relaxed);
        freed
    }

    /// Frames that compaction could free, by the counts of each class.
    pub fn freeable_frames(&self) -> u64 {
        self.classes().iter().map(|class| class.lock().freeable_frames(class.shape)).sum()
    }

    /// Moves objects until at most one zspage has free slots; gives frames freed. The kernel stops
    /// when the free slots make no whole zspage; going on moves fewer objects than one zspage
    /// holds, and leaves all unused frames in one place for the second pass.
    fn merge(&self, class: &Class) -> u64 {
        // Others go on storing and freeing meanwhile: each object is moved once on average, and
        // then it is enough.
        let mut moves = class.lock().objects as usize;
        let mut freed = 0;
        loop {
            let step = {
                let mut state = class.lock();
                let step = self.merge_step(class, &mut state);
                if step.emptied.is_some() {
                    self.departs();
                }
                step
            };
            if let Some(emptied) = step.emptied {
                self.release_zspage(class, emptied);
                freed += u64::from(class.shape.frames);
            }
            if step.moved == 0 || step.moved > moves {
                return freed;
            }
            moves -= step.moved;
        }
    }

    fn merge_step(&self, class: &Class, state: &mut State) -> Step {
        let Some(target) = state.groups.fullest_with_room() else { return Step::default() };
        match state.groups.emptiest_but(&self.list(class), target) {
            Some(source) => self.move_objects(class, state, source, target, MOVES_MAX),
            None => Step::default(),
        }
    }

    /// Moves the objects of the one sparse zspage to untouched frames, where that frees any. For
    /// the time of the move both are there: the limit may be overshot by one zspage.
    fn trim(&self, class: &Class) {
        let list = self.list(class);
        let sparse = |state: &State| {
            state.groups.emptiest_in_use().filter(|&id| self.wasted_frames(class, id) > 0)
        };
        if sparse(&class.lock()).is_none() {
            return;
        }
        let Ok(target) = self.new_zspage(class) else { return };
        let mut state = class.lock();
        let source = sparse(&state);
        state.insert_zspage(&list, target);
        let step = source.map(|id| self.move_objects(class, &mut state, id, target, OBJECTS_MAX));
        let unused = (list.get(target).in_use() == 0).then_some(target);
        if unused.is_some() {
            state.remove_zspage(&list, target);
        } else {
            self.arrived();
        }
        let emptied = step.and_then(|step| step.emptied);
        if emptied.is_some() {
            self.departs();
        }
        drop(state);
        // At once to the system: left touched, they would be the next class's first choice.
        [unused, emptied].into_iter().flatten().for_each(|id| self.return_zspage(class, id));
    }

    /// Touched frames of a zspage beyond those that its objects would fill.
    fn wasted_frames(&self, class: &Class, id: DescriptorId) -> u32 {
        let zspage = self.list(class).get(id);
        let needed = (zspage.in_use() * class.shape.size as usize).div_ceil(PAGE_SIZE) as u32;
        let frames = u32::from(class.shape.frames);
        self.memory.arena.resident_in(zspage.pfn(), frames).saturating_sub(needed)
    }

    /// Moves objects from `source` to `target`, at most `moves_max` and as many as fit.
    fn move_objects(
        &self,
        class: &Class,
        state: &mut State,
        source: DescriptorId,
        target: DescriptorId,
        moves_max: usize,
    ) -> Step {
        let list = self.list(class);
        let (zspage, objects) = (list.get(source), class.shape.objects as usize);
        let mut step = Step::default();
        for object in zspage.used_slots() {
            if step.moved == moves_max || list.get(target).in_use() == objects {
                break;
            }
            let from = Slot { descriptor: source, pfn: zspage.pfn(), object: object as u8 };
            if self.move_object(class, state, from, target) {
                step.moved += 1;
            }
        }
        step.emptied = (step.moved > 0 && zspage.in_use() == 0).then_some(source);
        step
    }

    /// Moves one object; false when its cell is in use.
    fn move_object(
        &self,
        class: &Class,
        state: &mut State,
        from: Slot,
        target: DescriptorId,
    ) -> bool {
        let list = self.list(class);
        let owner = list.get(from.descriptor).owner(usize::from(from.object));
        if owner == 0 {
            return false;
        }
        let Some(mut cell) = self.try_lock_entry(owner) else { return false };
        let Some(place) = cell.word_mut().place() else { return false };
        if (place.pfn, place.object) != (from.pfn, from.object) {
            debug_assert!(false, "descriptor I2: the owner's word names the slot");
            return false;
        }
        let to = state.take_slot_of(&list, target);
        self.copy_object(class, place, to);
        let moved = Place { pfn: to.pfn, object: to.object, ..place };
        *cell.word_mut() = cell.word_mut().with_place(moved);
        list.get(target).publish(usize::from(to.object), owner);
        state.give_slot(&list, from);
        true
    }

    fn copy_object(&self, class: &Class, from: Place, to: Slot) {
        let place = Place { pfn: to.pfn, object: to.object, ..from };
        let len = usize::from(class.shape.size) - usize::from(from.slack);
        self.touch(class, place, len);
        zspage::copy(&self.memory.arena, class.shape, from, place);
    }
}
