//! A whole pool under random schedules.
//!
//! ```text
//!   two workers       12 random operations each, on objects of their own, cells that all write,
//!                     handles that all read, and handles passed on
//!   a reader          reads what all may read, and nothing else
//!   a keeper          compacts, shrinks, moves zspages to other frames, recounts
//!   at the end        check(), every object as its owner knows it; then all is freed
//! ```
//!
//! Where loom takes small scenarios through every interleaving of two preemptions, these are whole
//! histories under any number of them: at each atomic operation of the pool, shuttle chooses who
//! goes on. Half of the schedules are uniformly random; the other half have few preemptions in
//! random places (PCT), which finds what depends on a thread being late for long. Schedules and
//! operations come from one seed, which is printed:
//!
//! ```text
//! RUSTFLAGS="--cfg shuttle" cargo test -p ramfold-zsmalloc --features study \
//!     --profile model --test shuttle
//!     RAMFOLD_SHUTTLE_SCHEDULES=20000    instead of 4000 for each kind
//!     RAMFOLD_SHUTTLE_SEED=...           what was printed by a run that failed
//! ```
//!
//! Claims: an object reads as its owner stored it, whatever moves it meanwhile; a raw handle is
//! refused once it was freed; no thread waits for ever (shuttle reports a deadlock); lock ranks
//! hold (with debug assertions on); `check()` finds nothing at any time, and nothing is left in the
//! end.
//!
//! Invariant: an object has one owner: a worker, the mailbox, or a cell.
#![cfg(shuttle)]

use std::env;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ramfold_zsmalloc::deferred::QueueConfig;
use ramfold_zsmalloc::study::{LockDesign, Release, Study};
use ramfold_zsmalloc::{
    ChainSize, Content, Handle, LEAF_CELLS, LeafId, Memory, MemoryConfig, Pool, PoolConfig,
    RawHandle, Rule, SIZE_MAX,
};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::Mutex;
use shuttle::{Config, FailurePersistence, Runner, thread};

/// Schedules of a kind, if not asked for otherwise.
const SCHEDULES: u64 = 4000;
/// Preemptions of a PCT schedule, and one.
const DEPTH: usize = 5;
const WORKERS: usize = 2;
/// Reads of the reader.
const READS: usize = 20;
/// Operations of a worker.
const STEPS: usize = 12;
/// Objects stored before the threads start; two thirds are freed again.
const FILL: usize = 18;
/// Few, so that objects are neighbours: 6 or 4 of them to a zspage of 2 frames, or a frame each. In
/// chains of 16 frames, 1300 bytes may be a guest where 1330 bytes are.
const LENGTHS: [usize; 5] = [1300, 1300, 1330, 2000, SIZE_MAX];
/// Cells that all workers write.
const SHARED_CELLS: usize = 3;

fn random(end: usize) -> usize {
    thread_rng().gen_range(0..end)
}

/// Lets the scheduler choose which thread goes on.
fn let_others() {
    thread::sleep(Duration::ZERO);
}

/// An object whose bytes all say which it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Named {
    name: u64,
    len: usize,
}

impl Named {
    fn new() -> Named {
        Named { name: thread_rng().gen_range(1..u64::MAX), len: LENGTHS[random(LENGTHS.len())] }
    }

    /// In two parts, so that others can come between.
    fn fill(self, bytes: &mut [u8]) {
        let half = bytes.len() / 16 * 8;
        for part in [0..half, half..bytes.len()] {
            for word in bytes[part].chunks_mut(8) {
                word.copy_from_slice(&self.name.to_le_bytes()[..word.len()]);
            }
            let_others();
        }
    }

    fn bytes(self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.fill(&mut bytes);
        bytes
    }

    /// What these bytes are, if they are one object and not parts of two.
    #[track_caller]
    fn of(bytes: &[u8]) -> Named {
        let name = bytes.first_chunk().map(|name| u64::from_le_bytes(*name)).expect("long enough");
        let found = Named { name, len: bytes.len() };
        assert!(found.bytes() == bytes, "an object of two names");
        found
    }

    /// Reads the object behind a handle twice; nobody may come between.
    #[track_caller]
    fn verify(self, pool: &Pool, handle: &Handle) {
        let guard = pool.read(handle).expect("ours");
        assert_eq!(Named::of(&guard), self);
        let_others();
        assert_eq!(Named::of(&guard), self, "changed while it was read");
    }
}

/// Of pool.
#[derive(Clone, Copy, Debug)]
struct Kind {
    study: Study,
    /// `None`: the others are made when two threads meet.
    shards: Option<usize>,
    /// Only a fitted pool has guests, while it is small.
    rule: Rule,
    /// Of a zspage at most.
    frames: usize,
}

struct World {
    pool: Arc<Pool>,
    commons: Vec<(Handle, Named)>,
    mailbox: Mutex<Vec<(Handle, Named)>>,
    leaf: LeafId,
}

impl World {
    fn new(kind: Kind) -> World {
        let memory = Memory::new(MemoryConfig {
            arena_frames: 512,
            entries_max: 8 * LEAF_CELLS as u64,
            expected_bytes: 32 << 20,
            worker: false,
        });
        let Kind { study, shards, rule, frames } = kind;
        let chain = ChainSize::new(frames).expect("a chain");
        // Two values to a buffer in a model: soon full, and soon none is left.
        let deferred =
            QueueConfig { shards: Some(2), buffer_bytes: 4096, ..QueueConfig::default() };
        let guests_below = PoolConfig::default().guests_below;
        // A short lag, so that most frees are of objects given up before, by another thread too.
        let config = PoolConfig { chain, rule, shards, deferred, lag: 2, guests_below, study };
        let pool = Pool::new(memory.expect("address space"), config).expect("a pool");
        let leaf = pool.alloc_leaf().expect("room");
        let commons = World::commons(&pool);
        World { pool, commons, mailbox: Mutex::default(), leaf }
    }

    /// Some of many objects, so that compaction has something to do from the start.
    fn commons(pool: &Pool) -> Vec<(Handle, Named)> {
        let all: Vec<_> = (0..FILL).map(|_| store(pool)).collect();
        let (kept, freed): (Vec<_>, Vec<_>) =
            all.into_iter().enumerate().partition(|(at, _)| at.is_multiple_of(3));
        pool.free_batch(freed.into_iter().map(|(_, (handle, _))| handle)).expect("ours");
        kept.into_iter().map(|(_, item)| item).collect()
    }
}

fn store(pool: &Pool) -> (Handle, Named) {
    let object = Named::new();
    let handle = pool.alloc_with(object.len, |slot| object.fill(slot)).expect("room");
    (handle, object)
}

#[derive(Default)]
struct Worker {
    items: Vec<(Handle, Named)>,
    raws: Vec<(RawHandle, Named)>,
}

impl Worker {
    /// Stores a few and frees some, so that there are holes; then does as it likes.
    fn run(mut self, world: &World) -> Worker {
        for _ in 0..STEPS {
            match random(20) {
                0..6 => self.items.push(store(&world.pool)),
                6..9 => self.free(world),
                9..11 => self.read(world),
                11 => self.free_batch(world),
                12..14 => self.pass(world),
                14..17 => Worker::write_cell(world),
                17 => Worker::use_leaf(world),
                _ => self.use_raw(world),
            }
        }
        self
    }

    fn take(&mut self) -> Option<(Handle, Named)> {
        let len = self.items.len();
        (len > 0).then(|| self.items.swap_remove(random(len)))
    }

    fn free(&mut self, world: &World) {
        if let Some((handle, object)) = self.take() {
            object.verify(&world.pool, &handle);
            if random(2) > 0 {
                world.pool.free_handle(handle).expect("ours");
            } else {
                world.pool.free_deferred(handle).expect("ours");
            }
        }
    }

    /// One of its own, beside one that others read.
    fn read(&mut self, world: &World) {
        let (handle, object) = &world.commons[random(world.commons.len())];
        let guard = world.pool.read(handle).expect("ours");
        if let Some((handle, object)) = self.items.last() {
            object.verify(&world.pool, handle);
        }
        self.items.push(store(&world.pool));
        assert_eq!(Named::of(&guard), *object);
    }

    fn free_batch(&mut self, world: &World) {
        let half = self.items.split_off(self.items.len() / 2);
        let handles = half.into_iter().map(|(handle, _)| handle);
        world.pool.free_batch(handles).expect("ours");
    }

    fn pass(&mut self, world: &World) {
        let item = self.take();
        let mut mailbox = world.mailbox.lock().unwrap();
        let received = mailbox.pop();
        mailbox.extend(item);
        drop(mailbox);
        if let Some((handle, object)) = received {
            object.verify(&world.pool, &handle);
            self.items.push((handle, object));
        }
    }

    fn write_cell(world: &World) {
        let object = Named::new();
        let stored = world.pool.store(&object.bytes()).expect("room");
        let mut cell = world.pool.cell(world.leaf, random(SHARED_CELLS)).expect("ours");
        cell.bytes().map(Named::of);
        if random(3) > 0 {
            cell.put(stored);
            assert_eq!(cell.bytes().map(Named::of), Some(object));
        } else {
            if random(2) > 0 {
                cell.clear()
            } else {
                cell.clear_deferred()
            }
            drop(cell);
            drop(stored);
        }
    }

    /// A leaf of its own, drained with an object in it.
    fn use_leaf(world: &World) {
        let leaf = world.pool.alloc_leaf().expect("room");
        let object = Named::new();
        let stored = world.pool.store(&object.bytes()).expect("room");
        world.pool.cell(leaf, 7).expect("ours").put(stored);
        let mut found = Vec::new();
        world.pool.free_leaf(leaf, |cell| found.extend(cell.bytes().map(Named::of))).expect("ours");
        assert_eq!(found, [object]);
    }

    fn use_raw(&mut self, world: &World) {
        let object = Named::new();
        self.raws.push((world.pool.alloc_raw(&object.bytes()).expect("room"), object));
        if self.raws.len() > 1 {
            let (raw, object) = self.raws.swap_remove(0);
            let mut bytes = vec![0; SIZE_MAX];
            assert_eq!(world.pool.read_raw(raw, &mut bytes), Ok(object.len));
            assert_eq!(Named::of(&bytes[..object.len]), object);
            world.pool.free_raw(raw).expect("ours");
            world.pool.read_raw(raw, &mut bytes).expect_err("freed");
            world.pool.free_raw(raw).expect_err("freed");
        }
    }

    fn leave(self, world: &World) {
        for (handle, object) in self.items {
            object.verify(&world.pool, &handle);
            world.pool.free_handle(handle).expect("ours");
        }
        for (raw, object) in self.raws {
            let mut bytes = vec![0; SIZE_MAX];
            assert_eq!(world.pool.read_raw(raw, &mut bytes), Ok(object.len));
            assert_eq!(Named::of(&bytes[..object.len]), object);
            world.pool.free_raw(raw).expect("ours");
        }
    }
}

fn read(world: &World) {
    for _ in 0..READS {
        let (handle, object) = &world.commons[random(world.commons.len())];
        object.verify(&world.pool, handle);
    }
}

/// To other frames, as the page allocator would; what is in use stays.
fn move_zspages(pool: &Pool) {
    for zspage in pool.zspages() {
        let frames = pool.memory().frames(zspage.frames).expect("room");
        let to = frames.pfn().expect("nobody has them yet");
        if pool.migrate(zspage.pfn, frames).is_ok() {
            assert_ne!(to, zspage.pfn);
        }
    }
}

fn keep(world: &World) {
    let pool = &world.pool;
    for _ in 0..3 {
        match random(7) {
            2 => move_zspages(pool),
            3 => {
                pool.flush_deferred();
            }
            0 => drop(pool.check().expect("no defect, whatever is under way")),
            1 => {
                pool.shrink(pool.freeable_frames().min(2));
            }
            _ => {
                pool.compact();
                pool.memory().evacuate();
            }
        }
    }
}

fn scenario(kind: Kind) {
    let world = Arc::new(World::new(kind));
    let spawn = |_| {
        let world = Arc::clone(&world);
        thread::spawn(move || Worker::default().run(&world))
    };
    let workers: Vec<_> = (0..WORKERS).map(spawn).collect();
    let [reader, keeper] = [read, keep].map(|run| {
        let world = Arc::clone(&world);
        thread::spawn(move || run(&world))
    });
    [reader, keeper].into_iter().for_each(|thread| thread.join().expect("no panic"));
    let join = |thread: thread::JoinHandle<Worker>| thread.join().expect("no panic");
    let workers: Vec<Worker> = workers.into_iter().map(join).collect();
    let world = Arc::into_inner(world).expect("all others are gone");
    expect_whole(&world, &workers);
    free_all(world, workers);
}

fn expect_whole(world: &World, workers: &[Worker]) {
    let cells = (0..SHARED_CELLS).filter(|&index| {
        let cell = world.pool.cell(world.leaf, index).expect("ours");
        cell.bytes().map(Named::of);
        cell.content() != Content::Empty
    });
    let owned: usize = workers.iter().map(|worker| worker.items.len() + worker.raws.len()).sum();
    let mailed = world.mailbox.lock().unwrap().len();
    let found = world.pool.check().expect("no defect");
    let expected = world.commons.len() + mailed + owned + cells.count();
    assert_eq!((found.objects - found.pending, found.in_flight), (expected as u64, 0));
}

fn free_all(world: World, workers: Vec<Worker>) {
    workers.into_iter().for_each(|worker| worker.leave(&world));
    let World { pool, commons, mailbox, leaf } = world;
    let mailed = mailbox.into_inner().unwrap();
    pool.free_batch(commons.into_iter().chain(mailed).map(|(handle, _)| handle)).expect("ours");
    pool.free_leaf(leaf, |_| {}).expect("ours");
    pool.flush_deferred();
    assert_eq!(pool.check().expect("no defect").objects, 0);
    assert_eq!((pool.stats().mem_used_total, pool.stats().object_bytes_resident), (0, 0));
    let memory = Arc::clone(pool.memory());
    drop(pool);
    let zone = memory.check_zone().expect("no defect in the zone");
    assert_eq!(zone.allocated_frames, zone.listed_frames, "every frame is free");
}

fn from_environment(name: &str, otherwise: u64) -> u64 {
    env::var(name).map_or(otherwise, |value| value.parse().expect("a number"))
}

fn run(scheduler: impl Scheduler + 'static, kind: Kind) {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    // Schedules are long; the seed says the same.
    config.failure_persistence = FailurePersistence::None;
    config.ungraceful_shutdown_config.immediately_return_on_panic = true;
    Runner::new(scheduler, config).run(move || scenario(kind));
}

/// Runs half of the schedules, of those that `scheduler` makes of a seed and so many.
fn explore<S: Scheduler + 'static>(kind: Kind, scheduler: impl FnOnce(u64, usize) -> S) {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64);
    let seed = from_environment("RAMFOLD_SHUTTLE_SEED", clock);
    let schedules = from_environment("RAMFOLD_SHUTTLE_SCHEDULES", SCHEDULES);
    println!("{kind:?}: RAMFOLD_SHUTTLE_SEED={seed}");
    run(scheduler(seed, schedules.div_ceil(2) as usize), kind);
}

/// The two halves of each kind's schedules, side by side.
macro_rules! any_history {
    ($($of:ident: $design:ident, $release:ident, $rule:ident, $frames:literal, $shards:expr;)*) => {
        $(
            mod $of {
                use super::*;

                const KIND: Kind = Kind {
                    study: Study { design: LockDesign::$design, release: Release::$release },
                    shards: $shards,
                    rule: Rule::$rule,
                    frames: $frames,
                };

                #[test]
                fn at_random() {
                    explore(KIND, RandomScheduler::new_from_seed);
                }

                #[test]
                fn with_few_preemptions() {
                    explore(KIND, |seed, half| PctScheduler::new_from_seed(seed, DEPTH, half));
                }
            }
        )*
    };
}

any_history! {
    of_the_class_design: Class, Outside, LeastWaste, 2, Some(1);
    of_classes_in_shards: Class, Outside, LeastWaste, 2, Some(2);
    of_guests_and_shards_made_late: Class, Outside, Fitted, 16, None;
    of_frames_released_inside_the_lock: Class, Inside, LeastWaste, 2, Some(2);
    of_the_pool_design: Pool, Outside, LeastWaste, 2, Some(1);
    of_the_hierarchical_design: Hierarchical, Outside, LeastWaste, 2, Some(1);
}
