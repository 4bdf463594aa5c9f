//! A pin that the system refuses leaves no trace. Alone in its process, which has no room for
//! another mapping meanwhile.

use host::{PAGE_SIZE, Table};
use region::{Memory, MemoryConfig, Pager, PagerConfig, Region, RegionConfig};
use std::sync::atomic::AtomicU64;

/// More tables than the usual `vm.max_map_count` allows; where there is room for more, it is not
/// to be used up.
const TABLES_MAX: usize = 100_000;
/// Bytes of what is registered at a time, and how many of them the region has.
const CHUNK: usize = 2 << 20;
const CHUNKS: usize = 16;

/// Fills each page with its number.
fn number_pages(region: &mut Region) {
    let pages = region.as_mut_slice().chunks_mut(PAGE_SIZE).enumerate();
    pages.for_each(|(number, page)| page.fill(number as u8));
}

#[test]
fn a_refused_pin_is_no_pin() {
    let memory = Memory::new(MemoryConfig::for_disk(64 << 20)).expect("a memory");
    let pager = match Pager::new(memory, &PagerConfig::default()) {
        Ok(pager) => pager,
        Err(error) => return eprintln!("skipped: needs {error}"),
    };
    let config = RegionConfig::default();
    let mut region = Region::map(&pager, CHUNKS * CHUNK, &config).expect("a region");
    number_pages(&mut region);
    let mut tables: Vec<Table<AtomicU64>> = Vec::with_capacity(TABLES_MAX);
    while tables.len() < TABLES_MAX
        && let Ok(table) = Table::reserve(1)
    {
        tables.push(table);
    }
    // Within a group, as counting by pages goes wrong there. What is left for mappings may still do
    // for a chunk or two.
    let within = |chunk: usize| chunk * CHUNK + 5 * PAGE_SIZE..chunk * CHUNK + 6 * PAGE_SIZE;
    let refuses = |chunk: &usize| region.pin(within(*chunk)).is_err();
    let refused = (1..CHUNKS).step_by(2).find(refuses);
    drop(tables);
    let Some(chunk) = refused else {
        return eprintln!("skipped: needs a vm.max_map_count below {TABLES_MAX}");
    };
    let group = chunk * CHUNK..chunk * CHUNK + 64 * PAGE_SIZE;
    let out = || region.control().page_out(group.clone()).expect("registered now");
    let all = out();
    assert_eq!((all.stored, all.busy), (64, 0), "somebody has pinned it");
    let pinned = region.pin(within(chunk)).expect("a pin");
    assert_eq!(out().stored, 0, "a page that was lent has left");
    let number = (chunk * CHUNK / PAGE_SIZE + 5) as u8;
    assert!(pinned.iter().all(|&byte| byte == number));
    drop(pinned);
    assert!(region.control().check().expect("alive").is_empty());
}
