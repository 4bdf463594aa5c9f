//! Scenarios of a recount beside whoever changes totals: what moved is motion, never a defect.

use super::{SIZE, config, handles::check, memory, model_within, pool_on};
use loom::thread;
use std::sync::Arc;

/// A zspage is in the totals before it is in its class. A recount asks who is on the way, then who
/// operated: the other way round, one that arrives in between would be in neither. To see that
/// takes a third preemption.
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
