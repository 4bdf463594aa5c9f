//! Per-CPU lists: short movable runs that come and go without the zone's lock.
//!
//! ```text
//!              CPU 0                CPU 1                 capacity: frames of a CPU
//!     length 1 [ . . . . . ]        [ . ]
//!            2 [ . . ]              [ ]        alloc   the run put last, no lock but the CPU's
//!           ..  ^    ^               ..                none: one from the zone, and a batch of
//!            8  |    put, take       [ . . ]           warm ones for the list, in one hold
//!               `-- oldest half                free    put; full: the oldest half of the list
//!                   to the zone                        with most frames goes to the zone
//! ```
//!
//! Source: the kernel's `struct per_cpu_pages`. It departs from the kernel in four ways. There is a
//! list for each length and not for each order, because the runs of zspages have every length. Only
//! movable runs are listed. Nothing tunes itself. No untouched run is listed: its first use faults,
//! which costs many times what the lock does, and it would be used while the zone has frames that
//! are resident (W1).
//!
//! Invariants
//!
//! * C1: a run on a list is allocated as far as the zone knows, as Movable and of the list's
//!   length, and is on no list twice.
//! * C2: a run on a list is warm: it was freed as `Resident` or cut from a warm block. So W2 holds
//!   for it, and it is taken back as `Resident`.
//! * C3: W1 is kept by the zone. Of a request it says: untouched frames are used only if the list
//!   of its length is empty, or busy, and no warm block of the zone is large enough. What is on
//!   other CPUs' lists is not looked for until the zone has nothing.
//! * C4: the lists of a CPU hold at most their capacity, and a list 62 runs.
//! * C5: nothing is refused while a run on a list would do: no frames of any type, no reserve, no
//!   pageblock for CMA or to take offline. The last look at the zone is with all lists locked and
//!   empty.
//! * C6: no run of an isolated pageblock gets on a list once `isolate` is done. Under the lock of
//!   its CPU a free asks the zone's counts whether there is such a pageblock, and if so goes to
//!   the zone. `isolate` counts it first and then takes each CPU's lock in turn, to empty the
//!   lists: a free that had the lock before is found there, one that has it after reads the count.
//! * C7: the published number of frames changes under the lock of its CPU, after the lists did.
//!
//! Releases take what the zone has: [`SharedZone::drain`] before.
//!
//! Wrong frees. Only the zone knows its runs, and asking it takes the lock that the lists are there
//! to avoid. Builds with debug assertions ask before a run goes on a list, and look for it on all
//! lists that are not busy. A run that does not exist, has another length or is free gets the error
//! that `free_run` gives. Without debug assertions a run that is freed wrongly goes on a list,
//! where [`SharedZone::check`] finds it. When it gets to the zone, the zone refuses it, and the
//! check knows of that as well. If such a run is handed out before, no harm is done, because an
//! arena lets each frame be claimed once.
//!
//! Locks: a CPU's, then the zone's. A CPU's is only tried; a thread that finds it busy goes to the
//! zone. A drain waits for it and holds no other. C5 and the check wait for all of them, lowest CPU
//! first.

use super::cpu_lists::{Held, MOVABLE};
use super::shared::SharedZone;
use crate::numbers::{
    AllocError, FreeError, FreedRun, Migratetype, MutexGuard, Ordering, Pfn, Warm, ZoneDefect,
};
use crate::rules::ZoneCheck;
use crate::zone::Zone;

/// Runs freed together for which the lists are used. More share one hold of the zone's lock, and to
/// pass through the lists costs them more than that.
const FEW: usize = 8;
/// Whether a free asks the zone. Not in a model, which would be one of this check.
const ASKS: bool = cfg!(all(debug_assertions, not(any(loom, shuttle))));

impl SharedZone {
    /// Allocates a run of 1..=1024 frames as Movable: from the list of a CPU, else from the zone,
    /// else from whatever list or block still has one.
    ///
    /// `cpu` is any number; what it says about where this thread runs may be out of date.
    pub fn alloc_movable(&self, cpu: usize, frames: u32) -> Result<Pfn, AllocError> {
        match self.try_alloc_movable(cpu, frames) {
            Err(refused) if refused.is_want() => {
                self.with_lists_empty(|zone| zone.alloc_run(frames, MOVABLE))
            }
            done => done,
        }
    }

    /// As [`SharedZone::alloc_movable`], but what is on other lists is left there: for a caller
    /// that has other zones to ask first.
    pub fn try_alloc_movable(&self, cpu: usize, frames: u32) -> Result<Pfn, AllocError> {
        self.alloc_or_refill(cpu, frames, |zone| zone.alloc_run(frames, MOVABLE))
    }

    /// As [`SharedZone::try_alloc_movable`], but only of what is warm: from the list, else as
    /// [`Zone::alloc_warm`] does.
    pub fn alloc_warm_movable(&self, cpu: usize, frames: u32) -> Result<Pfn, AllocError> {
        self.alloc_or_refill(cpu, frames, |zone| zone.alloc_warm(frames, MOVABLE))
    }

    #[inline]
    fn alloc_or_refill(
        &self,
        cpu: usize,
        frames: u32,
        alloc: impl FnOnce(&mut Zone) -> Result<Pfn, AllocError>,
    ) -> Result<Pfn, AllocError> {
        let lists = self.cpus.try_lock(cpu).filter(|lists| lists.lists_length(frames));
        let Some(mut lists) = lists else { return alloc(&mut self.lock()) };
        if let Some(run) = lists.take(frames) {
            return Ok(run);
        }
        let mut zone = self.lock();
        let run = alloc(&mut zone)?;
        lists.refill(&mut zone, frames);
        Ok(run)
    }

    /// What the zone does. If it refuses for `want` of frames, what it does with all lists empty
    /// (C5).
    pub(crate) fn of_all<T, E: Copy>(
        &self,
        want: impl Fn(E) -> bool,
        ask: impl Fn(&mut Zone) -> Result<T, E>,
    ) -> Result<T, E> {
        let done = ask(&mut self.lock());
        match done {
            Err(refused) if want(refused) => self.with_lists_empty(ask),
            done => done,
        }
    }

    /// The last resort (C5).
    #[cold]
    fn with_lists_empty<T>(&self, ask: impl Fn(&mut Zone) -> T) -> T {
        let mut cpus = self.cpus.lock_all();
        let mut zone = self.lock();
        cpus.iter_mut().for_each(|lists| self.cpus.empty(lists, &mut zone));
        ask(&mut zone)
    }

    /// Frees runs that were asked for as Movable: up to 8 to the lists of a CPU, as far as they are
    /// short and `Resident`; the others, and what has no room there, in one hold of the zone's
    /// lock.
    ///
    /// # Errors
    ///
    /// The first refusal. The head of percpu.rs says which frees are refused, which are found
    /// later.
    pub fn free_movable(
        &self,
        cpu: usize,
        runs: impl ExactSizeIterator<Item = FreedRun>,
    ) -> Result<(), FreeError> {
        let lists = if runs.len() <= FEW { self.cpus.try_lock(cpu) } else { None };
        let Some(mut lists) = lists else { return self.free_runs(runs) };
        let isolating = self.published().pageblocks(Migratetype::Isolate) > 0;
        let (mut zone, mut freed) = (None, Ok(()));
        for run in runs {
            freed = freed.and(self.free_to(&mut lists, &mut zone, run, !isolating));
        }
        freed
    }

    /// Frees a run to the lists if `open` to it, else to the zone, which is locked when needed.
    #[inline]
    fn free_to<'a>(
        &'a self,
        lists: &mut Held<'_>,
        zone: &mut Option<MutexGuard<'a, Zone>>,
        run: FreedRun,
        open: bool,
    ) -> Result<(), FreeError> {
        let FreedRun { pfn, frames, warm } = run;
        if ASKS {
            self.expect_movable(lists, zone.get_or_insert_with(|| self.lock()), run)?;
        }
        if !open || warm != Warm::Resident || !lists.lists_length(frames) {
            return zone.get_or_insert_with(|| self.lock()).free_run(pfn, frames, warm);
        }
        while !lists.has_room(frames) {
            self.cpus.trim(lists, zone.get_or_insert_with(|| self.lock()), frames);
        }
        lists.put(pfn, frames);
        Ok(())
    }

    /// Refuses a run that cannot be freed as Movable.
    fn expect_movable(
        &self,
        lists: &Held<'_>,
        zone: &Zone,
        run: FreedRun,
    ) -> Result<(), FreeError> {
        let FreedRun { pfn, frames: freed, .. } = run;
        let (allocated, migratetype) = zone.run_at(pfn)?;
        if self.cpus.has(lists, pfn) {
            return Err(FreeError::AlreadyFree(pfn));
        }
        if allocated != freed {
            return Err(FreeError::WrongLength { pfn, allocated, freed });
        }
        if migratetype != MOVABLE {
            return Err(FreeError::NotMovable(pfn));
        }
        Ok(())
    }

    /// Gives what is on the lists to the zone, one CPU after the other.
    pub fn drain(&self) {
        for cpu in &self.cpus.cpus {
            let mut lists = cpu.lock();
            if cpu.frames() > 0 {
                self.cpus.empty(&mut lists, &mut self.lock());
            }
        }
    }

    /// Frames on per-CPU lists. The zone counts them as allocated, and no client uses them. They
    /// are read without a lock, CPU by CPU, and exact while no thread allocates or frees.
    pub fn listed_frames(&self) -> u64 {
        self.cpus.cpus.iter().map(|cpu| u64::from(cpu.frames())).sum()
    }

    /// Recounts the zone and the lists, all of one moment.
    pub fn check(&self) -> Result<ZoneCheck, ZoneDefect> {
        let cpus = self.cpus.lock_all();
        let zone = self.lock();
        let found = zone.check()?;
        let mut listed: Vec<_> = cpus.iter().flat_map(|cpu| cpu.lists.iter()).collect();
        listed.sort_unstable();
        let twice = listed.windows(2).find(|two| two[0].0 == two[1].0);
        if let Some([(pfn, _), _]) = twice {
            return Err(ZoneDefect::ListedTwice(*pfn));
        }
        let strayed = |(pfn, frames): &&(Pfn, u32)| zone.run_at(*pfn) != Ok((*frames, MOVABLE));
        if let Some((pfn, _)) = listed.iter().find(strayed) {
            return Err(ZoneDefect::Listed(*pfn));
        }
        let listed_frames = listed.iter().map(|(_, frames)| u64::from(*frames)).sum();
        if listed_frames != self.listed_frames() {
            let (counted, recorded) = (listed_frames, self.listed_frames());
            return Err(ZoneDefect::ListedFrames { counted, recorded });
        }
        // relaxed: a number that stands for itself.
        match self.cpus.misfreed.load(Ordering::Relaxed) {
            0 => Ok(ZoneCheck { listed_frames, ..found }),
            runs => Err(ZoneDefect::Misfreed { runs }),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::cpu_lists::Cpu;
    use super::*;

    /// A zone whose lists were handed to `damage`, with a run of 2 on the list of CPU 1.
    #[track_caller]
    fn shows(damage: impl FnOnce(&SharedZone, Pfn), expected: impl FnOnce(Pfn) -> ZoneDefect) {
        let zone = SharedZone::with_lists(512, 2, 64);
        let run = zone.alloc_movable(1, 2).expect("an empty zone has room");
        let freed = FreedRun { pfn: run, frames: 2, warm: Warm::Resident };
        assert_eq!(zone.free_movable(1, [freed].into_iter()), Ok(()));
        assert_eq!(zone.check().map(|found| found.listed_frames), Ok(2), "before the damage");
        damage(&zone, run);
        assert_eq!(zone.check(), Err(expected(run)));
    }

    #[test]
    fn a_run_listed_twice_is_found() {
        let again = |zone: &SharedZone, run| zone.cpus.cpus[0].lock().put(run, 2);
        shows(again, ZoneDefect::ListedTwice);
    }

    #[test]
    fn a_listed_run_that_is_none_is_found() {
        let free = |zone: &SharedZone, run| {
            assert_eq!(zone.free_run(run, 2, Warm::Resident), Ok(()), "as the zone knows nothing");
        };
        shows(free, ZoneDefect::Listed);
        let shorter = |zone: &SharedZone, run| {
            let mut lists = zone.cpus.cpus[1].lock();
            assert_eq!(lists.take(2), Some(run));
            lists.put(run, 1);
        };
        shows(shorter, ZoneDefect::Listed);
        let fixed = |zone: &SharedZone, _: Pfn| {
            let run = zone.alloc_run(1, Migratetype::Unmovable).expect("room");
            zone.cpus.cpus[0].lock().lists.runs[0].push(run);
        };
        let next = |run: Pfn| ZoneDefect::Listed(Pfn::new(run.get() + 2));
        shows(fixed, next);
    }

    #[test]
    fn a_miscounted_list_is_found() {
        let miscount = |zone: &SharedZone, _| zone.cpus.cpus[1].lock().store_frames(3);
        shows(miscount, |_| ZoneDefect::ListedFrames { counted: 2, recorded: 3 });
    }

    #[test]
    fn a_run_freed_twice_is_refused_by_the_zone_and_remembered() {
        let twice = |zone: &SharedZone, run| {
            zone.cpus.cpus[0].lock().put(run, 2);
            zone.drain();
        };
        shows(twice, |_| ZoneDefect::Misfreed { runs: 1 });
    }

    #[test]
    fn a_busy_list_is_passed_by() {
        let zone = SharedZone::with_lists(512, 1, 64);
        let busy = zone.cpus.cpus[0].lock();
        let run = zone.try_alloc_movable(0, 2).expect("an empty zone has room");
        let freed = FreedRun { pfn: run, frames: 2, warm: Warm::Resident };
        assert_eq!(zone.free_movable(0, [freed].into_iter()), Ok(()));
        assert_eq!((busy.lists.frames(), zone.free_frames()), (0, 512), "the zone has it");
    }

    #[test]
    fn a_panic_with_the_lists_locked_does_not_end_them() {
        let zone = SharedZone::with_lists(512, 1, 64);
        std::thread::scope(|scope| {
            let poisoner = scope.spawn(|| {
                let _held = zone.cpus.cpus[0].lock();
                panic!("poisons the lock, as a broken invariant would");
            });
            assert!(poisoner.join().is_err(), "the lock was not poisoned");
        });
        let run = zone.alloc_movable(0, 2).expect("an empty zone has room");
        let freed = FreedRun { pfn: run, frames: 2, warm: Warm::Resident };
        assert_eq!(zone.free_movable(0, [freed].into_iter()), Ok(()));
        assert_eq!(zone.listed_frames(), 2, "the lists are used as before");
    }

    #[test]
    fn the_lists_are_counted() {
        let bytes = |cpus, frames| SharedZone::with_lists(512, cpus, frames).metadata_bytes();
        assert_eq!(bytes(2, 0), SharedZone::new(512).metadata_bytes(), "there are none");
        let runs = [62, 62, 62, 62, 51, 42, 36, 32];
        let each = size_of::<Cpu>() + runs.iter().sum::<usize>() * size_of::<Pfn>();
        assert_eq!(bytes(2, 256) - bytes(2, 0), 2 * each);
    }
}
