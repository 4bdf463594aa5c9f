//! Draining a leaf: everything in its cells is freed together, sorted by class.
//!
//! ```text
//!   cells      | a | b |   | c | ...          each locked, and its content noted
//!   by lock    a c .. | b ..                  one hold of a class lock for all of a class
//!              cells emptied and unlocked, zspages back to the zone
//! ```
//!
//! Source: the drain of study S3, which sorts a buffer of handles; here the buffer is the leaf.
//!
//! Invariants
//! - I1 the cells of the objects being freed are locked: nobody reads or moves them.
//! - I2 who drains waits for cells while it has locked others of the same leaf. Nobody waits the
//!   other way round: a thread holds one cell at a time, and a leaf is drained by one.
//!
//! Locks: cells, then one class after the other.

use host::sync::atomic::Ordering;
use host::{Held, Rank};

use crate::cell::{CellNumber, Content, try_lock};
use crate::class::Class;
use crate::design::Release;
use crate::error::StaleLeaf;
use crate::geometry::CLASSES;
use crate::leaf::{LEAF_CELLS, LeafId, LeafUse};
use crate::pool::{Pool, SHARDS_MAX};
use crate::release::Leaving;
use crate::tables::Found;
use crate::word::{LOCKED, Place, Word};
use crate::zspage;

/// Locks a pool has at most.
const LOCKS_MAX: usize = CLASSES * SHARDS_MAX;

/// A cell that is about to be emptied.
#[derive(Clone, Copy)]
pub struct DrainedCell<'p> {
    pool: &'p Pool,
    entry: u32,
    word: Word,
}

impl DrainedCell<'_> {
    /// The cell's number.
    pub fn number(&self) -> CellNumber {
        CellNumber(self.entry)
    }

    /// The client's bits.
    pub fn client(&self) -> u8 {
        self.word.client()
    }

    /// What the cell holds.
    pub fn content(&self) -> Content {
        self.pool.content_of(self.word)
    }

    /// The bytes of the object, in place; `None` when the cell holds none.
    pub fn bytes(&self) -> Option<&[u8]> {
        let place = self.word.place()?;
        let shape = self.pool.geometry().shape(place.class());
        Some(zspage::bytes(&self.pool.memory.arena, shape, place))
    }
}

impl std::fmt::Debug for DrainedCell<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DrainedCell({:?})", self.content())
    }
}

/// Cells whose objects are freed, and which are emptied and unlocked, when this is dropped: also
/// when the client's closure panics.
struct Locked<'p> {
    pool: &'p Pool,
    entries: [u32; LEAF_CELLS],
    places: [Place; LEAF_CELLS],
    len: usize,
    /// Stands for all of them.
    _held: Held,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.pool.free_places(&self.places[..self.len]);
        for &entry in &self.entries[..self.len] {
            self.pool.empty(entry);
        }
    }
}

/// A leaf whose drain was begun, and ends when this is dropped.
struct Draining<'p> {
    pool: &'p Pool,
    leaf: LeafId,
}

impl Drop for Draining<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.pool.drain(self.leaf, |_| {});
        }
        self.pool.memory.leaves.end_drain(self.leaf, LeafUse::Cells);
        // relaxed: a total.
        self.pool.counters.leaves.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Pool {
    /// Frees everything in a leaf's cells and gives the leaf back. `visit` sees each cell that is
    /// not empty before it is cleared; where that panics, the others are freed unseen. From the
    /// start of the call, locking its cells fails.
    ///
    /// # Errors
    ///
    /// [`StaleLeaf`] when it is not this pool's, or another thread is freeing it.
    pub fn free_leaf(
        &self,
        leaf: LeafId,
        visit: impl FnMut(&DrainedCell<'_>),
    ) -> Result<(), StaleLeaf> {
        if !self.memory.leaves.begin_drain(leaf, self.id, LeafUse::Cells) {
            return Err(StaleLeaf);
        }
        let _draining = Draining { pool: self, leaf };
        self.drain(leaf, visit);
        Ok(())
    }

    fn drain(&self, leaf: LeafId, mut visit: impl FnMut(&DrainedCell<'_>)) {
        let nothing = Place::default();
        let held = Held::enter(Rank::Cell);
        let (entries, places) = ([0; LEAF_CELLS], [nothing; LEAF_CELLS]);
        let mut locked = Locked { pool: self, entries, places, len: 0, _held: held };
        for entry in (0..LEAF_CELLS).filter_map(|index| leaf.entry(index)) {
            let word = self.lock_word(entry);
            let place = word.place().unwrap_or(nothing);
            if place == nothing && word.0 == LOCKED {
                self.empty(entry);
                continue;
            }
            locked.entries[locked.len] = entry;
            locked.places[locked.len] = place;
            locked.len += 1;
            visit(&DrainedCell { pool: self, entry, word });
        }
    }

    /// Locks a cell of a leaf that is being drained.
    fn lock_word(&self, entry: u32) -> Word {
        let leaves = &self.memory.leaves;
        let cell = leaves.cell(entry).expect("a leaf that is ours has its cells");
        loop {
            if let Some(word) = try_lock(cell, |_| true) {
                return word;
            }
            // relaxed: only decides whether to go on waiting; `try_lock` orders.
            let locked = || cell.load(Ordering::Relaxed) & LOCKED != 0;
            leaves.waiters.wait_while(entry as usize, locked);
        }
    }

    /// Empties a locked cell and unlocks it.
    fn empty(&self, entry: u32) {
        if let Some(cell) = self.memory.leaves.cell(entry) {
            self.unlock_word(entry, cell, Word::default());
        }
    }

    /// Frees objects whose cells the caller has locked, or that no cell names; as many as a leaf
    /// has at most.
    pub(crate) fn free_places(&self, places: &[Place]) {
        let mut sorted = [Place::default(); LEAF_CELLS];
        let ends = self.sort_places(places, &mut sorted);
        let (mut leaving, mut strays) = (Leaving::NONE, Vec::new());
        let mut start = 0;
        for (class, &end) in self.classes().iter().zip(&ends) {
            let run = &sorted[start..usize::from(end)];
            start = usize::from(end);
            if !run.is_empty() {
                self.free_of_class(class, run, &mut leaving, &mut strays);
            }
        }
        strays.into_iter().for_each(|place| self.free(place));
        self.release_any(leaving);
        self.stir();
    }

    /// Sorts places by the lock that their zspage is under, or was a moment ago; gives where those
    /// of each lock end. Cells without an object have none.
    fn sort_places(&self, places: &[Place], sorted: &mut [Place; LEAF_CELLS]) -> [u16; LOCKS_MAX] {
        let (mut ends, mut locks) = ([0; LOCKS_MAX], [0_u16; LEAF_CELLS]);
        let objects = || places.iter().filter(|place| **place != Place::default());
        let tables = self.tables();
        for (&place, lock) in objects().zip(&mut locks) {
            *lock = tables.find_at(place).lock as u16;
            ends[usize::from(*lock)] += 1;
        }
        let mut start = 0;
        for end in &mut ends[..self.classes().len()] {
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
            let Found { descriptor, header, object, lock } = tables.find_at(place);
            if lock != class.number {
                strays.push(place);
                continue;
            }
            let in_use = header.give(usize::from(object));
            freed += 1;
            if state.drain_one(&of, (descriptor, header), in_use) {
                leaving.push(self, descriptor);
            }
        }
        state.count_freed(freed);
        class.hint_partial(state.fullness.fullest_with_room().is_some());
        if self.release == Release::Inside {
            self.release_any(std::mem::replace(leaving, Leaving::NONE));
        }
    }
}
