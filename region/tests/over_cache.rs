//! The promises of regions over a cache before a disk, one promise a test.

#[path = "setting/bench.rs"]
mod bench;
#[path = "setting/cache.rs"]
mod cache;
#[path = "setting/rng.rs"]
mod rng;
#[path = "setting/rough.rs"]
mod rough;
mod setting;

use bench::{Bench, is_child_that_aborts};
use ramfold_region::zswap::{Incompressible, Limit, Zswap, ZswapConfig};
use ramfold_region::{
    Memory, MemoryConfig, PageOut, Pager, PagerConfig, Quads, Refusal, Region, RegionConfig,
    RegionError, StoreConfig, Teardown,
};
use rng::Rng;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::time::Duration;

const PAGE: usize = 4096;

/// A cache of so many bytes before a disk with room for everything.
fn new_bench(bytes: u64) -> Option<Bench> {
    Bench::with(bytes, |_| ())
}

impl Bench {
    fn region(&self, pages: usize) -> Region {
        self.region_with(pages, cache::over(&self.cache), None)
    }

    fn region_with(&self, pages: usize, store: StoreConfig, limit: Option<usize>) -> Region {
        let config = RegionConfig { store, resident_limit: limit, ..RegionConfig::default() };
        Region::map(&self.pager, pages * PAGE, &config).expect("a region")
    }

    /// A region of written pages, all of them on the disk.
    fn region_on_disk(&self, pages: usize) -> Region {
        let mut region = self.region(pages);
        write_pages(&mut region);
        region.control().page_out(0..pages * PAGE).expect("out");
        self.cache.write_back(pages as u64);
        assert_eq!(region.stats().disk_pages, pages as u64);
        region
    }
}

/// Fills page `n` with content of its own. A quarter of it does not compress.
fn write_page(number: usize, page: &mut [u8]) {
    page[..8].copy_from_slice(&(number as u64 + 1).to_le_bytes());
    Rng::new(number as u64 + 1).fill(&mut page[8..1000]);
}

fn write_pages(region: &mut Region) {
    let pages = region.as_mut_slice().chunks_mut(PAGE).enumerate();
    pages.for_each(|(number, page)| write_page(number, page));
}

fn assert_page(region: &Region, number: usize) {
    let mut expected = [0; PAGE];
    write_page(number, &mut expected);
    let found = region.bytes(number * PAGE..(number + 1) * PAGE).expect("in the region");
    assert!(found == expected, "page {number}");
}

fn assert_pages(region: &Region) {
    (0..region.len() / PAGE).for_each(|number| assert_page(region, number));
}

#[test]
fn what_does_not_fit_the_cache_goes_to_its_disk_and_comes_back() {
    let Some(bench) = new_bench(256 << 10) else { return };
    let mut region = bench.region(2048);
    write_pages(&mut region);
    let out = region.control().page_out(0..2048 * PAGE).expect("out");
    assert_eq!(out, PageOut { stored: 2048, ..PageOut::default() });
    let stats = region.stats();
    assert!(stats.disk_pages > 1500 && stats.compr_data_size > 100 << 10, "{stats:?}");
    assert_pages(&region);
    let stats = region.stats();
    assert_eq!((stats.resident_pages, stats.stored_pages), (2048, 0));
    assert!(stats.disk_faults > 100 && stats.stored_faults > stats.disk_faults, "{stats:?}");
    assert!(stats.faults < 600, "a walk brings pages in around each fault: {stats:?}");
    // The pager's next rounds do this.
    while region.stats().dead_copies > 0 {
        std::thread::yield_now();
    }
    let stats = region.stats();
    assert_eq!((stats.disk_pages, stats.compr_data_size), (0, 0), "no copy is left");
    assert_eq!(region.control().check().expect("there"), [""; 0]);
}

#[test]
fn of_a_quad_comes_what_is_in_the_cache() {
    let Some(bench) = new_bench(256 << 10) else { return };
    // Pages that are stored first are written back first. A touch: pages that came, by how many
    // disk reads.
    for (first, touched, came) in [(0, 2, (3, 0)), (3, 1, (3, 0)), (1, 1, (1, 1)), (2, 0, (3, 0))] {
        let (store, quads) = (cache::over(&bench.cache), Quads::Always);
        let config = RegionConfig { store, quads, ..RegionConfig::default() };
        let mut region = Region::map(&bench.pager, 4 * PAGE, &config).expect("a region");
        write_pages(&mut region);
        region.control().page_out(first * PAGE..(first + 1) * PAGE).expect("out");
        region.control().page_out(0..4 * PAGE).expect("out");
        bench.cache.write_back(1);
        assert_eq!(region.stats().disk_pages, 1);
        assert_page(&region, touched);
        let stats = region.stats();
        assert_eq!((stats.faults, stats.stored_faults), (1, 1));
        assert_eq!((stats.pages_in, stats.disk_faults), came, "{first} and {touched}");
        assert_pages(&region);
        assert_eq!(region.control().check().expect("there"), [""; 0]);
        region.teardown(Teardown::Sync);
    }
}

#[test]
fn neither_limit_is_exceeded_by_more_than_its_slack() {
    const RESIDENT: u64 = 4 << 20;
    const CACHE: u64 = 1 << 20;
    // Two threads that store at once may exceed it by two frames each. So may a zspage that is
    // packed, because it exists twice meanwhile.
    const PASSED: u64 = 8 * PAGE as u64;
    let Some(bench) = new_bench(CACHE) else { return };
    let store = cache::over(&bench.cache);
    let mut region = bench.region_with(8192, store, Some(RESIDENT as usize));
    let control = region.control();
    let slack = RESIDENT / 16 + (2 * 64 + 16) * PAGE as u64;
    let look = |what: &str| {
        let stats = control.stats().expect("there");
        let held = (stats.resident_pages + stats.staged_pages) * PAGE as u64;
        assert!(held <= RESIDENT + slack, "{what}: {held} of {RESIDENT} and {slack}: {stats:?}");
        let stat = bench.cache.stat();
        let held = stat.object_bytes_resident;
        assert!(held <= CACHE + PASSED, "{what}: the cache has {held} of {CACHE}: {stat}");
    };
    for (number, page) in region.as_mut_slice().chunks_mut(PAGE).enumerate() {
        write_page(number, page);
        if number % 32 == 0 {
            look("written");
        }
    }
    let mut rng = Rng::new(7);
    for _ in 0..3000 {
        assert_page(&region, rng.below(8192));
        look("read");
    }
    assert_pages(&region);
    let stats = region.stats();
    assert!(stats.refused == 0 && stats.disk_pages > 4000, "{stats:?}");
}

#[test]
fn a_disk_that_cannot_be_written_leaves_pages_in_memory() {
    let Some(bench) = new_bench(256 << 10) else { return };
    let mut region = bench.region(512);
    write_pages(&mut region);
    bench.trouble.refuses.store(true, Ordering::SeqCst);
    let out = region.control().page_out(0..512 * PAGE).expect("tried");
    assert!(out.stored > 0 && out.refused > 0 && out.stored + out.refused == 512, "{out:?}");
    assert!(bench.cache.stat().write_back_fail > 0);
    assert_eq!(region.stats().disk_pages, 0);
    assert_pages(&region);
    bench.trouble.refuses.store(false, Ordering::SeqCst);
    let out = region.control().page_out(0..512 * PAGE).expect("out");
    assert_eq!(out, PageOut { stored: 512, ..PageOut::default() });
    assert_pages(&region);
    assert_eq!(region.control().check().expect("there"), [""; 0]);
}

#[test]
fn a_disk_that_cannot_be_read_refuses_a_pin_and_loses_nothing() {
    let Some(bench) = new_bench(16 << 20) else { return };
    let region = bench.region_on_disk(128);
    bench.trouble.unreadable.store(true, Ordering::SeqCst);
    let refused = region.pin(70 * PAGE..72 * PAGE);
    assert!(matches!(refused, Err(RegionError::Unreadable { byte }) if byte == 70 * PAGE));
    region.control().prefetch(0..128 * PAGE).expect("it is no harm");
    assert_eq!(region.stats().stored_pages, 128);
    bench.trouble.unreadable.store(false, Ordering::SeqCst);
    let pinned = region.pin(70 * PAGE..72 * PAGE).expect("it is back");
    drop(pinned);
    let out = region.control().page_out(0..128 * PAGE).expect("out");
    assert_eq!((out.stored, out.busy), (2, 0), "the pin that was refused left nothing");
    assert_pages(&region);
}

#[test]
fn a_disk_that_fails_now_and_then_is_asked_again() {
    let Some(bench) = new_bench(16 << 20) else { return };
    let region = bench.region_on_disk(256);
    bench.trouble.fails_every.store(3, Ordering::SeqCst);
    assert_pages(&region);
    assert!(bench.cache.stat().disk_load_fail > 0);
}

#[test]
fn a_touch_of_a_page_whose_disk_fails_ends_the_process() {
    let Some(bench) = new_bench(16 << 20) else { return };
    let test = "a_touch_of_a_page_whose_disk_fails_ends_the_process";
    if !is_child_that_aborts(test, "cannot be read from its disk") {
        return;
    }
    let region = bench.region_on_disk(64);
    bench.trouble.unreadable.store(true, Ordering::SeqCst);
    std::hint::black_box(region.as_slice()[5 * PAGE]);
}

#[test]
fn while_the_disk_stalls_other_pages_of_the_group_come_back() {
    let Some(bench) = new_bench(16 << 20) else { return };
    let mut region = bench.region_on_disk(64);
    // Page 9 is stored again, and is in memory.
    write_page(9, &mut region.as_mut_slice()[9 * PAGE..10 * PAGE]);
    region.control().page_out(0..64 * PAGE).expect("out");
    assert_eq!(region.stats().stored_pages, 64);
    let faults = region.stats().disk_faults;
    bench.trouble.stalls.store(true, Ordering::SeqCst);
    let before = bench.trouble.reads.load(Ordering::SeqCst);
    let (done, waits) = mpsc::channel();
    let region = &region;
    let came = std::thread::scope(|scope| {
        // Two threads want the same page of the disk, which is read once.
        let waiting = [(); 2].map(|()| scope.spawn(|| assert_page(region, 20)));
        while bench.trouble.reads.load(Ordering::SeqCst) == before {
            std::thread::yield_now();
        }
        scope.spawn(move || {
            assert_page(region, 9);
            done.send(()).expect("somebody waits");
        });
        let came = waits.recv_timeout(Duration::from_secs(20));
        bench.trouble.stalls.store(false, Ordering::SeqCst);
        waiting.into_iter().for_each(|thread| thread.join().expect("the page came"));
        came
    });
    came.expect("the group's lock is not held while the disk is waited for");
    assert_eq!(region.stats().disk_faults, faults + 1, "one thread reads, the other waits for it");
    assert_eq!(region.control().check().expect("there"), [""; 0]);
}

#[test]
fn what_is_forgotten_on_the_disk_is_zeros_and_given_back() {
    let Some(bench) = new_bench(16 << 20) else { return };
    let mut region = bench.region_on_disk(2048);
    region.discard(100 * PAGE..1900 * PAGE).expect("forgotten");
    assert!(region.as_slice()[100 * PAGE..1900 * PAGE].iter().all(|&byte| byte == 0));
    region.unmap(1900 * PAGE..2000 * PAGE).expect("given back");
    (0..100).chain(2000..2048).for_each(|number| assert_page(&region, number));
    bench.pager.memory().flush_deferred();
    region.control().page_out(0..2048 * PAGE).expect("out");
    assert_eq!(region.stats().disk_pages, 0, "what came back left no copy");
    assert_eq!(region.control().check().expect("there"), [""; 0]);
}

#[test]
fn a_region_that_ends_leaves_the_others_of_its_cache() {
    for teardown in [Teardown::Range, Teardown::Sync] {
        let Some(bench) = new_bench(16 << 20) else { return };
        let stays = bench.region_on_disk(700);
        let mut goes = bench.region(1500);
        write_pages(&mut goes);
        goes.control().page_out(0..1500 * PAGE).expect("out");
        bench.cache.write_back(400);
        assert_eq!(bench.cache.stat().stored_pages, 1100);
        goes.teardown(teardown);
        let stat = bench.cache.stat();
        assert_eq!((stat.stored_pages, stat.disk_pages), (0, 700), "{teardown:?}: {stat}");
        if teardown == Teardown::Range {
            bench.pager.memory().flush_deferred();
        }
        let stat = bench.cache.stat();
        assert_eq!((stat.pending_bytes, stat.pool_total_size), (0, 0), "{teardown:?}: {stat}");
        assert_pages(&stays);
        bench.cache.check().expect("the cache is whole");
    }
}

#[test]
fn a_group_at_its_limit_writes_back_its_own_pages() {
    let Some(bench) = new_bench(16 << 20) else { return };
    let group = bench.cache.add_group(Some(256 << 10), true).expect("a group");
    let mut other = bench.region(512);
    write_pages(&mut other);
    other.control().page_out(0..512 * PAGE).expect("out");
    let store = StoreConfig::Zswap { cache: Arc::clone(&bench.cache), group };
    let mut region = bench.region_with(2048, store, None);
    write_pages(&mut region);
    let out = region.control().page_out(0..2048 * PAGE).expect("out");
    assert_eq!((out.stored, out.refused), (2048, 0));
    let stat = bench.cache.group(group).expect("it is one of the cache's");
    assert!(stat.current <= 260 << 10 && stat.written_back_pages > 1000, "{stat:?}");
    assert_eq!(other.stats().disk_pages, 0);
    assert_pages(&region);
    assert_pages(&other);
}

#[test]
fn a_page_that_the_cache_rejects_stays_alone() {
    let Some(bench) = new_bench(16 << 20) else { return };
    let config = ZswapConfig {
        limit: Limit::Bytes(16 << 20),
        incompressible: Incompressible::Reject,
        ..ZswapConfig::new("test")
    };
    let cache = Zswap::new(Arc::clone(bench.pager.memory()), config).expect("a cache");
    let mut region = bench.region_with(256, cache::over(&Arc::new(cache)), None);
    write_pages(&mut region);
    let noise = |page: usize| page % 50 == 7;
    for page in (0..256).filter(|&page| noise(page)) {
        Rng::new(page as u64 + 1).fill(&mut region.as_mut_slice()[page * PAGE..(page + 1) * PAGE]);
    }
    let out = region.control().page_out(0..256 * PAGE).expect("out");
    let refusal = Some(Refusal::Incompressible);
    assert_eq!(out, PageOut { stored: 251, busy: 0, refused: 5, refusal });
    (0..256).filter(|&page| !noise(page)).for_each(|page| assert_page(&region, page));
    assert_eq!(region.control().check().expect("there"), [""; 0]);
}

#[test]
fn a_group_that_is_full_says_so() {
    let Some(bench) = new_bench(16 << 20) else { return };
    let group = bench.cache.add_group(Some(64 << 10), false).expect("a group");
    let store = StoreConfig::Zswap { cache: Arc::clone(&bench.cache), group };
    let mut region = bench.region_with(512, store, None);
    write_pages(&mut region);
    let out = region.control().page_out(0..512 * PAGE).expect("tried");
    assert_eq!(out.refusal, Some(Refusal::GroupLimit), "{out:?}");
    assert_eq!(region.stats().last_refusal, Some(Refusal::GroupLimit));
    assert_pages(&region);
}

/// Its pages were once refused one by one, each after 256 tries to make room for it.
#[test]
fn a_group_of_another_cache_is_refused() {
    let Some(bench) = new_bench(1 << 20) else { return };
    let groups = [(); 3].map(|()| bench.cache.add_group(None, true).expect("a group"));
    let cache = cache::cache(&bench.pager, 1 << 20, None);
    let store = StoreConfig::Zswap { cache, group: groups[2] };
    let config = RegionConfig { store, ..RegionConfig::default() };
    let refused = Region::map(&bench.pager, PAGE, &config);
    assert!(matches!(refused, Err(RegionError::OtherGroup)), "{refused:?}");
}

#[test]
fn a_cache_in_another_memory_is_refused() {
    let Some(bench) = new_bench(1 << 20) else { return };
    let memory = Memory::new(MemoryConfig::for_disk(1 << 20)).expect("a memory");
    let pager = Pager::new(memory, &PagerConfig::default()).expect("a pager");
    let config = RegionConfig { store: cache::over(&bench.cache), ..RegionConfig::default() };
    let refused = Region::map(&pager, PAGE, &config);
    assert!(matches!(refused, Err(RegionError::OtherMemory)));
}

/// The cache is below its limit, and its memory is used up. Each refused page was once tried 256
/// times, and everything was compacted as often, before its group stayed.
#[test]
fn a_memory_that_is_used_up_is_not_compacted_over_and_over() {
    const GROUPS: usize = 128;
    let memory = Memory::new(MemoryConfig {
        arena_frames: 1 << 10,
        entries_max: 1 << 14,
        expected_bytes: 4 << 20,
        worker: false,
    });
    let pager = Pager::new(memory.expect("a memory"), &PagerConfig::default());
    let Ok(pager) = pager else { return eprintln!("skipped: needs userfaultfd") };
    let cache = cache::cache(&pager, 64 << 20, None);
    let config = RegionConfig { store: cache::over(&cache), ..RegionConfig::default() };
    let mut region = Region::map(&pager, GROUPS * 64 * PAGE, &config).expect("a region");
    write_pages(&mut region);
    let out = region.control().page_out(0..GROUPS * 64 * PAGE).expect("tried");
    assert!(out.stored > 0 && out.refused > 0, "{out:?}");
    assert_eq!(out.refusal, Some(Refusal::NoMemory), "not the cache's limit: {out:?}");
    let refused = cache.stat().reject_alloc_fail + cache.stat().reject_kmemcache_fail;
    assert!((1..=2 * GROUPS as u64).contains(&refused), "{refused} refusals");
    assert_pages(&region);
}
