//! Regions without a userfaultfd: what is closed is counted, and mappings are left to the program.

use ramfold_region::{FaultMode, Memory, MemoryConfig, Pager, PagerConfig, Region, RegionConfig};
use std::fs;
use std::sync::Arc;

const PAGE: usize = 4096;
const GROUP: usize = 64 * PAGE;

fn pager(disk_bytes: u64, mappings_max: Option<u64>) -> Arc<Pager> {
    pager_in(FaultMode::Protection, disk_bytes, mappings_max)
}

fn pager_in(mode: FaultMode, disk_bytes: u64, mappings_max: Option<u64>) -> Arc<Pager> {
    let memory = Memory::new(MemoryConfig::for_disk(disk_bytes)).expect("a memory");
    let fault_mode = Some(mode);
    let config = PagerConfig { fault_mode, mappings_max, ..PagerConfig::default() };
    Pager::new(memory, &config).expect("a pager")
}

/// A group learned what it has in memory only after its pages were discarded. So nobody closed
/// them, and when they were written again, they stayed in memory for ever.
#[test]
fn what_is_discarded_in_a_group_that_nobody_has_looked_at_is_counted_when_it_returns() {
    let pager = pager(8 << 20, None);
    let mut region = Region::map(&pager, 8 * GROUP, &RegionConfig::default()).expect("one");
    region.as_mut_slice()[..5 * GROUP].fill(7);
    // It registers all eight groups, and looks at the first.
    assert_eq!(region.control().page_out(0..PAGE).expect("out").stored, 1);
    region.discard(3 * GROUP..3 * GROUP + 32 * PAGE).expect("discarded");
    // Now it is looked at.
    let one = 3 * GROUP + 40 * PAGE..3 * GROUP + 41 * PAGE;
    assert_eq!(region.control().page_out(one).expect("out").stored, 1);
    region.as_mut_slice()[3 * GROUP..4 * GROUP].fill(9);
    assert_eq!(region.control().check().expect("there"), [""; 0]);
    let out = region.control().page_out(3 * GROUP..4 * GROUP).expect("out");
    assert_eq!((out.stored, out.busy), (64, 0));
    let bytes = region.as_slice();
    assert!(bytes[3 * GROUP..4 * GROUP].iter().all(|&byte| byte == 9));
    assert!(bytes[..3 * GROUP].iter().all(|&byte| byte == 7));
}

fn mappings() -> u64 {
    fs::read_to_string("/proc/self/maps").expect("the mappings can be read").lines().count() as u64
}

/// Each page that is touched at random in what is closed splits a mapping in three.
#[test]
fn a_large_region_that_is_touched_at_random_leaves_mappings_to_the_program() {
    const BYTES: usize = 4 << 30;
    let pager = pager(BYTES as u64, None);
    let config = RegionConfig { resident_limit: Some(128 << 20), ..RegionConfig::default() };
    let mut region = Region::map(&pager, BYTES, &config).expect("a region");
    let (bytes, mut number, mut most) = (region.as_mut_slice(), 1u64, 0);
    let pages = (BYTES / PAGE) as u64;
    let mut next = || {
        number = number.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((number >> 33) % pages) as usize
    };
    for round in 0..60_000 {
        let page = next();
        bytes[page * PAGE..page * PAGE + 8].copy_from_slice(&(page as u64 + 1).to_ne_bytes());
        if round % 4000 == 0 {
            most = most.max(mappings());
        }
    }
    let half = host::limits::max_map_count() / 2;
    assert!(most < half, "{most} mappings");
    number = 1;
    let mut again = || {
        number = number.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((number >> 33) % pages) as usize
    };
    for _ in 0..20_000 {
        let page = again();
        let word = bytes[page * PAGE..].first_chunk().expect("eight bytes");
        assert_eq!(u64::from_ne_bytes(*word), page as u64 + 1);
    }
    let stats = region.stats();
    assert!(stats.stored_pages > 0 && stats.mappings < half, "{stats:?}");
    assert_eq!(region.control().check().expect("there"), [""; 0]);
}

/// With so few mappings whole groups come and go, and nothing is lost.
#[test]
fn with_few_mappings_whole_groups_come_and_go() {
    let pager = pager(64 << 20, Some(24));
    let mut region = Region::map(&pager, 128 * GROUP, &RegionConfig::default()).expect("one");
    let pages = region.as_mut_slice().chunks_mut(PAGE).enumerate();
    pages.for_each(|(number, page)| page[..8].copy_from_slice(&number.to_ne_bytes()));
    for group in (0..128).step_by(3) {
        region.control().page_out(group * GROUP + 5 * PAGE..group * GROUP + 6 * PAGE).expect("out");
    }
    let made = region.stats().mappings;
    assert!(made <= 2 * 24, "{made} mappings");
    let pages = region.as_slice().chunks(PAGE).enumerate();
    pages.for_each(|(number, page)| assert_eq!(page[..8], number.to_ne_bytes()));
    assert_eq!(region.control().check().expect("there"), [""; 0]);
}
