//! Recounting a pool from its structures.
//!
//! Each class is walked under its lock. Every zspage must have its place in the array of its
//! fullness, its bits must be its count, and its frames must name its descriptor. The cell that an
//! object's back reference names must name the object. At the end the totals are compared with the
//! sums. If objects came or went while other classes were walked, a difference of totals is
//! reported as motion, not as a defect.
//!
//! Invariants checked: descriptor I1, I2; fullness I1, I2; class I1, I2; entries; pool I1.
//!
//! Locks: one class lock at a time; cells are looked at, not locked.

use host::PAGE_SIZE;
use host::sync::atomic::Ordering;

use crate::class::{Class, State};
use crate::class::{GROUPS, group_of};
use crate::leaves::LeafUse;
use crate::memory::Memory;
use crate::numbers::{CellNumber, LOCKED, PoolDefect, Word, expect_equal};
use crate::pool::Pool;
use crate::zspages::{Descriptor, DescriptorId};

/// What a recount found, when it found no defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PoolCheck {
    /// Zspages walked.
    pub zspages: u64,
    /// Objects counted.
    pub objects: u64,
    /// Bytes of their slots.
    pub slot_bytes: u64,
    /// Bytes of the objects that a cell names, by the lengths they were stored with.
    pub stored_bytes: u64,
    /// Objects whose cell was locked, or that were not yet published, and zspages that were being
    /// built or given back. They were only counted.
    pub in_flight: u64,
    /// Bytes of all frames of zspages, and of the touched ones.
    pub mem_used_total: u64,
    /// Bytes of touched frames.
    pub object_bytes_resident: u64,
    /// Allocations and frees that happened during the walk.
    pub moved: u64,
    /// Bytes of the classes' arrays of zspages.
    pub position_bytes: u64,
    /// Objects that were freed and are pending, before the walk; they are counted above too.
    pub pending: u64,
}

/// Entries of handles, as a walk finds them.
#[derive(Default)]
struct EntryCount {
    /// Behind objects.
    handles: u64,
    raw: u64,
    /// In the chains of classes and stocks, each by its number.
    free: Vec<CellNumber>,
    raw_free: Vec<CellNumber>,
    /// Handles, as the classes count them.
    handles_kept: u32,
    /// Objects that their cell does not name, and the first of them.
    unnamed: u64,
    first_unnamed: Option<PoolDefect>,
}

/// What the cell of an object's owner says.
enum Seen {
    Named,
    /// It is locked, or not published yet.
    InFlight,
    /// Something else: freed and pending, or a defect.
    Unnamed(PoolDefect),
}

impl EntryCount {
    /// Objects that no cell names are those that are pending. `None` means that there is no queue,
    /// and so no such object. If objects were freed meanwhile, they cannot be compared.
    fn check_unnamed(&mut self, detached: Option<u64>, moved: bool) -> Result<(), PoolDefect> {
        match (self.first_unnamed.take(), detached) {
            (Some(_), Some(detached)) if moved || self.unnamed <= detached => Ok(()),
            (Some(defect), _) => Err(defect),
            (None, _) => Ok(()),
        }
    }

    /// Every entry is behind an object or in one chain. Given are all there are: for handles, for
    /// raw ones.
    fn check(mut self, [all, all_raw]: [u64; 2]) -> Result<(), PoolDefect> {
        expect_equal("handles", self.handles as u32, self.handles_kept)?;
        expect_equal("entries of handles", self.handles + self.free.len() as u64, all)?;
        expect_equal("entries of raw handles", self.raw + self.raw_free.len() as u64, all_raw)?;
        for chained in [&mut self.free, &mut self.raw_free] {
            chained.sort_unstable();
            let twice = chained.windows(2).find(|two| two[0] == two[1]);
            if let Some(twice) = twice {
                return Err(PoolDefect(format!("entry {} is chained twice", twice[0])));
            }
        }
        Ok(())
    }
}

impl Memory {
    /// Recounts the resident free frames from the arena's bits, while no thread uses the memory.
    ///
    /// # Errors
    ///
    /// When they are not as many as [`Memory::free_bytes_held`] says.
    ///
    /// ```
    /// # use ramfold_zsmalloc::{Memory, MemoryConfig, Pool, PoolConfig};
    /// # let memory = Memory::new(MemoryConfig::for_disk(16 << 20))?;
    /// # let pool = Pool::new(memory, PoolConfig::default())?;
    /// pool.free_handle(pool.alloc(b"some bytes")?)?;
    /// pool.memory().check_free_held()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn check_free_held(&self) -> Result<(), PoolDefect> {
        let kept = self.free_bytes_held() / PAGE_SIZE as u64;
        expect_equal("resident free frames", self.arena.resident_unclaimed(), kept)
    }
}

impl Pool {
    /// Recounts everything and compares it with what is kept.
    ///
    /// # Errors
    ///
    /// The first contradiction found.
    pub fn check(&self) -> Result<PoolCheck, PoolDefect> {
        self.flush_lagging();
        let mut found = PoolCheck::default();
        let before = (self.operations(), self.in_transit());
        let mut entries = EntryCount::default();
        found.pending = self.check_pending().map_err(PoolDefect)?;
        for class in self.classes.iter() {
            self.check_class(class, &mut found, &mut entries)?;
        }
        // This is read before the zspages on the way are, so that what came in between is seen
        // there.
        let (stats, leaves) = (self.stats(), &self.memory.leaves);
        let all = self.stocks.handles.check(leaves, &mut entries.free)?;
        let all_raw = self.stocks.raw.check(leaves, &mut entries.raw_free)?;
        // relaxed: as the totals in `stats`; changed under class locks, as operations are.
        let positions = self.counters.position_bytes.load(Ordering::Relaxed);
        let detached = self.detached();
        found.in_flight += u64::from(before.1) + u64::from(self.in_transit());
        // This comes after that, because to arrive is an operation: a zspage that had arrived by
        // then was not on the way.
        found.moved = u64::from(self.operations().wrapping_sub(before.0));
        entries.check_unnamed(detached, found.moved > 0)?;
        if found.moved == 0 && found.in_flight == 0 {
            expect_equal("mem_used_total", found.mem_used_total, stats.mem_used_total)?;
            let (counted, kept) = (found.object_bytes_resident, stats.object_bytes_resident);
            expect_equal("object_bytes_resident", counted, kept)?;
            expect_equal("objects", found.objects, stats.objects)?;
            expect_equal("slot_bytes", found.slot_bytes, stats.slot_bytes)?;
            expect_equal("bytes of positions", found.position_bytes, positions)?;
            entries.check([all, all_raw])?;
        }
        Ok(found)
    }

    fn check_class(
        &self,
        class: &Class,
        found: &mut PoolCheck,
        entries: &mut EntryCount,
    ) -> Result<(), PoolDefect> {
        let (of, state) = (self.descriptors(class), class.lock());
        entries.handles_kept = entries.handles_kept.wrapping_add(state.handles);
        let leaves = &self.memory.leaves;
        state.entries.check(leaves, &mut entries.free)?;
        state.raw_entries.check(leaves, &mut entries.raw_free)?;
        let (mut objects, mut counts) = (0, [0; GROUPS]);
        for (position, &id) in state.fullness.zspages().iter().enumerate() {
            let zspage = of.get(id);
            let here = format!("class {} shard {} zspage {}", class.index.get(), class.shard, id.0);
            let level = of.layout.level(zspage.in_use());
            expect_equal(format_args!("{here} position"), position as u32, zspage.position())?;
            let kept = state.fullness.level_at(of.layout, position);
            expect_equal(format_args!("{here} level"), level, kept)?;
            self.check_zspage(class, id, zspage, &here, (found, entries))?;
            self.count_entries(zspage, entries);
            objects += zspage.in_use() as u64;
            counts[group_of(zspage.in_use(), usize::from(class.shape.objects))] += 1;
        }
        self.check_totals(class, &state, objects, counts)?;
        found.objects += objects;
        found.slot_bytes += objects * u64::from(class.shape.size);
        found.zspages += state.fullness.zspages().len() as u64;
        found.position_bytes += state.fullness.heap_bytes() as u64;
        Ok(())
    }

    fn check_totals(
        &self,
        class: &Class,
        state: &State,
        objects: u64,
        counts: [u32; GROUPS],
    ) -> Result<(), PoolDefect> {
        let name = class.index.get();
        expect_equal(format!("class {name} objects"), objects, u64::from(state.objects))?;
        let kept = state.fullness.counts(class.layout());
        expect_equal(format!("class {name} zspages by fullness"), counts, kept)?;
        expect_equal(format!("class {name} empty zspages"), counts[0], 0)
    }

    fn count_entries(&self, zspage: Descriptor<'_>, entries: &mut EntryCount) {
        let owners = zspage.used_slots().filter_map(|slot| zspage.owner(slot).some());
        for owner in owners {
            match self.memory.leaves.use_of(owner) {
                LeafUse::Cells => {}
                LeafUse::Handles => entries.handles += 1,
                LeafUse::Raw => entries.raw += 1,
            }
        }
    }

    fn check_zspage(
        &self,
        class: &Class,
        id: DescriptorId,
        zspage: Descriptor<'_>,
        here: &str,
        (found, entries): (&mut PoolCheck, &mut EntryCount),
    ) -> Result<(), PoolDefect> {
        let (shape, pfn) = (class.shape, zspage.pfn());
        let bits = zspage.used_slots().count();
        expect_equal(format!("{here} objects"), bits, zspage.in_use())?;
        expect_equal(format!("{here} lock"), zspage.lock(), class.number)?;
        expect_equal(format!("{here} pool"), zspage.pool(), self.id)?;
        expect_equal(format!("{here} descriptor of its frames"), self.memory.owner(pfn), id)?;
        for slot in zspage.used_slots() {
            match self.check_object(class, zspage, slot, here)? {
                Seen::Named => {}
                Seen::InFlight => found.in_flight += 1,
                Seen::Unnamed(defect) => {
                    entries.unnamed += 1;
                    entries.first_unnamed.get_or_insert(defect);
                }
            }
        }
        found.stored_bytes += self.stored_bytes_in(class, zspage);
        let frames = u32::from(shape.frames);
        let resident = self.memory.arena.resident_in(pfn, frames);
        if zspage.is_touched() {
            expect_equal(format!("{here} touched frames"), resident, frames)?;
        }
        found.mem_used_total += u64::from(frames) * PAGE_SIZE as u64;
        found.object_bytes_resident += u64::from(resident) * PAGE_SIZE as u64;
        Ok(())
    }

    /// Compares an object with the cell that owns it.
    fn check_object(
        &self,
        class: &Class,
        zspage: Descriptor<'_>,
        slot: usize,
        here: &str,
    ) -> Result<Seen, PoolDefect> {
        let owner = zspage.owner(slot);
        if owner == CellNumber::NONE {
            return Ok(Seen::InFlight);
        }
        let cell = self.memory.leaves.cell(owner);
        let cell = cell.ok_or_else(|| PoolDefect(format!("{here}: no cell {owner}")))?;
        // Acquire pairs with the unlocking swap in `CellGuard`, so that an unlocked word is
        // complete. The cell of a handle whose object is being written names nothing yet.
        let word = cell.load(Ordering::Acquire);
        if word & LOCKED != 0 {
            return Ok(Seen::InFlight);
        }
        let (place, kind) = (Word(word).place(), self.memory.leaves.use_of(owner));
        if place.is_none() && kind != LeafUse::Cells {
            return Ok(Seen::InFlight);
        }
        let named = place.map(|place| (place.pfn(), place.class(), usize::from(place.object())));
        let what = format_args!("{here} slot {slot}, as cell {owner} names it");
        match expect_equal(what, named, Some((zspage.pfn(), class.index, slot))) {
            Ok(()) => Ok(Seen::Named),
            Err(defect) if kind == LeafUse::Cells => Ok(Seen::Unnamed(defect)),
            Err(defect) => Err(defect),
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod damage;
