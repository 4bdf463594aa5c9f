//! The slot table under every interleaving that two preemptions allow.
//!
//! A whole device with two cells to a leaf. Run with
//! `RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=2`.
//!
//! Claims: a write that races the discard of its leaf lands in its own page or is discarded, never
//! in a leaf that is somebody else's by then; whoever takes the first leaf of a part of the disk
//! together with another loses nothing.
#![cfg(loom)]

use std::sync::Arc;

use disk::Disk;
use loom::thread;
use zram::{Zram, ZramConfig};
use zsmalloc::{LEAF_CELLS, Memory, MemoryConfig};

const PAGE: u64 = 4096;
const LEAF: u64 = LEAF_CELLS as u64 * PAGE;

/// `loom::model` with room for the many atomics of a whole device.
fn model(scenario: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    builder.check(scenario);
}

fn device() -> Arc<Zram> {
    let config =
        MemoryConfig { arena_frames: 512, entries_max: 6, limit_bytes: 1 << 30, worker: false };
    let memory = Memory::new(config).expect("small tables");
    Arc::new(Zram::new(memory, ZramConfig::new("zram0", 2 * LEAF)).expect("a device"))
}

fn write(zram: &Zram, page: u64, byte: u8) {
    zram.write(page * PAGE, &[byte; PAGE as usize]).expect("room");
}

fn byte_of(zram: &Zram, page: u64) -> u8 {
    let mut data = [0; PAGE as usize];
    zram.read(page * PAGE, &mut data).expect("in range");
    assert!(data.iter().all(|&byte| byte == data[0]), "page {page} is of one write");
    data[0]
}

/// Without the second look at the root, the late write of page 0 goes into the leaf that is page
/// 2's by then.
#[test]
fn late_write_against_discard_and_the_leafs_next_place() {
    model(|| {
        let zram = device();
        write(&zram, 0, 1);
        let other = Arc::clone(&zram);
        let discarder = thread::spawn(move || {
            other.discard(0, LEAF).expect("in range");
            write(&other, 2, 9);
        });
        write(&zram, 0, 7);
        discarder.join().expect("discarder");
        assert!(matches!(byte_of(&zram, 0), 0 | 7), "the first write is gone");
        assert_eq!((byte_of(&zram, 1), byte_of(&zram, 2), byte_of(&zram, 3)), (0, 9, 0));
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
