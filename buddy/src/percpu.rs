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
//! Source: the kernel's `struct per_cpu_pages`. The departures: a list for each length and not for
//! each order, as the runs of zspages have every length; movable runs only; nothing tunes itself;
//! and no run that is untouched. Its first use faults, which costs many times what the lock does,
//! and it would be used while the zone has frames that are resident (W1).
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
//! * C5: nothing is refused while a run on a list would do. The last look at the zone is with all
//!   lists locked and empty.
//! * C6: no run of an isolated pageblock gets on a list once `isolate` is done. Under the lock of
//!   its CPU a free asks the zone's counts whether there is such a pageblock, and if so goes to
//!   the zone. `isolate` counts it first and then takes each CPU's lock in turn, to empty the
//!   lists: a free that had the lock before is found there, one that has it after reads the count.
//! * C7: the published number of frames changes under the lock of its CPU, after the lists did.
//!
//! Whole pageblocks are wanted by releases, reserves and CMA too: [`SharedZone::drain`] before.
//!
//! What is freed wrongly. Only the zone knows its runs, and asking it takes the lock that the lists
//! are there to avoid. Builds with debug assertions do ask, and look for the run on all lists that
//! are not busy: there a run that is not one, has another length or is free gets the error that `free_run` gives.
//! Without them a run freed wrongly goes on a list and [`SharedZone::check`] finds it there; when it
//! gets to the zone, that refuses it, and check knows of that as well. An arena that lets each
//! frame be claimed once keeps harm from such a run if it is handed out before.
//!
//! Locks: a CPU's, then the zone's. A CPU's is only tried: whoever finds it busy goes to the zone.
//! It is waited for, holding no other, to drain; all of them, lowest CPU first, for C5 and to check.

use crate::check::ZoneCheck;
use crate::defect::ZoneDefect;
use crate::error::{AllocError, FreeError};
use crate::migratetype::Migratetype;
use crate::pfn::Pfn;
use crate::shared::{FreedRun, SharedZone};
use crate::state::Warm;
use crate::sync::{AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering, PoisonError, TryLockError};
use crate::zone::Zone;

/// Runs longer than this go to the zone: orders 0 to 3 are listed.
const LENGTHS: usize = 8;
/// Runs that go from the zone to a list or back, in one hold of its lock.
const BATCH: usize = 31;
/// Runs on a list at most.
const RUNS_MAX: usize = 2 * BATCH; // 62
/// What all lists hold.
const MOVABLE: Migratetype = Migratetype::Movable;

/// Whether a free asks the zone. Not in a model, which would be one of this check.
const ASKS: bool = cfg!(all(debug_assertions, not(any(loom, shuttle))));

/// The lists of all CPUs.
pub(crate) struct CpuLists {
    cpus: Box<[Cpu]>,
    /// Runs that the zone would not take back.
    misfreed: AtomicU64,
}

/// On cache lines of its own.
#[repr(align(128))]
struct Cpu {
    lists: Mutex<Lists>,
    /// Frames on the lists (C7).
    frames: AtomicU32,
}

struct Lists {
    /// By length less one, oldest first.
    runs: [Vec<Pfn>; LENGTHS],
    /// Frames at most.
    capacity: usize,
}

/// The lists of a CPU, locked.
struct Held<'a> {
    lists: MutexGuard<'a, Lists>,
    cpu: &'a Cpu,
}

impl CpuLists {
    /// Lists for so many CPUs, each for `frames` frames at most; with 0, none.
    pub(crate) fn new(cpus: usize, frames: u32) -> CpuLists {
        let cpus = if frames == 0 { 0 } else { cpus };
        let cpu = |_| Cpu { lists: Mutex::new(Lists::new(frames)), frames: AtomicU32::new(0) };
        CpuLists { cpus: (0..cpus).map(cpu).collect(), misfreed: AtomicU64::new(0) }
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        let lists = |cpu: &Cpu| cpu.lock().lists.heap_bytes();
        size_of_val(&*self.cpus) + self.cpus.iter().map(lists).sum::<usize>()
    }

    /// The lists of a CPU: none if there are no lists or somebody has them.
    fn try_lock(&self, cpu: usize) -> Option<Held<'_>> {
        let cpu = self.cpus.get(cpu.checked_rem(self.cpus.len())?)?;
        let lists = match cpu.lists.try_lock() {
            Ok(lists) => lists,
            // As in `Cpu::lock`.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Held { lists, cpu })
    }

    fn lock_all(&self) -> Vec<Held<'_>> {
        self.cpus.iter().map(Cpu::lock).collect()
    }

    /// Whether a run that starts at `pfn` is on the lists held or on those of another CPU that are
    /// not busy.
    fn has(&self, held: &Held<'_>, pfn: Pfn) -> bool {
        let others = || (0..self.cpus.len()).filter_map(|cpu| self.try_lock(cpu));
        held.has(pfn) || others().any(|other| other.has(pfn))
    }

    fn give_back(&self, zone: &mut Zone, pfn: Pfn, frames: usize) {
        let refused = zone.free_run(pfn, frames as u32, Warm::Resident).is_err();
        // relaxed: a number that stands for itself.
        self.misfreed.fetch_add(refused.into(), Ordering::Relaxed);
    }

    /// Gives the oldest runs of the longest list to the zone, or of that of `frames` if it has no
    /// place left.
    fn trim(&self, held: &mut Held<'_>, zone: &mut Zone, frames: u32) {
        let own = index(frames);
        let longest = (0..LENGTHS).max_by_key(|list| held.lists.runs[*list].len() * (list + 1));
        let full = held.lists.runs[own].len() == RUNS_MAX;
        let list = longest.filter(|_| !full).unwrap_or(own);
        let oldest = held.lists.runs[list].len().div_ceil(2).min(BATCH);
        held.lists.runs[list].drain(..oldest).for_each(|pfn| self.give_back(zone, pfn, list + 1));
        held.publish();
    }

    fn empty(&self, held: &mut Held<'_>, zone: &mut Zone) {
        for (list, runs) in held.lists.runs.iter_mut().enumerate() {
            runs.drain(..).for_each(|pfn| self.give_back(zone, pfn, list + 1));
        }
        held.publish();
    }
}

impl Cpu {
    /// A poisoned lock is taken all the same, for the reason that the zone's is.
    fn lock(&self) -> Held<'_> {
        let lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        Held { lists, cpu: self }
    }

    fn frames(&self) -> u32 {
        // relaxed: one number that stands for itself; who holds the lock made every store or got
        // the lock from who did.
        self.frames.load(Ordering::Relaxed)
    }
}

impl Lists {
    fn new(frames: u32) -> Lists {
        let capacity = frames as usize;
        let runs = |list| Vec::with_capacity(RUNS_MAX.min(capacity / (list + 1)));
        Lists { runs: std::array::from_fn(runs), capacity }
    }

    fn frames(&self) -> usize {
        self.runs.iter().zip(1..).map(|(runs, length)| runs.len() * length).sum()
    }

    fn heap_bytes(&self) -> usize {
        self.runs.iter().map(|runs| runs.capacity() * size_of::<Pfn>()).sum()
    }

    /// Every run: head and length.
    fn iter(&self) -> impl Iterator<Item = (Pfn, u32)> {
        let lists = self.runs.iter().zip(1..);
        lists.flat_map(|(runs, length)| runs.iter().map(move |pfn| (*pfn, length)))
    }
}

impl Held<'_> {
    /// Whether runs of this length are listed at all.
    fn lists_length(&self, frames: u32) -> bool {
        (1..=LENGTHS.min(self.lists.capacity)).contains(&(frames as usize))
    }

    /// More runs of a length that there is room for.
    fn room(&self, frames: u32) -> usize {
        let left = self.lists.capacity - self.cpu.frames() as usize;
        (RUNS_MAX - self.lists.runs[index(frames)].len()).min(left / frames as usize)
    }

    /// Runs that a refill adds.
    fn batch(&self, frames: u32) -> usize {
        (self.lists.capacity / 2 / frames as usize).min(BATCH - 1).min(self.room(frames))
    }

    fn take(&mut self, frames: u32) -> Option<Pfn> {
        let pfn = self.lists.runs[index(frames)].pop()?;
        self.store_frames(self.cpu.frames() - frames);
        Some(pfn)
    }

    fn put(&mut self, pfn: Pfn, frames: u32) {
        self.lists.runs[index(frames)].push(pfn);
        self.store_frames(self.cpu.frames() + frames);
    }

    fn has(&self, pfn: Pfn) -> bool {
        self.lists.iter().any(|(head, _)| head == pfn)
    }

    /// Counts the frames anew, after many came or went.
    fn publish(&self) {
        self.store_frames(self.lists.frames() as u32);
    }

    fn store_frames(&self, frames: u32) {
        // relaxed: one number that stands for itself (C7).
        self.cpu.frames.store(frames, Ordering::Relaxed);
    }
}

/// The list of runs of a length, which is at least 1.
const fn index(frames: u32) -> usize {
    frames as usize - 1
}

impl SharedZone {
    /// Allocates a run of 1..=1024 frames as Movable: from the list of a CPU, else from the zone,
    /// else from whatever list or block still has one.
    ///
    /// `cpu` is any number; what it says about where this thread runs may be out of date.
    pub fn alloc_movable(&self, cpu: usize, frames: u32) -> Result<Pfn, AllocError> {
        self.try_alloc_movable(cpu, frames).or_else(|_| self.alloc_of_all(frames))
    }

    /// As [`SharedZone::alloc_movable`], but what is on other lists is left there: for a caller
    /// that has other zones to ask first.
    pub fn try_alloc_movable(&self, cpu: usize, frames: u32) -> Result<Pfn, AllocError> {
        let lists = self.cpus.try_lock(cpu).filter(|lists| lists.lists_length(frames));
        match lists {
            Some(mut lists) => lists.take(frames).map_or_else(|| self.refill(lists, frames), Ok),
            None => self.lock().alloc_run(frames, MOVABLE),
        }
    }

    /// A run from the zone, and warm ones for an empty list, so that it yields them in the order
    /// in which the zone does.
    fn refill(&self, mut lists: Held<'_>, frames: u32) -> Result<Pfn, AllocError> {
        let mut zone = self.lock();
        let run = zone.alloc_run(frames, MOVABLE)?;
        let warm = std::iter::from_fn(|| zone.alloc_warm(frames, MOVABLE).ok());
        let batch = lists.batch(frames);
        let list = &mut lists.lists.runs[index(frames)];
        list.extend(warm.take(batch));
        list.reverse();
        lists.publish();
        Ok(run)
    }

    /// The last resort (C5).
    #[cold]
    fn alloc_of_all(&self, frames: u32) -> Result<Pfn, AllocError> {
        let mut cpus = self.cpus.lock_all();
        let mut zone = self.lock();
        cpus.iter_mut().for_each(|lists| self.cpus.empty(lists, &mut zone));
        zone.alloc_run(frames, MOVABLE)
    }

    /// Frees runs that were asked for as Movable, to the lists of a CPU as far as they are short
    /// and `Resident`; the others, and what finds no room there, in one hold of the zone's lock.
    ///
    /// # Errors
    ///
    /// The first refusal. The head of percpu.rs says which frees are refused, which are found
    /// later.
    pub fn free_movable(
        &self,
        cpu: usize,
        runs: impl Iterator<Item = FreedRun>,
    ) -> Result<(), FreeError> {
        let Some(mut lists) = self.cpus.try_lock(cpu) else { return self.free_runs(runs) };
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
        while lists.room(frames) == 0 {
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

    /// Frames on per-CPU lists: allocated as far as the zone's counts are concerned, and in
    /// nobody's use. Read without a lock, CPU by CPU; exact when nobody is busy.
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
