//! The lists that percpu.rs describes: runs by CPU and length.
//!
//! ```text
//!    CpuLists   Cpu   Cpu  ..       one for each CPU, on cache lines of its own
//!                |
//!               lock -> Lists       runs by length, oldest first
//!               frames              published, changed under the lock (C7)
//! ```
//!
//! Invariants C1, C2, C4 and C7 of `percpu.rs` hold whenever a CPU's lock is free. Lists and count
//! change only through `Held`, which is that lock. A run leaves a list before it goes to the zone.
//!
//! Locks: a CPU's. The caller has the zone's, and says so by a `&mut Zone`.

use crate::numbers::{
    AtomicU32, AtomicU64, Migratetype, Mutex, MutexGuard, Ordering, Pfn, PoisonError, TryLockError,
    Warm,
};
use crate::zone::Zone;

/// Runs longer than this go to the zone: orders 0 to 3 are listed.
const LENGTHS: usize = 8;
/// Runs that go from the zone to a list or back, in one hold of its lock.
const BATCH: usize = 31;
/// Runs on a list at most.
const RUNS_MAX: usize = 2 * BATCH; // 62
/// What all lists hold.
pub(crate) const MOVABLE: Migratetype = Migratetype::Movable;

/// The lists of all CPUs.
pub(crate) struct CpuLists {
    pub(crate) cpus: Box<[Cpu]>,
    /// Runs that the zone would not take back.
    pub(crate) misfreed: AtomicU64,
}

/// On cache lines of its own.
#[repr(align(128))]
pub(crate) struct Cpu {
    lists: Mutex<Lists>,
    /// Frames on the lists (C7).
    frames: AtomicU32,
}

pub(crate) struct Lists {
    /// By length less one, oldest first.
    pub(crate) runs: [Vec<Pfn>; LENGTHS],
    /// Frames at most.
    capacity: usize,
}

/// The lists of a CPU, locked.
pub(crate) struct Held<'a> {
    pub(crate) lists: MutexGuard<'a, Lists>,
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

    /// The lists of a CPU; `None` if there are no lists or another thread has them.
    pub(crate) fn try_lock(&self, cpu: usize) -> Option<Held<'_>> {
        let cpu = self.cpus.get(cpu.checked_rem(self.cpus.len())?)?;
        let lists = match cpu.lists.try_lock() {
            Ok(lists) => lists,
            // As in `Cpu::lock`.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Held { lists, cpu })
    }

    pub(crate) fn lock_all(&self) -> Vec<Held<'_>> {
        self.cpus.iter().map(Cpu::lock).collect()
    }

    /// Whether a run that starts at `pfn` is on the lists held or on those of another CPU that are
    /// not busy.
    pub(crate) fn has(&self, held: &Held<'_>, pfn: Pfn) -> bool {
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
    pub(crate) fn trim(&self, held: &mut Held<'_>, zone: &mut Zone, frames: u32) {
        let own = index(frames);
        let longest = (0..LENGTHS).max_by_key(|list| held.lists.runs[*list].len() * (list + 1));
        let full = held.lists.runs[own].len() == RUNS_MAX;
        let list = longest.filter(|_| !full).unwrap_or(own);
        let oldest = held.lists.runs[list].len().div_ceil(2).min(BATCH);
        held.lists.runs[list].drain(..oldest).for_each(|pfn| self.give_back(zone, pfn, list + 1));
        held.publish();
    }

    pub(crate) fn empty(&self, held: &mut Held<'_>, zone: &mut Zone) {
        for (list, runs) in held.lists.runs.iter_mut().enumerate() {
            runs.drain(..).for_each(|pfn| self.give_back(zone, pfn, list + 1));
        }
        held.publish();
    }
}

impl Cpu {
    /// A poisoned lock is taken all the same, for the reason that the zone's is.
    pub(crate) fn lock(&self) -> Held<'_> {
        let lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        Held { lists, cpu: self }
    }

    pub(crate) fn frames(&self) -> u32 {
        // relaxed: one number that stands for itself. The thread that holds the lock made every
        // store, or got the lock from the thread that did.
        self.frames.load(Ordering::Relaxed)
    }
}

impl Lists {
    fn new(frames: u32) -> Lists {
        let capacity = frames as usize;
        let runs = |list| Vec::with_capacity(RUNS_MAX.min(capacity / (list + 1)));
        Lists { runs: std::array::from_fn(runs), capacity }
    }

    pub(crate) fn frames(&self) -> usize {
        self.runs.iter().zip(1..).map(|(runs, length)| runs.len() * length).sum()
    }

    fn heap_bytes(&self) -> usize {
        self.runs.iter().map(|runs| runs.capacity() * size_of::<Pfn>()).sum()
    }

    /// Every run: head and length.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Pfn, u32)> {
        let lists = self.runs.iter().zip(1..);
        lists.flat_map(|(runs, length)| runs.iter().map(move |pfn| (*pfn, length)))
    }
}

impl Held<'_> {
    /// Whether runs of this length are listed at all.
    pub(crate) fn lists_length(&self, frames: u32) -> bool {
        (1..=LENGTHS.min(self.lists.capacity)).contains(&(frames as usize))
    }

    /// Whether there is room for one more run.
    #[inline]
    pub(crate) fn has_room(&self, frames: u32) -> bool {
        let left = self.lists.capacity - self.cpu.frames() as usize;
        self.lists.runs[index(frames)].len() < RUNS_MAX && frames as usize <= left
    }

    /// Runs that a refill of an empty list adds at most.
    fn batch(&self, frames: u32) -> usize {
        let left = self.lists.capacity - self.cpu.frames() as usize;
        (BATCH - 1).min(left.min(self.lists.capacity / 2) / frames as usize)
    }

    pub(crate) fn take(&mut self, frames: u32) -> Option<Pfn> {
        let pfn = self.lists.runs[index(frames)].pop()?;
        self.store_frames(self.cpu.frames() - frames);
        Some(pfn)
    }

    pub(crate) fn put(&mut self, pfn: Pfn, frames: u32) {
        self.lists.runs[index(frames)].push(pfn);
        self.store_frames(self.cpu.frames() + frames);
    }

    /// Warm runs for an empty list, so that it yields them in the order in which the zone does.
    pub(crate) fn refill(&mut self, zone: &mut Zone, frames: u32) {
        let batch = self.batch(frames);
        let list = &mut self.lists.runs[index(frames)];
        while list.len() < batch
            && let Ok(run) = zone.alloc_warm(frames, MOVABLE)
        {
            list.push(run);
        }
        // As a rule none is warm where one was not.
        if !list.is_empty() {
            list.reverse();
            let added = list.len() as u32 * frames;
            self.store_frames(self.cpu.frames() + added);
        }
    }

    pub(crate) fn has(&self, pfn: Pfn) -> bool {
        self.lists.iter().any(|(head, _)| head == pfn)
    }

    /// Counts the frames anew, after many came or went.
    fn publish(&self) {
        self.store_frames(self.lists.frames() as u32);
    }

    pub(crate) fn store_frames(&self, frames: u32) {
        // relaxed: one number that stands for itself (C7).
        self.cpu.frames.store(frames, Ordering::Relaxed);
    }
}

/// The list of runs of a length, which is at least 1.
const fn index(frames: u32) -> usize {
    frames as usize - 1
}
