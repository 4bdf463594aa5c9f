//! Sparse pageblocks are emptied, and everything stays what and whose it was.
//!
//! Claims
//! - what is left in sparse pageblocks fits into as few as its frames need, one more at most;
//! - an object in use keeps its pageblock, and only that one, for as long;
//! - what is resident does not grow for it;
//! - zspages of every pool of the memory move;
//! - a zspage takes as few frames as before, though those it moves to are touched;
//! - others store, read, free and release meanwhile.
#![cfg(not(loom))]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use buddy::PAGEBLOCK_FRAMES;
use ramfold_zsmalloc::{Handle, Memory, MemoryConfig, Pool, PoolConfig, Rule, SIZE_MAX};

const PAGEBLOCKS: u32 = 16;
const FRAMES: u32 = PAGEBLOCKS * PAGEBLOCK_FRAMES;

fn memory() -> Arc<Memory> {
    let config = MemoryConfig {
        arena_frames: FRAMES,
        entries_max: 1 << 20,
        expected_bytes: 1 << 30,
        worker: false,
    };
    Memory::new(config).expect("address space")
}

/// With the kernel's classes, so that every zspage finds a hole: fitted ones of these lengths take
/// 8 frames more often, for which there may be none.
fn pool(memory: &Arc<Memory>) -> Arc<Pool> {
    let config = PoolConfig { rule: Rule::LeastWaste, ..PoolConfig::default() };
    Pool::new(Arc::clone(memory), config).expect("a pool")
}

/// An object of a whole frame, or of less, that says which it is.
fn bytes(seed: usize) -> Vec<u8> {
    let len = if seed.is_multiple_of(3) { 1000 + seed % 2000 } else { SIZE_MAX };
    let mut bytes = vec![seed as u8; len];
    bytes[..8].copy_from_slice(&(seed as u64).to_le_bytes());
    bytes
}

type Kept = Vec<(usize, Handle)>;

/// Stores `count` objects from `first` on, and frees all but every tenth.
fn sparse(pool: &Pool, first: usize, count: usize) -> Kept {
    let all: Kept = (first..first + count)
        .map(|seed| (seed, pool.alloc(&bytes(seed)).expect("room")))
        .collect();
    let (kept, freed): (Kept, Kept) =
        all.into_iter().partition(|(seed, _)| (seed * 7 + seed / 64).is_multiple_of(10));
    pool.free_batch(freed.into_iter().map(|(_, handle)| handle)).expect("ours");
    kept
}

fn expect_all(pool: &Pool, kept: &Kept) {
    for (seed, handle) in kept {
        assert_eq!(*pool.read(handle).expect("ours"), bytes(*seed)[..], "object {seed}");
    }
    assert_eq!(pool.check().expect("no defect").objects, kept.len() as u64);
}

/// Pageblocks with frames in use.
fn in_use(memory: &Memory) -> u64 {
    memory.release(0);
    memory.check_zone().expect("no defect in the zone").online_pageblocks
}

#[test]
fn what_is_left_fits_into_few_pageblocks() {
    let memory = memory();
    let pool = pool(&memory);
    let kept = sparse(&pool, 0, 5000);
    let before = in_use(&memory);
    assert_eq!(memory.free_bytes_held(), 0, "the holes are untouched");
    let done = memory.evacuate();
    assert_eq!(memory.free_bytes_held(), 0, "what was emptied went back");
    expect_all(&pool, &kept);
    let (after, used) = (in_use(&memory), pool.stats().mem_used_total / 4096);
    assert_eq!(before - after, done.pageblocks - done.opened, "each emptied pageblock went back");
    assert!(
        after <= used.div_ceil(PAGEBLOCK_FRAMES.into()) + 1,
        "{used} frames in {after} of {before}"
    );
    assert_eq!(done.kept, 0);
    memory.check_free_held().expect("no defect in what is held");
    let again = memory.evacuate();
    assert_eq!((again.pageblocks, again.opened), (0, 0), "nothing is left to gain");
    pool.free_batch(kept.into_iter().map(|(_, handle)| handle)).expect("ours");
    assert_eq!(in_use(&memory), 0);
}

#[test]
fn objects_in_use_keep_their_pageblocks() {
    let memory = memory();
    let pool = pool(&memory);
    let kept = sparse(&pool, 0, 5000);
    let before = in_use(&memory);
    let readers: Vec<_> = kept.iter().map(|(_, handle)| pool.read(handle).expect("ours")).collect();
    let done = memory.evacuate();
    assert_eq!((done.pageblocks, done.frames), (0, 0));
    assert!(done.kept > 0, "{done:?}");
    drop(readers);
    assert_eq!(in_use(&memory), before);
    assert!(memory.evacuate().pageblocks > 0);
    expect_all(&pool, &kept);
}

#[test]
fn every_pool_of_the_memory_moves() {
    let memory = memory();
    let pools = [pool(&memory), pool(&memory)];
    let kept = [0, 1].map(|which| sparse(&pools[which], which * 10_000, 2500));
    let before = pools.each_ref().map(|pool| pool.zspages());
    let done = memory.evacuate();
    assert!(done.pageblocks > 0, "{done:?}");
    for ((pool, kept), before) in pools.iter().zip(&kept).zip(before) {
        assert_ne!(pool.zspages(), before, "some of each pool's moved");
        expect_all(pool, kept);
    }
}

/// Compaction packs the last zspage of each class, so that it costs the frames that its objects
/// reach. Holes of fuller pageblocks were in use a moment ago, and all of their frames are touched:
/// with 119 such zspages, evacuation undid what packing had gained and more.
#[test]
fn packed_zspages_stay_packed() {
    let compacted = |evacuation: bool| {
        let memory = memory();
        memory.set_evacuation(evacuation);
        let pool = pool(&memory);
        let kept = sparse(&pool, 0, 5000);
        pool.compact();
        expect_all(&pool, &kept);
        memory.check_free_held().expect("no defect in what is held");
        (in_use(&memory), pool.stats())
    };
    let ((before, left), (after, moved)) = (compacted(false), compacted(true));
    assert!(after < before, "nothing was evacuated");
    assert!(left.object_bytes_resident < left.mem_used_total, "nothing was packed");
    assert_eq!(moved.object_bytes_resident, left.object_bytes_resident);
}

#[test]
fn others_go_on_meanwhile() {
    let memory = memory();
    let pool = pool(&memory);
    let kept = sparse(&pool, 0, 4000);
    let (stop, pageblocks) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            // relaxed: only ends the loop.
            while !stop.load(Ordering::Relaxed) {
                // relaxed: a count for the thread that waits for it.
                pageblocks.fetch_add(memory.evacuate().pageblocks, Ordering::Relaxed);
                memory.release(0);
            }
        });
        // relaxed: as above.
        let evacuated = || pageblocks.load(Ordering::Relaxed) > 0;
        // More rounds only where the other thread is not let run.
        for round in (1..40).chain((1..40).cycle().take(4000).take_while(|_| !evacuated())) {
            let come_and_gone = sparse(&pool, round * 100_000, 300);
            for (seed, handle) in kept.iter().chain(&come_and_gone).step_by(round) {
                assert_eq!(*pool.read(handle).expect("ours"), bytes(*seed)[..], "object {seed}");
            }
            pool.free_batch(come_and_gone.into_iter().map(|(_, handle)| handle)).expect("ours");
        }
        // relaxed: only ends the loop.
        stop.store(true, Ordering::Relaxed);
        assert!(evacuated(), "nothing was evacuated");
    });
    expect_all(&pool, &kept);
    memory.check_zone().expect("no defect in the zone");
    memory.check_free_held().expect("no defect in what is held");
}
