//! A whole cache under every interleaving that two preemptions allow, with two cells to a leaf.
//!
//! Run with `RUSTFLAGS="--cfg loom" LOOM_MAX_PREEMPTIONS=2`.
//!
//! Claims
//! - The last operation on a page decides, even if the page was being written back meanwhile. No
//!   sector, object or token is lost.
//! - A page on the disk is loaded once, and never as the bytes that its sectors got later.
//! - An entry is decoded by the algorithm that made it.
#![cfg(loom)]

use std::sync::Arc;

use disk::RamDisk;
use loom::thread;
use ramfold_zswap::{
    Area, FreeWhen, GroupId, Limit, Loaded, Memory, MemoryConfig, Zswap, ZswapConfig,
};

const PAGE: usize = 4096;
/// Pages of a leaf in a model.
const LEAF: u64 = 2;

/// `loom::model` with room for the many atomics of a whole cache.
fn model(scenario: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 100_000;
    builder.check(scenario);
}

/// A cache over a disk of one window, and an area of two leaves.
fn cache() -> (Arc<Zswap>, Area) {
    let memory =
        MemoryConfig { arena_frames: 512, entries_max: 6, expected_bytes: 1 << 30, worker: false };
    let memory = Memory::new(memory).expect("small tables");
    let config = ZswapConfig {
        // A zspage has few objects, because a model's tables have no room for descriptors of many.
        chain_order: 0,
        limit: Limit::None,
        backing: Some(Arc::new(RamDisk::new(1 << 16).expect("memory"))),
        worker: false,
        ..ZswapConfig::new("model")
    };
    let zswap = Zswap::new(memory, config).expect("a cache");
    let area = zswap.add_area(2 * LEAF).expect("small tables");
    (Arc::new(zswap), area)
}

/// Pages of this version or a later one do not compress.
const RAW: u8 = 100;

/// A page that compresses to a half, or not at all, and whose bytes tell its version. It is on the
/// heap, because a model's threads have little stack.
fn page(byte: u8) -> Vec<u8> {
    let noise = if byte < RAW { 1900 } else { PAGE - 1 };
    let mut state = u32::from(byte) + 1;
    let mut next = |at| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if at < noise { (state >> 24) as u8 } else { byte }
    };
    (0..PAGE).map(&mut next).collect()
}

fn store(area: &Area, at: u64, byte: u8) {
    area.store(at, &page(byte), GroupId::ROOT).expect("room");
}

/// The version of the page; `None` if there is none.
fn load(area: &Area, at: u64) -> Option<u8> {
    let mut data = vec![0; PAGE];
    match area.load(at, &mut data).expect("no fault") {
        Loaded::Absent => None,
        Loaded::Memory | Loaded::Disk => {
            let byte = data[PAGE - 1];
            assert!(data == page(byte), "page {at} is of one store");
            Some(byte)
        }
    }
}

/// Nothing is left, in memory or on the disk.
#[track_caller]
fn expect_empty(zswap: &Zswap) {
    zswap.check().expect("no defect");
    let stat = zswap.stat();
    assert_eq!((stat.stored_pages, stat.disk_pages, stat.compr_data_size), (0, 0, 0));
}

#[test]
fn store_against_write_back() {
    model(|| {
        let (zswap, area) = cache();
        store(&area, 0, 1);
        let other = Arc::clone(&zswap);
        let writer = thread::spawn(move || other.write_back(1));
        store(&area, 0, 2);
        writer.join().expect("the writer");
        zswap.check().expect("no defect");
        assert_eq!(load(&area, 0), Some(2), "the later store");
        expect_empty(&zswap);
    });
}

#[test]
fn load_against_write_back() {
    model(|| {
        let (zswap, area) = cache();
        store(&area, 0, 1);
        let other = Arc::clone(&zswap);
        let writer = thread::spawn(move || other.write_back(1));
        assert_eq!(load(&area, 0), Some(1), "wherever it was");
        writer.join().expect("the writer");
        assert_eq!(load(&area, 0), None);
        expect_empty(&zswap);
    });
}

/// Another part of the area owns the leaf when the write is over.
#[test]
fn invalidation_of_a_leaf_and_its_next_use_against_write_back() {
    model(|| {
        let (zswap, area) = cache();
        store(&area, 0, 1);
        let other = Arc::clone(&zswap);
        let writer = thread::spawn(move || other.write_back(1));
        area.invalidate_pages(0..LEAF, FreeWhen::Now);
        store(&area, LEAF, 9);
        writer.join().expect("the writer");
        zswap.check().expect("no defect");
        assert_eq!((load(&area, 0), load(&area, LEAF)), (None, Some(9)));
        expect_empty(&zswap);
    });
}

#[test]
fn store_against_invalidation_of_its_leaf() {
    model(|| {
        let (zswap, area) = cache();
        store(&area, 0, 1);
        let other = area.clone();
        let invalidator = thread::spawn(move || {
            other.invalidate_pages(0..LEAF, FreeWhen::Now);
            store(&other, LEAF, 9);
        });
        store(&area, 0, 2);
        invalidator.join().expect("the invalidator");
        zswap.check().expect("no defect");
        assert!(matches!(load(&area, 0), None | Some(2)), "the first store is gone");
        assert_eq!(load(&area, LEAF), Some(9));
        expect_empty(&zswap);
    });
}

#[test]
fn two_loads_of_a_page_on_the_disk() {
    model(|| {
        let (zswap, area) = cache();
        store(&area, 0, 1);
        assert_eq!(zswap.write_back(1).pages, 1);
        let other = area.clone();
        let loader = thread::spawn(move || load(&other, 0));
        let loads = [load(&area, 0), loader.join().expect("the loader")];
        assert_eq!(loads.iter().flatten().collect::<Vec<_>>(), [&1], "one has it");
        expect_empty(&zswap);
    });
}

/// The sectors hold another blob of the same page and the same length when the read is over.
#[test]
fn load_from_the_disk_against_the_next_use_of_its_sectors() {
    model(|| {
        let (zswap, area) = cache();
        // Eight raw pages fill the window, so the first page's sectors are the next to be taken.
        for at in [0, 1, 1, 1, 1, 1, 1, 1] {
            store(&area, at, RAW);
            assert_eq!(zswap.write_back(1).pages, 1);
            area.invalidate(1);
        }
        let (cache, other) = (Arc::clone(&zswap), area.clone());
        let writer = thread::spawn(move || {
            other.invalidate(0);
            store(&other, 0, RAW + 1);
            cache.write_back(1);
        });
        let first = load(&area, 0);
        writer.join().expect("the writer");
        match first {
            Some(byte) if byte == RAW + 1 => assert_eq!(load(&area, 0), None),
            // It was loaded before the invalidation, or between it and the store.
            _ => assert_eq!(load(&area, 0), Some(RAW + 1)),
        }
        expect_empty(&zswap);
    });
}

/// The index of the algorithm that a store began with belongs to another after two switches, unless
/// the second one waits for the store.
#[test]
fn store_against_two_switches_of_the_algorithm() {
    model(|| {
        let (zswap, area) = cache();
        let other = Arc::clone(&zswap);
        let switcher = thread::spawn(move || {
            other.set_algorithm("zstd").expect("it exists");
            other.set_algorithm("zstd:1").expect("it exists");
        });
        store(&area, 0, 1);
        switcher.join().expect("the switcher");
        zswap.check().expect("no defect");
        assert_eq!(load(&area, 0), Some(1), "by the algorithm that made it");
        expect_empty(&zswap);
    });
}
