//! Regions whose pages become denser while they stay out.
//!
//! Claims
//! - Pages that stay out take less by themselves, and read as they were, in each way of faults.
//! - A page that comes back alone leaves its unit, and the neighbours stay.
//! - The thread of tiers goes on with each region while others come and go.
//! - A region may be dropped while another thread makes it denser.
//! - Settings that cannot be are errors, and a region without tiers says that it has none.
//!
//! Covered elsewhere: everything at random (`twin`), forks (`host/tests/forks.rs`), and which form
//! a page gets (tests of `zram`).

#[path = "setting/cache.rs"]
mod cache;
mod setting;

use ramfold_region::{
    Density, FaultMode, Pager, PagerConfig, Region, RegionConfig, RegionError, TiersConfig,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const PAGES: usize = 1024;
const ALL: std::ops::Range<usize> = 0..PAGES * PAGE;

/// A word of a page. Three of four are of a few that its neighbours have too.
fn word(page: usize, at: usize) -> u64 {
    let seed = if at.is_multiple_of(4) { page * 512 + at } else { page / 64 * 64 + at % 64 };
    (seed as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn fill(region: &mut Region) {
    let words = region.as_mut_slice().chunks_exact_mut(8).enumerate();
    words.for_each(|(at, bytes)| bytes.copy_from_slice(&word(at / 512, at % 512).to_le_bytes()));
}

fn is_whole(region: &Region, page: usize) -> bool {
    let words = region.as_slice()[page * PAGE..(page + 1) * PAGE].chunks_exact(8).enumerate();
    words.into_iter().all(|(at, bytes)| bytes == word(page, at).to_le_bytes())
}

/// With an age of a second, and all of a CPU.
fn dense(density: Density) -> RegionConfig {
    let tiers =
        TiersConfig { age: Duration::from_secs(1), cpu_percent: 100, ..TiersConfig::new(density) };
    RegionConfig { tiers: Some(tiers), ..RegionConfig::default() }
}

/// A region that is out.
fn region(pager: &Arc<Pager>, density: Density) -> Region {
    let mut region = Region::map(pager, PAGES * PAGE, &dense(density)).expect("a region");
    fill(&mut region);
    let out = region.control().page_out(ALL).expect("out");
    assert_eq!(out.stored, PAGES as u64);
    region
}

fn bytes(region: &Region) -> u64 {
    region.stats().compr_data_size
}

/// Waits until the pages of a region take less than this.
fn wait_for(region: &Region, less: u64) {
    let late = Instant::now() + Duration::from_secs(60);
    while bytes(region) >= less {
        assert!(Instant::now() < late, "{} bytes: {:?}", bytes(region), region.tier_stat());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn pages_that_stay_out_become_denser_by_themselves() {
    let Some(pager) = setting::pager(&PagerConfig::default()) else { return };
    let regions = [Density::Balanced, Density::Dense].map(|density| region(&pager, density));
    let before = regions.each_ref().map(bytes);
    for (region, before) in regions.iter().zip(before) {
        // One that comes and goes meanwhile.
        drop(self::region(&pager, Density::Dense));
        wait_for(region, before);
        assert!(region.tier_stat().expect("it has tiers").cpu_us > 0);
    }
    let left = regions.each_ref().map(bytes);
    for (region, left) in regions.iter().zip(left) {
        assert!((0..PAGES).all(|page| is_whole(region, page)));
        assert_eq!(region.control().check().expect("there"), [""; 0]);
        assert_eq!(region.stats().stored_pages, 0, "all came back, of {left} bytes");
    }
}

#[test]
fn units_come_back_page_by_page_in_each_way_of_faults() {
    for fault_mode in FaultMode::ALL {
        let config = PagerConfig { fault_mode: Some(fault_mode), ..PagerConfig::default() };
        let Some(pager) = setting::pager(&config) else { continue };
        let region = region(&pager, Density::Dense);
        let single = bytes(&region);
        region.control().densify().expect("memory");
        let units = || region.store_stat().expect("a device").units.expect("it may have some");
        assert_eq!((units().units, units().pages), (PAGES as u64 / 16, PAGES as u64));
        assert!(bytes(&region) < single / 10 * 9, "{} of {single} bytes", bytes(&region));
        assert!(is_whole(&region, 5));
        let late = Instant::now() + Duration::from_secs(10);
        while region.stats().dead_copies > 0 || units().pages == PAGES as u64 {
            assert!(Instant::now() < late, "a round of the pager: {:?}", region.stats());
            std::thread::sleep(Duration::from_millis(5));
        }
        let (came, stats) = (PAGES as u64 - region.stats().stored_pages, region.stats());
        assert_eq!(units().pages + came, PAGES as u64, "{stats:?}");
        assert!((1..16).contains(&came), "its neighbours stayed: {stats:?}");
        assert!((0..PAGES).rev().all(|page| is_whole(&region, page)), "{fault_mode:?}");
        assert_eq!(region.control().check().expect("there"), [""; 0]);
    }
}

/// A pass over all pages ends with what is deferred, and the end of a region is deferred, too.
#[test]
fn a_region_is_dropped_while_a_thread_makes_it_denser() {
    const ROUNDS: u64 = 60;
    let Some(pager) = setting::pager(&PagerConfig::default()) else { return };
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for round in 0..ROUNDS {
            let region = self::region(&pager, Density::Dense);
            let control = region.control();
            let denser = std::thread::spawn(move || while control.densify().is_ok() {});
            // At another moment each time: the first pass takes some 50 ms, and later ones 1 ms.
            std::thread::sleep(Duration::from_micros(1700 * round));
            drop(region);
            denser.join().expect("it found that the region is gone");
            ended.send(()).expect("the test waits for it");
        }
        pager.memory().flush_deferred();
        ended.send(()).expect("the test waits for it");
    });
    for _ in 0..=ROUNDS {
        let ended = end.recv_timeout(Duration::from_secs(60));
        assert!(ended.is_ok(), "a thread waits for itself, or panicked");
    }
}

#[test]
fn what_cannot_be_is_an_error() {
    let Some(pager) = setting::pager(&PagerConfig::default()) else { return };
    let map = |config: &RegionConfig| Region::map(&pager, PAGES * PAGE, config);
    let fast = map(&dense(Density::Fast)).expect("fast has no tiers");
    assert!(matches!(fast.control().densify(), Err(RegionError::NoTiers)));
    assert!(fast.tier_stat().is_none());
    for (age_ms, cpu_percent) in [(999, 10), (1000, 0), (1000, 101)] {
        let age = Duration::from_millis(age_ms);
        let tiers = TiersConfig { age, cpu_percent, ..TiersConfig::new(Density::Dense) };
        let config = RegionConfig { tiers: Some(tiers), ..RegionConfig::default() };
        assert!(matches!(map(&config), Err(RegionError::Tiers(_))), "{age_ms} {cpu_percent}");
    }
    let cache = cache::cache(&pager, 1 << 20, None);
    let over = RegionConfig { store: cache::over(&cache), ..dense(Density::Balanced) };
    assert!(matches!(map(&over), Err(RegionError::NoTiers)));
    let gone = map(&dense(Density::Dense)).expect("a region").control();
    assert!(matches!(gone.densify(), Err(RegionError::Gone)));
}
