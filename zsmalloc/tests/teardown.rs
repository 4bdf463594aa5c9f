//! The end of pools.
//!
//! Claims
//! - a pool that is dropped with leaves retired gives back every object, frame and leaf, and what
//!   the next owner of a leaf finds is empty;
//! - pools that go on, and handles of theirs, are not touched by the end of another;
//! - leaves that are not the pool's are left alone; so many that they need not be kept go back to
//!   the system.
#![cfg(not(any(loom, shuttle)))]

use std::sync::Arc;

use proptest::prelude::*;
use ramfold_zsmalloc::{Content, LEAF_CELLS, LeafId, Memory, MemoryConfig, Pool, PoolConfig};

fn memory(worker: bool) -> Arc<Memory> {
    let config = MemoryConfig {
        arena_frames: 1 << 16,
        entries_max: 512 * LEAF_CELLS as u64,
        expected_bytes: 1 << 30,
        worker,
    };
    Memory::new(config).expect("address space")
}

fn pool(memory: &Arc<Memory>) -> Arc<Pool> {
    Pool::new(Arc::clone(memory), PoolConfig::default()).expect("a pool")
}

fn fill(pool: &Pool, leaf: LeafId, lens: impl Iterator<Item = usize>) {
    for (index, len) in lens.take(LEAF_CELLS).enumerate() {
        let mut cell = pool.cell(leaf, index).expect("ours");
        match len {
            0 => cell.put_value(3, index as u64),
            len => cell.put(pool.store(&vec![index as u8; len]).expect("room")),
        }
    }
}

#[track_caller]
fn expect_filled(pool: &Pool, leaf: LeafId, lens: impl Iterator<Item = usize>) {
    for (index, len) in lens.take(LEAF_CELLS).enumerate() {
        let cell = pool.cell(leaf, index).expect("ours");
        match len {
            0 => assert_eq!(cell.content(), Content::Value { tag: 3, value: index as u64 }),
            len => assert_eq!(cell.bytes(), Some(&vec![index as u8; len][..])),
        }
    }
}

/// What is in use of a memory: frames on their lists, of the zones, and in zspages.
#[track_caller]
fn expect_no_frame_in_use(memory: &Memory) {
    memory.check_free_held().expect("every resident frame is free");
    let zone = memory.check_zone().expect("no defect");
    assert_eq!(zone.allocated_frames, zone.listed_frames, "every frame is free");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn a_pool_takes_all_with_it_and_nothing_else(
        lens in prop::collection::vec(prop::collection::vec(0..4097_usize, 1..600), 2..6),
        kept in prop::collection::vec(0..4097_usize, 1..600),
        released in any::<bool>(),
    ) {
        let memory = memory(false);
        let (ends, stays) = (pool(&memory), pool(&memory));
        let kept_leaf = stays.alloc_leaf().expect("room");
        let leaves: Vec<LeafId> = lens.iter().map(|lens| {
            let leaf = ends.alloc_leaf().expect("room");
            fill(&ends, leaf, lens.iter().copied());
            leaf
        }).collect();
        fill(&stays, kept_leaf, kept.iter().copied());
        let handle = stays.alloc(b"kept").expect("room");
        // A leaf of another pool, and one that is named twice, are left alone.
        ends.retire(leaves.iter().copied().chain([kept_leaf, leaves[0]]));
        drop(ends);
        stays.check().expect("no defect");
        expect_filled(&stays, kept_leaf, kept.iter().copied());
        prop_assert_eq!(&*stays.read(&handle).expect("ours"), b"kept");
        if released {
            memory.release(0);
        }
        for _ in &leaves {
            let leaf = stays.alloc_leaf().expect("room");
            prop_assert!(leaves.contains(&leaf) , "leaves are used again");
            for index in 0..LEAF_CELLS {
                prop_assert_eq!(stays.peek(leaf, index), Some(Content::Empty));
            }
            stays.free_leaf(leaf, |_| {}).expect("ours");
        }
        stays.free_handle(handle).expect("ours");
        stays.free_leaf(kept_leaf, |_| {}).expect("ours");
        drop(stays);
        expect_no_frame_in_use(&memory);
    }
}

#[test]
fn many_leaves_go_back_to_the_system() {
    for worker in [false, true] {
        let memory = memory(worker);
        let before = memory.cell_table_bytes();
        let pool = pool(&memory);
        let leaves: Vec<_> = (0..300).map(|_| pool.alloc_leaf().expect("room")).collect();
        leaves.iter().for_each(|&leaf| fill(&pool, leaf, [7, 0, 9].into_iter()));
        assert!(memory.cell_table_bytes() - before >= 300 * 4096);
        pool.retire(leaves.into_iter());
        drop(pool);
        memory.flush_deferred();
        let held = memory.cell_table_bytes() - before;
        // Owners and words stay: a cache line and four bytes a leaf.
        assert!(held < 32 << 10, "{held} bytes of table for nothing, worker: {worker}");
        expect_no_frame_in_use(&memory);
    }
}
