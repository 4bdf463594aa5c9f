//! A device against the block-device suite, a plain-RAM twin, and the system's own numbers.
//!
//! Claims
//! - Every algorithm, rule and chain order behaves as a disk does (the conformance suite).
//! - Any sequence of writes, partial writes, discards, zeroes and compactions reads back as the
//!   twin does, and `check()` finds nothing.
//! - The kernel's counters have the kernel's meanings.
//! - At the limit a write fails with "no space" and loses nothing, and discarding makes room.
//! - The accounted bytes are the resident bytes, within 1 %.
//! - A disk of any size costs nothing until it is written.

use std::sync::Arc;

use codec::{Algorithm, Codec};
use disk::{Allocation, Disk, DiskError, ExtentKind};
use proptest::prelude::*;
use ramfold_zram::{Zram, ZramConfig};
use zsmalloc::{Memory, MemoryConfig, Rule};

const PAGE: usize = 4096;
const MIB: u64 = 1 << 20;

fn memory() -> Arc<Memory> {
    let config = MemoryConfig {
        arena_frames: 1 << 17,
        entries_max: 1 << 20,
        expected_bytes: 64 * MIB,
        worker: false,
    };
    Memory::new(config).expect("address space")
}

fn device(config: ZramConfig) -> Zram {
    Zram::new(memory(), config).expect("a device")
}

/// A page that compresses to roughly `1 / ratio`, different for each seed.
fn page(seed: u64, ratio: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..PAGE).map(|at| if at % ratio == 0 { next() } else { (at / 64) as u8 }).collect()
}

#[test]
fn it_is_a_disk() {
    for (algorithm, order, rule) in [
        ("lz4", 3, Rule::LeastWaste),
        ("lz4", 2, Rule::LeastWaste),
        ("zstd", 3, Rule::LeastWaste),
        ("lz4:8", 4, Rule::UsedPercent),
        ("zstd:1", 0, Rule::LeastWaste),
    ] {
        let algorithm: Codec = algorithm.parse().expect("a codec");
        let make = |size: u64| -> Arc<dyn Disk> {
            let config = ZramConfig {
                algorithm: algorithm.clone(),
                chain_order: order,
                rule,
                share_equal_pages: order != 3,
                ..ZramConfig::new("zram0", size)
            };
            Arc::new(device(config))
        };
        let name = format!("zram {algorithm} order {order} {rule}");
        disk::conformance::run(&name, &make);
        disk::conformance::run_sparse(&name, &make);
    }
}

/// It refuses what exceeds its limit, and may have done a part of the request by then.
#[test]
fn a_full_one_is_a_disk_that_fails() {
    let size = 24 * PAGE as u64;
    let make = |size: u64| -> Arc<dyn Disk> {
        let config = ZramConfig { mem_limit: 8 * PAGE as u64, ..ZramConfig::new("zram0", size) };
        Arc::new(device(config))
    };
    disk::conformance::run_failing("zram at its limit", size, &make, &|_| ());
}

/// To change a part of a page that holds nothing would store a page of zeros.
#[test]
fn zeroing_a_part_of_a_hole_stores_nothing() {
    let zram = device(ZramConfig::new("zram0", 16 * PAGE as u64));
    zram.discard(100, 50).expect("in range");
    zram.write_zeroes(PAGE as u64 - 10, 20, Allocation::MayUnmap).expect("in range");
    assert_eq!(zram.stat().same_pages, 0);
    let extent = zram.next_extent(0, zram.size_bytes()).expect("in range");
    assert_eq!((extent.kind, extent.len), (ExtentKind::Hole, zram.size_bytes()));
}

#[derive(Clone, Debug)]
enum Action {
    Write { offset: usize, len: usize, seed: u64, ratio: usize },
    Fill { page: usize, word: u64 },
    Discard { offset: usize, len: usize },
    Zeroes { offset: usize, len: usize, keep: bool },
    Compact,
}

const PAGES: usize = 1100; // two whole leaves and a part

fn action() -> impl Strategy<Value = Action> {
    let range = || (0..PAGES * PAGE, prop_oneof![1usize..9000, Just(PAGE), Just(3 << 20)]);
    prop_oneof![
        6 => (range(), any::<u64>(), 1usize..40).prop_map(|((offset, len), seed, ratio)|
            Action::Write { offset, len: len.min(64 << 10), seed, ratio }),
        4 => (0..PAGES, any::<u64>(), 1usize..40).prop_map(|(page, seed, ratio)|
            Action::Write { offset: page * PAGE, len: PAGE, seed, ratio }),
        2 => (0..PAGES, prop_oneof![Just(0), Just(u64::MAX), any::<u64>()])
            .prop_map(|(page, word)| Action::Fill { page, word }),
        2 => range().prop_map(|(offset, len)| Action::Discard { offset, len }),
        1 => (range(), any::<bool>())
            .prop_map(|((offset, len), keep)| Action::Zeroes { offset, len, keep }),
        1 => Just(Action::Compact),
    ]
}

fn clip(offset: usize, len: usize) -> std::ops::Range<usize> {
    offset..(offset + len).min(PAGES * PAGE)
}

fn apply(zram: &Zram, twin: &mut [u8], action: &Action) {
    match *action {
        Action::Write { offset, len, seed, ratio } => {
            let range = clip(offset, len);
            let data: Vec<u8> =
                (0..).flat_map(|n| page(seed + n, ratio)).take(range.len()).collect();
            zram.write(offset as u64, &data).expect("room");
            twin[range].copy_from_slice(&data);
        }
        Action::Fill { page, word } => {
            let data = word.to_le_bytes().repeat(PAGE / 8);
            zram.write((page * PAGE) as u64, &data).expect("room");
            twin[page * PAGE..(page + 1) * PAGE].copy_from_slice(&data);
        }
        Action::Discard { offset, len } => {
            let range = clip(offset, len);
            zram.discard(offset as u64, range.len() as u64).expect("in range");
            twin[range].fill(0);
        }
        Action::Zeroes { offset, len, keep } => {
            let range = clip(offset, len);
            let keep = if keep { Allocation::Keep } else { Allocation::MayUnmap };
            zram.write_zeroes(offset as u64, range.len() as u64, keep).expect("in range");
            twin[range].fill(0);
        }
        Action::Compact => {
            zram.compact();
        }
    }
}

fn expect_equal(zram: &Zram, twin: &[u8]) {
    let mut data = vec![0; twin.len()];
    zram.read(0, &mut data).expect("in range");
    if data != twin {
        let at = data.iter().zip(twin).position(|(a, b)| a != b);
        panic!("the device differs from its twin at byte {at:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_device_is_its_twin(
        actions in prop::collection::vec(action(), 1..80),
        zstd in any::<bool>(),
        chain_order in 0u32..=4,
        share_equal_pages in any::<bool>(),
    ) {
        let algorithm = Codec::new(if zstd { Algorithm::Zstd } else { Algorithm::Lz4 });
        let size = (PAGES * PAGE) as u64;
        let config = ZramConfig::new("zram0", size);
        let zram = device(ZramConfig { algorithm, chain_order, share_equal_pages, ..config });
        let mut twin = vec![0; PAGES * PAGE];
        for (step, action) in actions.iter().enumerate() {
            apply(&zram, &mut twin, action);
            if step % 8 == 0 {
                let report = zram.check().expect("no defect");
                prop_assert!(!report.moved);
            }
        }
        expect_equal(&zram, &twin);
        zram.check().expect("no defect");
        zram.discard(0, size).expect("in range");
        let stat = zram.stat();
        prop_assert_eq!((stat.orig_data_size, stat.compr_data_size, stat.same_pages), (0, 0, 0));
        prop_assert_eq!((stat.mem_used_total, stat.object_bytes_resident), (0, 0));
        zram.check().expect("no defect");
    }
}

#[test]
fn the_kernels_counters_have_the_kernels_meanings() {
    let zram = device(ZramConfig::new("zram0", 16 * MIB));
    let at = |n: u64| n * PAGE as u64;
    zram.write(at(0), &page(1, 16)).expect("room"); // compresses
    zram.write(at(1), &page(2, 1)).expect("room"); // does not
    zram.write(at(2), &[7; PAGE]).expect("room"); // same-filled
    zram.write(at(3), &[0; PAGE]).expect("room"); // zeros count too
    let stat = zram.stat();
    assert_eq!(stat.orig_data_size, at(4));
    assert_eq!((stat.same_pages, stat.huge_pages, stat.huge_pages_since), (2, 1, 1));
    assert!(stat.compr_data_size > at(1) && stat.compr_data_size < at(2));
    zram.write(at(1), &page(3, 16)).expect("room"); // no longer huge
    let stat = zram.stat();
    assert_eq!((stat.huge_pages, stat.huge_pages_since), (0, 1));
    zram.discard(at(0), at(10)).expect("in range");
    assert_eq!(zram.io_stat().notify_free, 10, "empty pages count");
    let columns: Vec<String> =
        zram.mm_stat().to_string().split_whitespace().map(String::from).collect();
    assert_eq!(columns.len(), 9);
    assert_eq!(columns[..3], ["0", "0", "0"]);
    assert_eq!(columns[8], "1");
    assert_eq!(zram.io_stat().to_string(), "       0        0 0       10\n");
    assert!(zram.mm_stat().to_string().starts_with("       0        0 "));
}

#[test]
fn extents_tell_holes_from_zeros_and_data() {
    let zram = device(ZramConfig::new("zram0", 8 * MIB));
    zram.write(5 * PAGE as u64, &page(1, 4)).expect("room");
    zram.write(6 * PAGE as u64, &[0; PAGE]).expect("room");
    let mut at = 0;
    let mut found = Vec::new();
    while at < 8 * MIB {
        let extent = zram.next_extent(at, 8 * MIB - at).expect("in range");
        found.push((extent.len / PAGE as u64, extent.kind));
        at += extent.len;
    }
    let (hole, data, zero) = (ExtentKind::Hole, ExtentKind::Data, ExtentKind::Zero);
    assert_eq!(found, [(5, hole), (1, data), (1, zero), (2041, hole)]);
}

#[test]
fn at_the_limit_writes_fail_nothing_is_lost_and_discarding_makes_room() {
    let zram = device(ZramConfig { mem_limit: MIB, ..ZramConfig::new("zram0", 64 * MIB) });
    let mut stored = 0;
    let error = loop {
        match zram.write(stored * PAGE as u64, &page(stored, 3)) {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, DiskError::NoSpace), "{error}");
    assert_eq!(zram.io_stat().failed_writes, 1);
    assert!(zram.stat().object_bytes_resident <= MIB);
    assert!(zram.stat().compr_data_size > MIB * 9 / 10, "the limit is used");
    for n in 0..stored {
        let mut data = vec![0; PAGE];
        zram.read(n * PAGE as u64, &mut data).expect("in range");
        assert!(data == page(n, 3), "page {n} is as it was written");
    }
    zram.check().expect("no defect");
    // Every second page goes, so no zspage becomes empty by itself, and compaction has to help.
    for n in (0..stored).step_by(2) {
        zram.discard(n * PAGE as u64, PAGE as u64).expect("in range");
    }
    for n in 0..stored / 3 {
        let other = page(n + 1_000_000, 9); // another size class
        zram.write((stored + n) * PAGE as u64, &other).expect("discarding made room");
    }
    zram.check().expect("no defect");
}

/// A TRIM of bytes 100 to 5100 once ended in ENOSPC at the limit, because the rest of a page is
/// stored before the page is gone. A discard leaves such a page unchanged. A request for zeros
/// still fails.
#[test]
fn a_discard_at_the_limit_skips_what_needs_room() {
    let zram = device(ZramConfig::new("zram0", 64 * MIB));
    (0..200).for_each(|n| zram.write(n * PAGE as u64, &page(n, 3)).expect("no limit yet"));
    zram.set_mem_limit(zram.stat().object_bytes_resident / 2);
    let (offset, len) = (100, 3 * PAGE as u64 + 900);
    let bytes = || {
        let mut bytes = vec![0xee; 5 * PAGE];
        zram.read(0, &mut bytes).expect("in range");
        bytes
    };
    let written: Vec<u8> = (0..5).flat_map(|n| page(n, 3)).collect();
    let failed = zram.io_stat().failed_writes;
    zram.discard(offset, len).expect("a discard needs no room");
    assert_eq!(zram.io_stat().failed_writes, failed);
    let after = bytes();
    assert!(after[PAGE..3 * PAGE].iter().all(|&byte| byte == 0), "whole pages are gone");
    assert!(after[..PAGE] == written[..PAGE], "there is no room for what is left of this one");
    assert!(after[3 * PAGE..] == written[3 * PAGE..], "nor of this, and the next is none of it");
    zram.check().expect("no defect");
    for keep in [Allocation::MayUnmap, Allocation::Keep] {
        let refused = zram.write_zeroes(offset, len, keep);
        assert!(matches!(refused, Err(DiskError::NoSpace)), "zeros or an error: {refused:?}");
    }
    zram.set_mem_limit(0);
    zram.discard(offset, len).expect("in range");
    let mut expected = written;
    expected[100..100 + len as usize].fill(0);
    assert!(bytes() == expected, "with room for them the ends are zeros too");
    zram.check().expect("no defect");
}

/// The limit is accepted, as in the kernel, and keeps more from being stored.
#[test]
fn a_limit_below_what_is_in_use_takes_nothing_away() {
    let zram = device(ZramConfig::new("zram0", 64 * MIB));
    let expect_all = |count: u64| {
        for n in 0..count {
            let mut data = vec![0; PAGE];
            zram.read(n * PAGE as u64, &mut data).expect("in range");
            assert!(data == page(n, 3), "page {n} is as it was written");
        }
        zram.check().expect("no defect");
    };
    for n in 0..200 {
        zram.write(n * PAGE as u64, &page(n, 3)).expect("no limit yet");
    }
    let full = zram.stat();
    zram.set_mem_limit(full.object_bytes_resident / 2);
    for n in [0, 200] {
        let refused = zram.write(n * PAGE as u64, &page(n + 1_000_000, 9));
        assert!(matches!(refused, Err(DiskError::NoSpace)), "{refused:?} for page {n}");
    }
    assert_eq!(zram.stat().compr_data_size, full.compr_data_size, "nothing came, nothing went");
    expect_all(200);
    for n in 50..200 {
        zram.discard(n * PAGE as u64, PAGE as u64).expect("in range");
    }
    zram.write(50 * PAGE as u64, &page(50, 3)).expect("below the limit again");
    expect_all(51);
}

/// If the ends were zeroed first, they would need room that only the discard of the middle makes.
#[test]
fn an_unaligned_discard_at_the_limit_makes_its_own_room() {
    let zram = device(ZramConfig { mem_limit: MIB, ..ZramConfig::new("zram0", 64 * MIB) });
    let mut stored = 0;
    while zram.write(stored * PAGE as u64, &page(stored, 1)).is_ok() {
        stored += 1;
    }
    zram.discard(100, (stored - 1) * PAGE as u64).expect("the middle goes first");
    assert_eq!(zram.stat().orig_data_size, 2 * PAGE as u64, "the two ends are left");
    zram.check().expect("no defect");
}

/// The last leaf of a disk may be only partly used.
#[test]
fn a_whole_discard_gives_every_leaf_back() {
    let zram = device(ZramConfig::new("zram0", 600 * PAGE as u64));
    zram.write(599 * PAGE as u64, &page(1, 9)).expect("room");
    zram.write(0, &page(2, 9)).expect("room");
    zram.discard(0, 600 * PAGE as u64).expect("in range");
    zram.compact();
    let table = zram.stat().metadata.slot_table;
    assert!(table < 24 << 10, "{table} bytes of table for an empty disk");
}

#[test]
fn accounted_bytes_are_the_resident_ones() {
    for order in [2, 3, 4] {
        let config = ZramConfig { chain_order: order, ..ZramConfig::new("zram0", 128 * MIB) };
        let zram = device(config);
        for n in 0..16384 {
            zram.write(n * PAGE as u64, &page(n, 2 + n as usize % 9)).expect("room");
        }
        expect_accounted(&zram, "filled");
        for n in (0..16384).filter(|n| n % 3 != 0) {
            zram.discard(n * PAGE as u64, PAGE as u64).expect("in range");
        }
        expect_accounted(&zram, "two thirds discarded");
        let before = zram.stat().accounted_bytes();
        zram.compact();
        expect_accounted(&zram, "compacted");
        assert!(zram.stat().accounted_bytes() < before / 2, "compaction gave memory back");
        zram.check().expect("no defect");
    }
}

#[track_caller]
fn expect_accounted(zram: &Zram, when: &str) {
    let stat = zram.stat();
    let Some(resident) = stat.resident_bytes else {
        println!("skipped: needs /proc/self/smaps");
        assert!(std::env::var_os("CI").is_none(), "CI has /proc/self/smaps");
        return;
    };
    let (accounted, resident) = (stat.accounted_bytes() as f64, resident as f64);
    let off = (accounted / resident - 1.0).abs();
    assert!(off <= 0.01, "{when}: accounted {accounted}, resident {resident}: {stat:#?}");
}

#[test]
fn a_disk_of_100_gib_costs_nothing_until_it_is_written() {
    let size = 100 << 30;
    let memory = Memory::new(MemoryConfig::for_disk(size)).expect("address space");
    let zram = Zram::new(memory, ZramConfig::new("zram0", size)).expect("a device");
    assert!(zram.stat().accounted_bytes() < MIB, "{:?}", zram.stat());
    zram.write(size - PAGE as u64, &page(1, 4)).expect("room");
    zram.write(0, &page(2, 4)).expect("room");
    assert!(zram.stat().accounted_bytes() < MIB, "{:?}", zram.stat());
    zram.discard(0, size).expect("in range");
    assert_eq!(zram.stat().orig_data_size, 0);
}

#[test]
fn a_read_only_device_refuses_every_change() {
    let zram = device(ZramConfig { read_only: true, ..ZramConfig::new("zram0", MIB) });
    disk::conformance::run_read_only("zram that is read-only", &zram);
    let results = [
        zram.write(0, &[1; PAGE]),
        zram.discard(0, 4096),
        zram.write_zeroes(0, 4096, Allocation::Keep),
        zram.write_zeroes(0, 4096, Allocation::MayUnmap),
    ];
    for result in results {
        assert!(matches!(result, Err(DiskError::ReadOnly)), "{result:?}");
    }
}

#[test]
fn sizes_and_orders_that_cannot_be_are_errors() {
    let memory = memory();
    let made = |config| Zram::new(Arc::clone(&memory), config).map(|_| ());
    assert!(made(ZramConfig::new("zram0", 0)).is_err());
    assert!(made(ZramConfig::new("zram0", u64::MAX)).is_err());
    assert!(made(ZramConfig { chain_order: 5, ..ZramConfig::new("zram0", MIB) }).is_err());
    let odd = Zram::new(Arc::clone(&memory), ZramConfig::new("zram0", 4097)).expect("rounded up");
    assert_eq!(odd.size_bytes(), 8192);
}
