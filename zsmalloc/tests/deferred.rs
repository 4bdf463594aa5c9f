//! Deferred jobs.
//!
//! Claims
//! - a job runs once: soon, with a worker; before `defer` returns, without one;
//! - a flush returns when every job deferred before has run, also one that another thread is at;
//! - jobs begin in their order; what is pending is metered; a panic is counted and ends nothing;
//! - a job may flush, defer, and hold the last reference to the memory; jobs survive the memory's
//!   users and run when it is dropped;
//! - the queue is bounded, and loses nothing at its bound.
#![cfg(not(any(loom, shuttle)))]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use ramfold_zsmalloc::{DeferredStatus, Memory, MemoryConfig};

/// Only a deadlock takes so long.
const HANG: Duration = Duration::from_secs(60);

fn memory(worker: bool) -> Arc<Memory> {
    let config = MemoryConfig { arena_frames: 512, entries_max: 512, expected_bytes: 0, worker };
    Memory::new(config).expect("address space")
}

/// Defers a job that the worker stays at until the sender is used or dropped.
fn block(memory: &Arc<Memory>) -> mpsc::Sender<()> {
    let (started, running) = mpsc::channel();
    let (unblock, blocked) = mpsc::channel();
    memory.defer(1, move || {
        started.send(()).expect("the test waits");
        let _ = blocked.recv_timeout(HANG);
    });
    running.recv_timeout(HANG).expect("the worker runs it");
    unblock
}

#[test]
fn without_a_worker_a_job_has_run_when_it_is_deferred() {
    let memory = memory(false);
    let runs = Arc::new(AtomicU64::new(0));
    for n in 1..=3 {
        let (here, runs) = (std::thread::current().id(), Arc::clone(&runs));
        memory.defer(100, move || {
            assert_eq!(std::thread::current().id(), here);
            runs.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!((n, memory.deferred()), (n, DeferredStatus::default()));
    }
    assert_eq!(runs.load(Ordering::Relaxed), 3);
}

#[test]
fn the_worker_runs_jobs_unasked_and_in_order() {
    let memory = memory(true);
    let (send, done) = mpsc::channel();
    for n in 0..100 {
        let send = send.clone();
        memory.defer(0, move || send.send((n, std::thread::current().id())).expect("awaited"));
    }
    for n in 0..100 {
        let (job, thread) = done.recv_timeout(HANG).expect("nobody has to flush");
        assert_eq!(job, n);
        assert_ne!(thread, std::thread::current().id());
    }
    assert!(memory.worker().running);
}

#[test]
fn a_flush_helps_and_waits_for_what_is_running() {
    let memory = memory(true);
    let unblock = block(&memory);
    let log = Arc::new(Mutex::new(Vec::new()));
    for n in 0..10 {
        let log = Arc::clone(&log);
        memory.defer(100, move || log.lock().expect("sound").push(n));
    }
    assert_eq!(memory.pending_bytes(), 1001);
    assert_eq!(memory.deferred().jobs, 11);
    let (send, flushed) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            memory.flush_deferred();
            send.send(()).expect("awaited");
        });
        while memory.pending_bytes() > 1 {
            std::thread::yield_now(); // the flush runs all that it can
        }
        assert_eq!(*log.lock().expect("sound"), (0..10).collect::<Vec<_>>());
        let early = flushed.recv_timeout(Duration::from_millis(50));
        assert!(early.is_err(), "the first job is not done");
        drop(unblock);
        assert_eq!(flushed.recv_timeout(HANG), Ok(()));
    });
    assert_eq!(memory.deferred(), DeferredStatus::default());
}

#[test]
fn a_job_that_panics_is_counted_and_the_worker_goes_on() {
    for worker in [false, true] {
        let memory = memory(worker);
        memory.defer(7, || panic!("on purpose"));
        memory.flush_deferred();
        let expected = DeferredStatus { panicked: 1, ..DeferredStatus::default() };
        assert_eq!(memory.deferred(), expected, "worker: {worker}");
        drop(block_if(&memory, worker));
    }
}

/// Shows that the worker still runs jobs.
fn block_if(memory: &Arc<Memory>, worker: bool) -> Option<mpsc::Sender<()>> {
    worker.then(|| block(memory))
}

/// A job waits for older ones only: were it to wait for itself or for newer ones, two would wait
/// for each other.
#[test]
fn jobs_may_flush_and_defer() {
    for worker in [false, true] {
        let memory = memory(worker);
        let runs = Arc::new(AtomicU64::new(0));
        for _ in 0..20 {
            let (inner, counted) = (Arc::clone(&memory), Arc::clone(&runs));
            memory.defer(1, move || {
                let counted_again = Arc::clone(&counted);
                inner.defer(1, move || {
                    counted_again.fetch_add(1, Ordering::Relaxed);
                });
                inner.flush_deferred();
                counted.fetch_add(1, Ordering::Relaxed);
            });
        }
        let (send, flushed) = mpsc::channel();
        let other = Arc::clone(&memory);
        std::thread::spawn(move || {
            other.flush_deferred();
            other.flush_deferred();
            send.send(())
        });
        flushed.recv_timeout(HANG).expect("no job waits for itself");
        memory.flush_deferred();
        assert_eq!((worker, runs.load(Ordering::Relaxed)), (worker, 40));
    }
}

#[test]
fn jobs_outlive_the_users_of_the_memory() {
    let memory = memory(true);
    let unblock = block(&memory);
    let (send, done) = mpsc::channel();
    let last = Arc::clone(&memory);
    memory.defer(1, move || {
        send.send(last.pending_bytes()).expect("awaited");
        drop(last);
    });
    let weak = Arc::downgrade(&memory);
    drop(memory);
    drop(unblock);
    assert_eq!(done.recv_timeout(HANG), Ok(1), "the job that kept the memory");
    while weak.strong_count() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn at_the_bound_the_caller_runs_the_oldest() {
    let memory = memory(true);
    let unblock = block(&memory);
    let runs = Arc::new(AtomicU64::new(0));
    for n in 0..3000_u64 {
        let counted = Arc::clone(&runs);
        memory.defer(1, move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(runs.load(Ordering::Relaxed), (n + 1).saturating_sub(1024));
    }
    drop(unblock);
    memory.flush_deferred();
    assert_eq!(runs.load(Ordering::Relaxed), 3000);
}
