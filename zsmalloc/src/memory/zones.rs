//! The zones under one arena: each shard's frames come from a range of their own.
//!
//! ```text
//!   arena  |  zone 0           |  zone 1           |  ...       as many frames in each, the last
//!          |  frames 0 ..      |  each ..          |            one takes what is left
//!             ^ shard 0           ^ shard 1                     numbers inside a zone start at 0
//! ```
//!
//! A zone has one lock, and what it keeps about neighbouring frames shares cache lines; so do the
//! bits and the descriptors of neighbouring frames. Two CPUs that fill or empty zspages side by
//! side would hand all of these lines to each other for every zspage. A shard that finds its zone
//! full takes from the others.
//!
//! Before each zone's lock are its per-CPU lists: a CPU has one set for each zone, and they share
//! what a CPU may keep. So a run never leaves its zone, whichever CPU frees it.
//!
//! Invariants
//! - I1 a frame belongs to the zone that its number says; a run lies in one zone.
//! - I2 the lists of a CPU keep at most 1/256 of the memory's expected bytes, and at most 1 MiB;
//!   those of all CPUs together at most 1/32 of them.
//! - I3 `OutOfFrames` means that no zone has a run, with its lists looked at too.
//! - I4 a `Pfn` counts from the start of the arena, and a `buddy::Pfn` from the start of a zone.
//!   Only `in_arena` and `in_zone` turn one into the other.
//!
//! Locks: one zone's at a time, of rank Zone, inside `SharedZone`, and before it a CPU's.

use std::ops::Deref;

use buddy::{FreedRun, Migratetype, Order, PAGEBLOCK_FRAMES, SharedZone, Warm};
use buddy::{ZoneCheck, ZoneCounts, ZoneDefect};
use host::{HeldRank, Pfn, Rank};

use crate::numbers::AllocError;

/// Zones at most: shards that a class gets unasked.
const ZONES_MAX: u32 = 4;
/// A zone is not smaller than this, so that a small arena stays in one piece.
const ZONE_FRAMES_MIN: u32 = 64 * PAGEBLOCK_FRAMES; // 128 MiB

/// Frames that a CPU's lists keep at most, of all zones together.
const LISTED_MAX: u64 = 256; // 1 MiB
/// And this part of the expected bytes,
const LISTED_DIVISOR: u64 = 256;
/// and that of all CPUs this part: a machine of many would have all of a small memory on them.
const ALL_LISTED_DIVISOR: u64 = 32;

/// On cache lines of its own.
#[repr(align(128))]
struct Apart(SharedZone);

/// A zone, for one call that may take its lock or a CPU's before it. The rank is kept here, as
/// `buddy` has none.
pub(crate) struct Ranked<'z> {
    zone: &'z SharedZone,
    _held: HeldRank,
}

impl Deref for Ranked<'_> {
    type Target = SharedZone;

    #[inline]
    fn deref(&self) -> &SharedZone {
        self.zone
    }
}

impl Apart {
    #[inline]
    fn ranked(&self) -> Ranked<'_> {
        Ranked { zone: &self.0, _held: HeldRank::enter(Rank::Zone) }
    }
}

/// A run that nobody claims, on its way to its zone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unclaimed {
    /// Its first frame.
    pub(crate) pfn: Pfn,
    pub(crate) frames: u32,
    /// Whether some of them may be resident.
    pub(crate) warm: Warm,
}

/// All frames of an arena.
pub(crate) struct Zones {
    zones: Box<[Apart]>,
    /// Frames in each but the last.
    each: u32,
}

impl Zones {
    /// Zones over `frames` frames with nothing online, of a memory that is expected to stay under
    /// `expected_bytes`. With 0 there are no per-CPU lists.
    pub(crate) fn new(frames: u32, expected_bytes: u64) -> Zones {
        let cpus = host::cpu::count();
        let wanted = (cpus as u32).min(ZONES_MAX);
        let count = wanted.min(frames / ZONE_FRAMES_MIN).max(1);
        let listed = listed_frames_max(expected_bytes, cpus as u64) / count;
        // Whole blocks of the largest order.
        let each = (frames / count).next_multiple_of(2 * PAGEBLOCK_FRAMES).min(frames);
        let len = |zone| if zone + 1 == count { frames - zone * each } else { each };
        let zone = |zone| Apart(SharedZone::with_lists(len(zone), cpus, listed));
        Zones { zones: (0..count).map(zone).collect(), each }
    }

    /// A run of frames, from the zone of `shard` if it has one. Where frames are held `warm` that
    /// are free, those of the others go before untouched ones of its own: no CPU's frames pile up
    /// because another one allocates. The lists of other CPUs are looked at when all zones have
    /// been asked in vain (I3).
    pub(crate) fn alloc_run(
        &self,
        shard: usize,
        frames: u32,
        warm: bool,
    ) -> Result<Pfn, AllocError> {
        let cpu = host::cpu::current_hint();
        let held = |zone: &SharedZone| zone.alloc_warm_movable(cpu, frames).ok();
        let own = |zone: &SharedZone| zone.try_alloc_movable(cpu, frames).ok();
        let any = |zone: &SharedZone| zone.alloc_movable(cpu, frames).ok();
        let warm = warm && self.zones.len() > 1;
        let found = if warm { self.first_of(shard, held) } else { None };
        found
            .or_else(|| self.first_of(shard, own))
            .or_else(|| self.first_of(shard, any))
            .ok_or(AllocError::OutOfFrames)
    }

    /// What the first zone gives that gives anything, beginning with a shard's.
    fn first_of(
        &self,
        shard: usize,
        alloc: impl Fn(&SharedZone) -> Option<buddy::Pfn>,
    ) -> Option<Pfn> {
        let count = self.zones.len();
        let from = |zone: usize| {
            let pfn = alloc(&self.get(zone))?;
            Some(self.in_arena(zone, pfn))
        };
        (0..count).map(|turn| (shard + turn) % count).find_map(from)
    }

    /// How many zones there are.
    pub(crate) fn count(&self) -> usize {
        self.zones.len()
    }

    /// One of the zones, for one call. Its numbers start at 0.
    pub(crate) fn get(&self, zone: usize) -> Ranked<'_> {
        self.zones[zone].ranked()
    }

    /// The number in the arena of a frame of a zone.
    pub(crate) fn in_arena(&self, zone: usize, pfn: buddy::Pfn) -> Pfn {
        Pfn::new(self.base(zone) + pfn.get())
    }

    /// The number in its zone of a frame of the arena.
    fn in_zone(&self, zone: usize, pfn: Pfn) -> buddy::Pfn {
        buddy::Pfn::new(pfn.get() - self.base(zone))
    }

    /// Frames of the arena before a zone.
    fn base(&self, zone: usize) -> u32 {
        zone as u32 * self.each
    }

    /// A run of frames of one zone, without those on per-CPU lists.
    pub(crate) fn alloc_in(&self, zone: usize, frames: u32) -> Option<Pfn> {
        let pfn = self.get(zone).alloc_run(frames, Migratetype::Movable).ok()?;
        Some(self.in_arena(zone, pfn))
    }

    /// A run of frames between others of one zone.
    pub(crate) fn alloc_hole(&self, zone: usize, frames: u32) -> Option<Pfn> {
        let pfn = self.get(zone).alloc_hole(frames, Migratetype::Movable).ok()?;
        Some(self.in_arena(zone, pfn))
    }

    /// Frees runs that [`Zones::alloc_run`] gave: to this CPU's lists, or all of a zone's in one
    /// hold of its lock.
    pub(crate) fn free_runs(&self, runs: &[Unclaimed]) {
        self.free_by_zone(runs, Some(host::cpu::current_hint()));
    }

    /// Gives runs, and blocks that [`Zones::take_warm`] gave, to their zones.
    pub(crate) fn put_back(&self, runs: &[Unclaimed]) {
        self.free_by_zone(runs, None);
    }

    fn free_by_zone(&self, runs: &[Unclaimed], cpu: Option<usize>) {
        let mut left = runs;
        while let Some(first) = left.first() {
            let zone = self.zone_of(first.pfn);
            let len = left.iter().take_while(|run| self.zone_of(run.pfn) == zone).count();
            let (same, others) = left.split_at(len);
            self.free_in(zone, same, cpu);
            left = others;
        }
    }

    fn free_in(&self, index: usize, runs: &[Unclaimed], cpu: Option<usize>) {
        let zone = self.get(index);
        let inside = |&Unclaimed { pfn, frames, warm }: &Unclaimed| FreedRun {
            pfn: self.in_zone(index, pfn),
            frames,
            warm,
        };
        let runs = runs.iter().map(inside);
        let freed = match cpu {
            Some(cpu) => zone.free_movable(cpu, runs),
            None => zone.free_runs(runs),
        };
        debug_assert!(freed.is_ok(), "the zone handed these runs out: {freed:?}");
    }

    /// Gives the runs on all per-CPU lists to their zones.
    pub(crate) fn drain(&self) {
        self.zones.iter().for_each(|zone| zone.ranked().drain());
    }

    /// Frames on per-CPU lists.
    pub(crate) fn listed_frames(&self) -> u64 {
        self.zones.iter().map(|zone| zone.0.listed_frames()).sum()
    }

    fn zone_of(&self, pfn: Pfn) -> usize {
        ((pfn.get() / self.each) as usize).min(self.zones.len() - 1)
    }

    /// Takes warm free blocks, each zone's largest first, until they have `frames` frames or are
    /// `blocks_max` blocks.
    pub(crate) fn take_warm(&self, frames: u64, blocks_max: usize) -> Vec<(Pfn, Order)> {
        let mut taken = Vec::new();
        for (index, zone) in self.zones.iter().enumerate() {
            let have: u64 = taken.iter().map(|(_, order): &(_, Order)| order.frames() as u64).sum();
            let more =
                zone.ranked().take_warm(frames.saturating_sub(have), blocks_max - taken.len());
            taken.extend(more.into_iter().map(|(pfn, order)| (self.in_arena(index, pfn), order)));
        }
        taken
    }

    /// Takes wholly free pageblocks without memory offline.
    pub(crate) fn offline_untouched(&self) {
        for zone in &self.zones {
            zone.ranked().offline_untouched();
        }
    }

    /// Bytes that describe the frames.
    pub(crate) fn metadata_bytes(&self) -> u64 {
        self.zones.iter().map(|zone| zone.ranked().metadata_bytes() as u64).sum()
    }

    /// What the zones publish, added up: no lock is taken.
    pub(crate) fn counts(&self) -> ZoneCounts {
        let mut sum = ZoneCounts::default();
        self.zones.iter().for_each(|zone| sum.add(&zone.0.published().read()));
        sum
    }

    /// The mixings that the zones publish, added up: no lock is taken.
    pub(crate) fn mixings(&self) -> u64 {
        self.zones.iter().map(|zone| zone.0.published().mixings()).sum()
    }

    /// Recounts every zone, and returns the sums.
    pub(crate) fn check(&self) -> Result<ZoneCheck, ZoneDefect> {
        let mut sum = ZoneCheck::default();
        for zone in &self.zones {
            let found = zone.ranked().check()?;
            sum.online_pageblocks += found.online_pageblocks;
            sum.free_blocks += found.free_blocks;
            sum.free_frames += found.free_frames;
            sum.runs += found.runs;
            sum.allocated_frames += found.allocated_frames;
            sum.listed_frames += found.listed_frames;
        }
        Ok(sum)
    }
}

/// Frames that the lists of one of `cpus` CPUs keep at most.
fn listed_frames_max(expected_bytes: u64, cpus: u64) -> u32 {
    let divisor = LISTED_DIVISOR.max(ALL_LISTED_DIVISOR * cpus);
    (expected_bytes / divisor / host::PAGE_SIZE as u64).min(LISTED_MAX) as u32
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::{Arc, mpsc};
    use std::time::Duration;

    /// Only a deadlock takes so long.
    const HANG: Duration = Duration::from_secs(60);

    fn unclaimed(pfn: Pfn, frames: u32) -> Unclaimed {
        Unclaimed { pfn, frames, warm: Warm::Untouched }
    }

    /// Online and free frames.
    fn frames_in(counts: &ZoneCounts) -> (u64, u64) {
        (counts.online_frames(), counts.free_frames())
    }

    /// An iterator of runs is asked for the next under the zone's lock, which is how to hold it.
    #[test]
    fn counts_are_read_while_a_zone_is_locked() {
        let zones = Arc::new(Zones::new(5000, 1 << 30));
        zones.alloc_run(0, 512, false).expect("an empty zone has room");
        let locked = std::iter::from_fn(|| {
            let (zones, (send, counts)) = (Arc::clone(&zones), mpsc::channel());
            std::thread::spawn(move || send.send((zones.counts(), zones.mixings())).is_ok());
            let (counts, mixings) = counts.recv_timeout(HANG).expect("no lock is waited for");
            assert_eq!((frames_in(&counts), mixings), ((512, 0), 0));
            None
        });
        zones.zones[0].0.free_runs(locked).expect("nothing is freed");
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "R1: waiting for a lock of rank Zone")]
    fn a_zone_under_a_leaf_of_the_order_is_caught() {
        let zones = Zones::new(512, 0);
        let _leaf = HeldRank::enter(Rank::Leaf);
        let _ = zones.alloc_run(0, 1, false);
    }

    /// What runs under a zone's lock is asked for the next run.
    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "R1: waiting for a lock of rank Class")]
    fn a_class_under_a_zone_is_caught() {
        let zones = Zones::new(512, 0);
        let asks = std::iter::from_fn(|| {
            drop(HeldRank::enter(Rank::Class));
            None
        });
        let _ = zones.get(0).free_runs(asks);
    }

    #[test]
    fn runs_of_every_zone_come_and_go() {
        for frames in [512, 5000, ZONE_FRAMES_MIN, 3 * ZONE_FRAMES_MIN + 700] {
            let zones = Zones::new(frames, 1 << 30);
            let mut runs = Vec::new();
            for shard in (0..5).cycle() {
                match zones.alloc_run(shard, 512, shard % 2 == 0) {
                    Ok(pfn) => runs.push(unclaimed(pfn, 512)),
                    Err(error) => {
                        assert_eq!(error, AllocError::OutOfFrames);
                        break;
                    }
                }
            }
            runs.sort_by_key(|run| run.pfn);
            let distinct = runs.windows(2).all(|two| two[0].pfn.plus(512) <= two[1].pfn);
            assert!(distinct, "{frames} frames: no run overlaps the next");
            let lost = frames as usize / 512 - runs.len();
            assert!(lost < zones.zones.len(), "{frames} frames: every whole pageblock was found");
            let online = 512 * runs.len() as u64;
            assert_eq!(frames_in(&zones.counts()), (online, 0), "{frames} frames: all in use");
            zones.free_runs(&runs);
            let found = zones.check().expect("no defect");
            assert_eq!((found.runs, found.free_frames), (0, online));
            assert_eq!(frames_in(&zones.counts()), (online, online), "{frames} frames: all free");
        }
    }

    #[test]
    fn no_run_is_refused_that_some_list_has() {
        let zones = Zones::new(512, 1 << 30);
        let runs: Vec<_> = std::iter::from_fn(|| zones.alloc_run(0, 1, false).ok()).collect();
        assert_eq!(runs.len(), 512, "every frame");
        for (cpu, pfn) in runs.iter().enumerate() {
            let (pfn, warm) = (zones.in_zone(0, *pfn), Warm::Resident);
            let run = FreedRun { pfn, frames: 1, warm };
            assert_eq!(zones.zones[0].0.free_movable(cpu, [run].into_iter()), Ok(()));
        }
        assert!(zones.listed_frames() > 0, "some went on lists");
        let again = std::iter::from_fn(|| zones.alloc_run(0, 1, true).ok()).count();
        assert_eq!(again, 512, "every frame, wherever it was");
        assert_eq!(zones.alloc_run(0, 1, true), Err(AllocError::OutOfFrames));
    }

    #[test]
    fn a_cpu_keeps_a_part_of_the_limit() {
        let kept = |mib: u64| listed_frames_max(mib << 20, 8);
        assert_eq!([0, 1, 64, 256, 1 << 20].map(kept), [0, 1, 64, 256, 256]);
    }

    #[test]
    fn all_cpus_together_keep_a_part_of_the_limit() {
        let kept = |cpus: u64| cpus * u64::from(listed_frames_max(1 << 30, cpus));
        assert_eq!([1, 2, 8, 256, 8192].map(kept), [256, 512, 2048, 8192, 8192]);
        assert_eq!(kept(1 << 20), 0, "no lists are better than more than their share");
    }
}
