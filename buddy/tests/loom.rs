//! The published counts and the per-CPU lists under every interleaving that two preemptions allow,
//! and every value that a weak memory may give a reader.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=2 \
//!     cargo test -p ramfold-buddy --profile model --test loom
//! ```
//!
//! Claims, by the numbers of published.rs: a reader without the lock reads only numbers that were
//! true (R1), never goes back in time (R2) and sees what it was told of (R3); what two owners of
//! the lock count one after the other is not lost (P1). And by those of percpu.rs: nothing is
//! refused while a run on a list would do (C5), nothing isolated gets on a list (C6), no run is
//! lost or handed out twice while other threads drain, free or allocate (C1, C7: `check` says).
#![cfg(loom)]

use loom::model;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering};
use loom::thread;
use ramfold_buddy::{FreedRun, Migratetype, Order, Pfn, SharedZone, Warm};

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

/// To count every list of a zone takes more steps than loom expects of a model.
fn model_with_checks(scenario: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 20_000;
    builder.check(scenario);
}

/// The first of four frames that are runs of one frame.
const FIRST: u32 = 508;

/// A zone with lists for two CPUs and nothing free but two frames that are on CPU 0's.
fn two_listed() -> Arc<SharedZone> {
    let zone = SharedZone::with_lists(512, 2, 16);
    for frames in [FIRST, 1, 1, 1, 1] {
        zone.alloc_run(frames, MOVABLE).unwrap();
    }
    give(&zone, 0, 0);
    give(&zone, 0, 2);
    assert_eq!((zone.listed_frames(), zone.free_frames()), (2, 0));
    Arc::new(zone)
}

/// Frees one of the four, as a CPU does.
fn give(zone: &SharedZone, cpu: usize, which: u32) {
    let run = FreedRun { pfn: Pfn::new(FIRST + which), frames: 1, warm: Warm::Resident };
    assert_eq!(zone.free_movable(cpu, [run].into_iter()), Ok(()));
}

/// A frame for a CPU, which there is.
fn take(zone: &SharedZone, cpu: usize) -> Pfn {
    zone.alloc_movable(cpu, 1).expect("a frame is free, or on a list")
}

/// Nobody is busy: so many frames are in nobody's use, wherever they are.
fn expect_unused(zone: &SharedZone, frames: u64) {
    let found = zone.check().expect("no defect");
    assert_eq!(found.free_frames + found.listed_frames, frames, "frames that nobody uses");
}

fn beside(
    zone: &Arc<SharedZone>,
    one: impl FnOnce(&SharedZone) + 'static,
    other: impl FnOnce(&SharedZone),
) {
    let there = Arc::clone(zone);
    let thread = thread::spawn(move || one(&there));
    other(zone);
    thread.join().unwrap();
}

#[test]
fn an_allocation_beside_a_drain_gets_a_frame() {
    model_with_checks(|| {
        let zone = two_listed();
        beside(&zone, SharedZone::drain, |zone| assert!(take(zone, 0).get() >= FIRST));
        expect_unused(&zone, 1);
    });
}

/// The last look is with all lists locked: what is on its way from one to the zone has arrived.
#[test]
fn a_request_of_another_type_beside_a_drain_gets_a_frame() {
    model_with_checks(|| {
        let zone = two_listed();
        beside(&zone, SharedZone::drain, |zone| {
            let found = zone.alloc_run(1, Migratetype::Unmovable).expect("two frames are free");
            assert!(found.get() >= FIRST);
        });
        expect_unused(&zone, 1);
    });
}

#[test]
fn a_free_beside_a_drain_is_not_lost() {
    model_with_checks(|| {
        let zone = two_listed();
        beside(&zone, SharedZone::drain, |zone| give(zone, 0, 1));
        expect_unused(&zone, 3);
        zone.drain();
        assert_eq!((zone.listed_frames(), zone.free_frames()), (0, 3), "drained");
    });
}

#[test]
fn two_threads_on_one_list_get_two_frames() {
    model_with_checks(|| {
        let zone = two_listed();
        let other = Arc::clone(&zone);
        let thread = thread::spawn(move || take(&other, 0));
        let mine = take(&zone, 2);
        assert_ne!(thread.join().unwrap(), mine, "one frame for two");
        expect_unused(&zone, 0);
    });
}

/// Both find the zone empty, their own list or both, and look at all of them.
#[test]
fn the_last_frames_are_found_on_the_list_of_another_cpu() {
    model_with_checks(|| {
        let zone = two_listed();
        beside(
            &zone,
            |zone| assert!(take(zone, 1).get() >= FIRST),
            |zone| assert!(take(zone, 1).get() >= FIRST),
        );
        expect_unused(&zone, 0);
    });
}

/// What one refills its list with after the drain of the other was not to be had by that one.
#[test]
fn a_refill_takes_nothing_that_another_is_refused() {
    model_with_checks(|| {
        let zone = two_listed();
        give(&zone, 1, 1);
        beside(
            &zone,
            |zone| {
                zone.drain();
                take(zone, 1);
            },
            |zone| {
                take(zone, 0);
                take(zone, 0);
            },
        );
        expect_unused(&zone, 0);
    });
}

#[test]
fn a_free_beside_an_isolation_does_not_stay_on_a_list() {
    model_with_checks(|| {
        let zone = two_listed();
        beside(
            &zone,
            |zone| assert_eq!(zone.isolate(Pfn::new(0).pageblock()), Ok(())),
            |zone| give(zone, 0, 1),
        );
        expect_unused(&zone, 3);
        assert_eq!(zone.listed_frames(), 0, "a frame of an isolated pageblock can be allocated");
    });
}

#[test]
fn frees_and_allocations_of_two_cpus_lose_nothing() {
    model_with_checks(|| {
        let zone = two_listed();
        let swap = |cpu, which| {
            move |zone: &SharedZone| {
                give(zone, cpu, which);
                take(zone, cpu);
            }
        };
        beside(&zone, swap(1, 1), swap(0, 3));
        expect_unused(&zone, 2);
    });
}
