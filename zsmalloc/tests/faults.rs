//! What is refused, at every point where something can be refused.
//!
//! ```text
//!   for n = 1, 2, 3 ...     the nth guarded operation fails, once or from then on
//!       scenario            after each step: check(), and every object reads as it was stored
//!       all is freed        no frame, no slot, no entry stays in use: the arena fills up again
//!   until nothing failed    every point was met
//! ```
//!
//! Guarded are: reservations, taking and claiming frames, taking descriptors and leaves, and
//! returning frames and table pages to the system.
//!
//! Claims
//! - an operation that fails says so by its own error, and has changed nothing;
//! - freeing, compaction, shrinking and draining never fail: what the system does not take back
//!   stays, and is used again;
//! - nothing is leaked, whatever failed.
#![cfg(not(loom))]

#[path = "support/designs.rs"]
mod designs;

use std::sync::Arc;

use host::faults::Operation;
use host::{FailureInjector, HostError};
use ramfold_zsmalloc::{
    AllocError, Content, Handle, LEAF_CELLS, LeafId, Memory, MemoryConfig, MemoryError, Pool,
    PoolConfig, RawHandle, SIZE_MAX, WorkerStatus,
};

/// One shard: with more, the CPU that the thread is on would say what is refused next.
fn one_shard(config: PoolConfig) -> PoolConfig {
    PoolConfig { shards: Some(1), ..config }
}

/// The times at which frames may go back.
#[cfg(feature = "study")]
fn releases() -> Vec<PoolConfig> {
    let studies = ramfold_zsmalloc::study::Release::ALL.map(Into::into);
    studies.map(|study| PoolConfig { study, ..PoolConfig::default() }).to_vec()
}

#[cfg(not(feature = "study"))]
fn releases() -> Vec<PoolConfig> {
    vec![PoolConfig::default()]
}

/// The smallest arena.
const FRAMES: u32 = 512;

const CONFIG: MemoryConfig = MemoryConfig {
    arena_frames: FRAMES,
    entries_max: 32 * LEAF_CELLS as u64,
    expected_bytes: 32 << 20,
    worker: false,
};

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (seed.wrapping_mul(0x9e37_79b9) >> (at % 24)) as u8 ^ at as u8).collect()
}

/// Of all sizes, most of them as lz4 leaves pages.
fn length(seed: usize) -> usize {
    match seed % 7 {
        0 => 1 + seed * 37 % 200,
        1 => SIZE_MAX,
        2 => 200 + seed * 53 % 800,
        _ => 1000 + seed * 97 % 1500,
    }
}

/// A pool, its naive twin, and what makes it fail.
struct Twin {
    faults: Arc<FailureInjector>,
    pool: Arc<Pool>,
    handles: Vec<(Handle, Vec<u8>)>,
    raws: Vec<(RawHandle, Vec<u8>)>,
    leaves: Vec<(LeafId, Vec<Option<Vec<u8>>>)>,
    stored: usize,
    failures: usize,
    /// Whether frames were seen on a CPU's lists.
    listed: bool,
}

impl Twin {
    fn new(config: PoolConfig) -> Twin {
        let faults = FailureInjector::new();
        let memory = Memory::with_faults(CONFIG, Arc::clone(&faults)).expect("nothing armed");
        let pool = Pool::new(memory, config).expect("a pool");
        Twin {
            faults,
            pool,
            handles: Vec::new(),
            raws: Vec::new(),
            leaves: Vec::new(),
            stored: 0,
            failures: 0,
            listed: false,
        }
    }

    fn bytes(&mut self) -> Vec<u8> {
        self.stored += 1;
        pattern(self.stored, length(self.stored))
    }

    /// Whether it worked; refusals are of the kinds that were injected.
    #[track_caller]
    fn outcome<T>(&mut self, outcome: Result<T, AllocError>) -> Option<T> {
        let error = match outcome {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let expected: &[AllocError] = match self.faults.fired() {
            Some(Operation::Frames | Operation::Claim) => &[AllocError::OutOfFrames],
            Some(Operation::Extend) => &[AllocError::OutOfDescriptors, AllocError::OutOfCells],
            other => panic!("{error:?} for {other:?}"),
        };
        assert!(expected.contains(&error), "{error:?} for {:?}", self.faults.fired());
        self.failures += 1;
        None
    }

    fn alloc(&mut self, count: usize) {
        for _ in 0..count {
            let bytes = self.bytes();
            let outcome = self.pool.alloc(&bytes);
            if let Some(handle) = self.outcome(outcome) {
                self.handles.push((handle, bytes));
            }
        }
    }

    fn alloc_raw(&mut self, count: usize) {
        for _ in 0..count {
            let bytes = self.bytes();
            let outcome = self.pool.alloc_raw(&bytes);
            if let Some(raw) = self.outcome(outcome) {
                self.raws.push((raw, bytes));
            }
        }
    }

    fn take_leaf(&mut self) {
        let outcome = self.pool.alloc_leaf();
        if let Some(leaf) = self.outcome(outcome) {
            self.leaves.push((leaf, vec![None; LEAF_CELLS]));
        }
    }

    /// Writes some cells of every leaf; what a cell held stays where the new object is refused.
    fn write_cells(&mut self, start: usize, count: usize) {
        for which in 0..self.leaves.len() {
            for index in start..start + count {
                let bytes = self.bytes();
                let pool = Arc::clone(&self.pool);
                if let Some(object) = self.outcome(pool.store(&bytes)) {
                    let (leaf, cells) = &mut self.leaves[which];
                    pool.cell(*leaf, index).expect("ours").put(object);
                    cells[index] = Some(bytes);
                }
            }
        }
    }

    fn free_every_other(&mut self) {
        let mut keep = false;
        for (handle, bytes) in std::mem::take(&mut self.handles) {
            keep = !keep;
            if keep {
                self.handles.push((handle, bytes));
            } else {
                self.pool.free_handle(handle).expect("ours");
            }
        }
    }

    fn free_batch(&mut self, count: usize) {
        let rest = self.handles.split_off(self.handles.len().min(count));
        let batch = std::mem::replace(&mut self.handles, rest);
        self.pool.free_batch(batch.into_iter().map(|(handle, _)| handle)).expect("ours");
    }

    fn shrink_and_compact(&mut self) {
        self.pool.shrink(2);
        self.check();
        self.pool.compact();
    }

    fn migrate(&mut self) {
        for zspage in self.pool.zspages() {
            let frames = self.pool.memory().frames(zspage.frames);
            if let Some(frames) = self.outcome(frames) {
                self.pool.migrate(zspage.pfn, frames).expect("nothing is in use");
            }
        }
    }

    fn release(&mut self) {
        self.pool.memory().release(0);
    }

    fn drain_leaf(&mut self) {
        let Some((leaf, cells)) = self.leaves.pop() else { return };
        let mut seen = 0;
        self.pool
            .free_leaf(leaf, |cell| seen += usize::from(cell.bytes().is_some()))
            .expect("ours");
        assert_eq!(seen, cells.iter().flatten().count(), "objects of a leaf, each once");
    }

    fn free_raws(&mut self) {
        for (raw, _) in self.raws.drain(..) {
            self.pool.free_raw(raw).expect("ours");
        }
    }

    /// Another pool on the same memory comes and goes, with objects in it.
    fn visit_of_a_second_pool(&mut self) {
        let second = Pool::new(Arc::clone(self.pool.memory()), one_shard(PoolConfig::default()));
        let second = second.expect("a pool takes nothing that can fail");
        for _ in 0..4 {
            let bytes = self.bytes();
            let outcome = second.alloc(&bytes);
            // Left in the pool, which frees it.
            let _left = self.outcome(outcome);
        }
        let leaf = second.alloc_leaf();
        if let Some(leaf) = self.outcome(leaf) {
            let bytes = self.bytes();
            let outcome = second.store(&bytes);
            if let Some(object) = self.outcome(outcome) {
                second.cell(leaf, 3).expect("ours").put(object);
            }
            second.free_leaf(leaf, |_| {}).expect("ours");
        }
        second.check().expect("no defect");
    }

    fn expect_whole(&self) {
        for (handle, bytes) in &self.handles {
            assert_eq!(*self.pool.read(handle).expect("ours"), bytes[..]);
        }
        let mut out = [0; SIZE_MAX];
        for (raw, bytes) in &self.raws {
            assert_eq!(self.pool.read_raw(*raw, &mut out), Ok(bytes.len()));
            assert_eq!(&out[..bytes.len()], bytes);
        }
        for (leaf, cells) in &self.leaves {
            for (index, bytes) in cells.iter().enumerate() {
                let cell = self.pool.cell(*leaf, index).expect("ours");
                assert_eq!(cell.bytes(), bytes.as_deref(), "cell {index}");
            }
        }
    }

    fn check(&self) {
        let found = self.pool.check().expect("no defect");
        let cells = self.leaves.iter().map(|(_, cells)| cells.iter().flatten().count());
        let objects = self.handles.len() + self.raws.len() + cells.sum::<usize>();
        assert_eq!((found.objects, found.in_flight), (objects as u64, 0));
        self.pool.memory().check_zone().expect("no defect in the zone");
        self.pool.memory().check_free_held().expect("no defect");
        self.expect_whole();
    }

    /// All the scenario does, each step followed by a check.
    fn run(&mut self) {
        let steps: [fn(&mut Twin); 16] = [
            |twin| twin.alloc(24),
            Twin::take_leaf,
            Twin::take_leaf,
            |twin| twin.write_cells(0, 8),
            |twin| twin.alloc_raw(6),
            Twin::free_every_other,
            |twin| twin.alloc(6),
            |twin| twin.free_batch(8),
            Twin::shrink_and_compact,
            Twin::migrate,
            |twin| twin.write_cells(4, 6),
            Twin::visit_of_a_second_pool,
            Twin::drain_leaf,
            Twin::release,
            |twin| twin.alloc(6),
            Twin::free_raws,
        ];
        for step in steps {
            step(self);
            self.check();
            self.listed |= self.pool.memory().listed_bytes() > 0;
        }
    }

    /// Everything is freed; gives what can be had then.
    fn free_all(mut self) -> Capacity {
        self.faults.arm(0);
        self.free_batch(usize::MAX);
        self.free_raws();
        while !self.leaves.is_empty() {
            self.drain_leaf();
        }
        self.check();
        let stats = self.pool.stats();
        assert_eq!((stats.mem_used_total, stats.object_bytes_resident, stats.leaves), (0, 0, 0));
        let memory = Arc::clone(self.pool.memory());
        drop(self);
        memory.release(0);
        let zone = memory.check_zone().expect("no defect in the zone");
        memory.check_free_held().expect("no defect");
        assert_eq!(zone.allocated_frames, 0, "every frame is free");
        Capacity::of(&memory)
    }
}

/// What an empty memory has room for.
#[derive(Debug, PartialEq, Eq)]
struct Capacity {
    frames: usize,
    /// Each zspage of these has the longest of descriptors.
    small_objects: usize,
    leaves: usize,
}

impl Capacity {
    fn of(memory: &Arc<Memory>) -> Capacity {
        let store = |pool: &Pool, len| pool.store(&[1; SIZE_MAX][..len]).map(std::mem::forget);
        Capacity {
            frames: Capacity::until(memory, AllocError::OutOfFrames, |pool| store(pool, SIZE_MAX)),
            small_objects: Capacity::until(memory, AllocError::OutOfFrames, |pool| store(pool, 32)),
            leaves: Capacity::until(memory, AllocError::OutOfCells, |pool| {
                // Locked: a leaf that came back has no lock left on it.
                let cell = |leaf| pool.cell(leaf, LEAF_CELLS - 1).expect("ours").content();
                pool.alloc_leaf().map(|leaf| assert_eq!(cell(leaf), Content::Empty))
            }),
        }
    }

    /// How often `take` works on a new pool before it is refused as expected.
    fn until(
        memory: &Arc<Memory>,
        refusal: AllocError,
        take: impl Fn(&Pool) -> Result<(), AllocError>,
    ) -> usize {
        let pool = Pool::new(Arc::clone(memory), one_shard(PoolConfig::default()));
        let pool = pool.expect("a pool");
        let mut taken = 0;
        loop {
            match take(&pool) {
                Ok(()) => taken += 1,
                Err(error) => {
                    assert_eq!(error, refusal);
                    return taken;
                }
            }
        }
    }
}

/// Sweeps the scenario; `arm` says how it fails. Gives the operations that failed.
fn sweep(config: PoolConfig, arm: fn(&FailureInjector, u64)) -> Vec<Operation> {
    let mut undisturbed = Twin::new(config);
    undisturbed.run();
    assert!(undisturbed.listed, "the scenario passes by the per-CPU lists");
    let whole = undisturbed.free_all();
    assert_eq!(whole.frames, FRAMES as usize, "the arena and nothing else");
    let (mut met, mut told) = (Vec::new(), 0);
    for nth in 1.. {
        let mut twin = Twin::new(config);
        arm(&twin.faults, nth);
        twin.run();
        let Some(operation) = twin.faults.fired() else { break };
        met.push(operation);
        told += twin.failures;
        let left = twin.free_all();
        // A leaf serves one use for ever: where one was refused, more are left.
        let leaves = left.leaves.max(whole.leaves);
        assert_eq!(left, Capacity { leaves, ..whole }, "lost after {operation} failed at {nth}");
    }
    assert!(told > 0, "nobody was told of any failure");
    met
}

#[test]
fn any_single_refusal_is_survived() {
    for config in designs::all() {
        let met = sweep(one_shard(config), FailureInjector::arm);
        // Neither is met once a memory is there that has no worker.
        let other = |kind: &Operation| ![Operation::Reserve, Operation::Thread].contains(kind);
        for operation in Operation::ALL.into_iter().filter(other) {
            assert!(met.contains(&operation), "the scenario has no {operation}: {met:?}");
        }
        println!("{config:?}: {} points of failure", met.len());
    }
}

#[test]
fn refusals_that_last_are_survived() {
    for config in releases() {
        let met = sweep(one_shard(config), FailureInjector::arm_from);
        assert!(met.len() > 10, "{met:?}");
    }
}

#[test]
fn a_memory_is_built_or_refused_as_a_whole() {
    let faults = FailureInjector::new();
    for nth in 1.. {
        faults.arm(nth);
        match Memory::with_faults(CONFIG, Arc::clone(&faults)) {
            Err(MemoryError::Host(HostError::Injected(Operation::Reserve))) => {}
            Err(other) => panic!("an error that nobody injected: {other}"),
            Ok(_) => {
                assert_eq!(nth, 10, "an arena of three mappings, and six tables");
                break;
            }
        }
    }
}

/// Frames that the system did not take back are tried again by the next release.
#[test]
fn frames_that_a_release_could_not_return_are_returned_by_the_next() {
    let mut purges = 0;
    for nth in 1.. {
        let mut twin = Twin::new(one_shard(PoolConfig::default()));
        twin.alloc(24);
        twin.free_batch(usize::MAX);
        let memory = Arc::clone(twin.pool.memory());
        let held = memory.free_bytes_held();
        assert!(held > 0, "free frames stay resident until a release");
        twin.faults.arm(nth);
        let returned = memory.release(0);
        match twin.faults.fired() {
            None => break,
            Some(Operation::Purge) => purges += 1,
            Some(_) => {}
        }
        assert_eq!(memory.free_bytes_held(), held - returned, "what is still there is counted");
        twin.check();
        assert_eq!(memory.release(0), held - returned, "after {:?} failed", twin.faults.fired());
        assert_eq!(memory.free_bytes_held(), 0);
        twin.check();
    }
    assert!(purges > 0, "no purge was refused");
}

/// The worker's thread is refused: the wish stays, and is tried again when a zspage goes back.
#[test]
fn a_worker_that_could_not_be_started_is_started_later() {
    let faults = FailureInjector::new();
    let memory = MemoryConfig { worker: true, ..CONFIG };
    let memory = Memory::with_faults(memory, Arc::clone(&faults)).expect("nothing armed");
    let config = PoolConfig { lag: 0, ..PoolConfig::default() };
    let pool = Pool::new(Arc::clone(&memory), config).expect("a pool");
    let handles = [1, 2, 3].map(|byte| pool.alloc(&[byte; SIZE_MAX]).expect("room"));
    assert_eq!(memory.worker(), WorkerStatus::default());
    faults.arm_from(1);
    for (count, handle) in (0..).zip(handles) {
        pool.free_handle(handle).expect("ours");
        let status = memory.worker();
        match count {
            // The free itself asks; from then on the zspage that goes back does.
            0 => assert_eq!((status.running, status.refused), (false, 1)),
            1 => assert_eq!((status.running, status.refused), (false, 2)),
            _ => assert_eq!((status.running, status.refused), (true, 2)),
        }
        assert!(!pool.is_settled() || status.running);
        if count == 1 {
            assert_eq!(faults.fired(), Some(Operation::Thread));
            faults.arm(0);
        }
    }
}
