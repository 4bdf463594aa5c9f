//! Objects that are freed later: by which thread, when, and what is counted meanwhile.
//!
//! Claims
//! - what is pending counts as stored until it is drained, byte for byte, and `check()` agrees;
//! - compaction, a store that finds no room, the worker and the end of the pool drain it;
//! - a cell that was cleared takes the next object, whatever is pending of the last.
#![cfg(not(any(loom, shuttle)))]

#[path = "support/designs.rs"]
mod designs;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ramfold_zsmalloc::deferred::QueueConfig;
use ramfold_zsmalloc::{
    AllocError, Content, Handle, Memory, MemoryConfig, Pool, PoolConfig, SIZE_MAX,
};

fn memory(worker: bool) -> Arc<Memory> {
    let config = MemoryConfig {
        arena_frames: 1 << 14,
        entries_max: 1 << 20,
        expected_bytes: 64 << 20,
        worker,
    };
    Memory::new(config).expect("address space")
}

fn pool_with(memory: &Arc<Memory>, config: PoolConfig) -> Arc<Pool> {
    Pool::new(Arc::clone(memory), config).expect("a pool")
}

fn pool() -> Arc<Pool> {
    pool_with(&memory(false), PoolConfig::default())
}

fn fill(pool: &Pool, count: usize, len: usize) -> Vec<Handle> {
    (0..count).map(|at| pool.alloc(&vec![at as u8; len]).expect("room")).collect()
}

fn free_all(pool: &Pool, handles: Vec<Handle>) {
    handles.into_iter().for_each(|handle| pool.free_deferred(handle).expect("ours"));
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_is_pending_counts_as_stored_until_it_is_flushed() {
    let pool = pool();
    let before = pool.stats().class_bytes;
    free_all(&pool, fill(&pool, 700, 1000));
    let stats = pool.stats();
    assert_eq!((stats.pending_objects, stats.pending_bytes), (700, 700_000));
    assert!(stats.object_bytes_resident >= 700_000, "it lies in touched frames");
    assert!(stats.class_bytes > before, "the queue is counted, and was not there before");
    let found = pool.check().expect("no defect");
    assert_eq!((found.objects, found.pending, found.in_flight), (700, 700, 0));
    assert_eq!(pool.flush_deferred(), 700);
    let stats = pool.stats();
    assert_eq!((stats.pending_objects, stats.pending_bytes, stats.mem_used_total), (0, 0, 0));
    assert_eq!(pool.check().expect("no defect").objects, 0);
}

#[test]
fn compaction_begins_with_what_is_pending() {
    for shrink in [false, true] {
        let pool = pool();
        let mut handles = fill(&pool, 2000, 1000);
        let kept: Vec<Handle> = handles.split_off(1990);
        free_all(&pool, handles);
        let used = pool.stats().mem_used_total;
        if shrink {
            pool.shrink(1)
        } else {
            pool.compact()
        };
        assert!(pool.stats().mem_used_total < used / 8);
        assert_eq!(pool.check().expect("no defect").objects, kept.len() as u64);
    }
}

#[test]
fn a_store_at_the_limit_flushes_and_tries_again() {
    let pool = pool();
    pool.set_limit(100 * 4096);
    let mut handles = fill(&pool, 100, SIZE_MAX);
    assert!(matches!(pool.alloc(&[1; SIZE_MAX]), Err(AllocError::OverLimit { .. })));
    free_all(&pool, handles.split_off(60));
    assert_eq!(pool.stats().object_bytes_resident, 100 * 4096, "pending is used");
    handles.push(pool.alloc(&[1; SIZE_MAX]).expect("what was pending makes room"));
    assert_eq!(pool.stats().pending_objects, 0);
    assert!(matches!(pool.store(&[]), Err(AllocError::BadLength { len: 0 })));
    assert_eq!(pool.check().expect("no defect").objects, 61);
}

#[test]
fn an_arena_without_frames_is_relieved_too() {
    let config =
        MemoryConfig { arena_frames: 512, entries_max: 1 << 12, expected_bytes: 0, worker: false };
    let memory = Memory::new(config).expect("address space");
    let pool = pool_with(&memory, PoolConfig { shards: Some(1), ..PoolConfig::default() });
    let mut handles: Vec<Handle> = std::iter::from_fn(|| pool.alloc(&[1; SIZE_MAX]).ok()).collect();
    free_all(&pool, handles.split_off(1));
    handles.push(pool.alloc(&[2; 100]).expect("frames are pending"));
    assert_eq!(pool.check().expect("no defect").objects, 2);
}

#[test]
fn without_room_objects_are_freed_at_once() {
    let deferred = QueueConfig { shards: Some(1), buffer_bytes: 0, pending_bytes_max: 64 << 20 };
    let pool = pool_with(&memory(false), PoolConfig { deferred, ..PoolConfig::default() });
    free_all(&pool, fill(&pool, 600, 100));
    let meters = pool.deferred();
    assert_eq!((meters.pending_values, meters.fallbacks), (512, 88), "one page of 8-byte values");
    assert_eq!(pool.check().expect("no defect").objects, 512);
}

#[test]
fn the_worker_frees_full_buffers_and_then_the_rest() {
    let memory = memory(true);
    let pool = pool_with(&memory, PoolConfig::default());
    let kept = fill(&pool, 10, 700);
    let handles = fill(&pool, 3000, 700);
    free_all(&pool, handles);
    wait_until("everything is freed", || pool.deferred().pending_values == 0);
    wait_until("the pool is at rest", || pool.is_settled());
    assert_eq!(pool.check().expect("no defect").objects, kept.len() as u64);
    assert_eq!(memory.worker().panicked, 0);
}

#[test]
fn the_end_of_a_pool_is_the_end_of_what_is_pending() {
    let memory = memory(false);
    let pool = pool_with(&memory, PoolConfig::default());
    free_all(&pool, fill(&pool, 900, 1200));
    let leaf = pool.alloc_leaf().expect("room");
    let object = pool.store(&[1; 300]).expect("room");
    pool.cell(leaf, 1).expect("ours").put(object);
    pool.cell(leaf, 1).expect("ours").clear_deferred();
    pool.free_leaf(leaf, |_| {}).expect("ours");
    let cells = memory.cell_table_bytes();
    drop(pool);
    memory.check_zone().expect("no defect in the zone");
    memory.check_free_held().expect("no defect");
    memory.release(0);
    assert_eq!(memory.free_bytes_held(), 0);
    assert!(memory.cell_table_bytes() < cells, "no handle is out: their leaves went back");
}

#[test]
fn a_foreign_handle_comes_back() {
    let memory = memory(false);
    let [ours, theirs] = [1, 2].map(|_| pool_with(&memory, PoolConfig::default()));
    let handle = theirs.alloc(b"theirs").expect("room");
    let error = ours.free_deferred(handle).expect_err("not ours");
    theirs.free_deferred(error.0).expect("theirs");
    assert_eq!((ours.flush_deferred(), theirs.flush_deferred()), (0, 1));
}

/// In every design.
#[test]
fn cells_are_cleared_and_filled_again_while_their_objects_are_pending() {
    for config in designs::all() {
        let pool = pool_with(&memory(false), config);
        let leaf = pool.alloc_leaf().expect("room");
        let put = |index: usize, byte| {
            let object = pool.store(&[byte; 1500]).expect("room");
            pool.cell(leaf, index).expect("ours").put(object);
        };
        (0..200).for_each(|index| put(index, index as u8));
        for index in 0..180 {
            let mut cell = pool.cell(leaf, index).expect("ours");
            cell.set_client(5);
            cell.clear_deferred();
            assert_eq!((cell.content(), cell.client()), (Content::Empty, 5));
            cell.clear_deferred();
            drop(cell);
            if index % 10 == 0 {
                put(index, 201);
            }
        }
        let found = pool.check().expect("no defect");
        assert_eq!((found.objects, found.pending, found.in_flight), (218, 180, 0));
        // Migration finds no cell that names them, and leaves their zspages alone.
        for zspage in pool.zspages() {
            let frames = pool.memory().frames(zspage.frames).expect("room");
            let moved = pool.migrate(zspage.pfn, frames);
            assert!(moved.is_ok() || zspage.objects > 0);
        }
        pool.compact();
        let found = pool.check().expect("no defect");
        assert_eq!((found.objects, found.pending, found.in_flight), (38, 0, 0));
        for index in (0..180).step_by(10).chain(180..200) {
            let byte = if index < 180 { 201 } else { index as u8 };
            let cell = pool.cell(leaf, index).expect("ours");
            assert_eq!(cell.bytes(), Some(&[byte; 1500][..]), "cell {index}, {config:?}");
        }
    }
}

/// Values of a cell go at once.
#[test]
fn a_cell_without_an_object_defers_nothing() {
    let pool = pool();
    let leaf = pool.alloc_leaf().expect("room");
    let mut cell = pool.cell(leaf, 0).expect("ours");
    cell.put_value(1, 77);
    cell.clear_deferred();
    assert_eq!(cell.content(), Content::Empty);
    drop(cell);
    assert_eq!(pool.deferred().pending_values, 0);
}
