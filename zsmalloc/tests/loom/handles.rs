//! Scenarios of handles: pins, frees without a cell's lock, migration, raw handles, the shrinker.

use super::{SIZE, config, memory, model, pool, pool_on, pool_with};
use loom::thread;
use ramfold_zsmalloc::study::LockDesign;
use ramfold_zsmalloc::{AllocError, Handle, MigrateError, Pfn, Pool, StaleHandle};
use std::sync::Arc;

/// Handles to one object in each of two zspages: what compaction would merge. Whichever moves comes
/// to a slot of the same number.
pub(super) fn two_sparse(pool: &Pool) -> (Handle, Handle) {
    let mut all = [0, 1, 3, 4].map(|byte| Some(pool.alloc(&[byte; SIZE]).expect("room")));
    for gone in [0, 3] {
        pool.free_handle(all[gone].take().expect("once")).expect("ours");
    }
    let [_, one, two, _] = all;
    (one.expect("kept"), two.expect("kept"))
}

#[track_caller]
pub(super) fn expect(pool: &Pool, handle: &Handle, byte: u8) {
    assert_eq!(pool.read(handle).expect("ours")[..], [byte; SIZE]);
}

pub(super) fn check(pool: &Pool, objects: u64) {
    assert_eq!(pool.check().expect("no defect").objects, objects);
}

/// The first frame of the zspage, of two, that holds object `byte`.
pub(super) fn pfns(pool: &Pool) -> Vec<Pfn> {
    pool.zspages().iter().map(|zspage| zspage.pfn).collect()
}

/// One of the two moves: each is read, in a model of its own.
fn read_against_compaction(design: LockDesign) {
    for byte in [1, 3] {
        model(move || {
            let pool = pool_with(design);
            let (one, two) = two_sparse(&pool);
            let other = Arc::clone(&pool);
            let mover = thread::spawn(move || other.compact());
            // Held while the slot it was read from may be given away and written again.
            let guard = pool.read(if byte == 1 { &one } else { &two }).expect("ours");
            let third = pool.alloc(&[5; SIZE]).expect("room");
            assert_eq!(guard[..], [byte; SIZE]);
            drop(guard);
            mover.join().expect("mover");
            for (handle, byte) in [(&one, 1), (&two, 3), (&third, 5)] {
                expect(&pool, handle, byte);
            }
            check(&pool, 3);
        });
    }
}

#[test]
fn pin_against_compaction() {
    read_against_compaction(LockDesign::Class);
}

#[test]
fn pin_against_compaction_with_one_lock() {
    read_against_compaction(LockDesign::Pool);
}

#[test]
fn pin_against_compaction_with_two_levels() {
    read_against_compaction(LockDesign::Hierarchical);
}

/// Without the look at the count of moves, a free would give back the slot that the object has just
/// left. One of the two moves: each is freed, in a model of its own.
#[test]
fn handle_free_against_compaction() {
    for first in [true, false] {
        model(move || {
            let pool = pool();
            let (one, two) = two_sparse(&pool);
            let (freed, kept, byte) = if first { (one, two, 3) } else { (two, one, 1) };
            let other = Arc::clone(&pool);
            let mover = thread::spawn(move || other.compact());
            pool.free_handle(freed).expect("ours");
            mover.join().expect("mover");
            expect(&pool, &kept, byte);
            check(&pool, 1);
            assert_eq!(pool.stats().mem_used_total, 4096, "the emptied zspage went back");
        });
    }
}

#[test]
fn batch_free_against_compaction() {
    model(|| {
        let pool = pool();
        let (one, two) = two_sparse(&pool);
        let other = Arc::clone(&pool);
        let mover = thread::spawn(move || other.compact());
        pool.free_batch([one, two]).expect("ours");
        mover.join().expect("mover");
        check(&pool, 0);
        assert_eq!(pool.stats().mem_used_total, 0);
    });
}

#[test]
fn two_handle_frees_of_neighbours() {
    model(|| {
        let pool = pool();
        let [one, two] = [1, 2].map(|byte| pool.alloc(&[byte; SIZE]).expect("room"));
        let other = Arc::clone(&pool);
        let thread = thread::spawn(move || other.free_handle(one).expect("ours"));
        pool.free_handle(two).expect("ours");
        thread.join().expect("the other free");
        check(&pool, 0);
        assert_eq!(pool.stats().mem_used_total, 0, "released once, by the last");
    });
}

/// The last object but one of a zspage is freed while the last is read, moved away and freed.
#[test]
fn last_free_against_pin() {
    model(|| {
        let pool = pool();
        let (one, two) = two_sparse(&pool);
        let other = Arc::clone(&pool);
        let thread = thread::spawn(move || {
            other.free_handle(two).expect("ours");
            other.compact();
        });
        expect(&pool, &one, 1);
        pool.free_handle(one).expect("ours");
        thread.join().expect("the other free");
        check(&pool, 0);
        assert_eq!(pool.stats().mem_used_total, 0);
    });
}

#[test]
fn handle_allocation_against_release() {
    model(|| {
        let pool = pool();
        let one = pool.alloc(&[1; SIZE]).expect("room");
        let other = Arc::clone(&pool);
        let thread = thread::spawn(move || other.alloc(&[2; SIZE]).expect("room"));
        pool.free_handle(one).expect("ours");
        let two = thread.join().expect("the allocation");
        expect(&pool, &two, 2);
        check(&pool, 1);
        assert_eq!(pool.stats().mem_used_total, 4096);
    });
}

#[test]
fn read_against_migration() {
    model(|| {
        let pool = pool();
        let one = pool.alloc(&[1; SIZE]).expect("room");
        let from = pfns(&pool)[0];
        let other = Arc::clone(&pool);
        let mover = thread::spawn(move || {
            let frames = other.memory().frames(1).expect("room");
            !matches!(other.migrate(from, frames), Err(MigrateError::Busy(_)))
        });
        let guard = pool.read(&one).expect("ours");
        // The frames that the zspage left have another owner at once.
        let frames = pool.memory().frames(1).expect("room");
        assert_eq!(guard[..], [1; SIZE]);
        drop((guard, frames));
        let moved = mover.join().expect("mover");
        expect(&pool, &one, 1);
        assert_eq!(pfns(&pool)[0] == from, !moved);
        check(&pool, 1);
    });
}

#[test]
fn free_against_migration() {
    model(|| {
        let pool = pool();
        let [one, two] = [1, 2].map(|byte| pool.alloc(&[byte; SIZE]).expect("room"));
        let from = pfns(&pool)[0];
        let other = Arc::clone(&pool);
        let mover = thread::spawn(move || {
            let frames = other.memory().frames(1).expect("room");
            drop(other.migrate(from, frames));
        });
        pool.free_handle(one).expect("ours");
        mover.join().expect("mover");
        expect(&pool, &two, 2);
        check(&pool, 1);
        pool.free_handle(two).expect("ours");
        assert_eq!(pool.stats().mem_used_total, 0);
    });
}

/// A thread that moves the zspage that begins at `from`, if there is one, to another frame; whether
/// that was as much as it has.
pub(super) fn move_meanwhile(pool: &Arc<Pool>, from: Pfn) -> thread::JoinHandle<bool> {
    let pool = Arc::clone(pool);
    thread::spawn(move || {
        let frames = pool.memory().frames(1).expect("room");
        !matches!(pool.migrate(from, frames), Err(MigrateError::WrongFrames(_)))
    })
}

/// A zspage is asked to migrate while it is emptied and its frame goes to another one.
#[test]
fn migration_against_release_and_next_zspage() {
    model(|| {
        let pool = pool();
        let one = pool.alloc(&[1; SIZE]).expect("room");
        let mover = move_meanwhile(&pool, pfns(&pool)[0]);
        pool.free_handle(one).expect("ours");
        let two = pool.alloc(&[2; SIZE]).expect("room");
        assert!(mover.join().expect("mover"), "each is one frame");
        expect(&pool, &two, 2);
        check(&pool, 1);
    });
}

/// A sparse zspage is chosen to be packed, and gone when its frames to be are there; its descriptor
/// is that of another class's zspage by then, whose objects are small enough to join this one, so
/// that only the second look refuses them.
#[test]
fn packing_against_the_release_of_its_source() {
    model(|| {
        // Seven objects to a zspage of four frames; the second reaches into the second frame.
        const LEN: usize = 2336;
        // Of the largest class below whose objects may join: an eighth less.
        const SMALLER: usize = 2048;
        let pool = pool_on(&memory(), config(4, 1));
        let [one, two] = [1, 2].map(|byte| pool.alloc(&[byte; LEN]).expect("room"));
        pool.free_handle(one).expect("ours");
        let other = Arc::clone(&pool);
        let mover = thread::spawn(move || other.compact());
        pool.free_handle(two).expect("ours");
        // Refused where compaction is returning all free frames of this small arena at once.
        let three = pool.alloc(&[3; SMALLER]).ok();
        mover.join().expect("mover");
        if let Some(three) = &three {
            assert!(pool.read(three).expect("ours")[..] == [3; SMALLER]);
        }
        let left = three.iter().count() as u64;
        check(&pool, left);
        assert_eq!(pool.stats().mem_used_total, left * 4096);
    });
}

/// The entry of a raw handle is freed and taken again while a copy of the handle is used.
#[test]
fn stale_raw_handle_against_its_entrys_next_life() {
    model(|| {
        let pool = pool();
        let old = pool.alloc_raw(&[1; SIZE]).expect("room");
        let other = Arc::clone(&pool);
        let reader = thread::spawn(move || {
            let mut out = [0; SIZE];
            let read = other.read_raw(old, &mut out);
            assert!(matches!((read, out[0]), (Ok(SIZE), 1) | (Err(StaleHandle), 0)));
        });
        pool.free_raw(old).expect("live");
        let new = pool.alloc_raw(&[2; SIZE]).expect("room");
        reader.join().expect("reader");
        assert_eq!(pool.free_raw(old), Err(StaleHandle));
        let mut out = [0; SIZE];
        assert_eq!((pool.read_raw(new, &mut out), out[0]), (Ok(SIZE), 2));
        check(&pool, 1);
    });
}

#[test]
fn two_frees_of_one_raw_handle() {
    model(|| {
        let pool = pool();
        let raw = pool.alloc_raw(&[1; SIZE]).expect("room");
        let other = Arc::clone(&pool);
        let thread = thread::spawn(move || other.free_raw(raw).is_ok());
        let mine = pool.free_raw(raw).is_ok();
        assert!(mine != thread.join().expect("the other free"), "one of two frees is refused");
        check(&pool, 0);
    });
}

#[test]
fn shrinker_against_allocation_free_and_read() {
    model(|| {
        let pool = pool();
        let (one, two) = two_sparse(&pool);
        let other = Arc::clone(&pool);
        let shrinker = thread::spawn(move || other.shrink(1));
        let third = pool.alloc(&[5; SIZE]).expect("room");
        expect(&pool, &one, 1);
        pool.free_handle(two).expect("ours");
        assert!(shrinker.join().expect("shrinker") <= 1);
        expect(&pool, &one, 1);
        expect(&pool, &third, 5);
        check(&pool, 2);
    });
}

/// Objects of two zspages of the second shard that have room: under loom the length decides the
/// shard. The first one's is not the next that its shard would use.
fn in_second_shard(pool: &Pool) -> [Handle; 2] {
    let alloc = |byte| pool.alloc(&[byte; SIZE - 1]).expect("room");
    let [spare, hole, kept, other_hole] = [1, 0, 2, 0].map(alloc);
    pool.free_handle(hole).expect("ours");
    pool.free_handle(other_hole).expect("ours");
    [spare, kept]
}

/// Were it not counted, the free would change a class whose lock it does not hold.
#[test]
fn free_against_the_gathering_of_its_shard() {
    model(|| {
        let pool = pool();
        // First, or it would take the other's zspage over.
        let three = pool.alloc(&[3; SIZE]).expect("room");
        let [one, two] = in_second_shard(&pool);
        let other = Arc::clone(&pool);
        let mover = thread::spawn(move || other.compact());
        pool.free_handle(one).expect("ours");
        mover.join().expect("mover");
        expect(&pool, &three, 3);
        assert_eq!(pool.read(&two).expect("ours")[..], [2; SIZE - 1]);
        check(&pool, 2);
    });
}

/// A frame that a migration leaves names no zspage: not one of the first shard, either.
#[test]
fn free_against_migration_in_the_second_shard() {
    model(|| {
        let pool = pool();
        let one = pool.alloc(&[1; SIZE - 1]).expect("room");
        let from = pfns(&pool)[0];
        let frames = pool.memory().frames(1).expect("room");
        let other = Arc::clone(&pool);
        let owner = thread::spawn(move || other.free_handle(one).expect("ours"));
        let moved = pool.migrate(from, frames);
        assert!(matches!(moved, Ok(()) | Err(MigrateError::NoZspage)), "{moved:?}");
        drop(moved);
        owner.join().expect("owner");
        check(&pool, 0);
    });
}

/// The frame that an object left is a zspage of the shard that the object's was in. A thread that
/// found that shard, and still sees the old word, finds the shard's own zspage there. Only the
/// count of moves tells it.
#[test]
fn free_against_the_next_life_of_its_frame() {
    model(|| {
        let pool = pool();
        let [one, two] = in_second_shard(&pool);
        let [kept, from] = [0, 1].map(|zspage| pfns(&pool)[zspage]);
        let frames = pool.memory().frames(1).expect("room");
        let other = Arc::clone(&pool);
        let owner = thread::spawn(move || other.free_handle(one).expect("ours"));
        // The first shard takes the zspage over, if it is there.
        let three = pool.alloc(&[3; SIZE]).expect("room");
        drop(pool.migrate(from, frames));
        let others = [4, 5].map(|byte| pool.alloc(&[byte; SIZE - 1]).expect("room"));
        owner.join().expect("owner");
        assert!(pfns(&pool).contains(&kept));
        check(&pool, 4);
        pool.free_batch(others.into_iter().chain([two, three])).expect("ours");
        check(&pool, 0);
    });
}

/// The same, where an allocation of the first shard takes the zspage over.
#[test]
fn free_against_an_allocation_that_takes_its_zspage_over() {
    model(|| {
        let pool = pool();
        let [one, two] = in_second_shard(&pool);
        let other = Arc::clone(&pool);
        let taker = thread::spawn(move || other.alloc(&[3; SIZE]).expect("room"));
        pool.free_handle(one).expect("ours");
        let three = taker.join().expect("taker");
        expect(&pool, &three, 3);
        assert_eq!(pool.read(&two).expect("ours")[..], [2; SIZE - 1]);
        check(&pool, 2);
        assert_eq!(pool.stats().mem_used_total, 2 * 4096);
    });
}

/// A zspage that only changed its shard is looked for again.
#[test]
fn migration_against_an_allocation_that_takes_its_zspage_over() {
    model(|| {
        let pool = pool();
        let [one, two] = in_second_shard(&pool);
        let from = pfns(&pool)[1];
        let other = Arc::clone(&pool);
        let taker = thread::spawn(move || other.alloc(&[3; SIZE]).expect("room"));
        let frames = pool.memory().frames(1).expect("room");
        let moved = pool.migrate(from, frames);
        assert!(matches!(moved, Ok(()) | Err(MigrateError::Busy(_))), "{moved:?}");
        let three = taker.join().expect("taker");
        assert_eq!(pool.read(&one).expect("ours")[..], [1; SIZE - 1]);
        expect(&pool, &three, 3);
        assert_eq!(pool.read(&two).expect("ours")[..], [2; SIZE - 1]);
        check(&pool, 3);
    });
}

/// The batch looks at the shard before it locks, too.
#[test]
fn batch_free_against_an_allocation_that_takes_its_zspage_over() {
    model(|| {
        let pool = pool();
        let [one, two] = in_second_shard(&pool);
        let other = Arc::clone(&pool);
        let taker = thread::spawn(move || other.alloc(&[3; SIZE]).expect("room"));
        pool.free_batch([one]).expect("ours");
        let three = taker.join().expect("taker");
        expect(&pool, &three, 3);
        assert_eq!(pool.read(&two).expect("ours")[..], [2; SIZE - 1]);
        check(&pool, 2);
    });
}

/// Without frames, the slot beside an object is found in whichever shard its zspage is.
#[test]
fn allocation_without_frames_takes_a_slot_of_another_shard() {
    model(|| {
        let faults = host::FailureInjector::new();
        let config = ramfold_zsmalloc::MemoryConfig {
            arena_frames: 512,
            entries_max: 6,
            expected_bytes: 1 << 30,
            worker: false,
        };
        let memory =
            ramfold_zsmalloc::Memory::with_faults(config, Arc::clone(&faults)).expect("tables");
        let chain = ramfold_zsmalloc::ChainSize::new(1).expect("1");
        let config = ramfold_zsmalloc::PoolConfig {
            chain,
            shards: Some(2),
            ..ramfold_zsmalloc::PoolConfig::default()
        };
        let pool = Pool::new(memory, config).expect("a pool");
        let there = pool.alloc(&[1; SIZE - 1]).expect("room");
        faults.arm_from(1);
        let here = pool.alloc(&[2; SIZE]).expect("the slot beside the other");
        pool.alloc(&[3; SIZE]).expect_err("no slot in any shard");
        faults.arm(0);
        check(&pool, 2);
        pool.free_batch([there, here]).expect("ours");
        check(&pool, 0);
    });
}

/// At the limit, the slot beside an object is found in whichever shard its zspage is: a
/// zspage of the first shard's own would touch a frame more.
#[test]
fn allocation_at_the_limit_takes_a_slot_of_another_shard() {
    model(|| {
        let pool = pool();
        let there = pool.alloc(&[1; SIZE - 1]).expect("room");
        pool.set_limit(4096);
        let here = pool.alloc(&[2; SIZE]).expect("the slot beside the other");
        let refused = pool.alloc(&[3; SIZE]).expect_err("no slot in any shard");
        assert_eq!(refused, AllocError::OverLimit { limit: 4096 });
        expect(&pool, &here, 2);
        check(&pool, 2);
        assert_eq!(pool.stats().mem_used_total, 4096, "the other zspage went back");
        pool.free_batch([there, here]).expect("ours");
        check(&pool, 0);
    });
}
