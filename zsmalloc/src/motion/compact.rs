//! Compaction: objects move from sparse zspages to full ones, and emptied zspages go back.
//!
//! ```text
//!   source: emptiest in use                target: fullest with room
//!   | a |   |   | b |   |   |   |   |      | x | x | x |   | x |   | x | x |
//!     |           `----------------------------------------^
//!     `-----------------------------------------^
//! ```
//!
//! After that at most one zspage of a class has free slots, and some of these become one with that
//! of a larger class: see `join`. The frames of those that are left are as touched as they ever
//! were. A last pass moves their objects to other frames, packed from the first one. Compaction
//! therefore leaves less than a fresh fill would have taken. Without it, with chain order 4, the
//! half-empty zspages of 192 classes would hold more than the longer chain saves.
//!
//! Invariants
//! - I1 an object moves under the class lock and the lock bit of its cell. The mover only tries the
//!   bit, and a handle's cell with readers refuses it. So an object that is being read, written or
//!   published stays where it is, and so does its zspage.
//! - I2 a lock hold moves at most [`MOVES_MAX`] objects; in the later passes, those of one zspage.
//!   While objects are merged, a hold ends before that where a thread sleeps until it ends. Others
//!   run before the next one.
//!
//! Locks: one compaction at a time, then class, then cells by trying. Frames go back outside the
//! class lock; payload is copied under it. Source: `zs_compact`.

use host::sync::atomic::Ordering;
use host::{PAGE_SIZE, RankedMutexGuard};

use super::join::{frames_packed, joined_slack_max};
use crate::class::Age;
use crate::class::{Class, State};
use crate::numbers::{CellNumber, Place, Slot, Word};
use crate::pool::{Leaving, Moving};
use crate::pool::{Pool, Shards};
use crate::zspages::zspage::{self, Located};
use crate::zspages::{Descriptor, DescriptorId, Zspage};

/// Objects moved under one hold of a class lock, at most.
const MOVES_MAX: usize = 32;

/// The most zspages with all objects in use that the merging of a class walks past before it gives
/// up.
const STUCK_MAX: usize = 64;

/// What one lock hold did.
#[derive(Default)]
struct Step {
    moved: usize,
    /// The source, when all its objects are in use.
    stuck: Option<DescriptorId>,
    /// No object is left in the source, which is out of its lists.
    emptied: bool,
    /// A thread waits for the class.
    yields: bool,
}

impl Pool {
    /// Runs what is deferred, compacts every class, and returns how many frames that freed. The
    /// memory's worker gives them to the system soon after; without a worker, this does so before
    /// it returns. Returns 0 at once while another thread compacts this pool.
    pub fn compact(&self) -> u64 {
        self.memory.flush_deferred();
        match self.turn_to_compact() {
            Some(_turn) => self.compact_all(),
            None => 0,
        }
    }

    /// The turn to compact, if no thread has it.
    pub(crate) fn turn_to_compact(&self) -> Option<RankedMutexGuard<'_, ()>> {
        self.compacting.try_lock()
    }

    /// Compacts until `frames` frames are freed and returned to the system, and returns how many it
    /// freed. The last zspage may make that up to 15 more than asked for. Returns 0 at once while
    /// another thread compacts this pool. Source: `zs_shrinker_scan`, which compacts all there is.
    pub fn shrink(&self, frames: u64) -> u64 {
        self.memory.flush_deferred();
        let Some(_turn) = self.turn_to_compact() else { return 0 };
        self.flush_deferred();
        let mut freed = 0;
        for shards in self.classes.each().rev() {
            freed += self.merge(shards, frames.saturating_sub(freed));
        }
        let held = self.memory.free_bytes_held();
        self.memory.release(held.saturating_sub(freed * PAGE_SIZE as u64));
        // relaxed: a total.
        self.counters.compacted.fetch_add(freed, Ordering::Relaxed);
        freed
    }

    /// Runs what is deferred, and compacts, or waits for the thread that is doing so. It is for a
    /// store that hit the limit. The caller holds no lock of the pool's, nor one that a deferred
    /// job might want.
    pub fn make_room(&self) {
        self.memory.flush_deferred();
        self.flush_deferred();
        if let Some(_turn) = self.turn_to_compact() {
            self.compact_all();
            return;
        }
        drop(self.compacting.lock());
    }

    pub(crate) fn compact_all(&self) -> u64 {
        self.flush_deferred();
        let merged: u64 =
            self.classes.each().rev().map(|shards| self.merge(shards, u64::MAX)).sum();
        let freed = merged + self.join();
        self.classes.each().for_each(|shards| self.trim(shards.first));
        self.classes.iter().for_each(|class| self.shrink_positions(class));
        self.memory.release_soon();
        // relaxed: a total.
        self.counters.compacted.fetch_add(freed, Ordering::Relaxed);
        freed
    }

    /// Moves objects until at most one zspage has free slots, or `frames_max` frames are freed.
    /// Returns the frames freed. The kernel stops when the free slots make no whole zspage. To go
    /// on moves fewer objects than one zspage holds, and leaves all unused frames in one place for
    /// the later passes.
    fn merge(&self, shards: Shards<'_>, frames_max: u64) -> u64 {
        if frames_max == 0 {
            return 0;
        }
        let class = shards.first;
        shards.others.iter().for_each(|other| self.gather(class, other));
        // Other threads go on storing and freeing meanwhile. So this ends when each object was
        // moved once on average.
        let mut moves = class.lock().objects as usize;
        let (mut freed, mut leaving) = (0, Leaving::NONE);
        let mut stuck = Vec::new();
        while freed < frames_max && moves > 0 && stuck.len() < STUCK_MAX && !self.is_retired() {
            let step = self.merge_step(class, &stuck, &mut leaving);
            if let Some(source) = step.stuck {
                stuck.push(source);
                continue;
            }
            freed += u64::from(step.emptied) * u64::from(class.shape.frames);
            if step.moved == 0 || step.moved > moves {
                break;
            }
            moves -= step.moved;
            if step.yields {
                self.let_others_run();
            }
        }
        self.release_zspages(leaving);
        freed
    }

    /// Gives the first shard of a class the zspages of another one that have room. If the other
    /// shard is in use, the rest stay where they are.
    fn gather(&self, class: &Class, other: &Class) {
        loop {
            let mut state = self.lock(class);
            let Some(mut theirs) = other.try_lock() else { return };
            for _ in 0..MOVES_MAX {
                let Some(&partial) = theirs.fullness.partial(other.layout()).last() else {
                    other.hint_partial(false);
                    return;
                };
                if !self.adopt(class, &mut state, &mut theirs, partial) {
                    return;
                }
                class.hint_partial(true);
            }
        }
    }

    /// Lets the thread run that was woken when the lock was given up. Without that, this one would
    /// have the lock again first.
    fn let_others_run(&self) {
        // relaxed: a total.
        self.counters.yields.fetch_add(1, Ordering::Relaxed);
        host::sync::thread::yield_now();
    }

    fn merge_step(&self, class: &Class, stuck: &[DescriptorId], leaving: &mut Leaving) -> Step {
        self.merge_held(class, &mut self.lock_moving(class), stuck, leaving)
    }

    /// As [`Pool::merge_step`], of a class that is locked.
    fn merge_held(
        &self,
        class: &Class,
        moving: &mut Moving<'_>,
        stuck: &[DescriptorId],
        leaving: &mut Leaving,
    ) -> Step {
        let Some((&target, others)) = moving.fullness.partial(class.layout()).split_first() else {
            return Step::default();
        };
        let Some(&source) = others.iter().rev().find(|other| !stuck.contains(other)) else {
            return Step::default();
        };
        let enough = |step: &mut Step, moving: &Moving<'_>| {
            step.yields = moving.is_contended();
            step.yields || step.moved == MOVES_MAX
        };
        let step = self.move_objects(class, moving, (source, target), enough, leaving);
        Step { stuck: (step.moved == 0).then_some(source), ..step }
    }

    /// Moves the objects of the one sparse zspage to the first frames of a new one, if that frees
    /// frames. The other frames of the new one are not touched. While objects move both zspages are
    /// there, so the limit may be overshot by the frames of one.
    fn trim(&self, class: &Class) {
        let of = self.descriptors(class);
        let sparse = |state: &State| {
            let emptiest = *state.fullness.partial(class.layout()).last()?;
            Some((emptiest, self.frames_if_packed(class, emptiest)?))
        };
        let Some((_, needed)) = sparse(&class.lock()) else { return };
        let Ok(target) = self.new_zspage(class, needed) else { return };
        let mut moving = self.lock_moving(class);
        let mut leaving = Leaving::NONE;
        let source = sparse(&moving);
        if !self.reserve_position(&mut moving) {
            drop(moving);
            return self.release_zspages(Leaving::of(&self.memory, target));
        }
        moving.insert(&of, target);
        if let Some((source, _)) = source {
            self.move_objects(class, &mut moving, (source, target), |_, _| false, &mut leaving);
        }
        let header = of.header(target);
        if header.in_use() == 0 && moving.note_given(&of, Zspage { id: target, header }, 0) {
            leaving.push(&self.memory, target);
        }
        drop(moving);
        self.arrived(1);
        self.release_zspages(leaving);
    }

    /// The frames that a zspage's objects would fill, if more than those are touched.
    fn frames_if_packed(&self, class: &Class, id: DescriptorId) -> Option<u32> {
        let zspage = self.descriptors(class).get(id);
        let needed = frames_packed(class.shape, zspage.in_use()) as u32;
        let frames = u32::from(class.shape.frames);
        (self.memory.arena.resident_in(zspage.pfn(), frames) > needed).then_some(needed)
    }

    /// Moves objects from one zspage to another, as many as fit, until it is `enough` after one of
    /// them.
    fn move_objects(
        &self,
        class: &Class,
        moving: &mut Moving<'_>,
        (source, target): (DescriptorId, DescriptorId),
        enough: impl Fn(&mut Step, &Moving<'_>) -> bool,
        leaving: &mut Leaving,
    ) -> Step {
        let of = self.descriptors(class);
        let (zspage, objects) = (of.get(source), class.shape.objects as usize);
        let mut step = Step::default();
        let mut used = zspage.used_slots().peekable();
        while let Some(object) = used.next() {
            if of.header(target).in_use() == objects {
                break;
            }
            if let Some(&next) = used.peek() {
                zspage::prefetch(&self.memory.arena, class.shape, zspage.pfn(), next);
            }
            let from = zspage.slot(object);
            if self.move_object(class, moving, (zspage, from), target) {
                step.moved += 1;
                if enough(&mut step, moving) {
                    break;
                }
            }
        }
        self.count_move();
        if step.moved > 0
            && moving.note_given(&of, Zspage { id: source, header: *zspage }, step.moved)
        {
            leaving.push(&self.memory, source);
            step.emptied = true;
        }
        step
    }

    /// Moves one object to a zspage of a class, which need not be its own. False if the object is
    /// in use.
    pub(crate) fn move_object(
        &self,
        class: &Class,
        state: &mut State,
        (source, from): (Descriptor<'_>, Slot),
        target: DescriptorId,
    ) -> bool {
        let of = self.descriptors(class);
        let owner = source.owner(usize::from(from.object));
        if owner == CellNumber::NONE {
            return false;
        }
        let (to, _) = state.take_slot_in(&of, target, owner);
        let moved = self.move_to(class, owner, from, to);
        if moved {
            source.give(usize::from(from.object));
        } else {
            state.untake(&of, target, to);
        }
        moved
    }

    fn move_to(&self, class: &Class, owner: CellNumber, from: Slot, to: Slot) -> bool {
        let Some(mut cell) = self.memory.leaves.try_lock(owner) else { return false };
        let Some(from) = named(cell.word, from) else { return false };
        let Some(to) = self.destination(class, from, to) else { return false };
        self.copy_object(class, from, to);
        cell.word = cell.word.with_place(to);
        true
    }

    /// Copies an object to a place in a zspage of a class.
    pub(crate) fn copy_object(&self, class: &Class, from: Place, to: Place) {
        self.touch(class, to.slot(), usize::from(class.shape.size - to.slack()));
        let shape = self.geometry().shape(from.class());
        let write = |to: &mut [u8], from: &[u8]| self.write(to, from, Age::Old);
        let from = Located { shape, place: from };
        let to = Located { shape: class.shape, place: to };
        zspage::copy(&self.memory.arena, from, to, write);
    }

    /// The place of an object in a slot of a class, its own or a larger one. `None` if too much of
    /// a larger one's slot would be left.
    fn destination(&self, class: &Class, from: Place, to: Slot) -> Option<Place> {
        let larger = class.shape.size - self.geometry().shape(from.class()).size;
        let slack = from.slack() + larger;
        let fits = larger == 0 || slack <= joined_slack_max(class.shape);
        fits.then(|| Place::new(to, class.index, slack))
    }
}

/// The place that `word` names, if that is the slot. It may be another one, or none: an object that
/// is to be freed later keeps its back reference to a cell that holds what was stored next.
pub(crate) fn named(word: Word, slot: Slot) -> Option<Place> {
    let place = word.place()?;
    (place.slot() == slot).then_some(place)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::{Memory, MemoryConfig, PoolConfig};
    use std::thread;
    use std::time::Duration;

    const LEN: usize = 1000;

    /// A pool with many sparse zspages of one class.
    fn sparse() -> std::sync::Arc<Pool> {
        let config = MemoryConfig { worker: false, ..MemoryConfig::for_disk(16 << 20) };
        let memory = Memory::new(config).expect("address space");
        let pool = Pool::new(memory, PoolConfig::default()).expect("a pool");
        let handles: Vec<_> = (0..1000).map(|_| pool.alloc(&[7; LEN]).expect("room")).collect();
        let mut all = handles.into_iter();
        // Of three objects the first stays.
        while all.next().is_some() {
            pool.free_batch(all.by_ref().take(2)).expect("ours");
        }
        pool
    }

    fn step(pool: &Pool, class: &Class, moving: &mut Moving<'_>) -> Step {
        let mut leaving = Leaving::NONE;
        let step = pool.merge_held(class, moving, &[], &mut leaving);
        pool.release_zspages(leaving);
        step
    }

    #[test]
    fn a_hold_ends_after_one_object_where_a_thread_waits() {
        let pool = sparse();
        let class = pool.class(pool.geometry().class_of(LEN).expect("a length"));
        let mut moving = pool.lock_moving(class);
        let alone = step(&pool, class, &mut moving);
        assert!(alone.moved > 1 && !alone.yields, "{} moved", alone.moved);
        thread::scope(|scope| {
            let waits = scope.spawn(|| drop(class.lock()));
            // Ten seconds at most, and then the assertion fails.
            let looks = (0..10_000).take_while(|_| !moving.is_contended());
            looks.for_each(|_| thread::sleep(Duration::from_millis(1)));
            let beside = step(&pool, class, &mut moving);
            assert_eq!((beside.moved, beside.yields), (1, true));
            drop(moving);
            waits.join().expect("it gets the lock");
        });
        pool.compact();
        pool.check().expect("no defect");
    }
}
