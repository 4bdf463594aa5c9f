//! Evacuation: what is left in sparse pageblocks moves to fuller ones, so that whole pageblocks go
//! back.
//!
//! ```text
//!   | . a . . . . . b |   | c c . c c c c c |         pageblocks, before
//!     |           `---------> .                       isolated: nobody allocates from it
//!     `---> a hole of another
//!   | . . . . . . . . |   | c c b c c c c c |         after: free, and taken offline by a release
//! ```
//!
//! A frame can be returned alone, so what this saves is what a pageblock costs besides: its
//! metadata in the zone, a call for each scattered piece, and large runs. Sparse is half full or
//! less, because the work is to copy what is there, and the gain is the rest. What is moved goes
//! into holes of fuller pageblocks. What fits into none goes together into another pageblock.
//!
//! Source: `isolate_migratepages_block` and `alloc_contig_range` of the kernel, as far as they
//! isolate a pageblock, migrate what is in it, and undo that where something stays.
//!
//! Invariants
//! - I1 an isolated pageblock is one that an evacuation is at, and that undoes it.
//! - I2 a run leaves by the migration of its zspage, which moves all objects or none.
//! - I3 what is resident grows by what one batch of pageblocks held, at most: the holes that take
//!   it in may be untouched, so what was emptied goes back before the next batch.
//!
//! Locks: the turn to isolate, for a batch; the zone's for each look and each run; those of a
//! migration.

use std::ops::AddAssign;
use std::sync::Arc;

use buddy::{AllocatedRun, Occupancy, PAGEBLOCK_FRAMES, PageblockIndex};
use host::Pfn;

use super::zones::Zones;
use super::{Frames, Memory, MigrateError, Tenant};

/// Frames in use in a sparse pageblock, at most.
const SPARSE_FRAMES: u32 = PAGEBLOCK_FRAMES / 2; // 256
/// Pageblocks isolated together: nobody can allocate from their holes meanwhile.
const ISOLATED_AT_ONCE: usize = 2; // 4 MiB
/// Pageblocks looked at in one hold of the zone's lock.
const LOOKS_AT_ONCE: u32 = 512;

/// What an evacuation did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Evacuation {
    /// Pageblocks emptied.
    pub pageblocks: u64,
    /// Frames of the zspages that moved.
    pub frames: u64,
    /// Pageblocks in which something stayed: an object was in use, or no hole was large enough.
    pub kept: u64,
    /// Pageblocks without a frame in use that took in what fitted into no hole.
    pub opened: u64,
}

impl AddAssign for Evacuation {
    fn add_assign(&mut self, other: Evacuation) {
        self.pageblocks += other.pageblocks;
        self.frames += other.frames;
        self.kept += other.kept;
        self.opened += other.opened;
    }
}

impl Memory {
    /// Moves the zspages of sparse pageblocks to fuller ones, emptiest pageblocks first. As many
    /// frames as that made resident go back meanwhile. Frames that were free and resident before
    /// are left to the next release, and so is the metadata of the pageblocks.
    pub fn evacuate(self: &Arc<Memory>) -> Evacuation {
        let mut all = Evacuation::default();
        for zone in 0..self.zones.count() {
            all += self.evacuate_zone(zone);
        }
        all
    }

    fn evacuate_zone(self: &Arc<Memory>, zone: usize) -> Evacuation {
        // What CPUs keep is free: it makes no pageblock fuller.
        self.zones.get(zone).drain();
        let sparse = plan(&self.pageblocks(zone));
        let held = self.free_bytes_held();
        let mut all = Evacuation::default();
        for batch in sparse.chunks(ISOLATED_AT_ONCE) {
            let done = self.evacuate_batch(zone, batch);
            // No more than was moved: what others free meanwhile waits for its reuse.
            self.release_frames(held, done.frames);
            all += done;
        }
        all
    }

    /// Evacuates some pageblocks, all isolated first, so that none takes in what another held.
    fn evacuate_batch(self: &Arc<Memory>, zone: usize, batch: &[PageblockIndex]) -> Evacuation {
        let _turn = self.turn_to_isolate();
        let zones = &self.zones;
        let isolate = |&index: &PageblockIndex| {
            let isolated = zones.get(zone).isolate(index).is_ok();
            isolated.then(|| Isolated { zones, zone, index })
        };
        let batch: Vec<Isolated<'_>> = batch.iter().filter_map(isolate).collect();
        let mut done = Evacuation::default();
        // Half full at most, they fit into half as many.
        let open_max = batch.len() as u64 / 2;
        for isolated in &batch {
            let emptied = self.evacuate_pageblock(zone, isolated.index, open_max, &mut done);
            done.pageblocks += u64::from(emptied);
            done.kept += u64::from(!emptied);
        }
        done
    }

    fn pageblocks(&self, zone: usize) -> Vec<Occupancy> {
        let (mut found, mut next) = (Vec::new(), Some(PageblockIndex::new(0)));
        while let Some(from) = next {
            found.reserve(LOOKS_AT_ONCE as usize);
            next = self.zones.get(zone).occupancies(from, LOOKS_AT_ONCE, &mut found);
        }
        found
    }

    /// Moves what is in an isolated pageblock, as far as it can be moved. True if that is all.
    fn evacuate_pageblock(
        self: &Arc<Memory>,
        zone: usize,
        index: PageblockIndex,
        open_max: u64,
        done: &mut Evacuation,
    ) -> bool {
        let runs = self.zones.get(zone).runs_in(index);
        for run in runs {
            if !self.evacuate_run(zone, &run, open_max, done) {
                return false;
            }
        }
        let left = self.zones.get(zone).occupancy(index);
        left.is_some_and(|left| left.free == PAGEBLOCK_FRAMES)
    }

    /// Moves the zspage that a run is. False if it has to stay.
    fn evacuate_run(
        self: &Arc<Memory>,
        zone: usize,
        run: &AllocatedRun,
        open_max: u64,
        done: &mut Evacuation,
    ) -> bool {
        let pfn = self.zones.in_arena(zone, run.pfn);
        // If it has no pool, it is on its way in or out.
        let Some(tenant) = self.tenant_of(pfn) else { return true };
        let Some(to) = self.room_for(zone, run.frames, open_max, done) else { return false };
        match tenant.migrate(pfn, to) {
            Ok(()) => done.frames += u64::from(run.frames),
            Err(MigrateError::NoZspage) => {}
            Err(MigrateError::Busy(_) | MigrateError::WrongFrames(_)) => return false,
        }
        true
    }

    /// Frames in a hole, or of a pageblock without a frame in use, of which `open_max` are taken.
    fn room_for(
        self: &Arc<Memory>,
        zone: usize,
        frames: u32,
        open_max: u64,
        done: &mut Evacuation,
    ) -> Option<Frames> {
        if let Some(hole) = Frames::of(self, frames, |frames| self.zones.alloc_hole(zone, frames)) {
            return Some(hole);
        }
        if done.opened == open_max {
            return None;
        }
        let open = |frames| self.zones.alloc_in(zone, frames);
        let opened = Frames::of(self, frames, open)?;
        done.opened += 1;
        Some(opened)
    }

    /// The pool of the zspage that starts at a frame.
    fn tenant_of(&self, pfn: Pfn) -> Option<Arc<dyn Tenant>> {
        let id = self.with_zspage_at(pfn, |_, header| header.pool())?;
        self.tenants().into_iter().find(|tenant| tenant.id() == id)
    }
}

/// A pageblock that is isolated until this is dropped (I1), also by a panic, which the worker
/// survives.
struct Isolated<'z> {
    zones: &'z Zones,
    zone: usize,
    index: PageblockIndex,
}

impl Drop for Isolated<'_> {
    fn drop(&mut self) {
        let undone = self.zones.get(self.zone).undo_isolation(self.index);
        debug_assert!(undone.is_ok(), "isolated by this evacuation: {undone:?}");
    }
}

/// The sparse pageblocks to evacuate, emptiest first: as many as the holes of the others hold.
fn plan(pageblocks: &[Occupancy]) -> Vec<PageblockIndex> {
    let is_sparse = |block: &&Occupancy| {
        block.fixed == 0 && block.taken == 0 && (1..=SPARSE_FRAMES).contains(&block.movable)
    };
    let mut sparse: Vec<&Occupancy> = pageblocks.iter().filter(is_sparse).collect();
    sparse.sort_unstable_by_key(|block| block.movable);
    let fuller = pageblocks.iter().filter(|block| block.movable > SPARSE_FRAMES);
    let mut room: u64 = fuller.map(|block| u64::from(block.free)).sum();
    // The fuller of the sparse take in what the emptier held, from the end inwards.
    let (mut first, mut last, mut used) = (0, sparse.len(), 0);
    while first < last {
        let need = u64::from(sparse[first].movable);
        if used + need <= room {
            used += need;
            first += 1;
        } else {
            last -= 1;
            room += u64::from(sparse[last].free);
        }
    }
    sparse[..first].iter().map(|block| block.index).collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use buddy::Migratetype;

    fn blocks(used: &[u32]) -> Vec<Occupancy> {
        let block = |(index, &movable): (usize, &u32)| Occupancy {
            index: PageblockIndex::new(index as u32),
            migratetype: Migratetype::Movable,
            free: PAGEBLOCK_FRAMES - movable,
            movable,
            fixed: 0,
            taken: 0,
        };
        used.iter().enumerate().map(block).collect()
    }

    #[track_caller]
    fn expect(used: &[u32], evacuated: &[u32]) {
        let found: Vec<u32> = plan(&blocks(used)).iter().map(|index| index.get()).collect();
        assert_eq!(found, evacuated, "{used:?}");
    }

    #[test]
    fn emptier_pageblocks_move_into_fuller_ones() {
        expect(&[], &[]);
        expect(&[512, 0, 512], &[]);
        expect(&[100], &[]);
        expect(&[512, 100], &[]);
        expect(&[400, 100], &[1]);
        expect(&[400, 112, 1], &[2]);
        expect(&[256, 256], &[0]);
        expect(&[10, 20, 30], &[0, 1]);
        expect(&[200, 200, 200, 200], &[0, 1]);
    }

    #[test]
    fn what_cannot_move_keeps_its_pageblock() {
        let mut pageblocks = blocks(&[400, 50]);
        pageblocks[1].fixed = 1;
        assert_eq!(plan(&pageblocks), []);
        let mut pageblocks = blocks(&[400, 50]);
        pageblocks[1].taken = 1;
        assert_eq!(plan(&pageblocks), []);
    }
}
