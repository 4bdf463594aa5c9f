//! Freeing objects by their places, sorted by the lock that each is under: those of a leaf, and
//! those that were deferred.
//!
//! Locks: one class after the other; the caller may hold cells.

use crate::class::Class;
use crate::numbers::{CLASSES, LEAF_CELLS, Place, SHARDS_MAX};
use crate::pool::{Found, Leaving, Pool};

/// Locks a pool has at most.
const LOCKS_MAX: usize = CLASSES * SHARDS_MAX; // 2040

impl Pool {
    /// Frees objects whose cells the caller has locked, or that no cell names. They are at most as
    /// many as a leaf has.
    pub(crate) fn free_places(&self, places: &[Place]) {
        let mut sorted = [Place::default(); LEAF_CELLS];
        let ends = self.sort_places(places, &mut sorted);
        let (mut leaving, mut strays) = (Leaving::NONE, Vec::new());
        let mut start = 0;
        for (number, &end) in ends[..self.classes.len()].iter().enumerate() {
            let run = &sorted[start..usize::from(end)];
            start = usize::from(end);
            if !run.is_empty() {
                self.free_of_class(self.classes.at(number), run, &mut leaving, &mut strays);
            }
        }
        strays.into_iter().for_each(|place| self.free(place));
        self.release_any(leaving);
        self.stir();
    }

    /// Sorts places by the lock that their zspage is under, or was a moment ago. Returns where
    /// those of each lock end. Cells without an object have no place.
    fn sort_places(&self, places: &[Place], sorted: &mut [Place; LEAF_CELLS]) -> [u16; LOCKS_MAX] {
        let (mut ends, mut locks) = ([0; LOCKS_MAX], [0_u16; LEAF_CELLS]);
        let objects = || places.iter().filter(|place| **place != Place::default());
        let tables = self.tables();
        for (&place, lock) in objects().zip(&mut locks) {
            *lock = tables.find_at(place).lock as u16;
            ends[usize::from(*lock)] += 1;
        }
        let mut start = 0;
        for end in &mut ends[..self.classes.len()] {
            start += std::mem::replace(end, start);
        }
        for (&place, &lock) in objects().zip(&locks) {
            let next = &mut ends[usize::from(lock)];
            sorted[usize::from(*next)] = place;
            *next += 1;
        }
        ends
    }

    /// Frees objects of one shard of a class; `strays` get those whose zspage went to another.
    fn free_of_class(
        &self,
        class: &Class,
        places: &[Place],
        leaving: &mut Leaving,
        strays: &mut Vec<Place>,
    ) {
        let tables = self.tables();
        let (of, mut freed) = (tables.descriptors(class), 0);
        let mut state = self.lock(class);
        for &place in places {
            let Found { zspage, object, lock } = tables.find_at(place);
            if lock != class.number {
                strays.push(place);
                continue;
            }
            let in_use = zspage.header.give(usize::from(object));
            freed += 1;
            if state.drain_one(&of, zspage, in_use) {
                leaving.push(&self.memory, zspage.id);
            }
        }
        state.count_freed(freed);
        class.hint_partial(state.fullness.fullest_with_room().is_some());
        self.unlock(state, leaving);
    }
}
