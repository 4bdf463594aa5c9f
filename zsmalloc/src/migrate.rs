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

use std::fmt;
use std::sync::Arc;

use buddy::Pfn;
use host::Run;
use host::sync::atomic::Ordering;

use crate::class::{Class, Slot};
use crate::compact::named;
use crate::descriptor::{Descriptor, DescriptorId, Header};
use crate::error::AllocError;
use crate::geometry::OBJECTS_MAX;
use crate::memory::Memory;
use crate::pool::Pool;
use crate::word::{Place, Word};
use crate::zspage::{self, At};

/// Frames that nobody uses, for a zspage to move to; given back when dropped.
#[must_use = "the frames are given back when this is dropped"]
pub struct Frames {
    memory: Arc<Memory>,
    /// `None` once a zspage has them.
    run: Option<Run>,
    resident: u32,
}

/// A zspage, as it was a moment ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZspageInfo {
    /// Its first frame.
    pub pfn: u32,
    /// Its frames.
    pub frames: u32,
    /// Objects in it.
    pub objects: u32,
}

/// Why a zspage stayed where it is.
#[derive(Debug)]
pub enum MigrateError {
    /// No zspage of this pool starts at that frame.
    NoZspage,
    /// An object of it is being read, written or published. Try again later.
    Busy(Frames),
    /// The frames are another memory's, or more or fewer than the zspage has.
    WrongFrames(Frames),
}

impl fmt::Display for MigrateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MigrateError::NoZspage => "no zspage of this pool starts at that frame",
            MigrateError::Busy(_) => "an object of the zspage is in use",
            MigrateError::WrongFrames(_) => "the frames do not fit the zspage",
        })
    }
}

impl std::error::Error for MigrateError {}

impl Memory {
    /// Takes `frames` contiguous frames, 1 to 1024.
    ///
    /// # Errors
    ///
    /// [`AllocError::BadRun`] for 0 and for more than 1024 frames, [`AllocError::OutOfFrames`] when
    /// the arena has no such run.
    pub fn frames(self: &Arc<Memory>, frames: u32) -> Result<Frames, AllocError> {
        if !(1..=buddy::RUN_FRAMES_MAX).contains(&frames) {
            return Err(AllocError::BadRun { frames });
        }
        let (run, resident) = self.take_run(0, frames)?;
        Ok(Frames { memory: Arc::clone(self), run: Some(run), resident })
    }

    /// What `look` sees of the zspage that starts at a frame, if one does. Its descriptor is not
    /// freed meanwhile: it was not when the frame named it, with the heap held, and who frees it
    /// has the frame name nothing before.
    pub(crate) fn with_zspage_at<R>(
        &self,
        pfn: u32,
        look: impl FnOnce(DescriptorId, Header<'_>) -> R,
    ) -> Option<R> {
        loop {
            let id = self.owner_at(pfn)?;
            let _held = self.descriptors.hold(id);
            if self.owner_at(pfn) == Some(id) {
                return Some(look(id, self.descriptors.header(id)));
            }
        }
    }
}

impl Frames {
    /// Frames whose first `alloc` finds; `None` where it finds none.
    pub(crate) fn of(
        memory: &Arc<Memory>,
        frames: u32,
        alloc: impl FnOnce(u32) -> Option<Pfn>,
    ) -> Option<Frames> {
        let (run, resident) = memory.take_found_run(frames, alloc)?;
        Some(Frames { memory: Arc::clone(memory), run: Some(run), resident })
    }

    /// The number of the first; `None` for frames that a zspage has taken.
    pub fn pfn(&self) -> Option<u32> {
        self.run.as_ref().map(Run::pfn)
    }

    fn len(&self) -> u32 {
        self.run.as_ref().map_or(0, Run::frames)
    }

    /// Returns to the system what is touched beyond where the last touched one of as many frames
    /// from `pfn` on is.
    fn reach_as_far_as(&mut self, pfn: u32) {
        let Some(run) = &mut self.run else { return };
        let last = (0..run.frames()).rfind(|at| self.memory.arena.is_resident(pfn + at));
        self.resident -= self.memory.purge_from(run, last.map_or(0, |last| last + 1));
    }
}

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frames({:?})", self.run)
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        self.memory.give_runs(self.run.take().into_iter());
    }
}

impl Pool {
    /// Every zspage, class by class; what comes and goes meanwhile may be missing or gone.
    pub fn zspages(&self) -> Vec<ZspageInfo> {
        self.flush_lagging();
        self.classes().iter().flat_map(|class| self.zspages_of(class)).collect()
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
    /// # Errors
    ///
    /// [`MigrateError`]; nothing has moved then.
    pub fn migrate(&self, pfn: u32, mut to: Frames) -> Result<(), MigrateError> {
        let (id, class, mut moving) = loop {
            let found = self.zspage_at(pfn).ok_or(MigrateError::NoZspage)?;
            let (id, number) = found;
            let class = &self.classes()[number];
            if to.len() != u32::from(class.shape.frames) || !Arc::ptr_eq(&to.memory, &self.memory) {
                return Err(MigrateError::WrongFrames(to));
            }
            // A packed zspage's last frames are not touched, and are not to be so for its moving.
            // An object that comes there meanwhile touches its own as it is copied.
            to.reach_as_far_as(pfn);
            let moving = self.lock_moving(class);
            // Only zspages of this pool, of this class, are kept from changing by the class lock;
            // so what was found without it is asked again. It may have changed its shard alone.
            if self.zspage_at(pfn) == Some(found) {
                break (id, class, moving);
            }
        };
        let resident = u64::from(to.resident);
        if let Err(to) = self.move_zspage(class, id, to) {
            drop(moving);
            return Err(MigrateError::Busy(to));
        }
        moving.state.operated(1);
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
    fn zspage_at(&self, pfn: u32) -> Option<(DescriptorId, usize)> {
        let look = |id, header: Header<'_>| {
            let live = header.pool() == self.id && header.in_use() > 0;
            live.then(|| (id, header.lock()))
        };
        self.memory.with_zspage_at(pfn, look).flatten()
    }

    /// Copies the objects of a zspage to `to` and changes their words; gives the frames back, with
    /// nothing done, when one of them is in use.
    fn move_zspage(&self, class: &Class, id: DescriptorId, to: Frames) -> Result<(), Frames> {
        let zspage = self.descriptors(class).get(id);
        let mut words = [Word::default(); OBJECTS_MAX];
        let locked = self.lock_objects(zspage, id, &mut words);
        let slots = || zspage.used_slots().zip(&words[..locked]);
        if locked < zspage.in_use() {
            for (slot, &word) in slots() {
                self.unlock_word(zspage.owner(slot), self.handle_cell(zspage.owner(slot)), word);
            }
            return Err(to);
        }
        // Before a word is unlocked: who reads the new place looks for its descriptor. The old one
        // keeps its own until the move is counted (free I2).
        let (old, pfn) = (zspage.pfn(), self.adopt_frames(id, to));
        for (slot, &word) in slots() {
            let place = word.place().expect("only objects were locked");
            let to = Place::new(At { pfn, object: slot as u8 }, class.index, place.slack());
            self.copy_object(class, place, to);
            let entry = zspage.owner(slot);
            self.unlock_word(entry, self.handle_cell(entry), word.with_place(to));
        }
        self.count_move();
        self.memory.set_owner(old, DescriptorId::NONE);
        Ok(())
    }

    /// Makes a zspage one of other frames; gives the first.
    fn adopt_frames(&self, id: DescriptorId, mut to: Frames) -> u32 {
        let pfn = zspage::adopt(to.run.take().expect("frames that were not taken are there"));
        self.memory.set_owner(pfn, id);
        let header = self.memory.descriptors.header(id);
        header.set_pfn(pfn);
        header.set_touched(false);
        pfn
    }

    /// Locks the cells of a zspage's objects, lowest slot first, until one is in use.
    fn lock_objects(
        &self,
        zspage: Descriptor<'_>,
        id: DescriptorId,
        words: &mut [Word; OBJECTS_MAX],
    ) -> usize {
        let mut locked = 0;
        for slot in zspage.used_slots() {
            let entry = zspage.owner(slot);
            let here = Slot::of(id, *zspage, slot);
            let word = if entry == 0 { None } else { self.try_lock_word(entry) };
            let Some(word) = word else { break };
            if named(word, here).is_none() {
                self.unlock_word(entry, self.handle_cell(entry), word);
                break;
            }
            words[locked] = word;
            locked += 1;
        }
        locked
    }
}
