//! Scenarios of objects that are freed later.
//!
//! Claims: what is pending is freed once, whichever thread drains it and whatever moves meanwhile;
//! a store that needs the room has it, whichever thread drains; the mover leaves alone what no cell
//! names.

use super::{SIZE, expect, memory, memory_of, model, pool, pool_on, put, two_sparse_zspages};
use loom::thread;
use ramfold_zsmalloc::deferred::QueueConfig;
use ramfold_zsmalloc::{Pool, PoolConfig, SIZE_MAX};
use std::sync::Arc;

/// A pool whose queue is there: the first use of all builds it, under the standard library's
/// synchronisation.
fn prepared(pool: Arc<Pool>) -> Arc<Pool> {
    let handle = pool.alloc(&[0; SIZE]).expect("room");
    pool.free_deferred(handle).expect("ours");
    assert_eq!(pool.flush_deferred(), 1);
    pool
}

fn check(pool: &Pool, objects: u64) {
    let found = pool.check().expect("no defect");
    assert_eq!((found.objects, found.pending, found.in_flight), (objects, 0, 0));
}

#[test]
fn deferred_frees_against_compaction() {
    model(|| {
        let pool = prepared(pool());
        let handles = [1, 2, 3, 4].map(|byte| pool.alloc(&[byte; SIZE]).expect("room"));
        let [one, two, three, four] = handles;
        for gone in [two, four] {
            pool.free_handle(gone).expect("ours");
        }
        let other = Arc::clone(&pool);
        let mover = thread::spawn(move || other.compact());
        pool.free_deferred(three).expect("ours");
        mover.join().expect("mover");
        assert_eq!(pool.read(&one).expect("ours")[..], [1; SIZE]);
        pool.flush_deferred();
        check(&pool, 1);
        assert_eq!(pool.stats().mem_used_total, 4096, "the emptied zspage went back");
    });
}

#[test]
fn two_threads_that_defer_and_flush() {
    model(|| {
        let pool = prepared(pool());
        let [one, two] = [1, 2].map(|byte| pool.alloc(&[byte; SIZE]).expect("room"));
        let other = Arc::clone(&pool);
        let thread = thread::spawn(move || {
            other.free_deferred(one).expect("ours");
            other.flush_deferred();
        });
        pool.free_deferred(two).expect("ours");
        pool.flush_deferred();
        thread.join().expect("the other");
        check(&pool, 0);
        assert_eq!(pool.stats().mem_used_total, 0);
    });
}

/// The frame that is wanted belongs to an object that another thread is just freeing: without
/// waiting for that, the store would fail.
#[test]
fn allocation_at_the_limit_against_a_drain() {
    model(|| {
        let pool = prepared(pool());
        pool.set_limit(4096);
        let one = pool.alloc(&[1; SIZE_MAX]).expect("room");
        pool.free_deferred(one).expect("ours");
        let other = Arc::clone(&pool);
        let drainer = thread::spawn(move || other.flush_deferred());
        let two = pool.alloc(&[2; SIZE_MAX]).expect("what is pending makes room");
        drainer.join().expect("drainer");
        assert!(pool.read(&two).expect("ours")[..] == [2; SIZE_MAX]);
        check(&pool, 1);
    });
}

/// The mover has read the number of the cell that is cleared: by the time it has the cell's lock,
/// that names another object, or none.
#[test]
fn deferred_clear_against_compaction() {
    for (first, again) in [(true, true), (false, true), (true, false)] {
        model(move || {
            let pool = prepared(pool());
            let (one, two) = two_sparse_zspages(&pool);
            let (cleared, kept, byte) = if first { (one, two, 3) } else { (two, one, 1) };
            let other = Arc::clone(&pool);
            let mover = thread::spawn(move || other.compact());
            pool.cell(cleared, 0).expect("ours").clear_deferred();
            if again {
                assert!(put(&pool, cleared, 0, 9));
            }
            mover.join().expect("mover");
            expect(&pool, kept, 0, byte);
            pool.flush_deferred();
            check(&pool, 1 + u64::from(again));
            if again {
                expect(&pool, cleared, 0, 9);
            }
        });
    }
}

/// As above, where the cell's next object fills a third zspage, so that there is still something to
/// merge when the mover comes to a cell that names it.
#[test]
fn deferred_clear_and_a_store_elsewhere_against_compaction() {
    for cleared in 0..3 {
        model(move || {
            let pool = prepared(pool_on(&memory_of(12), super::config(1, 1)));
            let leaves = [1, 2, 3].map(|_| pool.alloc_leaf().expect("room"));
            for (leaf, byte) in leaves.into_iter().zip([1, 2, 3]) {
                assert!(put(&pool, leaf, 0, byte) && put(&pool, leaf, 1, 0));
            }
            for leaf in leaves {
                pool.cell(leaf, 1).expect("ours").clear();
            }
            let other = Arc::clone(&pool);
            let mover = thread::spawn(move || other.compact());
            pool.cell(leaves[cleared], 0).expect("ours").clear_deferred();
            assert!(put(&pool, leaves[cleared], 0, 9));
            mover.join().expect("mover");
            pool.flush_deferred();
            check(&pool, 3);
            for (at, leaf) in leaves.into_iter().enumerate() {
                expect(&pool, leaf, 0, if at == cleared { 9 } else { at as u8 + 1 });
            }
        });
    }
}

/// What is pending keeps its zspage where it is, though its cell has the next object.
#[test]
fn deferred_clear_against_migration() {
    model(|| {
        let pool = prepared(pool());
        let leaf = pool.alloc_leaf().expect("room");
        assert!(put(&pool, leaf, 0, 1) && put(&pool, leaf, 1, 2));
        let from = pool.zspages()[0].pfn;
        let other = Arc::clone(&pool);
        let mover = thread::spawn(move || {
            let frames = other.memory().frames(1).expect("room");
            drop(other.migrate(from, frames));
        });
        pool.cell(leaf, 0).expect("ours").clear_deferred();
        assert!(put(&pool, leaf, 0, 9));
        mover.join().expect("mover");
        expect(&pool, leaf, 0, 9);
        expect(&pool, leaf, 1, 2);
        pool.flush_deferred();
        check(&pool, 2);
    });
}

/// The leaf of a pending object's cell has the next owner, and the mover's way leads there.
#[test]
fn compaction_against_the_next_owner_of_a_pending_objects_cell() {
    model(|| {
        let memory = memory();
        let [pool, theirs] = [1, 1].map(|shards| pool_on(&memory, super::config(1, shards)));
        let pool = prepared(pool);
        let (one, two) = two_sparse_zspages(&pool);
        pool.cell(two, 0).expect("ours").clear_deferred();
        pool.free_leaf(two, |_| {}).expect("ours");
        let other = Arc::clone(&pool);
        let mover = thread::spawn(move || {
            let frames = other.memory().frames(1).expect("room");
            let from = other.zspages().last().expect("two").pfn;
            drop(other.migrate(from, frames));
        });
        let next = theirs.alloc_leaf().expect("room");
        assert!(put(&theirs, next, 0, 7));
        mover.join().expect("mover");
        expect(&theirs, next, 0, 7);
        expect(&pool, one, 0, 1);
        pool.flush_deferred();
        check(&pool, 1);
        check(&theirs, 1);
    });
}

#[test]
fn exhaustion_against_flush() {
    model(|| {
        let deferred = QueueConfig { shards: Some(1), buffer_bytes: 0, ..QueueConfig::default() };
        let config = PoolConfig { deferred, ..super::config(1, 1) };
        let pool = prepared(pool_on(&memory(), config));
        let handles = [1, 2, 3].map(|byte| pool.alloc(&[byte; SIZE]).expect("room"));
        let other = Arc::clone(&pool);
        let drainer = thread::spawn(move || other.flush_deferred());
        for handle in handles {
            pool.free_deferred(handle).expect("ours");
        }
        drainer.join().expect("drainer");
        pool.flush_deferred();
        check(&pool, 0);
    });
}
