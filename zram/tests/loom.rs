//! The slot table under every interleaving that two preemptions allow.
//!
//! A whole device with two cells to a leaf. Run with
//! `RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=2`.
//!
//! Claims
//! - A write that races with the discard of its leaf lands in its own page or is discarded. It
//!   never lands in a leaf that has another place by then.
//! - Two threads that take the first leaf of a part of the disk at the same time lose nothing.
#![cfg(loom)]

use std::sync::Arc;

use disk::Disk;
use loom::thread;
use ramfold_zram::{Zram, ZramConfig};
use zsmalloc::{LEAF_CELLS, Memory, MemoryConfig};

#[path = "loom/free.rs"]
mod free;
#[path = "loom/post.rs"]
mod post;
#[path = "loom/shared.rs"]
mod shared;
#[path = "loom/units.rs"]
mod units;

const PAGE: u64 = 4096;
const LEAF: u64 = LEAF_CELLS as u64 * PAGE;

/// `loom::model` with room for the many atomics of a whole device.
fn model(scenario: impl Fn() + Sync + Send + 'static) {
    model_within(None, scenario);
}

/// With so many preemptions at most, instead of what the environment says.
fn model_within(preemptions: Option<usize>, scenario: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    builder.preemption_bound = preemptions.or(builder.preemption_bound);
    builder.check(scenario);
}

fn device() -> Arc<Zram> {
    device_with(false)
}

/// With a worker, discarded pages are pending until a thread flushes.
fn device_with(worker: bool) -> Arc<Zram> {
    let config =
        MemoryConfig { arena_frames: 512, entries_max: 6, expected_bytes: 1 << 30, worker };
    let memory = Memory::new(config).expect("small tables");
    Arc::new(Zram::new(memory, ZramConfig::new("zram0", 2 * LEAF)).expect("a device"))
}

fn write(zram: &Zram, page: u64, byte: u8) {
    zram.write(page * PAGE, &[byte; PAGE as usize]).expect("room");
}

/// A page that is stored as an object.
fn blob(byte: u8) -> [u8; PAGE as usize] {
    let mut data = [byte; PAGE as usize];
    data[0] = !byte;
    data
}

/// A byte of a page. If the page is a blob, it is the blob's own byte.
fn byte_at(zram: &Zram, page: u64) -> u8 {
    let mut data = [0; PAGE as usize];
    zram.read(page * PAGE, &mut data).expect("in range");
    data[1]
}

fn byte_of(zram: &Zram, page: u64) -> u8 {
    let mut data = [0; PAGE as usize];
    zram.read(page * PAGE, &mut data).expect("in range");
    assert!(data.iter().all(|&byte| byte == data[0]), "page {page} is of one write");
    data[0]
}

#[test]
fn late_write_against_discard_and_the_leafs_next_place() {
    late_write(false);
}

/// Here the drain is a step of its own.
#[test]
fn late_write_against_discard_drain_and_the_leafs_next_place() {
    late_write(true);
}

/// Without the second look at the root, the late write of page 0 goes into the leaf that by then is
/// page 2's.
fn late_write(worker: bool) {
    model(move || {
        let zram = device_with(worker);
        write(&zram, 0, 1);
        let other = Arc::clone(&zram);
        let discarder = thread::spawn(move || {
            other.discard(0, LEAF).expect("in range");
            other.memory().flush_deferred();
            write(&other, 2, 9);
        });
        write(&zram, 0, 7);
        discarder.join().expect("discarder");
        assert!(matches!(byte_of(&zram, 0), 0 | 7), "the first write is gone");
        assert_eq!((byte_of(&zram, 1), byte_of(&zram, 2), byte_of(&zram, 3)), (0, 9, 0));
        zram.check().expect("no defect");
    });
}

/// The counters show whether the write came before the discard. The thread that flushes drains what
/// is pending.
#[test]
fn overwrite_against_discard_and_drain() {
    model(|| {
        let zram = device_with(true);
        write(&zram, 0, 1);
        let other = Arc::clone(&zram);
        let discarder = thread::spawn(move || other.discard(0, LEAF).expect("in range"));
        zram.write(0, &blob(7)).expect("room");
        discarder.join().expect("discarder");
        zram.memory().flush_deferred();
        assert_eq!(zram.stat().pending_bytes, 0);
        let stored = zram.stat().orig_data_size / PAGE;
        assert_eq!(stored > 0, byte_at(&zram, 0) == 7, "the write or nothing");
        zram.check().expect("no defect");
    });
}

#[test]
fn two_first_writes_of_one_leaf() {
    model(|| {
        let zram = device();
        let other = Arc::clone(&zram);
        let thread = thread::spawn(move || write(&other, 0, 1));
        write(&zram, 1, 2);
        thread.join().expect("the other writer");
        assert_eq!((byte_of(&zram, 0), byte_of(&zram, 1)), (1, 2));
        zram.check().expect("no defect");
    });
}

#[test]
fn read_against_overwrite() {
    model(|| {
        let zram = device();
        write(&zram, 0, 1);
        let other = Arc::clone(&zram);
        let thread = thread::spawn(move || write(&other, 0, 2));
        assert!(matches!(byte_of(&zram, 0), 1 | 2), "one of the two, whole");
        thread.join().expect("the other writer");
        assert_eq!(byte_of(&zram, 0), 2);
    });
}
