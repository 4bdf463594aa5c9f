//! Objects of sparse zspages join those of larger classes.
//!
//! Claims
//! - as many join as save a frame: all of a zspage, or those in its last frame;
//! - they read as before, are freed as before, and `check()` finds nothing.
#![cfg(not(loom))]

#[path = "support/designs.rs"]
mod designs;

use std::sync::Arc;

use ramfold_zsmalloc::{Handle, Memory, MemoryConfig, Pool, PoolConfig, Rule};

/// A pool with the kernel's classes, 16 bytes apart.
fn pool(config: PoolConfig) -> Arc<Pool> {
    let memory = MemoryConfig {
        arena_frames: 1 << 14,
        entries_max: 1 << 12,
        expected_bytes: 64 << 20,
        worker: false,
    };
    let memory = Memory::new(memory).expect("address space");
    Pool::new(memory, PoolConfig { rule: Rule::LeastWaste, ..config }).expect("a pool")
}

type Stored = Vec<(Handle, Vec<u8>)>;

/// Objects of these lengths, each of bytes of its own.
fn store(pool: &Pool, lengths: impl Iterator<Item = usize>) -> Stored {
    let bytes = lengths.enumerate().map(|(seed, len)| vec![seed as u8; len]);
    bytes.map(|bytes| (pool.alloc(&bytes).expect("room"), bytes)).collect()
}

/// Reads and frees all there is.
fn expect_all(pool: &Pool, stored: Stored) {
    assert_eq!(pool.check().expect("no defect").objects, stored.len() as u64);
    for (handle, bytes) in stored {
        assert_eq!(*pool.read(&handle).expect("ours"), bytes[..]);
        pool.free_handle(handle).expect("ours");
    }
    pool.check().expect("no defect");
    assert_eq!(pool.stats().mem_used_total, 0);
}

/// One lock for all classes leaves no second one to take.
#[cfg(feature = "study")]
fn may_join(config: PoolConfig) -> bool {
    config.study.design != ramfold_zsmalloc::study::LockDesign::Pool
}

#[cfg(not(feature = "study"))]
fn may_join(_: PoolConfig) -> bool {
    true
}

/// Each class would have a zspage, of which one object takes a frame at least.
#[test]
fn a_few_objects_of_many_classes_share_frames() {
    for config in designs::all() {
        let pool = pool(config);
        let objects = store(&pool, (1000..2000).step_by(16));
        let before = pool.stats().object_bytes_resident;
        let freed = pool.compact();
        let stats = pool.stats();
        assert_eq!(stats.pages_compacted, freed);
        if may_join(config) {
            assert!(stats.object_bytes_resident < before * 2 / 3, "{stats:?} of {before}");
        } else {
            assert_eq!((freed, stats.object_bytes_resident), (0, before));
        }
        expect_all(&pool, objects);
    }
}

/// The sizes of the classes that have objects, and how many.
fn classes(pool: &Pool) -> Vec<(usize, u64)> {
    let rows = pool.class_table().rows.into_iter();
    rows.filter(|row| row.obj_used > 0).map(|row| (row.size, row.obj_used)).collect()
}

/// A fourth object beside the three of the larger class would reach into a second frame. An object
/// of 32 bytes would leave a third of a slot of 48.
#[test]
fn objects_stay_that_would_save_no_frame_or_leave_too_much_of_a_slot() {
    for lengths in [vec![1200, 1248, 1248, 1248], vec![32, 48]] {
        let pool = pool(PoolConfig::default());
        let objects = store(&pool, lengths.into_iter());
        let before = classes(&pool);
        assert_eq!((before.len(), pool.compact()), (2, 0));
        assert_eq!(classes(&pool), before);
        expect_all(&pool, objects);
    }
}

/// Three of 1568 bytes reach into a second frame, and one of them fits beside 17 of 1584 bytes.
#[test]
fn as_many_objects_join_a_larger_class_as_save_a_frame() {
    let pool = pool(PoolConfig::default());
    let objects = store(&pool, [1568; 3].into_iter().chain([1584; 17]));
    assert_eq!(pool.stats().object_bytes_resident, (2 + 7) * 4096);
    pool.compact();
    assert_eq!(pool.stats().object_bytes_resident, (1 + 7) * 4096);
    let rows = pool.class_table().rows;
    let used = |size| rows.iter().find(|row| row.size == size).map(|row| row.obj_used);
    assert_eq!((used(1568), used(1584)), (Some(2), Some(18)));
    expect_all(&pool, objects);
}
