//! Objects of a small pool that are guests in slots of larger classes.
//!
//! Claims
//! - a guest touches no frame: objects of neighbouring classes share frames before any compaction;
//! - it reads as it was written, is freed from where it is, moves with its zspage's other objects,
//!   and `check()` finds nothing;
//! - there is none in a pool by a kernel's rule, in one that is not to have any, or in a large one.
#![cfg(not(loom))]

use std::sync::Arc;

use ramfold_zsmalloc::{Handle, Memory, MemoryConfig, Pool, PoolConfig, Rule};

const PAGE_SIZE: u64 = 4096;

fn pool(config: PoolConfig) -> Arc<Pool> {
    let memory = MemoryConfig {
        arena_frames: 1 << 14,
        entries_max: 1 << 14,
        expected_bytes: 64 << 20,
        worker: false,
    };
    Pool::new(Memory::new(memory).expect("address space"), config).expect("a pool")
}

type Stored = Vec<(Handle, Vec<u8>)>;

/// An object of each length, with bytes of its own.
fn store(pool: &Pool, lengths: impl Iterator<Item = usize>) -> Stored {
    let bytes = lengths.enumerate().map(|(seed, len)| vec![seed as u8; len]);
    bytes.map(|bytes| (pool.alloc(&bytes).expect("room"), bytes)).collect()
}

fn expect_content(pool: &Pool, stored: &Stored) {
    let found = pool.check().expect("no defect");
    assert_eq!(found.objects, stored.len() as u64);
    assert_eq!(found.stored_bytes, stored.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>());
    for (handle, bytes) in stored {
        assert_eq!(*pool.read(handle).expect("ours"), bytes[..]);
    }
}

/// Objects in slots of a class larger than need be.
fn guests(pool: &Pool, stored: &Stored) -> u64 {
    let geometry = pool.geometry();
    let own = |len: usize| geometry.class_of(len).map(|class| geometry.shape(class).size);
    pool.class_table()
        .rows
        .iter()
        .map(|row| {
            let of_class =
                |(_, bytes): &&(Handle, Vec<u8>)| own(bytes.len()) == Some(row.size as u16);
            row.obj_used.saturating_sub(stored.iter().filter(of_class).count() as u64)
        })
        .sum()
}

/// One object of each of many classes: without guests each touches a frame of its own.
fn lengths() -> impl Iterator<Item = usize> {
    (600..2000).step_by(10).rev()
}

#[test]
fn objects_of_neighbouring_classes_share_frames() {
    let (small, without) = (
        pool(PoolConfig::default()),
        pool(PoolConfig { guests_below: 0, ..PoolConfig::default() }),
    );
    let (mut stored, alone) = (store(&small, lengths()), store(&without, lengths()));
    expect_content(&small, &stored);
    assert!(guests(&small, &stored) > 0);
    assert_eq!(guests(&without, &alone), 0);
    let resident = |pool: &Pool| pool.stats().object_bytes_resident;
    assert!(resident(&small) * 10 < resident(&without) * 9, "{} bytes", resident(&small));
    // Every third one goes, whichever slot it is in, and the others move.
    let mut at = 0;
    let (gone, kept): (Stored, Stored) = stored.drain(..).partition(|_| {
        at += 1;
        at % 3 == 0
    });
    gone.into_iter().for_each(|(handle, _)| small.free_handle(handle).expect("ours"));
    small.compact();
    expect_content(&small, &kept);
    small.free_batch(kept.into_iter().map(|(handle, _)| handle)).expect("ours");
    assert_eq!((small.check().expect("no defect").objects, resident(&small)), (0, 0));
    without.free_batch(alone.into_iter().map(|(handle, _)| handle)).expect("ours");
}

/// What the limit allows without guests is allowed with them, too, and no frame more.
#[test]
fn a_guest_needs_no_frame_that_the_limit_would_have_to_allow() {
    let pool = pool(PoolConfig::default());
    let mut stored = store(&pool, std::iter::once(1010));
    pool.set_limit(PAGE_SIZE);
    // Its own class has no zspage, and there may be no frame for one.
    stored.extend(store(&pool, std::iter::once(1000)));
    assert_eq!(guests(&pool, &stored), 1);
    assert_eq!(pool.stats().object_bytes_resident, PAGE_SIZE);
    expect_content(&pool, &stored);
}

/// The next slot of either class would touch a frame, and the limit allows none.
#[test]
fn a_slot_that_touches_a_frame_takes_no_guest() {
    let pool = pool(PoolConfig::default());
    let stored = store(&pool, [1280; 3].into_iter().chain([1310; 3]));
    assert_eq!(pool.stats().object_bytes_resident, 2 * PAGE_SIZE);
    pool.set_limit(2 * PAGE_SIZE);
    assert!(pool.alloc(&[1; 1280]).is_err());
    expect_content(&pool, &stored);
}

#[test]
fn no_object_is_a_guest_that_would_leave_much_of_a_slot() {
    let pool = pool(PoolConfig::default());
    let stored = store(&pool, [48, 32].into_iter());
    assert_eq!(guests(&pool, &stored), 0);
}

#[test]
fn no_object_is_a_guest_by_a_kernels_rule() {
    for rule in Rule::KERNEL {
        let pool = pool(PoolConfig { rule, ..PoolConfig::default() });
        let stored = store(&pool, lengths());
        assert_eq!(guests(&pool, &stored), 0, "{rule}");
    }
}

#[test]
fn no_object_is_a_guest_in_a_large_pool() {
    let pool = pool(PoolConfig { guests_below: 64 * PAGE_SIZE, ..PoolConfig::default() });
    let stored = store(&pool, std::iter::repeat_n(4096, 64).chain(lengths()));
    assert_eq!(guests(&pool, &stored), 0);
}
