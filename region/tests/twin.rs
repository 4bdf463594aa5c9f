//! Regions against plain memory: whatever is done to pages, bytes are what was last written.
//!
//! Eight threads own a region and a twin each. The twin is an ordinary vector. Each thread does the
//! same to both at random: write, read and compare, forget, give back, pin. It also moves pages of
//! its own and of the others' regions: page out a range, page out the coldest, prefetch, hasten.
//! Half of the regions have a resident limit, and half bring in quads at each fault. Now and then a
//! region is compared as a whole, dropped, and mapped anew.
//!
//! This is done over both stores. Either each region has a zram device of its own, or all share one
//! cache of 256 KiB, before a disk that fails now and then. And it is done with devices that have
//! tiers and units. There a thread makes pages denser now and then, while another uses the region.
//!
//! `RAMFOLD_REGION_OPS` is the number of operations, 10^5 by default. Tiers and caches, where each
//! takes much longer, have a tenth of it, and 20 000 at least. `RAMFOLD_SEED` repeats a run.
//! The long form is 10^8:
//! `RAMFOLD_REGION_OPS=100000000 cargo test --release -p ramfold-region --test twin`.
//!
//! Not covered: a store that is full (see `corners.rs`), faults inside system calls (see
//! `system_calls.rs`), and two threads that write one region.

#[path = "setting/cache.rs"]
mod cache;
#[path = "setting/random.rs"]
mod random;
#[path = "setting/rng.rs"]
mod rng;
#[path = "setting/rough.rs"]
mod rough;
mod setting;

use ramfold_region::{
    Density, FaultMode, Pager, PagerConfig, Quads, Region, RegionConfig, RegionControl,
    RegionError, StoreConfig, TiersConfig,
};
use rng::Rng;
use rough::RoughDisk;
use std::io::Write;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PAGE: usize = 4096;
const PAGES: usize = 1500; // no multiple of a group's 64
const THREADS: usize = 8;
/// About a third of what there is to store.
const CACHE_BYTES: u64 = 256 << 10;
/// Fewer operations would not make pages denser.
const LEAST_OPS: u64 = 20_000;

/// The store for the pages of all regions.
#[derive(Clone, Copy)]
enum Stores {
    Zram,
    /// The same, with tiers.
    Tiers(Density),
    /// A cache before a disk. One in so many requests to the disk fails.
    Zswap {
        fails_every: u64,
    },
}

struct Bench {
    pager: Arc<Pager>,
    store: StoreConfig,
    tiers: Option<TiersConfig>,
    /// A control for the region of each thread.
    controls: Vec<Mutex<RegionControl>>,
    /// Pages that became denser in regions that ended.
    denser: AtomicU64,
}

impl Bench {
    /// The region of a pair is about to end.
    fn note_denser(&self, pair: &Pair) {
        let denser = pair.region.tier_stat().map_or(0, |stat| stat.denser);
        self.denser.fetch_add(denser, Ordering::SeqCst);
    }
}

struct Pair {
    region: Region,
    twin: Vec<u8>,
    gone: Vec<bool>,
    thread: usize,
}

impl Pair {
    fn new(
        pager: &Arc<Pager>,
        (store, tiers): (&StoreConfig, Option<TiersConfig>),
        thread: usize,
    ) -> Pair {
        let store = store.clone();
        let resident_limit = thread.is_multiple_of(2).then_some(2 << 20);
        let quads = if thread % 4 < 2 { Quads::Always } else { Quads::default() };
        let config =
            RegionConfig { store, tiers, resident_limit, quads, ..RegionConfig::default() };
        let region = Region::map(pager, PAGES * PAGE, &config).expect("a region");
        Pair { region, twin: vec![0; PAGES * PAGE], gone: vec![false; PAGES], thread }
    }

    fn is_whole(&self, range: &Range<usize>) -> bool {
        !self.gone[range.start / PAGE..range.end.div_ceil(PAGE)].contains(&true)
    }

    fn compare(&self, range: Range<usize>) {
        match self.region.bytes(range.clone()) {
            Ok(bytes) => {
                assert!(self.is_whole(&range), "{range:?} was given back");
                let same = bytes == &self.twin[range.clone()];
                assert!(same, "bytes differ in {range:?}");
            }
            Err(RegionError::Unmapped { .. }) => {
                assert!(!self.is_whole(&range), "{range:?} was not given back");
            }
            Err(error) => panic!("{range:?}: {error}"),
        }
    }

    fn write(&mut self, range: Range<usize>, rng: &mut Rng) {
        let Ok(bytes) = self.region.bytes_mut(range.clone()) else { return };
        // Some pages compress, some are one word, some are noise.
        match rng.below(4) {
            0 => bytes.fill(rng.next() as u8),
            1 => rng.fill(bytes),
            _ => bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at / 7) as u8),
        }
        self.twin[range.clone()].copy_from_slice(bytes);
    }

    fn compare_all(&self) {
        (0..PAGES).filter(|&page| !self.gone[page]).for_each(|page| {
            self.compare(page * PAGE..(page + 1) * PAGE);
        });
    }
}

/// A range of bytes, most of them short.
fn bytes(rng: &mut Rng) -> Range<usize> {
    let start = rng.below(PAGES * PAGE);
    let len = if rng.below(50) == 0 { 40 * PAGE } else { 300 };
    start..(start + 1 + rng.below(len)).min(PAGES * PAGE)
}

/// A range of whole pages, in bytes.
fn pages(rng: &mut Rng, max: usize) -> Range<usize> {
    let start = rng.below(PAGES);
    start * PAGE..(start + rng.below(max + 1)).min(PAGES) * PAGE
}

fn step(bench: &Bench, own: usize, pair: &mut Pair, rng: &mut Rng) {
    let other = bench.controls[rng.below(THREADS)].lock().expect("no thread panicked").clone();
    match rng.below(400) {
        0..150 => pair.compare(bytes(rng)),
        150..340 => {
            let range = bytes(rng);
            pair.write(range, rng);
        }
        340..345 => swallow_gone(other.page_out(pages(rng, 200)).map(drop)),
        345..364 => swallow_gone(other.page_out(pages(rng, 10)).map(drop)),
        364..365 => swallow_gone(other.page_out_coldest(rng.below(300) as u64).map(drop)),
        365..375 => swallow_gone(other.prefetch(pages(rng, 50))),
        375..380 => swallow_gone(other.cold(pages(rng, 200))),
        380..390 => {
            let range = pages(rng, 30);
            let forgotten = pair.region.discard(range.clone());
            assert_eq!(forgotten.is_ok(), pair.is_whole(&range));
            if forgotten.is_ok() {
                pair.twin[range].fill(0);
            }
        }
        390..398 => pin(pair, &other, rng),
        _ => rarely(bench, own, pair, rng),
    }
}

fn pin(pair: &mut Pair, other: &RegionControl, rng: &mut Rng) {
    let (range, out) = (bytes(rng), pages(rng, 100));
    let whole = pair.is_whole(&range);
    let twin = &pair.twin[range.clone()];
    match pair.region.pin(range) {
        Ok(pinned) => {
            swallow_gone(other.page_out(out).map(drop));
            // A system call fails on a page that is out. A comparison would bring the page back.
            let mut file = random::nameless_file();
            file.write_all(&pinned).expect("pinned bytes are in memory");
            assert!(&*pinned == twin, "pinned bytes differ");
        }
        Err(_) => assert!(!whole),
    }
}

fn rarely(bench: &Bench, own: usize, pair: &mut Pair, rng: &mut Rng) {
    let range = pages(rng, 10);
    if bench.tiers.is_some() && rng.below(24) == 0 {
        let other = bench.controls[rng.below(THREADS)].lock().expect("no thread panicked").clone();
        return swallow_gone(other.densify());
    }
    if rng.below(8) > 0 {
        let whole = pair.is_whole(&range);
        assert_eq!(pair.region.unmap(range.clone()).is_ok(), whole);
        if whole {
            pair.gone[range.start / PAGE..range.end / PAGE].fill(true);
        }
        return;
    }
    pair.compare_all();
    bench.note_denser(pair);
    *pair = Pair::new(&bench.pager, (&bench.store, bench.tiers), pair.thread);
    *bench.controls[own].lock().expect("no thread panicked") = pair.region.control();
}

/// Another thread's region may be gone by now, which is no failure.
fn swallow_gone(outcome: Result<(), RegionError>) {
    if let Err(error) = outcome {
        assert!(matches!(error, RegionError::Gone), "{error}");
    }
}

fn run(config: PagerConfig, stores: Stores) {
    let Some(pager) = setting::pager(&config) else { return };
    let (disk, trouble) = RoughDisk::new(256 << 20);
    let age = Duration::from_secs(1);
    let tiers = match stores {
        Stores::Tiers(density) => Some(TiersConfig { age, ..TiersConfig::new(density) }),
        Stores::Zram | Stores::Zswap { .. } => None,
    };
    let store = match stores {
        Stores::Zram | Stores::Tiers(_) => StoreConfig::Zram,
        Stores::Zswap { fails_every } => {
            let cache = cache::cache(&pager, CACHE_BYTES, Some(disk));
            trouble.fails_every.store(fails_every, Ordering::SeqCst);
            cache::over(&cache)
        }
    };
    let all = random::number("RAMFOLD_REGION_OPS", 100_000);
    let ops = if matches!(stores, Stores::Zram) { all } else { (all / 10).max(LEAST_OPS) };
    let seed = random::seed();
    let mut pairs: Vec<Pair> =
        (0..THREADS).map(|thread| Pair::new(&pager, (&store, tiers), thread)).collect();
    let controls = pairs.iter().map(|pair| Mutex::new(pair.region.control())).collect();
    let bench = Bench { pager, store, tiers, controls, denser: AtomicU64::new(0) };
    std::thread::scope(|scope| {
        for (own, pair) in pairs.iter_mut().enumerate() {
            let bench = &bench;
            scope.spawn(move || {
                let mut rng = Rng::new(seed + own as u64);
                (0..ops / THREADS as u64).for_each(|_| step(bench, own, pair, &mut rng));
            });
        }
    });
    for pair in &pairs {
        pair.compare_all();
        let defects = pair.region.control().check().expect("the region is there");
        assert_eq!(defects, [""; 0]);
    }
    let faults: u64 = pairs.iter().map(|pair| pair.region.stats().refaults()).sum();
    assert!(faults > 0, "pages came and went");
    pairs.iter().for_each(|pair| bench.note_denser(pair));
    let denser = bench.denser.load(Ordering::SeqCst);
    assert_eq!(denser > 0, tiers.is_some(), "{denser} pages became denser");
    if let StoreConfig::Zswap { cache, .. } = &bench.store {
        let stat = cache.stat();
        assert!(stat.written_back_pages > 0 && stat.disk_loads > 0, "the disk was used: {stat}");
        drop(pairs);
        bench.pager.memory().flush_deferred();
        let stat = cache.stat();
        assert_eq!((stat.stored_pages, stat.disk_pages, stat.pending_bytes), (0, 0, 0), "{stat}");
    }
}

#[test]
fn bytes_are_what_was_written_last() {
    run(PagerConfig::default(), Stores::Zram);
}

#[test]
fn bytes_are_what_was_written_last_with_little_staging() {
    run(PagerConfig { staging_bytes: 512 << 10, ..PagerConfig::default() }, Stores::Zram);
}

#[test]
fn bytes_are_what_was_written_last_with_a_thread_that_serves() {
    run(
        PagerConfig { fault_mode: Some(FaultMode::Thread), ..PagerConfig::default() },
        Stores::Zram,
    );
}

#[test]
fn bytes_are_what_was_written_last_without_userfaultfd() {
    let config = PagerConfig { fault_mode: Some(FaultMode::Protection), ..PagerConfig::default() };
    run(config, Stores::Zram);
}

#[test]
fn bytes_are_what_was_written_last_with_guards() {
    let config = PagerConfig { fault_mode: Some(FaultMode::Guards), ..PagerConfig::default() };
    run(config, Stores::Zram);
}

#[test]
fn bytes_are_what_was_written_last_in_dense_units() {
    run(PagerConfig::default(), Stores::Tiers(Density::Dense));
}

#[test]
fn bytes_are_what_was_written_last_with_balanced_tiers() {
    run(PagerConfig::default(), Stores::Tiers(Density::Balanced));
}

#[test]
fn bytes_are_what_was_written_last_over_a_cache() {
    run(PagerConfig::default(), Stores::Zswap { fails_every: 0 });
}

#[test]
fn bytes_are_what_was_written_last_over_a_disk_that_fails() {
    run(PagerConfig::default(), Stores::Zswap { fails_every: 20 });
}

#[test]
fn bytes_are_what_was_written_last_over_a_cache_with_a_thread_that_serves() {
    let config = PagerConfig { fault_mode: Some(FaultMode::Thread), ..PagerConfig::default() };
    run(config, Stores::Zswap { fails_every: 0 });
}
