//! Ranges that are discarded at once, and drained later.
//!
//! Claims
//! - A discarded range reads as zeros at once and is gone from the counters at once. Its bytes are
//!   pending until they are freed, and every byte is in one counter meanwhile.
//! - The drain does not touch pages that are written next. `check()` finds nothing at any time.
//! - A write that meets the limit, or a full table, waits for what is pending and finds its room.
//! - A device may be dropped, or end with its memory, while some of it is pending.
//! - Any sequence of writes, discards and flushes reads back as a twin does, while the worker
//!   works.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use disk::Disk;
use proptest::prelude::*;
use ramfold_zram::{Zram, ZramConfig};
use zsmalloc::{LEAF_CELLS, Memory, MemoryConfig};

const PAGE: usize = 4096;
const LEAF: u64 = LEAF_CELLS as u64;
/// Only a deadlock takes so long.
const HANG: Duration = Duration::from_secs(60);

fn memory(entries_max: u64) -> Arc<Memory> {
    let config =
        MemoryConfig { arena_frames: 1 << 16, entries_max, expected_bytes: 1 << 30, worker: true };
    Memory::new(config).expect("address space")
}

fn device(memory: &Arc<Memory>, pages: u64) -> Zram {
    let config = ZramConfig::new("zram0", pages * PAGE as u64);
    Zram::new(Arc::clone(memory), config).expect("a device")
}

/// Content of a page by number and version: something to compress, an interned word or zeros.
fn content(page: u64, version: u64) -> Vec<u8> {
    match (page + version) % 5 {
        0 => vec![0; PAGE],
        1 => (page << 32 | version << 1 | 1).to_le_bytes().repeat(PAGE / 8),
        kind => {
            let word = |at: u64| if at.is_multiple_of(kind) { at * at + page } else { version };
            (0..PAGE as u64 / 8).flat_map(|at| word(at).to_le_bytes()).collect()
        }
    }
}

fn fill(zram: &Zram, pages: std::ops::Range<u64>, version: u64) {
    pages.for_each(|page| zram.write_page(page, &content(page, version)).expect("room"));
}

#[track_caller]
fn expect_page(zram: &Zram, page: u64, expected: &[u8]) {
    let mut data = vec![0xee; PAGE];
    zram.read_page(page, &mut data).expect("in range");
    assert!(data == expected, "page {page}");
}

/// Keeps the memory's worker busy until the sender is used or dropped.
fn block(memory: &Arc<Memory>) -> mpsc::Sender<()> {
    let (started, running) = mpsc::channel();
    let (unblock, blocked) = mpsc::channel();
    memory.defer(0, move || {
        started.send(()).expect("the test waits");
        let _ = blocked.recv_timeout(HANG);
    });
    running.recv_timeout(HANG).expect("the worker runs it");
    unblock
}

#[test]
fn a_range_is_gone_at_once_and_pending_until_it_is_drained() {
    let memory = memory(1 << 16);
    let zram = device(&memory, 4 * LEAF);
    fill(&zram, 0..4 * LEAF, 1);
    let full = zram.stat();
    let unblock = block(&memory);
    zram.discard_pages(LEAF..3 * LEAF).expect("in range");
    let stat = zram.stat();
    assert_eq!(stat.orig_data_size, 2 * LEAF * PAGE as u64);
    assert!(stat.same_pages > 0 && stat.same_pages <= full.same_pages / 2 + 1);
    assert_eq!(stat.mem_used_total, full.mem_used_total, "its zspages are still there");
    assert_eq!(stat.compr_data_size + stat.pending_bytes, full.compr_data_size);
    assert_eq!(memory.pending_bytes(), stat.pending_bytes);
    let objects = stat.object_bytes_resident + stat.pending_bytes;
    assert_eq!(objects, full.object_bytes_resident, "no byte is counted twice");
    zram.check().expect("no defect with leaves pending");
    (LEAF..3 * LEAF).for_each(|page| expect_page(&zram, page, &[0; PAGE]));
    fill(&zram, LEAF..2 * LEAF, 2);
    let before = zram.stat();
    drop(unblock);
    memory.flush_deferred();
    let after = zram.stat();
    assert_eq!((after.pending_bytes, memory.pending_bytes()), (0, 0));
    assert_eq!(after.compr_data_size, before.compr_data_size, "the drain changes nothing else");
    assert!(after.mem_used_total < before.mem_used_total);
    for page in (0..LEAF).chain(3 * LEAF..4 * LEAF) {
        expect_page(&zram, page, &content(page, 1));
    }
    (LEAF..2 * LEAF).for_each(|page| expect_page(&zram, page, &content(page, 2)));
    assert!(!zram.check().expect("no defect").moved);
}

/// Unblocks the worker as soon as a thread waits for it.
fn unblock_when_flushed(memory: &Arc<Memory>, unblock: mpsc::Sender<()>) {
    let memory = Arc::clone(memory);
    std::thread::spawn(move || {
        while memory.deferred().jobs > 1 {
            std::thread::yield_now(); // a flush runs all jobs except the running one
        }
        drop(unblock);
    });
}

#[test]
fn a_write_at_the_limit_waits_for_what_is_pending() {
    let memory = memory(1 << 16);
    let zram = device(&memory, 4 * LEAF);
    fill(&zram, 0..LEAF, 2);
    let limit = zram.stat().object_bytes_resident;
    zram.set_mem_limit(limit);
    let unblock = block(&memory);
    zram.discard_pages(0..LEAF).expect("in range");
    unblock_when_flushed(&memory, unblock);
    fill(&zram, LEAF..LEAF + LEAF / 2, 2);
    assert!(zram.stat().object_bytes_resident + zram.stat().pending_bytes <= limit);
    zram.check().expect("no defect");
}

#[test]
fn a_write_that_finds_the_table_full_waits_for_what_is_pending() {
    let memory = memory(2 * LEAF);
    let zram = device(&memory, 4 * LEAF);
    fill(&zram, 0..2 * LEAF, 1);
    let unblock = block(&memory);
    zram.discard_pages(0..LEAF).expect("in range");
    unblock_when_flushed(&memory, unblock);
    fill(&zram, 2 * LEAF..3 * LEAF, 1);
    zram.write_page(0, &content(0, 2)).expect_err("two leaves are all there are");
    (LEAF..3 * LEAF).for_each(|page| expect_page(&zram, page, &content(page, 1)));
    zram.check().expect("no defect");
}

#[test]
fn a_device_may_end_while_something_of_it_is_pending() {
    let memory = memory(1 << 16);
    let unblock = block(&memory);
    let ended = device(&memory, 4 * LEAF);
    let stays = device(&memory, 4 * LEAF);
    for zram in [&ended, &stays] {
        fill(zram, 0..4 * LEAF, 1);
        zram.discard_pages(LEAF..3 * LEAF).expect("in range");
    }
    drop(ended);
    drop(unblock);
    memory.flush_deferred();
    (0..LEAF).for_each(|page| expect_page(&stays, page, &content(page, 1)));
    stays.check().expect("no defect");
    let weak = Arc::downgrade(&memory);
    let unblock = block(&memory);
    stays.discard_pages(0..LEAF).expect("in range");
    drop((memory, stays));
    assert!(weak.strong_count() > 0, "what is pending keeps the memory");
    drop(unblock);
    while weak.strong_count() > 0 {
        std::thread::yield_now();
    }
}

/// All frames, leaves and bytes of a dropped device come back.
#[test]
fn a_dropped_device_leaves_nothing() {
    let memory = memory(1 << 16);
    let empty = memory.cell_table_bytes();
    for pages in [3, 2 * LEAF, 20 * LEAF] {
        let zram = device(&memory, 20 * LEAF);
        fill(&zram, 0..pages, 1);
        drop(zram);
        memory.flush_deferred();
        let zone = memory.check_zone().expect("no defect");
        assert_eq!(zone.allocated_frames, zone.listed_frames, "every frame is free");
        memory.check_free_held().expect("and counted");
        memory.release(0);
        assert_eq!(memory.free_bytes_held(), 0);
        assert!(memory.cell_table_bytes() - empty < 16 << 10, "every leaf is returned");
    }
}

#[derive(Clone, Debug)]
enum Action {
    Write(std::ops::Range<u64>),
    Discard(std::ops::Range<u64>),
    Flush,
    Compact,
    Check,
}

const PAGES: u64 = 3 * LEAF + 100;

fn action() -> impl Strategy<Value = Action> {
    let range = |len: std::ops::Range<u64>| {
        (0..PAGES, len).prop_map(|(start, len)| start..(start + len).min(PAGES))
    };
    let leaves = (0..4_u64, 1..5_u64)
        .prop_map(|(first, len)| first * LEAF..((first + len) * LEAF).min(PAGES));
    prop_oneof![
        6 => range(1..200).prop_map(Action::Write),
        2 => range(1..2 * LEAF).prop_map(Action::Discard),
        3 => leaves.prop_map(Action::Discard),
        1 => Just(Action::Flush),
        1 => Just(Action::Compact),
        1 => Just(Action::Check),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    #[test]
    fn a_device_is_its_twin_while_its_worker_drains(
        actions in prop::collection::vec(action(), 1..60),
    ) {
        let memory = memory(1 << 14);
        let zram = device(&memory, PAGES);
        let mut twin = vec![None; PAGES as usize];
        for (version, action) in (1..).zip(actions) {
            match action {
                Action::Write(pages) => for page in pages {
                    zram.write_page(page, &content(page, version)).expect("room");
                    twin[page as usize] = Some(version);
                },
                Action::Discard(pages) => {
                    zram.discard_pages(pages.clone()).expect("in range");
                    twin[pages.start as usize..pages.end as usize].fill(None);
                }
                Action::Flush => memory.flush_deferred(),
                Action::Compact => drop(zram.compact()),
                Action::Check => drop(zram.check().expect("no defect")),
            }
            let stored = twin.iter().flatten().count() * PAGE;
            prop_assert_eq!(zram.stat().orig_data_size, stored as u64);
        }
        for (page, version) in (0..).zip(&twin) {
            let expected = version.map_or(vec![0; PAGE], |version| content(page, version));
            expect_page(&zram, page, &expected);
        }
        memory.flush_deferred();
        prop_assert_eq!(zram.stat().pending_bytes, 0);
        zram.check().expect("no defect");
        zram.discard(0, PAGES * PAGE as u64).expect("in range");
        memory.flush_deferred();
        prop_assert_eq!(zram.stat().mem_used_total, 0);
    }
}
