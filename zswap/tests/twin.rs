//! A cache against plain memory: whatever is done to pages, a load gives what was stored last.
//!
//! Four threads have an area and a twin each, with a version for every page. They do the same to
//! both at random: store, load, peek, invalidate a page or a range, remove the area and begin anew.
//! To the cache that they share they also do this: write back, shrink, compact, switch the
//! algorithm, change limits. The disk behind it fails, stalls and fills by a schedule. A store that
//! is refused leaves the page's content unchanged. A load that fails leaves the page where it was.
//! Every such error is counted.
//!
//! `RAMFOLD_ZSWAP_OPS` is the number of operations, 10^5 by default. `RAMFOLD_SEED` repeats a
//! thread's choices, but not how threads meet. The long form is 3*10^7:
//! `RAMFOLD_ZSWAP_OPS=30000000 cargo test --release -p ramfold-zswap --test twin`.
//!
//! Not covered: two threads that store the same page (the loom scenarios do that), and a process
//! that dies (see `crash.rs`).
#![cfg(not(loom))]

#[path = "setting/disk.rs"]
mod moody;

use moody::MoodyDisk;
use ramfold_zswap::{
    Area, FreeWhen, GroupId, Incompressible, Limit, LoadError, Loaded, Memory, MemoryConfig,
};
use ramfold_zswap::{EvictionOrder, StoreError, Zswap, ZswapConfig};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: usize = 4096;
const PAGES: usize = 3000; // no multiple of a leaf's 512
const THREADS: usize = 4;
const LIMIT: u64 = 4 << 20;
const DISK: u64 = 6 << 20;

/// Marsaglia's xorshift.
struct Rng(u64);

impl Rng {
    fn new(seed: u64) -> Rng {
        Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, max: usize) -> usize {
        (self.next() >> 11) as usize % max
    }
}

/// A version of a page: same-filled, noise, or a mixture of the two.
fn fill(page: &mut [u8], version: u64) {
    let mut rng = Rng::new(version);
    let noise = match rng.below(10) {
        0 => 0,
        1 => PAGE,
        _ => 8 * (12 + rng.below(250)),
    };
    for word in page[..noise].chunks_exact_mut(8) {
        word.copy_from_slice(&rng.next().to_le_bytes());
    }
    page[noise..].fill(version as u8);
}

#[derive(Default)]
struct Errors {
    over_limit: AtomicU64,
    no_memory: AtomicU64,
    incompressible: AtomicU64,
    disk: AtomicU64,
}

struct Bench {
    zswap: Zswap,
    groups: Vec<GroupId>,
    errors: Errors,
    versions: AtomicU64,
}

struct Pair {
    area: Area,
    /// The version of each page; 0 = none.
    twin: Vec<u64>,
    buffers: [Vec<u8>; 2],
}

impl Pair {
    fn new(bench: &Bench) -> Pair {
        let area = bench.zswap.add_area(PAGES as u64).expect("address space");
        Pair { area, twin: vec![0; PAGES], buffers: [vec![0; PAGE], vec![0; PAGE]] }
    }

    fn store(&mut self, bench: &Bench, page: usize, rng: &mut Rng) {
        let version = bench.versions.fetch_add(1, Ordering::Relaxed) + 1;
        fill(&mut self.buffers[0], version);
        let group = bench.groups[rng.below(bench.groups.len())];
        let stored = match rng.below(4) {
            0 => self.area.store_if_room(page as u64, &self.buffers[0], group),
            _ => self.area.store(page as u64, &self.buffers[0], group),
        };
        let count = match stored {
            Ok(()) => {
                self.twin[page] = version;
                return;
            }
            Err(StoreError::OverLimit | StoreError::OverGroupLimit) => &bench.errors.over_limit,
            Err(StoreError::NoMemory) => &bench.errors.no_memory,
            Err(StoreError::Incompressible) => &bench.errors.incompressible,
            Err(error) => panic!("page {page}: {error}"),
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    fn load(&mut self, bench: &Bench, page: usize, exclusive: bool) {
        let read = &mut self.buffers[0];
        let loaded = match exclusive {
            true => self.area.load(page as u64, read),
            false => self.area.peek(page as u64, read),
        };
        let version = self.twin[page];
        match loaded {
            Ok(Loaded::Absent) => assert_eq!(version, 0, "page {page} is lost"),
            Ok(_) => {
                assert_ne!(version, 0, "page {page} was taken out or invalidated");
                fill(&mut self.buffers[1], version);
                assert!(self.buffers[0] == self.buffers[1], "wrong bytes in page {page}");
                if exclusive {
                    self.twin[page] = 0;
                }
            }
            Err(LoadError::Backing(_)) => {
                assert_ne!(version, 0);
                bench.errors.disk.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => panic!("page {page}: {error}"),
        }
    }

    fn invalidate(&mut self, rng: &mut Rng) {
        let first = rng.below(PAGES);
        let last = (first + rng.below(1200)).min(PAGES);
        let free = [FreeWhen::Soon, FreeWhen::Now][rng.below(2)];
        self.area.invalidate_pages(first as u64..last as u64, free);
        self.twin[first..last].fill(0);
    }

    fn load_all(&mut self, bench: &Bench) {
        (0..PAGES).for_each(|page| self.load(bench, page, false));
    }
}

fn step(bench: &Bench, pair: &mut Pair, rng: &mut Rng) {
    let page = rng.below(PAGES);
    match rng.below(10_000) {
        0..4400 => pair.store(bench, page, rng),
        4400..7600 => pair.load(bench, page, true),
        7600..9000 => pair.load(bench, page, false),
        9000..9500 => {
            pair.area.invalidate(page as u64);
            pair.twin[page] = 0;
        }
        9500..9540 => pair.invalidate(rng),
        9540..9840 => drop(bench.zswap.write_back(rng.below(100) as u64)),
        9840..9990 => share(bench, rng),
        9990..9999 => {
            pair.load_all(bench);
            *pair = Pair::new(bench);
        }
        _ => drop(bench.zswap.check().expect("no defect")),
    }
}

/// One operation on the cache that all threads share.
fn share(bench: &Bench, rng: &mut Rng) {
    let zswap = &bench.zswap;
    match rng.below(15) {
        0..3 => {
            let names = ["lz4", "zstd", "lz4:9", "zstd:1"];
            zswap.set_algorithm(names[rng.below(4)]).expect("four are allowed");
        }
        3..6 => {
            let limit = LIMIT / 2 + rng.below(LIMIT as usize / 2) as u64;
            zswap.set_limit(Limit::Bytes(limit)).expect("bytes");
        }
        6..9 => {
            let group = bench.groups[rng.below(bench.groups.len())];
            zswap.set_group_limit(group, Some(64 << 10 << rng.below(6)));
            zswap.set_group_writeback(group, rng.below(4) > 0);
        }
        9..12 => drop(zswap.shrink_to(LIMIT / 4)),
        12..14 => drop(zswap.shrinker_scan(zswap.shrinker_count().min(50))),
        _ => drop(zswap.compact()),
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect(name))
}

fn memory() -> Arc<Memory> {
    let config = MemoryConfig {
        arena_frames: 1 << 16,
        entries_max: 1 << 18,
        expected_bytes: 1 << 28,
        worker: true,
    };
    Memory::new(config).expect("address space")
}

fn bench(
    order: EvictionOrder,
    compressed: bool,
    incompressible: Incompressible,
) -> (Bench, Arc<MoodyDisk>) {
    let disk = Arc::new(MoodyDisk::new(DISK));
    let config = ZswapConfig {
        order,
        incompressible,
        compressed_writeback: compressed,
        shrinker_enabled: true,
        limit: Limit::Bytes(LIMIT),
        backing: Some(disk.clone()),
        ..ZswapConfig::new("twin")
    };
    let zswap = Zswap::new(memory(), config).expect("a cache");
    let mut groups = vec![GroupId::ROOT];
    groups.extend((0..2).map(|_| zswap.add_group(Some(2 << 20), true).expect("few")));
    let (errors, versions) = (Errors::default(), AtomicU64::new(0));
    (Bench { zswap, groups, errors, versions }, disk)
}

fn run(order: EvictionOrder, compressed: bool, incompressible: Incompressible, share: u64) {
    let ops = number("RAMFOLD_ZSWAP_OPS", 100_000) / share;
    let seed = number("RAMFOLD_SEED", u64::from(std::process::id()) << 20);
    eprintln!("RAMFOLD_SEED={seed}");
    let (bench, disk) = bench(order, compressed, incompressible);
    disk.set_well(false);
    let mut pairs: Vec<Pair> = (0..THREADS).map(|_| Pair::new(&bench)).collect();
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (own, pair) in pairs.iter_mut().enumerate() {
            let bench = &bench;
            threads.push(scope.spawn(move || {
                let mut rng = Rng::new(seed + own as u64);
                (0..ops / THREADS as u64).for_each(|_| step(bench, pair, &mut rng));
            }));
        }
        // ThreadSanitizer sees that a thread is joined, but not that a scope ends.
        threads.into_iter().for_each(|thread| thread.join().expect("no difference"));
    });
    disk.set_well(true);
    pairs.iter_mut().for_each(|pair| pair.load_all(&bench));
    assert_counted(&bench, &disk);
    bench.zswap.memory().flush_deferred();
    while bench.zswap.check().expect("no defect").moved {
        std::thread::yield_now(); // the memory's worker compacts
    }
    pairs.iter_mut().for_each(|pair| (0..PAGES).for_each(|page| pair.load(&bench, page, true)));
    let stat = bench.zswap.stat();
    assert_eq!((stat.stored_pages, stat.disk_pages, stat.compr_data_size), (0, 0, 0));
}

fn assert_counted(bench: &Bench, disk: &MoodyDisk) {
    let (stat, errors) = (bench.zswap.stat(), &bench.errors);
    let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
    assert_eq!(stat.disk_load_fail, read(&errors.disk));
    assert_eq!(stat.reject_reclaim_fail, read(&errors.over_limit));
    assert_eq!(stat.reject_alloc_fail, read(&errors.no_memory));
    assert_eq!(stat.reject_compress_poor, read(&errors.incompressible));
    assert_eq!(stat.decompress_fail, 0);
    assert!(stat.written_back_pages > 0 && stat.disk_loads > 0, "pages left and came back");
    assert_eq!(stat.write_back_fail + stat.disk_full > 0, read(&disk.failed_writes) > 0);
    assert!(read(&disk.failed_reads) > 0 && stat.disk_load_fail > 0, "{stat:?}");
    eprintln!("{stat}");
}

#[test]
fn nothing_is_lost_and_every_error_is_counted() {
    run(EvictionOrder::S3Fifo, true, Incompressible::Raw, 2);
}

#[test]
fn nothing_is_lost_with_pages_written_as_they_are() {
    run(EvictionOrder::Kernel, false, Incompressible::Disk, 4);
}

#[test]
fn nothing_is_lost_where_pages_that_do_not_compress_are_refused() {
    run(EvictionOrder::S3Fifo, true, Incompressible::Reject, 4);
}
