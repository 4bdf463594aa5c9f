//! The published counts under every interleaving that two preemptions allow, and every value that
//! a weak memory may give a reader.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=2 cargo test -p buddy --release --test loom
//! ```
//!
//! Claims, by the numbers of published.rs: a reader without the lock reads only numbers that were
//! true (R1), never goes back in time (R2) and sees what it was told of (R3); what two owners of
//! the lock count one after the other is not lost (P1).
#![cfg(loom)]

use buddy::{Migratetype, Order, Pfn, SharedZone, Warm};
use loom::model;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;

const MOVABLE: Migratetype = Migratetype::Movable;

/// Frames 0..4 are runs of one frame: freed apart from each other, none of them merges.
fn zone() -> Arc<SharedZone> {
    let zone = SharedZone::new(512);
    for pfn in 0..4 {
        assert_eq!(zone.alloc_run(1, MOVABLE), Ok(Pfn::new(pfn)));
    }
    Arc::new(zone)
}

fn free(zone: &SharedZone, pfn: u32) {
    assert_eq!(zone.free_run(Pfn::new(pfn), 1, Warm::Resident), Ok(()));
}

fn singles(zone: &SharedZone) -> u64 {
    zone.published().free_blocks(Order::ZERO, MOVABLE)
}

/// A reader that runs after everybody else unless loom decides otherwise. Loom goes back to where
/// a load could have come before a store; the other way round, the load that precedes each store
/// of a count hides the reader's from it.
fn reader<T: 'static>(
    zone: &Arc<SharedZone>,
    read: impl FnOnce(&SharedZone) -> T + 'static,
) -> thread::JoinHandle<T> {
    let zone = Arc::clone(zone);
    thread::spawn(move || read(&zone))
}

#[test]
fn a_reader_sees_each_count_in_turn_and_none_is_lost() {
    model(|| {
        let zone = zone();
        let other = Arc::clone(&zone);
        let freer = thread::spawn(move || free(&other, 2));
        let reader = reader(&zone, |zone| [singles(zone), singles(zone)]);
        free(&zone, 0);
        freer.join().unwrap();
        let seen = reader.join().unwrap();
        assert!(seen[0] <= seen[1], "a reader went back in time: {seen:?}");
        assert!(seen[1] <= 2, "a count that never was: {seen:?}");
        assert_eq!(singles(&zone), 2, "a freed frame was not counted");
    });
}

/// The frame allocated is the one freed before: the count goes 1, 0 and nothing else.
#[test]
fn a_reader_of_a_count_that_falls_sees_no_third_value() {
    model(|| {
        let zone = zone();
        free(&zone, 0);
        let reader = reader(&zone, |zone| [singles(zone), singles(zone)]);
        assert_eq!(zone.alloc_run(1, MOVABLE), Ok(Pfn::new(0)));
        let seen = reader.join().unwrap();
        assert!([[1, 1], [1, 0], [0, 0]].contains(&seen), "never in this order: {seen:?}");
    });
}

#[test]
fn who_was_told_of_an_operation_sees_it() {
    model(|| {
        let zone = zone();
        let told = Arc::new(AtomicBool::new(false));
        let listen = Arc::clone(&told);
        let reader = reader(&zone, move |zone| (listen.load(Ordering::Acquire), singles(zone)));
        free(&zone, 0);
        told.store(true, Ordering::Release);
        let (heard, count) = reader.join().unwrap();
        assert!(!heard || count == 1, "the count is older than the message");
    });
}
