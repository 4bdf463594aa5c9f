//! Frees that lag behind.
//!
//! Claims
//! - a free is done as many frees later as the lag says, or when a thread asks;
//! - what the pool says of itself, and whether it has room, is as if none lagged;
//! - whichever threads free and flush, each object is freed once, and the end of the pool leaves
//!   none.
#![cfg(not(any(loom, shuttle)))]

#[path = "support/designs.rs"]
mod designs;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ramfold_zsmalloc::{
    AllocError, Handle, Memory, MemoryConfig, MemoryError, Pool, PoolConfig, SIZE_MAX,
};

const FRAME: u64 = SIZE_MAX as u64;

fn memory() -> Arc<Memory> {
    let (arena_frames, entries_max, expected_bytes) = (1 << 12, 1 << 16, 64 << 20);
    Memory::new(MemoryConfig { arena_frames, entries_max, expected_bytes, worker: false })
        .expect("address space")
}

fn pool_of(memory: &Arc<Memory>, lag: usize) -> Arc<Pool> {
    Pool::new(Arc::clone(memory), PoolConfig { lag, ..PoolConfig::default() }).expect("a pool")
}

/// Objects of a frame each.
fn frames(pool: &Pool, count: usize) -> Vec<Handle> {
    (0..count).map(|at| pool.alloc(&[at as u8; SIZE_MAX]).expect("room")).collect()
}

fn in_use(memory: &Memory) -> u64 {
    let zone = memory.check_zone().expect("no defect");
    zone.allocated_frames - zone.listed_frames
}

#[test]
fn a_free_is_done_as_many_frees_later_as_the_lag_says() {
    for lag in [0, 1, 2, 4, 8] {
        let memory = memory();
        let pool = pool_of(&memory, lag);
        for (freed, handle) in (1..).zip(frames(&pool, 20)) {
            pool.free_handle(handle).expect("ours");
            assert_eq!(in_use(&memory), 20 - freed + freed.min(lag as u64), "lag {lag}");
        }
        pool.flush_deferred();
        assert_eq!(in_use(&memory), 0, "lag {lag}");
    }
}

#[test]
fn other_lags_are_refused() {
    for lag in [3, 5, 7, 9, 16, usize::MAX] {
        let config = PoolConfig { lag, ..PoolConfig::default() };
        let refused = Pool::new(memory(), config).expect_err("no power of two up to 8");
        assert!(matches!(refused, MemoryError::BadConfig { .. }), "{lag}: {refused:?}");
    }
}

#[test]
fn what_a_pool_says_is_as_if_no_free_lagged() {
    type Ask = fn(&Pool) -> u64;
    let asked: [(&str, Ask); 6] = [
        ("stats", |pool| pool.stats().mem_used_total / FRAME),
        ("resident", |pool| pool.object_bytes_resident() / FRAME),
        ("classes", |pool| pool.class_table().total().pages_used),
        ("check", |pool| pool.check().expect("no defect").objects),
        ("zspages", |pool| pool.zspages().len() as u64),
        ("max", |pool| {
            pool.reset_mem_used_max();
            pool.stats().mem_used_max / FRAME
        }),
    ];
    for (name, ask) in asked {
        let pool = pool_of(&memory(), 8);
        for (freed, handle) in (1..).zip(frames(&pool, 20)) {
            pool.free_handle(handle).expect("ours");
            assert_eq!(ask(&pool), 20 - freed, "{name}");
        }
    }
    let freeable = |lag| {
        let pool = pool_of(&memory(), lag);
        let handles: Vec<Handle> =
            (0..24).map(|at| pool.alloc(&[at; 2000]).expect("room")).collect();
        let (freed, kept): (Vec<_>, Vec<_>) =
            handles.into_iter().enumerate().partition(|(at, _)| at.is_multiple_of(2));
        freed.into_iter().for_each(|(_, handle)| pool.free_handle(handle).expect("ours"));
        let freeable = pool.freeable_frames();
        pool.free_batch(kept.into_iter().map(|(_, handle)| handle)).expect("ours");
        freeable
    };
    assert!(freeable(0) > 0, "half of the slots");
    assert_eq!(freeable(8), freeable(0));
}

#[test]
fn room_that_was_freed_is_there_for_the_next_store() {
    let memory = memory();
    let pool = pool_of(&memory, 8);
    pool.set_limit(16 * FRAME);
    let mut handles = frames(&pool, 16);
    for round in 0..40 {
        let refused = pool.alloc(&[1; SIZE_MAX]).expect_err("17 frames");
        assert_eq!(refused, AllocError::OverLimit { limit: 16 * FRAME });
        pool.free_handle(handles.remove(0)).expect("ours");
        handles.push(pool.alloc(&[round; SIZE_MAX]).expect("a frame was freed"));
    }
    pool.set_limit(0);
    // And where no frame is left in the arena.
    handles.extend(std::iter::from_fn(|| pool.alloc(&[2; SIZE_MAX]).ok()));
    assert_eq!(handles.len(), 1 << 12, "all frames");
    pool.free_handle(handles.remove(0)).expect("ours");
    handles.push(pool.alloc(&[3; SIZE_MAX]).expect("a frame was freed"));
    pool.free_batch(handles).expect("ours");
}

#[test]
fn the_end_of_a_pool_leaves_nothing() {
    let memory = memory();
    for kept in [0, 3] {
        let pool = pool_of(&memory, 8);
        let mut handles = frames(&pool, 12);
        let out = handles.split_off(12 - kept);
        handles.into_iter().for_each(|handle| pool.free_handle(handle).expect("ours"));
        drop(pool);
        assert_eq!(in_use(&memory), 0, "{kept} handles are out");
        drop(out);
    }
    memory.check_free_held().expect("every resident frame is free");
}

/// More threads than lines, so that some share one; and one that flushes all the time.
#[test]
fn each_object_is_freed_once_whoever_frees_and_flushes() {
    for config in designs::all() {
        let config = PoolConfig { lag: 4, ..config };
        let pool = Pool::new(memory(), config).expect("a pool");
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let threads: Vec<_> = (0..40)
                .map(|seed: usize| {
                    let pool = &pool;
                    scope.spawn(move || {
                        for round in 0..50 {
                            let len = 1 + (seed * 97 + round * 61) % SIZE_MAX;
                            let of = |at: usize| vec![(seed + round + at) as u8; len];
                            let handles: Vec<Handle> =
                                (0..9).map(|at| pool.alloc(&of(at)).expect("room")).collect();
                            for (at, handle) in handles.into_iter().enumerate().rev() {
                                assert_eq!(*pool.read(&handle).expect("ours"), of(at)[..]);
                                pool.free_handle(handle).expect("ours");
                            }
                        }
                    })
                })
                .collect();
            let (pool, over) = (&pool, &over);
            scope.spawn(move || {
                // relaxed: only ends the loop.
                while !over.load(Ordering::Relaxed) {
                    pool.check().expect("no defect");
                    pool.compact();
                }
            });
            threads.into_iter().for_each(|thread| thread.join().expect("it only stores"));
            // relaxed: as above.
            over.store(true, Ordering::Relaxed);
        });
        let found = pool.check().expect("no defect");
        assert_eq!((found.objects, found.zspages), (0, 0), "{config:?}");
    }
}
