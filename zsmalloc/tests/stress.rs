//! A pool under many threads at once. Not a benchmark: patterns cost more than the pool does.
//!
//! ```text
//!   phase      fill  ->  churn  ->  flood  ->  half  ->  churn ...   until the time is up
//!   workers    4 per CPU, at least 8: more than can run, so that many are preempted with a lock
//!   beside     one thread compacts, one shrinks, one moves zspages to other frames, all the time
//!   after each phase, at rest: check(), and as many objects as the workers say they have
//! ```
//!
//! What is stored, after what lz4 leaves of the pages of a process: 10 % of the objects have 1 to
//! 200 bytes (pages nearly empty), 25 % 200 to 1000, 40 % 1000 to 1800, 18 % 1800 to 3600, 7 % a
//! whole page. Of 100 operations of a churn
//!
//! ```text
//!   35  replace an object          10  write a cell of one's own leaf
//!   20  read one, and its bytes    10  write a cell of a leaf that all share
//!    8  read one that all share     5  raw handles: store, read, free, and a stale one
//!    6  pass one to another thread  3  free 64 in one call
//!    2  read two at once and store  1  give the own leaf back and take another
//! ```
//!
//! A flood stores until the arena of 16 MiB has no frame left, which is an error and no more; a
//! half frees a random half in one call. Every read compares the whole object with its pattern.
//!
//! `RAMFOLD_STRESS_SECONDS` (2) is the time for each of the lock designs, `RAMFOLD_STRESS_SEED`
//! what the threads draw from; it is printed. The long form, before a release:
//!
//! ```text
//! RAMFOLD_STRESS_SECONDS=600 cargo test --release -p ramfold-zsmalloc -F study --test stress
//! ```
//!
//! Invariant: an object has one owner: a worker, a mailbox, or a cell.
#![cfg(not(loom))]

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use host::Lock;
#[cfg(feature = "study")]
use ramfold_zsmalloc::study;
use ramfold_zsmalloc::{
    AllocError, Content, Handle, LEAF_CELLS, LeafId, Memory, MemoryConfig, MigrateError, Pool,
    PoolConfig, RawHandle, SIZE_MAX,
};

/// Frames of the arena: 16 MiB, so that a flood is short.
const FRAMES: u32 = 4096;
/// Objects of a worker after a fill.
const FILL: usize = 150;
/// Operations of a worker in a churn.
const CHURN: usize = 1500;
/// Handles freed in one call of a churn.
const BATCH: usize = 64;
/// Objects that all workers read.
const COMMONS: usize = 32;

/// Marsaglia's xorshift64*: seeded, small, and not the pool's business.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 33) as usize % end
    }

    fn between(&mut self, start: usize, end: usize) -> usize {
        start + self.below(end - start)
    }

    /// The length of an object; see the file's head.
    fn length(&mut self) -> usize {
        match self.below(100) {
            0..10 => self.between(1, 200),
            10..35 => self.between(200, 1000),
            35..75 => self.between(1000, 1800),
            75..93 => self.between(1800, 3600),
            _ => SIZE_MAX,
        }
    }
}

/// An object's bytes: its seed, and multiples of it.
fn pattern(seed: u64, bytes: &mut [u8]) {
    for (at, word) in bytes.chunks_mut(8).enumerate() {
        let value = seed.wrapping_mul(2 * at as u64 + 1).to_le_bytes();
        word.copy_from_slice(&value[..word.len()]);
    }
}

#[track_caller]
fn verify(found: &[u8], seed: u64, len: usize) {
    let mut expected = [0; SIZE_MAX];
    pattern(seed, &mut expected[..len]);
    assert!(found == &expected[..len], "object {seed:x} of {len} bytes reads otherwise");
}

/// Of an object as long as a word at least, by the seed in it.
#[track_caller]
fn verify_any(found: &[u8]) {
    let seed = found.first_chunk().map(|seed| u64::from_le_bytes(*seed));
    verify(found, seed.expect("objects of shared cells hold their seed"), found.len());
}

struct Item {
    handle: Handle,
    seed: u64,
    len: usize,
}

impl Item {
    fn verify(&self, pool: &Pool) {
        verify(&pool.read(&self.handle).expect("ours"), self.seed, self.len);
    }
}

/// What all threads see.
struct World {
    pool: Arc<Pool>,
    mailboxes: Vec<Lock<Vec<Item>>>,
    commons: Vec<Item>,
    leaf: LeafId,
}

impl World {
    fn new(config: PoolConfig, workers: usize, random: &mut Random) -> World {
        let memory = Memory::new(MemoryConfig {
            arena_frames: FRAMES,
            entries_max: 1 << 20,
            expected_bytes: 32 << 20,
            worker: true,
        });
        let pool = Pool::new(memory.expect("address space"), config).expect("a pool");
        let commons = (0..COMMONS).map(|_| store(&pool, random).expect("an empty arena")).collect();
        let mailboxes = (0..workers).map(|_| Lock::default()).collect();
        let leaf = pool.alloc_leaf().expect("room");
        World { pool, mailboxes, commons, leaf }
    }

    /// At rest: nothing is broken, nothing lost.
    fn check(&self, workers: &[Worker]) {
        let mailed = self.mailboxes.iter().map(|mailbox| mailbox.lock().len());
        let shared = (0..LEAF_CELLS).filter(|&cell| self.cell_is_full(cell)).count();
        let owned = workers.iter().map(Worker::objects);
        let expected = self.commons.len() + shared + mailed.sum::<usize>() + owned.sum::<usize>();
        let found = self.pool.check().expect("no defect");
        assert_eq!(found.objects, expected as u64, "objects that someone owns");
        self.pool.memory().check_zone().expect("no defect in the zone");
    }

    fn cell_is_full(&self, index: usize) -> bool {
        let cell = self.pool.cell(self.leaf, index).expect("ours");
        if let Some(bytes) = cell.bytes() {
            verify_any(bytes);
        }
        matches!(cell.content(), Content::Object { .. })
    }
}

fn store(pool: &Pool, random: &mut Random) -> Result<Item, AllocError> {
    let (seed, len) = (random.next(), random.length());
    let handle = pool.alloc_with(len, |slot| pattern(seed, slot))?;
    Ok(Item { handle, seed, len })
}

struct Worker {
    id: usize,
    random: Random,
    items: Vec<Item>,
    raws: Vec<(RawHandle, u64, usize)>,
    leaf: LeafId,
    cells: Vec<Option<(u64, usize)>>,
}

impl Worker {
    fn new(world: &World, id: usize, seed: u64) -> Worker {
        Worker {
            id,
            random: Random(seed.wrapping_add(id as u64) | 1),
            items: Vec::new(),
            raws: Vec::new(),
            leaf: world.pool.alloc_leaf().expect("room"),
            cells: vec![None; LEAF_CELLS],
        }
    }

    fn objects(&self) -> usize {
        self.items.len() + self.raws.len() + self.cells.iter().flatten().count()
    }

    fn fill(&mut self, world: &World) {
        while self.items.len() < FILL && self.add(world) {}
    }

    /// Stores one more; false when there is no room.
    fn add(&mut self, world: &World) -> bool {
        match store(&world.pool, &mut self.random) {
            Ok(item) => self.items.push(item),
            Err(AllocError::OutOfFrames) => return false,
            Err(error) => panic!("only frames run out here: {error}"),
        }
        true
    }

    fn take(&mut self) -> Option<Item> {
        let len = self.items.len();
        (len > 0).then(|| self.items.swap_remove(self.random.below(len)))
    }

    fn flood(&mut self, world: &World) {
        while self.add(world) {}
        self.items.iter().for_each(|item| item.verify(&world.pool));
    }

    fn half(&mut self, world: &World) {
        for at in (1..self.items.len()).rev() {
            let other = self.random.below(at + 1);
            self.items.swap(at, other);
        }
        let half = self.items.split_off(self.items.len() / 2);
        let handles = half.into_iter().map(|item| item.handle);
        world.pool.free_batch(handles).expect("ours");
    }

    fn churn(&mut self, world: &World) {
        for _ in 0..CHURN {
            match self.random.below(100) {
                0..35 => self.replace(world),
                35..55 => self.read_own(world),
                55..63 => {
                    let which = self.random.below(COMMONS);
                    world.commons[which].verify(&world.pool);
                }
                63..69 => self.pass(world),
                69..71 => self.read_two_and_store(world),
                71..81 => self.write_own_cell(world),
                81..91 => self.write_shared_cell(world),
                91..96 => self.use_raw(world),
                96..99 => self.free_many(world),
                _ => self.exchange_leaf(world),
            }
        }
    }

    fn replace(&mut self, world: &World) {
        if let Some(item) = self.take() {
            item.verify(&world.pool);
            world.pool.free_handle(item.handle).expect("ours");
        }
        self.fill(world);
    }

    fn read_own(&mut self, world: &World) {
        let len = self.items.len();
        if len > 0 {
            self.items[self.random.below(len)].verify(&world.pool);
        }
    }

    /// Sends one to another thread, and takes one that was sent here.
    fn pass(&mut self, world: &World) {
        if let Some(item) = self.take() {
            let to = self.random.below(world.mailboxes.len());
            world.mailboxes[to].lock().push(item);
        }
        let received = world.mailboxes[self.id].lock().pop();
        if let Some(item) = received {
            item.verify(&world.pool);
            self.items.push(item);
        }
    }

    fn read_two_and_store(&mut self, world: &World) {
        let which = self.random.below(COMMONS);
        let [one, two] = [&world.commons[which], &world.commons[(which + 1) % COMMONS]];
        let guards = [one, two].map(|item| world.pool.read(&item.handle).expect("ours"));
        self.add(world);
        verify(&guards[0], one.seed, one.len);
        verify(&guards[1], two.seed, two.len);
    }

    fn write_own_cell(&mut self, world: &World) {
        let index = self.random.below(LEAF_CELLS);
        let (seed, len) = (self.random.next(), self.random.length());
        let Some(object) = object(&world.pool, seed, len) else { return };
        let mut cell = world.pool.cell(self.leaf, index).expect("ours");
        match self.cells[index] {
            Some((seed, len)) => verify(cell.bytes().expect("full"), seed, len),
            None => assert_eq!(cell.content(), Content::Empty),
        }
        cell.put(object);
        self.cells[index] = Some((seed, len));
    }

    /// Of few cells, so that threads meet; a third of the writes clear.
    fn write_shared_cell(&mut self, world: &World) {
        let index = self.random.below(16);
        let (seed, len) = (self.random.next(), self.random.length().max(8));
        let object = object(&world.pool, seed, len);
        let mut cell = world.pool.cell(world.leaf, index).expect("ours");
        if let Some(bytes) = cell.bytes() {
            verify_any(bytes);
        }
        match object {
            Some(object) if !seed.is_multiple_of(3) => cell.put(object),
            unused => {
                cell.clear();
                drop(cell);
                drop(unused);
            }
        }
    }

    fn use_raw(&mut self, world: &World) {
        let (seed, len) = (self.random.next(), self.random.length());
        let mut bytes = [0; SIZE_MAX];
        pattern(seed, &mut bytes[..len]);
        if let Ok(raw) = world.pool.alloc_raw(&bytes[..len]) {
            self.raws.push((raw, seed, len));
        }
        if self.raws.len() > 20 {
            let (raw, seed, len) = self.raws.swap_remove(self.random.below(20));
            assert_eq!(world.pool.read_raw(raw, &mut bytes), Ok(len));
            verify(&bytes[..len], seed, len);
            world.pool.free_raw(raw).expect("ours");
            world.pool.free_raw(raw).expect_err("freed already");
            world.pool.read_raw(raw, &mut bytes).expect_err("freed already");
        }
    }

    fn free_many(&mut self, world: &World) {
        let batch: Vec<Handle> =
            (0..BATCH).map_while(|_| self.take()).map(|item| item.handle).collect();
        world.pool.free_batch(batch).expect("ours");
        self.fill(world);
    }

    fn exchange_leaf(&mut self, world: &World) {
        let mut drained = 0;
        world
            .pool
            .free_leaf(self.leaf, |cell| drained += usize::from(cell.bytes().is_some()))
            .expect("ours");
        assert_eq!(drained, self.cells.iter().flatten().count(), "each object is visited once");
        self.cells.fill(None);
        self.leaf = world.pool.alloc_leaf().expect("room");
    }

    fn leave(mut self, world: &World) {
        self.half(world);
        for item in self.items.drain(..) {
            item.verify(&world.pool);
            world.pool.free_handle(item.handle).expect("ours");
        }
        for (raw, ..) in self.raws.drain(..) {
            world.pool.free_raw(raw).expect("ours");
        }
        world.pool.free_leaf(self.leaf, |_| {}).expect("ours");
    }
}

/// An object for a cell; `None` when there is no room.
fn object(pool: &Pool, seed: u64, len: usize) -> Option<ramfold_zsmalloc::Object<'_>> {
    let mut bytes = [0; SIZE_MAX];
    pattern(seed, &mut bytes[..len]);
    match pool.store(&bytes[..len]) {
        Ok(object) => Some(object),
        Err(AllocError::OutOfFrames) => None,
        Err(error) => panic!("only frames run out here: {error}"),
    }
}

/// Moves a few zspages to other frames, as the page allocator would.
fn move_zspages(pool: &Pool) {
    for zspage in pool.zspages().into_iter().step_by(17) {
        let Ok(frames) = pool.memory().frames(zspage.frames) else { return };
        match pool.migrate(zspage.pfn, frames) {
            Ok(()) | Err(MigrateError::NoZspage | MigrateError::Busy(_)) => {}
            // Another zspage starts there by now, of another length.
            Err(MigrateError::WrongFrames(_)) => {}
        }
    }
}

/// Runs `phase` on every worker at once, beside those that tidy up.
fn run(world: &World, workers: &mut [Worker], phase: fn(&mut Worker, &World)) {
    let over = AtomicBool::new(false);
    let pool = &world.pool;
    thread::scope(|scope| {
        let beside = |tidy: fn(&Pool)| {
            let over = &over;
            // Relaxed: the flag says when to stop and nothing else.
            move || {
                while !over.load(Ordering::Relaxed) {
                    tidy(pool);
                    thread::sleep(Duration::from_micros(200));
                }
            }
        };
        let compactor = scope.spawn(beside(|pool| {
            pool.compact();
        }));
        let shrinker = scope.spawn(beside(|pool| {
            pool.shrink(pool.freeable_frames().min(8));
        }));
        let mover = scope.spawn(beside(move_zspages));
        let running: Vec<_> =
            workers.iter_mut().map(|worker| scope.spawn(|| phase(worker, world))).collect();
        let outcomes: Vec<_> = running.into_iter().map(|worker| worker.join()).collect();
        over.store(true, Ordering::Relaxed);
        let beside = [compactor, shrinker, mover].map(|thread| thread.join());
        assert!(outcomes.iter().chain(&beside).all(Result::is_ok), "a thread failed");
    });
    world.check(workers);
}

fn from_environment(name: &str, otherwise: u64) -> u64 {
    env::var(name).map_or(otherwise, |value| value.parse().expect("a number"))
}

fn stress(config: PoolConfig) {
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64);
    let seed = from_environment("RAMFOLD_STRESS_SEED", clock);
    let time = Duration::from_secs(from_environment("RAMFOLD_STRESS_SECONDS", 2));
    println!("{config:?}: RAMFOLD_STRESS_SEED={seed}");
    let mut random = Random(seed | 1);
    let count = (4 * host::cpu::count()).max(8);
    let world = World::new(config, count, &mut random);
    let mut workers: Vec<Worker> =
        (0..count).map(|id| Worker::new(&world, id, random.next())).collect();
    let phases =
        [Worker::fill as fn(&mut Worker, &World), Worker::churn, Worker::flood, Worker::half];
    let end = Instant::now() + time;
    let mut rounds = 0;
    while rounds == 0 || Instant::now() < end {
        phases.into_iter().for_each(|phase| run(&world, &mut workers, phase));
        rounds += 1;
    }
    let compacted = world.pool.stats().pages_compacted;
    println!("{rounds} rounds of {count} workers, {compacted} frames compacted");
    finish(world, workers);
}

/// Everything is freed by its owner: nothing is left anywhere.
fn finish(world: World, workers: Vec<Worker>) {
    let compacted = world.pool.stats().pages_compacted;
    assert!(compacted > 0, "compaction found nothing to do: the test shows too little");
    thread::scope(|scope| {
        let world = &world;
        let leaving = workers.into_iter().map(|worker| scope.spawn(|| worker.leave(world)));
        let leaving: Vec<_> = leaving.collect();
        leaving.into_iter().for_each(|worker| worker.join().expect("a worker failed"));
    });
    let World { pool, mailboxes, commons, leaf } = world;
    let mailed = mailboxes.into_iter().flat_map(Lock::into_inner);
    let handles = mailed.chain(commons).map(|item| item.handle);
    pool.free_batch(handles).expect("ours");
    pool.free_leaf(leaf, |_| {}).expect("ours");
    // The memory's worker may be giving back the last zspages, which are in no class any more.
    let deadline = Instant::now() + Duration::from_secs(60);
    let mut found = pool.check().expect("no defect");
    while found.in_flight > 0 && Instant::now() < deadline {
        thread::yield_now();
        found = pool.check().expect("no defect");
    }
    assert_eq!((found.objects, found.in_flight), (0, 0));
    assert_eq!((pool.stats().mem_used_total, pool.stats().object_bytes_resident), (0, 0));
    let memory = Arc::clone(pool.memory());
    drop(pool);
    memory.release(0);
    memory.check_zone().expect("no defect in the zone");
    assert_eq!(memory.free_bytes_held(), 0, "everything went back to the system");
}

#[test]
fn the_class_design_under_stress() {
    stress(PoolConfig::default());
}

#[test]
#[cfg(feature = "study")]
fn the_pool_design_under_stress() {
    stress(PoolConfig { study: study::LockDesign::Pool.into(), ..PoolConfig::default() });
}

#[test]
#[cfg(feature = "study")]
fn the_hierarchical_design_under_stress() {
    let study =
        study::Study { release: study::Release::Inside, ..study::LockDesign::Hierarchical.into() };
    stress(PoolConfig { study, ..PoolConfig::default() });
}
