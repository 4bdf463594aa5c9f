//! Recounting a pool from its structures.
//!
//! Each class is walked under its lock: every zspage is in the list of its fullness, its bits are
//! its count, its frames name its descriptor, and every object is named by the cell that its back
//! reference names. The totals are compared with the sums at the end; where objects came or went
//! while other classes were walked, a difference of totals is reported as motion, not as a defect.
//!
//! Invariants checked: descriptor I1, I2; group; class I1, I2; pool I1.
//!
//! Locks: one class lock at a time; cells are looked at, not locked.

use std::fmt;

use host::PAGE_SIZE;
use host::sync::atomic::Ordering;

use crate::class::{Class, State};
use crate::descriptor::{Descriptor, DescriptorId};
use crate::group::group_of;
use crate::pool::Pool;
use crate::word::{LOCKED, Word};

/// What a recount found, when it found no defect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PoolCheck {
    /// Zspages walked.
    pub zspages: u64,
    /// Objects counted.
    pub objects: u64,
    /// Objects whose cell was locked, or that were not yet published, looked at by count only; and
    /// zspages that were being built or given back.
    pub in_flight: u64,
    /// Bytes of all frames of zspages, and of the touched ones.
    pub mem_used_total: u64,
    /// Bytes of touched frames.
    pub object_bytes_resident: u64,
    /// Allocations and frees that happened during the walk.
    pub moved: u64,
}

/// A structure that contradicts itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolDefect(
    /// What was found where.
    pub String,
);

impl fmt::Display for PoolDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PoolDefect {}

fn expect_equal<T: PartialEq + fmt::Debug>(
    what: impl fmt::Display,
    counted: T,
    kept: T,
) -> Result<(), PoolDefect> {
    if counted == kept {
        return Ok(());
    }
    Err(PoolDefect(format!("{what}: counted {counted:?}, kept {kept:?}")))
}

impl Pool {
    /// Recounts everything and compares it with what is kept.
    ///
    /// # Errors
    ///
    /// The first contradiction found.
    pub fn check(&self) -> Result<PoolCheck, PoolDefect> {
        let mut found = PoolCheck::default();
        let before = (self.operations(), self.in_transit());
        for class in self.classes() {
            self.check_class(class, &mut found)?;
        }
        let stats = self.stats();
        found.moved = self.operations() - before.0;
        found.in_flight += before.1 + self.in_transit();
        if found.moved == 0 && found.in_flight == 0 {
            expect_equal("mem_used_total", found.mem_used_total, stats.mem_used_total)?;
            let (counted, kept) = (found.object_bytes_resident, stats.object_bytes_resident);
            expect_equal("object_bytes_resident", counted, kept)?;
        }
        Ok(found)
    }

    /// Allocations and frees so far.
    pub fn operations(&self) -> u64 {
        self.classes().iter().map(|class| class.lock().operations).sum()
    }

    fn in_transit(&self) -> u64 {
        // relaxed: a total.
        self.counters.in_transit.load(Ordering::Relaxed)
    }

    fn check_class(&self, class: &Class, found: &mut PoolCheck) -> Result<(), PoolDefect> {
        let (list, state) = (self.list(class), class.lock());
        let (mut objects, mut zspages) = (0, 0);
        for group in 0..crate::GROUPS {
            let mut count = 0;
            let mut prev = DescriptorId::NONE;
            for id in list.walk(state.groups.head(group)) {
                let zspage = list.get(id);
                let here = format!("class {} group {group} zspage {}", class.index.get(), id.0);
                expect_equal(format!("{here} previous"), zspage.prev(), prev)?;
                expect_equal(format!("{here} group kept"), zspage.group(), group)?;
                self.check_zspage(class, id, zspage, &here, found)?;
                objects += zspage.in_use() as u64;
                prev = id;
                count += 1;
            }
            let what = format!("class {} zspages in group {group}", class.index.get());
            expect_equal(what, count, state.groups.count(group))?;
            zspages += u64::from(count);
        }
        self.check_totals(class, &state, objects, zspages)?;
        found.objects += objects;
        found.zspages += zspages;
        Ok(())
    }

    fn check_totals(
        &self,
        class: &Class,
        state: &State,
        objects: u64,
        zspages: u64,
    ) -> Result<(), PoolDefect> {
        let name = class.index.get();
        expect_equal(format!("class {name} objects"), objects, state.objects)?;
        expect_equal(format!("class {name} zspages"), zspages, state.zspages)?;
        expect_equal(format!("class {name} empty zspages"), state.groups.count(0), 0)
    }

    fn check_zspage(
        &self,
        class: &Class,
        id: DescriptorId,
        zspage: Descriptor<'_>,
        here: &str,
        found: &mut PoolCheck,
    ) -> Result<(), PoolDefect> {
        let (shape, pfn) = (class.shape, zspage.pfn());
        let bits = zspage.used_slots().count();
        expect_equal(format!("{here} objects"), bits, zspage.in_use())?;
        let group = group_of(bits, usize::from(shape.objects));
        expect_equal(format!("{here} group"), group, zspage.group())?;
        expect_equal(format!("{here} class"), zspage.class(), class.index)?;
        expect_equal(format!("{here} descriptor of its frames"), self.memory.owner(pfn), id)?;
        for slot in zspage.used_slots() {
            if !self.check_object(class, zspage, slot, here)? {
                found.in_flight += 1;
            }
        }
        let frames = u32::from(shape.frames);
        let resident = self.memory.arena.resident_in(pfn, frames);
        found.mem_used_total += u64::from(frames) * PAGE_SIZE as u64;
        found.object_bytes_resident += u64::from(resident) * PAGE_SIZE as u64;
        Ok(())
    }

    /// Compares an object with the cell that owns it; false when the cell is in use.
    fn check_object(
        &self,
        class: &Class,
        zspage: Descriptor<'_>,
        slot: usize,
        here: &str,
    ) -> Result<bool, PoolDefect> {
        let owner = zspage.owner(slot);
        if owner == 0 {
            return Ok(false);
        }
        let cell = self.memory.leaves.cell(owner);
        let cell = cell.ok_or_else(|| PoolDefect(format!("{here}: no entry {owner}")))?;
        // Acquire pairs with the unlocking swap in `CellGuard`: an unlocked word is complete.
        let word = cell.load(Ordering::Acquire);
        if word & LOCKED != 0 {
            return Ok(false);
        }
        let place = Word(word).place();
        let named = place.map(|place| (place.pfn, place.class, usize::from(place.object)));
        let what = format_args!("{here} slot {slot}, as entry {owner} names it");
        expect_equal(what, named, Some((zspage.pfn(), class.index, slot)))?;
        Ok(true)
    }
}
