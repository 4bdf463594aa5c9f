//! Deferred jobs: the thread that flushes is the worker here.

use std::sync::Arc;

use host::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use ramfold_zsmalloc::{DeferredStatus, Memory, MemoryConfig};

use crate::model;

/// A memory whose jobs stay queued until a thread flushes.
fn memory() -> Arc<Memory> {
    let config =
        MemoryConfig { arena_frames: 512, entries_max: 6, expected_bytes: 1 << 30, worker: true };
    Memory::new(config).expect("small tables")
}

fn defer_count(memory: &Arc<Memory>, runs: &Arc<AtomicU32>) {
    let counted = Arc::clone(runs);
    memory.defer(5, move || {
        counted.fetch_add(1, Ordering::Relaxed);
    });
}

/// Whichever flush runs the job, both return after it, and it runs once.
#[test]
fn flush_against_flush() {
    model(|| {
        let (memory, runs) = (memory(), Arc::new(AtomicU32::new(0)));
        defer_count(&memory, &runs);
        assert_eq!(memory.pending_bytes(), 5);
        let (other, theirs) = (Arc::clone(&memory), Arc::clone(&runs));
        let flusher = thread::spawn(move || {
            other.flush_deferred();
            assert_eq!(theirs.load(Ordering::Relaxed), 1);
        });
        memory.flush_deferred();
        assert_eq!(runs.load(Ordering::Relaxed), 1);
        flusher.join().expect("the other flush");
        assert_eq!(memory.deferred(), DeferredStatus::default());
    });
}

/// A flush returns after what was deferred before it; what comes meanwhile stays or runs.
#[test]
fn defer_against_flush() {
    model(|| {
        let (memory, runs) = (memory(), Arc::new(AtomicU32::new(0)));
        defer_count(&memory, &runs);
        let (other, theirs) = (Arc::clone(&memory), Arc::clone(&runs));
        let deferrer = thread::spawn(move || defer_count(&other, &theirs));
        memory.flush_deferred();
        assert!(runs.load(Ordering::Relaxed) >= 1);
        deferrer.join().expect("the other thread");
        memory.flush_deferred();
        assert_eq!(runs.load(Ordering::Relaxed), 2);
        assert_eq!(memory.deferred(), DeferredStatus::default());
    });
}
