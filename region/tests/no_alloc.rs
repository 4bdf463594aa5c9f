//! The fault path allocates nothing: an allocator that aborts is in place while pages are touched.
//!
//! It sees what Rust allocates; the C library under lz4 decompresses without allocating.

#[path = "setting/mod.rs"]
mod setting;

use assert_no_alloc::{AllocDisabler, assert_no_alloc};
use region::{PagerConfig, Region, RegionConfig};

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
    for config in [RegionConfig::default(), limit] {
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
