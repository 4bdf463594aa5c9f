//! The protocols of the pool under every interleaving that two preemptions allow, or three.
//!
//! Each scenario is a whole pool with small tables: two cells per leaf, objects of 2048 bytes, two
//! to a zspage of one frame. Run with `RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=2`.
//!
//! Claims: whatever the interleaving, objects read as they were stored, `check()` finds nothing,
//! and what was freed is gone.
#![cfg(loom)]

use std::sync::Arc;

use loom::thread;
use ramfold_zsmalloc::study::LockDesign;
use ramfold_zsmalloc::{ChainSize, Content, LeafId, Memory, MemoryConfig, Pool, PoolConfig};

#[path = "loom/handles.rs"]
mod handles;
#[path = "loom/jobs.rs"]
mod jobs;
#[path = "loom/join.rs"]
mod join;
#[path = "loom/lag.rs"]
mod lag;
#[path = "loom/limit.rs"]
mod limit;
#[path = "loom/lives.rs"]
mod lives;
#[path = "loom/pending.rs"]
mod pending;
#[path = "loom/queue.rs"]
mod queue;
#[path = "loom/recount.rs"]
mod recount;
#[path = "loom/twice.rs"]
mod twice;

const SIZE: usize = 2048;

/// `loom::model` with room for the many atomics of a whole pool.
fn model(scenario: impl Fn() + Sync + Send + 'static) {
    model_of(loom::model::Builder::new(), scenario);
}

/// The same with another number of preemptions than all have.
fn model_within(preemptions: usize, scenario: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    model_of(builder, scenario);
}

fn model_of(mut builder: loom::model::Builder, scenario: impl Fn() + Sync + Send + 'static) {
    builder.max_branches = 100_000;
    builder.check(scenario);
}

fn pool() -> Arc<Pool> {
    pool_with(LockDesign::Class)
}

fn pool_with(design: LockDesign) -> Arc<Pool> {
    pool_on(&memory(), PoolConfig { study: design.into(), ..config(1, 2) })
}

fn memory() -> Arc<Memory> {
    memory_of(6)
}

fn memory_of(entries_max: u64) -> Arc<Memory> {
    let config =
        MemoryConfig { arena_frames: 512, entries_max, expected_bytes: 1 << 30, worker: false };
    Memory::new(config).expect("small tables")
}

fn pool_on(memory: &Arc<Memory>, config: PoolConfig) -> Arc<Pool> {
    Pool::new(Arc::clone(memory), config).expect("a pool")
}

fn config(chain: usize, shards: usize) -> PoolConfig {
    let chain = ChainSize::new(chain).expect("1 to 16");
    PoolConfig { chain, shards: Some(shards), ..PoolConfig::default() }
}

fn put(pool: &Pool, leaf: LeafId, index: usize, byte: u8) -> bool {
    put_bytes(pool, leaf, index, &[byte; SIZE])
}

fn put_bytes(pool: &Pool, leaf: LeafId, index: usize, bytes: &[u8]) -> bool {
    let object = pool.store(bytes).expect("room");
    match pool.cell(leaf, index) {
        Ok(mut cell) => {
            cell.put(object);
            true
        }
        Err(_) => false,
    }
}

#[track_caller]
fn expect(pool: &Pool, leaf: LeafId, index: usize, byte: u8) {
    let cell = pool.cell(leaf, index).expect("the leaf is ours");
    assert_eq!(cell.bytes(), Some(&[byte; SIZE][..]));
}

/// Two zspages with one object each: what compaction would merge.
fn two_sparse_zspages(pool: &Pool) -> (LeafId, LeafId) {
    let (one, two) = (pool.alloc_leaf().expect("room"), pool.alloc_leaf().expect("room"));
    for (leaf, index, byte) in [(one, 0, 1), (one, 1, 2), (two, 0, 3), (two, 1, 4)] {
        assert!(put(pool, leaf, index, byte));
    }
    pool.cell(one, 1).expect("ours").clear();
    pool.cell(two, 1).expect("ours").clear();
    (one, two)
}

#[test]
fn read_against_compaction() {
    model(|| {
        let pool = pool();
        let (one, two) = two_sparse_zspages(&pool);
        let other = Arc::clone(&pool);
        let mover = thread::spawn(move || other.compact());
        expect(&pool, one, 0, 1);
        expect(&pool, two, 0, 3);
        mover.join().expect("mover");
        expect(&pool, one, 0, 1);
        expect(&pool, two, 0, 3);
        assert_eq!(pool.check().expect("no defect").objects, 2);
    });
}

/// One of the two moves: each is freed, in a model of its own.
#[test]
fn free_against_compaction() {
    for first in [true, false] {
        model(move || {
            let pool = pool();
            let (one, two) = two_sparse_zspages(&pool);
            let (freed, kept, byte) = if first { (one, two, 3) } else { (two, one, 1) };
            let other = Arc::clone(&pool);
            let mover = thread::spawn(move || other.compact());
            pool.cell(freed, 0).expect("ours").clear();
            mover.join().expect("mover");
            expect(&pool, kept, 0, byte);
            assert_eq!(pool.check().expect("no defect").objects, 1);
            assert_eq!(pool.stats().mem_used_total, 4096, "the emptied zspage went back");
        });
    }
}

/// The free of a cell's object, whose zspage goes to the first shard meanwhile: under loom the
/// length decides the shard. Without the second look it would change a class that is not locked.
#[test]
fn clear_against_the_gathering_of_its_shard() {
    model(|| {
        let pool = pool();
        let (one, two) = (pool.alloc_leaf().expect("room"), pool.alloc_leaf().expect("room"));
        // First, or it would take the other's zspage over.
        assert!(put(&pool, two, 0, 3));
        for index in [0, 1] {
            assert!(put_bytes(&pool, one, index, &[1; SIZE - 1]));
        }
        pool.cell(one, 1).expect("ours").clear();
        let other = Arc::clone(&pool);
        let mover = thread::spawn(move || other.compact());
        pool.cell(one, 0).expect("ours").clear();
        mover.join().expect("mover");
        expect(&pool, two, 0, 3);
        assert_eq!(pool.check().expect("no defect").objects, 1);
        assert_eq!(pool.stats().mem_used_total, 4096, "the emptied zspage went back");
    });
}

#[test]
fn publication_against_compaction() {
    model(|| {
        let pool = pool();
        let (one, two) = two_sparse_zspages(&pool);
        let other = Arc::clone(&pool);
        let mover = thread::spawn(move || other.compact());
        assert!(put(&pool, one, 1, 9));
        mover.join().expect("mover");
        for (leaf, index, byte) in [(one, 0, 1), (one, 1, 9), (two, 0, 3)] {
            expect(&pool, leaf, index, byte);
        }
        assert_eq!(pool.check().expect("no defect").objects, 3);
    });
}

#[test]
fn two_frees_of_neighbours() {
    model(|| {
        let pool = pool();
        let leaf = pool.alloc_leaf().expect("room");
        assert!(put(&pool, leaf, 0, 1) && put(&pool, leaf, 1, 2));
        let other = Arc::clone(&pool);
        let thread = thread::spawn(move || other.cell(leaf, 0).expect("ours").clear());
        pool.cell(leaf, 1).expect("ours").clear();
        thread.join().expect("the other free");
        assert_eq!(pool.check().expect("no defect").objects, 0);
        assert_eq!(pool.stats().mem_used_total, 0, "released once, by the last");
    });
}

#[test]
fn allocation_against_release() {
    model(|| {
        let pool = pool();
        let leaf = pool.alloc_leaf().expect("room");
        assert!(put(&pool, leaf, 0, 1));
        let other = Arc::clone(&pool);
        let thread = thread::spawn(move || assert!(put(&other, leaf, 1, 2)));
        pool.cell(leaf, 0).expect("ours").clear();
        thread.join().expect("the allocation");
        expect(&pool, leaf, 1, 2);
        assert_eq!(pool.check().expect("no defect").objects, 1);
        assert_eq!(pool.stats().mem_used_total, 4096);
    });
}

#[test]
fn write_against_clear_of_one_cell() {
    model(|| {
        let pool = pool();
        let leaf = pool.alloc_leaf().expect("room");
        assert!(put(&pool, leaf, 0, 1));
        let other = Arc::clone(&pool);
        let thread = thread::spawn(move || other.cell(leaf, 0).expect("ours").clear());
        assert!(put(&pool, leaf, 0, 2));
        thread.join().expect("the clear");
        let cell = pool.cell(leaf, 0).expect("ours");
        let left = u64::from(cell.content() != Content::Empty);
        assert!(matches!(cell.bytes(), None | Some([2, ..])), "the old object is gone");
        drop(cell);
        assert_eq!(pool.check().expect("no defect").objects, left);
    });
}

/// Without the look at the owner after locking, the object of a late writer would stay in a leaf
/// that was given back.
#[test]
fn late_write_against_drain_and_next_owner() {
    model(|| {
        let pool = pool();
        let leaf = pool.alloc_leaf().expect("room");
        assert!(put(&pool, leaf, 0, 1));
        let other = Arc::clone(&pool);
        let drainer = thread::spawn(move || other.free_leaf(leaf, |_| {}).expect("ours"));
        let written = put(&pool, leaf, 0, 2);
        drainer.join().expect("drainer");
        assert_eq!(pool.check().expect("no defect").objects, 0, "written: {written}");
        let next = pool.alloc_leaf().expect("room");
        let cell = pool.cell(next, 0).expect("ours");
        assert_eq!(cell.content(), Content::Empty, "the next owner finds it empty");
    });
}

/// A leaf's page is discarded under all its locks: were it not, the lock bit of a thread whose
/// number has just gone stale could vanish, and its unlocking wipe out what the next owner stored.
/// Three threads, because each switch to one that goes on by itself is a preemption less.
#[test]
fn number_gone_stale_against_discard_and_next_owner() {
    model(|| {
        let pool = pool();
        let leaf = pool.alloc_leaf().expect("room");
        let other = Arc::clone(&pool);
        let drainer = thread::spawn(move || other.free_leaf(leaf, |_| {}).expect("ours"));
        let other = Arc::clone(&pool);
        let next = thread::spawn(move || {
            drainer.join().expect("drainer");
            other.memory().release(0);
            let next = other.alloc_leaf().expect("room");
            assert!(put(&other, next, 0, 5));
            next
        });
        drop(pool.cell(leaf, 0));
        let next = next.join().expect("the next owner");
        expect(&pool, next, 0, 5);
        assert_eq!(pool.check().expect("no defect").objects, 1);
    });
}

/// The same with a leaf whose pool ended: were its words stored over, not exchanged, the unlocking
/// of the thread whose number is stale could bring one back.
#[test]
fn number_gone_stale_against_the_end_of_the_next_owner() {
    model(|| {
        let memory = memory();
        let (first, second) = (pool_on(&memory, config(1, 1)), pool_on(&memory, config(1, 1)));
        let leaf = first.alloc_leaf().expect("room");
        let other = Arc::clone(&first);
        let stale = thread::spawn(move || drop(other.cell(leaf, 0)));
        first.free_leaf(leaf, |_| {}).expect("ours");
        let theirs = second.alloc_leaf().expect("room");
        second.cell(theirs, 0).expect("ours").put_value(1, 9);
        second.retire([theirs].into_iter());
        drop(second);
        let again = first.alloc_leaf().expect("room");
        assert_eq!(first.peek(again, 0), Some(Content::Empty));
        stale.join().expect("the late thread");
        assert_eq!(first.peek(again, 0), Some(Content::Empty));
    });
}

/// A number that names a leaf of handles is refused before it can touch a cell's lock bit: were it
/// set, its unlocking could put the word back that the cell had before a free, or an allocation.
/// One class has all the entries, and the word of an object with slack is no link of a chain.
#[test]
fn made_up_number_against_the_handle_chain() {
    model(|| {
        let pool = pool_on(&memory(), config(1, 1));
        let alloc = |byte| pool.alloc(&[byte; SIZE - 1]).expect("room");
        let handle = alloc(1);
        let other = Arc::clone(&pool);
        let first = LeafId::new(1).expect("not 0");
        let stranger = thread::spawn(move || assert!(other.cell(first, 0).is_err()));
        pool.free_handle(handle).expect("ours");
        stranger.join().expect("the stranger");
        assert_eq!(pool.check().expect("no defect").objects, 0);
        let both = [2, 3].map(alloc);
        assert_eq!(pool.stats().handle_leaves, 1, "the chain is whole: two cells in one leaf");
        for (handle, byte) in both.into_iter().zip([2, 3]) {
            assert_eq!(pool.read(&handle).expect("ours")[..], [byte; SIZE - 1]);
            pool.free_handle(handle).expect("ours");
        }
    });
}
