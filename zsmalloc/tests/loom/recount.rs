//! Scenarios of a recount beside threads that change totals: what moved is motion, never a defect.

use super::{SIZE, config, handles::check, memory, model_within, pool_on};
use loom::thread;
use std::sync::Arc;

/// Objects of this size are three to a zspage of two frames.
const THREE_IN_TWO: usize = 2704;

/// A zspage is in the totals before it is in its class. A recount counts the zspages on their way,
/// and then the operations. In the other order, a zspage that arrives in between would be in
/// neither. To see that takes a third preemption.
#[test]
fn recount_against_a_new_zspage() {
    model_within(3, || {
        let pool = pool_on(&memory(), config(1, 1));
        let other = Arc::clone(&pool);
        let writer =
            thread::spawn(move || std::mem::forget(other.store(&[1; SIZE]).expect("room")));
        pool.check().expect("no defect");
        writer.join().expect("writer");
    });
}

/// A zspage is out of its class before it is out of the totals.
#[test]
fn recount_against_a_last_free() {
    model_within(2, || {
        let pool = pool_on(&memory(), config(1, 1));
        let handle = pool.alloc(&[1; SIZE]).expect("room");
        let other = Arc::clone(&pool);
        let freer = thread::spawn(move || other.free_handle(handle).expect("ours"));
        pool.check().expect("no defect");
        freer.join().expect("freer");
        check(&pool, 0);
    });
}

/// Compaction packs the one object of a zspage of two frames into the first of another's, which is
/// in the totals before it is in its class.
#[test]
fn recount_against_packing() {
    model_within(1, || {
        let pool = pool_on(&memory(), config(2, 1));
        let [first, second] = [1, 2].map(|byte| pool.alloc(&[byte; THREE_IN_TWO]).expect("room"));
        pool.free_handle(first).expect("ours");
        let other = Arc::clone(&pool);
        let recount = thread::spawn(move || other.check().expect("no defect").objects);
        pool.compact();
        assert_eq!(recount.join().expect("recount"), 1);
        assert_eq!(pool.read(&second).expect("ours")[..], [2; THREE_IN_TWO]);
        check(&pool, 1);
    });
}
