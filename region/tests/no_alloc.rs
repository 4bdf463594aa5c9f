//! The fault path allocates nothing. An allocator that aborts is in place while pages are touched.
//!
//! It sees what Rust allocates. The C library of lz4 decompresses without allocating.

#[path = "setting/cache.rs"]
mod cache;
#[path = "setting/mod.rs"]
mod setting;

use assert_no_alloc::{AllocDisabler, assert_no_alloc};
use disk::FileDisk;
use ramfold_region::{Density, PagerConfig, Quads, Region, RegionConfig, TiersConfig};
use std::sync::Arc;

#[global_allocator]
static ALLOCATOR: AllocDisabler = AllocDisabler;

const PAGE: usize = 4096;
const PAGES: usize = 2000;

/// Touches pages in an order, with allocating forbidden.
fn touch(region: &Region, pages: impl Iterator<Item = usize>) -> u64 {
    let bytes = region.as_slice();
    assert_no_alloc(|| pages.map(|page| u64::from(bytes[page * PAGE + 9])).sum())
}

#[test]
fn faults_allocate_nothing() {
    let Some(pager) = setting::pager(&PagerConfig::default()) else { return };
    let limit = RegionConfig { resident_limit: Some(2 << 20), ..RegionConfig::default() };
    let quads = RegionConfig { quads: Quads::Always, ..RegionConfig::default() };
    for config in [RegionConfig::default(), limit, quads] {
        let mut region = Region::map(&pager, PAGES * PAGE, &config).expect("a region");
        assert_no_alloc(|| ());
        let fill = |(number, page): (usize, &mut [u8])| page[9] = number as u8;
        let half = region.bytes_mut(0..PAGES * PAGE / 2).expect("half of it");
        half.chunks_mut(PAGE).enumerate().for_each(fill);
        region.control().page_out(0..PAGES * PAGE).expect("out");
        let expected: u64 = (0..PAGES / 2).map(|number| u64::from(number as u8)).sum();
        // Stored and untouched pages, one by one and around faults; with a limit, waiting for it.
        let scattered = (0..PAGES).map(|page| page * 7 % PAGES);
        assert_eq!(touch(&region, scattered), expected);
        region.control().page_out(0..PAGES * PAGE).expect("out");
        assert_eq!(touch(&region, 0..PAGES), expected);
        assert!(region.stats().stored_faults > 0 && region.stats().first_touches > 0);
    }
}

/// A page of which the words are others, as those of its neighbours are, in the same order.
fn words(number: usize, page: &mut [u8]) {
    let mut state = number as u64 + 1;
    page.chunks_exact_mut(8).enumerate().for_each(|(at, word)| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        let value = if at % 4 == 0 { state >> 32 } else { (number / 64 + at) as u64 };
        word.copy_from_slice(&value.to_le_bytes());
    });
    page[9] = number as u8;
}

/// Tables, a dictionary and units are read, none of which the region had when it was mapped.
#[test]
fn faults_on_pages_that_became_denser_allocate_nothing() {
    let Some(pager) = setting::pager(&PagerConfig::default()) else { return };
    for density in [Density::Balanced, Density::Dense] {
        let tiers = Some(TiersConfig::new(density));
        let config = RegionConfig { tiers, ..RegionConfig::default() };
        let mut region = Region::map(&pager, PAGES * PAGE, &config).expect("a region");
        region.as_mut_slice().chunks_mut(PAGE).enumerate().for_each(|(at, page)| words(at, page));
        let expected: u64 = (0..PAGES).map(|number| u64::from(number as u8)).sum();
        for order in [7, 1] {
            region.control().page_out(0..PAGES * PAGE).expect("out");
            region.control().densify().expect("room");
            let stat = region.tier_stat().expect("it has tiers");
            assert!(stat.denser > PAGES as u64 / 2, "{stat:?}");
            let units = region.store_stat().expect("a device").units.map_or(0, |it| it.pages);
            assert_eq!(units > 0, density == Density::Dense, "{units} pages in units");
            assert_eq!(touch(&region, (0..PAGES).map(|page| page * order % PAGES)), expected);
        }
        assert_eq!(region.control().check().expect("there"), [""; 0]);
    }
}

#[test]
fn faults_on_pages_of_a_cache_and_its_disk_allocate_nothing() {
    let Some(pager) = setting::pager(&PagerConfig::default()) else { return };
    let path = std::env::temp_dir().join(format!("ramfold-no-alloc-{}", std::process::id()));
    std::fs::File::create(&path).and_then(|file| file.set_len(64 << 20)).expect("a file");
    let disk = FileDisk::open(&path, false).expect("a disk");
    std::fs::remove_file(&path).expect("it is ours");
    let cache = cache::cache(&pager, 64 << 20, Some(Arc::new(disk)));
    let config = RegionConfig { store: cache::over(&cache), ..RegionConfig::default() };
    let mut region = Region::map(&pager, PAGES * PAGE, &config).expect("a region");
    let fill = |(number, page): (usize, &mut [u8])| {
        page[9] = number as u8;
        page[2000..2008].copy_from_slice(&(number as u64).to_le_bytes());
    };
    region.as_mut_slice().chunks_mut(PAGE).enumerate().for_each(fill);
    let expected: u64 = (0..PAGES).map(|number| u64::from(number as u8)).sum();
    for order in [7, 1] {
        region.control().page_out(0..PAGES * PAGE).expect("out");
        cache.write_back(PAGES as u64 / 2);
        // One by one, or around faults; in memory or on the disk, alone or read ahead.
        assert_eq!(touch(&region, (0..PAGES).map(|page| page * order % PAGES)), expected);
    }
    let (stats, stat) = (region.stats(), cache.stat());
    assert!(stats.disk_faults > 0 && stats.stored_faults > stats.disk_faults, "{stats:?}");
    assert!(stat.read_ahead_hits > 0, "{stat}");
}
