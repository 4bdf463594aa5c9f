//! What a pool says of its objects, against a list of them; and objects that free themselves.
//!
//! Claims: `objects`, `slot_bytes` and `stored_bytes` are those of the list after every operation;
//! a box frees its object once, whichever way it goes; a caller is shown bytes of earlier objects
//! only if it asked for them.

#![cfg(not(any(loom, shuttle)))]

use ramfold_zsmalloc::{AllocError, Handle, Memory, MemoryConfig, Pool, PoolBox, PoolConfig};
use std::sync::Arc;

fn memory(expected_bytes: u64) -> Arc<Memory> {
    let (arena_frames, entries_max) = (1 << 15, 1 << 16);
    let config = MemoryConfig { arena_frames, entries_max, expected_bytes, worker: false };
    Memory::new(config).expect("address space")
}

/// Each object is in a slot of its own class.
fn pool() -> Arc<Pool> {
    let config = PoolConfig { guests_below: 0, ..PoolConfig::default() };
    Pool::new(memory(64 << 20), config).expect("a pool")
}

#[track_caller]
fn assert_counts(pool: &Pool, lengths: &[usize]) {
    let (stats, geometry) = (pool.stats(), pool.geometry());
    let slot = |&len: &usize| {
        let class = geometry.class_of(len).expect("a length that was stored");
        u64::from(geometry.shape(class).size)
    };
    assert_eq!(stats.objects, lengths.len() as u64, "objects");
    assert_eq!(stats.slot_bytes, lengths.iter().map(slot).sum::<u64>(), "slot_bytes");
    let stored: u64 = lengths.iter().map(|&len| len as u64).sum();
    assert_eq!(pool.stored_bytes(), stored, "stored_bytes");
    assert_eq!(pool.check().expect("no defect").stored_bytes, stored, "stored_bytes of a check");
}

/// `PoolStats` had frames and leaves, and neither objects nor what they hold.
#[test]
fn the_counts_are_those_of_the_objects() {
    let pool = pool();
    let (mut handles, mut lengths): (Vec<Handle>, Vec<usize>) = Default::default();
    let mut random = 1u64;
    for round in 0..3000 {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let draw = (random >> 33) as usize;
        if draw.is_multiple_of(3) && !handles.is_empty() {
            let at = draw / 3 % handles.len();
            lengths.swap_remove(at);
            pool.free_handle(handles.swap_remove(at)).expect("ours");
        } else {
            let len = 1 + draw / 3 % 4096;
            handles.push(pool.alloc(&vec![7; len]).expect("room"));
            lengths.push(len);
        }
        if round % 500 == 0 {
            assert_counts(&pool, &lengths);
        }
    }
    // A third is freed together, and what is left is joined and packed.
    let left = handles.len() * 2 / 3;
    pool.free_batch(handles.drain(left..)).expect("ours");
    lengths.truncate(left);
    assert_counts(&pool, &lengths);
    pool.compact();
    let stats = pool.stats();
    assert_eq!(stats.objects, lengths.len() as u64, "objects after a compaction");
    let stored: usize = lengths.iter().sum();
    assert_eq!(pool.stored_bytes(), stored as u64, "stored_bytes after a compaction");
    assert!(stats.slot_bytes >= stored as u64, "an object fits its slot");
    pool.free_batch(handles).expect("ours");
    assert_counts(&pool, &[]);
}

#[test]
fn what_clients_keep_in_cells_counts_too() {
    let pool = pool();
    let leaf = pool.alloc_leaf().expect("a leaf");
    for (index, len) in [100, 2000].into_iter().enumerate() {
        let object = pool.store(&vec![9; len]).expect("room");
        assert_eq!(
            pool.stats().objects,
            index as u64 + 1,
            "an object that is not published counts"
        );
        pool.cell(leaf, index).expect("ours").put(object);
    }
    assert_counts(&pool, &[100, 2000]);
    pool.free_leaf(leaf, |_| {}).expect("ours");
    assert_counts(&pool, &[]);
}

/// A dropped handle leaves its object in the pool for good.
#[test]
fn a_box_frees_its_object_when_it_is_dropped() {
    let pool = pool();
    let boxes: Vec<PoolBox> = (1..100)
        .map(|len| PoolBox::new(&pool, &vec![len; len as usize * 40]).expect("room"))
        .collect();
    assert_eq!(pool.stats().objects, 99, "objects of boxes that are there");
    assert!(boxes.iter().enumerate().all(|(at, it)| it.read()[0] as usize == at + 1));
    drop(boxes);
    assert_eq!(pool.stats().objects, 0, "objects of boxes that were dropped");
    pool.check().expect("no defect");
}

#[test]
fn a_box_and_a_handle_are_made_of_each_other() {
    let (pool, other) = (pool(), pool_beside());
    let handle = PoolBox::new(&pool, b"kept").expect("room").into_handle();
    assert_eq!(pool.stats().objects, 1, "objects whose box gave the handle away");
    let handle = PoolBox::from_handle(&other, handle).expect_err("another pool's").0;
    assert_eq!(pool.stats().objects, 1, "objects whose handle was refused");
    let again = PoolBox::from_handle(&pool, handle).expect("ours");
    assert_eq!(*again.read(), b"kept"[..]);
    // The box keeps the pool.
    let weak = Arc::downgrade(&pool);
    drop(pool);
    assert_eq!(weak.upgrade().expect("its box has it").stats().objects, 1);
    drop(again);
    assert!(weak.upgrade().is_none(), "nobody has it any more");
}

fn pool_beside() -> Arc<Pool> {
    Pool::new(memory(0), PoolConfig::default()).expect("a pool")
}

/// What `alloc_with` handed to its caller held another client's bytes, where pools share a memory.
#[test]
fn an_object_that_is_filled_in_place_begins_as_zeros() {
    for len in [1, 100, 1000, 4096] {
        let memory = memory(64 << 20);
        let pools = [(); 2]
            .map(|()| Pool::new(Arc::clone(&memory), PoolConfig::default()).expect("a pool"));
        let secrets: Vec<Handle> =
            (0..50).map(|_| pools[0].alloc(&vec![0xA5; len]).expect("room")).collect();
        let others = (0..50).map(|_| pools[1].alloc(&vec![0xA5; len]).expect("room"));
        let others: Vec<Handle> = others.collect();
        pools[0].free_batch(secrets).expect("ours");
        pools[1].free_batch(others.into_iter().step_by(2)).expect("ours");
        for pool in &pools {
            let mut seen = vec![1];
            let handle = pool.alloc_with(len, |slot| {
                seen = slot.to_vec();
                slot[0] = 3;
            });
            assert_eq!(seen, vec![0; len], "what is shown to who fills {len} bytes");
            let mut written = vec![0; len];
            written[0] = 3;
            assert_eq!(*pool.read(&handle.expect("room")).expect("ours"), written[..]);
        }
    }
}

/// It was called `limit_bytes`; with 1 MiB, 150 MB were stored.
#[test]
fn what_is_expected_is_no_limit_and_the_pools_limit_is_one() {
    let pool = Pool::new(memory(1 << 20), PoolConfig::default()).expect("a pool");
    let page = [5; 4096];
    let handles: Vec<Handle> = (0..2048).map(|_| pool.alloc(&page).expect("no limit")).collect();
    let stored = pool.stored_bytes();
    assert_eq!(stored, 8 << 20, "bytes stored where 1 MiB was expected");
    pool.set_limit(stored);
    let refused = pool.alloc(&page);
    assert!(matches!(refused, Err(AllocError::OverLimit { .. })), "{refused:?}");
    pool.free_batch(handles).expect("ours");
}
