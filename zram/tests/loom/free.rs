//! Slots that are emptied later, and operations that come before that.
//!
//! Claims
//! - A write after a discard wins against the drain of the discarded content.
//! - Content that is discarded again is freed once.
//! - A read sees zeros or the whole of a later write.

use super::{PAGE, byte_at, model};
use disk::Disk;
use loom::thread;
use ramfold_zram::study::{FreeDesign, QueueConfig, Study};
use ramfold_zram::{Zram, ZramConfig};
use std::sync::Arc;
use zsmalloc::{LEAF_CELLS, Memory, MemoryConfig};

/// A device whose discards are pending until a thread flushes.
fn device(free: FreeDesign) -> Arc<Zram> {
    let config =
        MemoryConfig { arena_frames: 512, entries_max: 6, expected_bytes: 1 << 30, worker: true };
    let memory = Memory::new(config).expect("small tables");
    let deferred = QueueConfig { shards: Some(1), buffer_bytes: 4096, ..QueueConfig::default() };
    let study = Study { free, deferred, ..Study::default() };
    let config = ZramConfig { study, ..ZramConfig::new("zram0", LEAF_CELLS as u64 * PAGE) };
    let zram = Zram::new(memory, config).expect("a device");
    // The first use of a pool's queue builds it, under the standard library's synchronisation.
    write(&zram, 0, 99);
    discard(&zram);
    zram.memory().flush_deferred();
    Arc::new(zram)
}

/// A page that does not compress and takes a frame of its own. A model's tables are too small for
/// descriptors of zspages with many objects.
pub(super) fn noise(byte: u8) -> [u8; PAGE as usize] {
    let mut state = u32::from(byte) + 1;
    let mut data = [0; PAGE as usize].map(|_: u8| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    });
    data[1] = byte;
    data
}

fn write(zram: &Zram, page: u64, byte: u8) {
    zram.write(page * PAGE, &noise(byte)).expect("room");
}

/// Discards page 0.
fn discard(zram: &Zram) {
    zram.discard_pages(0..1).expect("in range");
}

#[track_caller]
fn expect(zram: &Zram, byte: u8) {
    assert_eq!(byte_at(zram, 0), byte);
    zram.check().expect("no defect");
    zram.memory().flush_deferred();
    assert_eq!(byte_at(zram, 0), byte);
    let stored = u64::from(byte != 0);
    let stat = zram.stat();
    assert_eq!((stat.orig_data_size, stat.pending_bytes), (stored * PAGE, 0));
    assert_eq!(zram.check().expect("no defect").pool.objects, stored);
}

fn against_a_drain(free: FreeDesign, requests: impl Fn(&Zram) + Send + Sync + 'static, byte: u8) {
    model(move || {
        let zram = device(free);
        write(&zram, 0, 1);
        discard(&zram);
        let other = Arc::clone(&zram);
        let drainer = thread::spawn(move || other.memory().flush_deferred());
        requests(&zram);
        drainer.join().expect("drainer");
        expect(&zram, byte);
    });
}

#[test]
fn write_against_the_drain_of_its_slot() {
    for free in [FreeDesign::Entries, FreeDesign::Handles] {
        against_a_drain(free, |zram| write(zram, 0, 7), 7);
    }
}

/// The number is already in the queue, for content that a write has replaced since.
#[test]
fn another_discard_against_the_drain_of_its_slot() {
    model(|| {
        let zram = device(FreeDesign::Entries);
        write(&zram, 0, 1);
        discard(&zram);
        write(&zram, 0, 7);
        let other = Arc::clone(&zram);
        let drainer = thread::spawn(move || other.memory().flush_deferred());
        discard(&zram);
        drainer.join().expect("drainer");
        expect(&zram, 0);
    });
}

#[test]
fn read_against_the_drain_of_its_slot() {
    for free in [FreeDesign::Entries, FreeDesign::Handles] {
        against_a_drain(free, |zram| assert_eq!(byte_at(zram, 0), 0), 0);
    }
}

/// One thread asks for a drain while another was asked already. Nothing is left without a job.
#[test]
fn discard_against_the_job_that_drains() {
    model(|| {
        let zram = device(FreeDesign::Entries);
        write(&zram, 0, 1);
        write(&zram, 1, 2);
        discard(&zram);
        let other = Arc::clone(&zram);
        let drainer = thread::spawn(move || other.memory().flush_deferred());
        zram.discard_pages(1..2).expect("in range");
        drainer.join().expect("drainer");
        zram.memory().flush_deferred();
        let stat = zram.stat();
        assert_eq!((stat.orig_data_size, stat.pending_bytes), (0, 0));
    });
}
