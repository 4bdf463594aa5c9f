//! Scenarios of frees that lag: all threads share the one line that there is.

use super::handles::check;
use super::{SIZE, config, memory, model, pool_on};
use loom::thread;
use ramfold_zsmalloc::{Pool, PoolConfig};
use std::sync::Arc;

fn lagging() -> Arc<Pool> {
    pool_on(&memory(), PoolConfig { lag: 1, ..config(1, 1) })
}

/// Each of the three is freed once, by the thread that took it out.
#[test]
fn lagging_frees_of_two_threads_against_a_flush() {
    model(|| {
        let pool = lagging();
        let [one, two, three] = [1, 2, 3].map(|byte| pool.alloc(&[byte; SIZE]).expect("room"));
        // The line exists before the threads do.
        pool.free_handle(one).expect("ours");
        let other = Arc::clone(&pool);
        let freeing = thread::spawn(move || other.free_handle(two).expect("ours"));
        pool.free_handle(three).expect("ours");
        pool.flush_deferred();
        freeing.join().expect("the other free");
        check(&pool, 0);
        assert_eq!(pool.stats().mem_used_total, 0, "every zspage went back");
    });
}

/// The room that this thread freed is there for its next store, though another thread is about to
/// free it. Without the turn to flush the store would be refused.
#[test]
fn store_at_the_limit_against_a_flush() {
    model(|| {
        let pool = lagging();
        let [freed, kept] = [1, 2].map(|byte| pool.alloc(&[byte; SIZE]).expect("room"));
        pool.set_limit(4096);
        pool.free_handle(freed).expect("ours");
        let other = Arc::clone(&pool);
        let flushing = thread::spawn(move || other.flush_deferred());
        let stored = pool.alloc(&[3; SIZE]).expect("a slot was freed");
        flushing.join().expect("the flush");
        assert_eq!(*pool.read(&stored).expect("ours"), [3; SIZE]);
        check(&pool, 2);
        pool.free_batch([stored, kept]).expect("ours");
    });
}

/// An object that lags is moved like any other, and freed where it is then.
#[test]
fn lagging_free_against_compaction() {
    model(|| {
        let pool = lagging();
        let mut handles = [1, 2, 3, 4].map(|byte| Some(pool.alloc(&[byte; SIZE]).expect("room")));
        for sparse in [1, 3] {
            pool.free_handle(handles[sparse].take().expect("ours")).expect("ours");
        }
        pool.flush_deferred();
        let [one, _, three, _] = handles.map(|handle| handle);
        pool.free_handle(one.expect("kept")).expect("ours");
        let other = Arc::clone(&pool);
        let mover = thread::spawn(move || other.compact());
        pool.free_handle(three.expect("kept")).expect("ours");
        mover.join().expect("mover");
        check(&pool, 0);
        assert_eq!(pool.stats().mem_used_total, 0, "every zspage went back");
    });
}
