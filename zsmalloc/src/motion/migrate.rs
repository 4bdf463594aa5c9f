//! Migration: a zspage moves to other frames as a whole.
//!
//! ```text
//!   class lock      every cell locked     copy       words, descriptor     unlock; old run back
//!   | a |   | b | ------------------> | a |   | b |  PFN := other   ----->
//!        one in use: all unlocked,
//!        nothing done
//! ```
//!
//! What the page allocator asks for when it wants a pageblock back. Slots stay what they are, and
//! so do the lists. Source: `zs_page_migrate`.
//!
//! Invariants
//! - I1 all objects move or none: the descriptor has one PFN.
//! - I2 a lock hold copies one zspage, 64 KiB at most.
//!
//! Locks: one class, then cells by trying.

use std::sync::Arc;

use host::Pfn;
use host::sync::atomic::Ordering;

use super::compact::named;
use crate::class::Class;
use crate::memory::{Frames, MigrateError};
use crate::numbers::{OBJECTS_MAX, Place, Slot, Word};
use crate::pool::Pool;
use crate::zspages::zspage;
use crate::zspages::{Descriptor, DescriptorId, Header};

/// What a zspage was a moment ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZspageInfo {
    /// Its first frame.
    pub pfn: Pfn,
    /// Its frames.
    pub frames: u32,
    /// Objects in it.
    pub objects: u32,
}

impl Pool {
    /// Every zspage, class by class. One that comes meanwhile may be missing, and one that goes may
    /// be listed.
    pub fn zspages(&self) -> Vec<ZspageInfo> {
        self.flush_lagging();
        self.classes.iter().flat_map(|class| self.zspages_of(class)).collect()
    }

    fn zspages_of(&self, class: &Class) -> Vec<ZspageInfo> {
        let (of, state) = (self.descriptors(class), self.lock(class));
        let info = |id: DescriptorId| ZspageInfo {
            pfn: of.header(id).pfn(),
            frames: class.shape.frames.into(),
            objects: of.header(id).in_use() as u32,
        };
        state.fullness.zspages().iter().copied().map(info).collect()
    }

    /// Moves the zspage that starts at frame `pfn` to other frames.
    ///
    /// ```
    /// # use ramfold_zsmalloc::{Frames, MigrateError, Pfn, Pool};
    /// fn migrate(pool: &Pool, from: Pfn, to: Frames) -> Result<(), MigrateError> {
    ///     pool.migrate(from, to)
    /// }
    /// ```
    ///
    /// The number of a cell is not accepted for that of a frame, nor is a plain number:
    ///
    /// ```compile_fail,E0308
    /// # use ramfold_zsmalloc::{CellNumber, Frames, MigrateError, Pool};
    /// fn migrate(pool: &Pool, from: CellNumber, to: Frames) -> Result<(), MigrateError> {
    ///     pool.migrate(from, to)
    /// }
    /// ```
    ///
    /// ```compile_fail,E0308
    /// # use ramfold_zsmalloc::{Frames, MigrateError, Pool};
    /// fn migrate(pool: &Pool, from: u32, to: Frames) -> Result<(), MigrateError> {
    ///     pool.migrate(from, to)
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// [`MigrateError`]; nothing has moved then.
    pub fn migrate(&self, pfn: Pfn, mut to: Frames) -> Result<(), MigrateError> {
        let (id, class, mut moving) = loop {
            let found = self.zspage_at(pfn).ok_or(MigrateError::NoZspage)?;
            let (id, number) = found;
            let class = self.classes.at(number);
            if to.len() != u32::from(class.shape.frames) || !Arc::ptr_eq(&to.memory, &self.memory) {
                return Err(MigrateError::WrongFrames(to));
            }
            // A packed zspage's last frames are not touched, and are not to be so for its moving.
            // An object that comes there meanwhile touches its own as it is copied.
            to.reach_as_far_as(pfn);
            let moving = self.lock_moving(class);
            // The class lock keeps only zspages of this pool and this class from changing. So what
            // was found without it is asked again. It may have changed its shard alone.
            if self.zspage_at(pfn) == Some(found) {
                break (id, class, moving);
            }
        };
        let resident = u64::from(to.resident);
        if let Err(to) = self.move_zspage(class, id, to) {
            drop(moving);
            return Err(MigrateError::Busy(to));
        }
        moving.operated(1);
        // A recount from here on knows that the totals are behind.
        self.departs();
        drop(moving);
        let old = zspage::surrender(&self.memory.arena, pfn, class.shape.frames.into());
        let left = self.memory.give_runs(std::iter::once(old));
        // relaxed: totals; the frames counted were this thread's.
        self.counters.resident.fetch_add(resident, Ordering::Relaxed);
        self.counters.resident.fetch_sub(left, Ordering::Relaxed);
        self.arrived(1);
        Ok(())
    }

    /// Descriptor and class's shard, by number, of the zspage that starts at a frame, if it is this
    /// pool's and has objects.
    fn zspage_at(&self, pfn: Pfn) -> Option<(DescriptorId, usize)> {
        let look = |id, header: Header<'_>| {
            let live = header.pool() == self.id && header.in_use() > 0;
            live.then(|| (id, header.lock()))
        };
        self.memory.with_zspage_at(pfn, look).flatten()
    }

    /// Copies the objects of a zspage to `to`, and changes their words. If one of them is in use,
    /// nothing is done, and the frames come back.
    fn move_zspage(&self, class: &Class, id: DescriptorId, to: Frames) -> Result<(), Frames> {
        let zspage = self.descriptors(class).get(id);
        let mut words = [Word::default(); OBJECTS_MAX];
        let locked = self.lock_objects(zspage, &mut words);
        let slots = || zspage.used_slots().zip(&words[..locked]);
        if locked < zspage.in_use() {
            for (slot, &word) in slots() {
                self.memory.leaves.unlock_word(
                    zspage.owner(slot),
                    self.handle_cell(zspage.owner(slot)),
                    word,
                );
            }
            return Err(to);
        }
        // This comes before a word is unlocked, because a thread that reads the new place looks for
        // its descriptor. The old one keeps its own until the move is counted (free I2).
        let (old, pfn) = (zspage.pfn(), self.adopt_frames(id, to));
        for (slot, &word) in slots() {
            let place = word.place().expect("only objects were locked");
            let to = Place::new(Slot { pfn, object: slot as u8 }, class.index, place.slack());
            self.copy_object(class, place, to);
            let owner = zspage.owner(slot);
            self.memory.leaves.unlock_word(owner, self.handle_cell(owner), word.with_place(to));
        }
        self.count_move();
        self.memory.set_owner(old, DescriptorId::NONE);
        Ok(())
    }

    /// Makes a zspage one of other frames. Returns the first.
    fn adopt_frames(&self, id: DescriptorId, mut to: Frames) -> Pfn {
        let pfn = zspage::adopt(to.run.take().expect("frames that were not taken are there"));
        self.memory.set_owner(pfn, id);
        let header = self.memory.descriptors.header(id);
        header.set_pfn(pfn);
        header.set_touched(false);
        pfn
    }

    /// Locks the cells of a zspage's objects, lowest slot first, until one is in use.
    fn lock_objects(&self, zspage: Descriptor<'_>, words: &mut [Word; OBJECTS_MAX]) -> usize {
        let mut locked = 0;
        for slot in zspage.used_slots() {
            let owner = zspage.owner(slot);
            let word = owner.some().and_then(|owner| self.memory.leaves.try_lock_word(owner));
            let Some(word) = word else { break };
            if named(word, zspage.slot(slot)).is_none() {
                self.memory.leaves.unlock_word(owner, self.handle_cell(owner), word);
                break;
            }
            words[locked] = word;
            locked += 1;
        }
        locked
    }
}
