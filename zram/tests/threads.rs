//! A device under several threads.
//!
//! Claims
//! - Threads write, read and discard pages of their own, while others compact, check and discard
//!   whole leaves. They find their own bytes every time.
//! - If two threads write neighbouring sectors of one page, both writes survive.
//! - Racing writes and discards of the same pages leave each page as some write or the discard left
//!   it, and nothing leaks.
//!
//! The distribution: 4 threads, 60 % writes (a third of them same-filled), 25 % reads, 15 %
//! discards, uniform over the thread's pages. Not a benchmark.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use disk::Disk;
use ramfold_zram::{Zram, ZramConfig};
use zsmalloc::{Memory, MemoryConfig};

use random::Random;

#[path = "support/random.rs"]
mod random;

const PAGE: usize = 4096;
const THREADS: u64 = 4;

fn device(size: u64) -> Zram {
    device_with(true, size)
}

fn device_with(worker: bool, size: u64) -> Zram {
    let config = MemoryConfig {
        arena_frames: 1 << 16,
        entries_max: 1 << 20,
        expected_bytes: 8 << 20,
        worker,
    };
    let memory: Arc<Memory> = Memory::new(config).expect("address space");
    Zram::new(memory, ZramConfig::new("zram0", size)).expect("a device")
}

/// A page in which every 64 bytes say which thread wrote it, and in which version.
fn stamped(thread: u64, page: u64, version: u64) -> Vec<u8> {
    if version.is_multiple_of(3) {
        return vec![(version % 251) as u8; PAGE];
    }
    let mut random = Random(version | 1);
    let mut data = Vec::with_capacity(PAGE);
    while data.len() < PAGE {
        for word in [thread, page, version, random.next() >> (version % 50)] {
            data.extend_from_slice(&word.to_le_bytes());
        }
    }
    data
}

#[test]
fn each_thread_finds_its_own_bytes_while_others_compact() {
    const PAGES: u64 = 600;
    let zram = device(THREADS * PAGES * PAGE as u64);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (zram, done) = (&zram, &done);
        let others = scope.spawn(move || {
            let mut rounds = 0;
            while !done.load(Ordering::Relaxed) {
                zram.compact();
                zram.check().expect("no defect under load");
                rounds += 1;
            }
            rounds
        });
        let workers: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || work(zram, thread, PAGES))).collect();
        let failed = workers.into_iter().any(|worker| worker.join().is_err());
        done.store(true, Ordering::Relaxed);
        assert!(others.join().expect("compactor") > 0);
        assert!(!failed, "a thread found other bytes than it wrote");
    });
    zram.check().expect("no defect");
}

fn work(zram: &Zram, thread: u64, pages: u64) {
    let mut random = Random(0x1234_5678 + thread * 77);
    let mut versions = vec![0u64; pages as usize];
    let mut data = vec![0; PAGE];
    for version in 1..12_000u64 {
        let page = random.below(pages);
        // Pages of the threads are interleaved, so that neighbours share leaves and zspages.
        let offset = (page * THREADS + thread) * PAGE as u64;
        match random.below(100) {
            0..60 => {
                zram.write(offset, &stamped(thread, page, version)).expect("room");
                versions[page as usize] = version;
            }
            60..85 => {
                zram.read(offset, &mut data).expect("in range");
                match versions[page as usize] {
                    0 => assert!(data.iter().all(|&byte| byte == 0), "page {page} is zeros"),
                    version => assert!(data == stamped(thread, page, version), "page {page}"),
                }
            }
            _ => {
                zram.discard(offset, PAGE as u64).expect("in range");
                versions[page as usize] = 0;
            }
        }
    }
}

#[test]
fn neighbouring_sectors_written_by_two_threads_both_survive() {
    let zram = device(16 * PAGE as u64);
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let zram = &zram;
            scope.spawn(move || {
                for round in 0..2_000u64 {
                    let offset = (round % 16) * PAGE as u64 + thread * 512;
                    let sector = [(round % 255) as u8 + 1 - thread as u8; 512];
                    zram.write(offset, &sector).expect("room");
                    let mut back = [0; 512];
                    zram.read(offset, &mut back).expect("in range");
                    assert!(back == sector, "thread {thread} round {round}");
                }
            });
        }
    });
    zram.check().expect("no defect");
}

#[test]
fn racing_writes_and_leaf_discards_lose_nothing_else() {
    const LEAF: u64 = 512 * PAGE as u64;
    let zram = device(2 * LEAF);
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            let zram = &zram;
            scope.spawn(move || {
                let mut random = Random(99 + thread);
                let mut data = vec![0; PAGE];
                for version in 0..40_000u64 {
                    let page = random.below(64) * 8 + thread;
                    let offset = page * PAGE as u64;
                    zram.write(offset, &stamped(thread, page, version)).expect("room");
                    zram.read(offset, &mut data).expect("in range");
                    let zeros = data.iter().all(|&byte| byte == 0);
                    let ours = data == stamped(thread, page, version);
                    assert!(zeros || ours, "thread {thread} version {version}");
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..4_000 {
                zram.discard(0, LEAF).expect("in range");
            }
        });
    });
    zram.check().expect("no defect");
    zram.discard(0, 2 * LEAF).expect("in range");
    assert_eq!(zram.stat().compr_data_size, 0);
    zram.memory().flush_deferred();
    assert_eq!(zram.stat().mem_used_total, 0);
}

/// A million writes and discards race for the leaves of one table. A write that looked at the root
/// before a discard must not go into a leaf that has another place by then.
///
/// That takes a thread that is preempted between two looks. So there are many threads, and they do
/// little in between: pages are same-filled, and say in each word which they are. The thread that
/// discards drains, so that a leaf has its next place at once. Without the second look, every other
/// run fails in release form. The models of tests/loom.rs always fail.
#[test]
fn a_million_racing_writes_and_discards_read_no_page_of_anothers() {
    const PLACES: u64 = 8;
    const CELLS: u64 = 4; // few, so that everybody meets
    const WRITERS: u64 = 6;
    const ROUNDS: u64 = if cfg!(debug_assertions) { 30_000 } else { 160_000 };
    let any = |random: &mut Random| random.below(PLACES) * 512 + random.below(CELLS);
    let zram = &device_with(false, PLACES * 512 * PAGE as u64);
    std::thread::scope(|scope| {
        for thread in 0..WRITERS {
            scope.spawn(move || {
                let mut random = Random(7 + thread);
                for _ in 0..ROUNDS {
                    let page = any(&mut random);
                    zram.write_page(page, &named_page(page)).expect("room");
                    expect_named(zram, any(&mut random));
                }
            });
        }
        scope.spawn(move || {
            let mut random = Random(5);
            for _ in 0..ROUNDS {
                let place = random.below(PLACES) * 512;
                zram.discard_pages(place..place + 512).expect("in range");
            }
        });
    });
    (0..PLACES * 512).for_each(|page| expect_named(zram, page));
    zram.check().expect("no defect");
    zram.discard_pages(0..PLACES * 512).expect("in range");
    let stat = zram.stat();
    assert_eq!((stat.pending_bytes, stat.orig_data_size, stat.mem_used_total), (0, 0, 0));
}

/// A page that repeats its number, and is not zeros.
fn named_page(page: u64) -> Vec<u8> {
    (1 + page as u32).to_le_bytes().repeat(PAGE / 4)
}

/// Expects the content that was written there, or zeros.
#[track_caller]
fn expect_named(zram: &Zram, page: u64) {
    let mut data = [0; PAGE];
    zram.read_page(page, &mut data).expect("in range");
    assert!(data == [0; PAGE] || data[..] == named_page(page), "page {page}: {:?}", &data[..4]);
}

/// A writer that meets another's compaction at the limit waits for it. There is room, and every
/// writer gets some.
#[test]
fn writers_that_meet_at_the_limit_all_find_the_room_there_is() {
    const PAGES: u64 = 64;
    let zram = device(8 * PAGES * PAGE as u64);
    for n in 0..4 * PAGES {
        zram.write(n * PAGE as u64, &stamped(0, n, 3 * n + 1)).expect("no limit yet");
    }
    let full = zram.stat().object_bytes_resident;
    for n in (0..4 * PAGES).filter(|n| n % 2 == 0) {
        zram.discard(n * PAGE as u64, PAGE as u64).expect("in range");
    }
    zram.set_mem_limit(full);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let zram = &zram;
            scope.spawn(move || {
                for n in 0..PAGES / THREADS {
                    let page = 4 * PAGES + thread * PAGES + n;
                    let data = stamped(thread, page, 3 * n + 2);
                    zram.write(page * PAGE as u64, &data).expect("half of the pages are gone");
                }
            });
        }
    });
    zram.check().expect("no defect");
}

/// A client of a run of no bytes would not get on, or take it for a byte.
#[test]
fn a_run_has_a_page_at_least_while_its_kind_changes() {
    let zram = device(16 * PAGE as u64);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (zram, done) = (&zram, &done);
        let changing = scope.spawn(move || {
            let (data, zeros) = (stamped(0, 0, 1), vec![0; PAGE]);
            while !done.load(Ordering::Relaxed) {
                zram.write(0, &data).expect("room");
                zram.discard(0, PAGE as u64).expect("in range");
                zram.write(0, &zeros).expect("room");
            }
        });
        let shortest = (0..300_000).map(|_| {
            let extent = zram.next_extent(0, 16 * PAGE as u64).expect("in range");
            extent.len
        });
        let shortest = shortest.min();
        done.store(true, Ordering::Relaxed);
        changing.join().expect("it changes one page");
        assert!(shortest >= Some(PAGE as u64), "{shortest:?}");
    });
}
