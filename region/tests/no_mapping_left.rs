//! A region in a process that has no room for another mapping. The test is alone in its process,
//! which has no such room meanwhile.

use host::{PAGE_SIZE, Table};
use ramfold_region::{FaultMode, Memory, MemoryConfig, Pager, PagerConfig, Region, RegionConfig};
use std::sync::atomic::AtomicU64;

/// More tables than the usual `vm.max_map_count` allows. If there is room for more, the test does
/// not use it up.
const TABLES_MAX: usize = 100_000;
/// Bytes that are registered at a time.
const CHUNK: usize = 2 << 20;
const CHUNKS: usize = 16;

/// Registering a chunk by itself takes two mappings, and was once refused. Then a pin failed, and
/// nothing could be paged out. Registering all that is not registered takes no mapping.
#[test]
fn pages_leave_and_are_pinned_where_no_mapping_is_left() {
    let memory = Memory::new(MemoryConfig::for_disk(64 << 20)).expect("a memory");
    let pager = match Pager::new(memory, &PagerConfig::default()) {
        Ok(pager) => pager,
        Err(error) => return eprintln!("skipped: needs {error}"),
    };
    let config = RegionConfig::default();
    let mut region = Region::map(&pager, CHUNKS * CHUNK, &config).expect("a region");
    let pages = region.as_mut_slice().chunks_mut(PAGE_SIZE).enumerate();
    pages.for_each(|(number, page)| page.fill(number as u8));
    let mut tables: Vec<Table<AtomicU64>> = Vec::with_capacity(TABLES_MAX);
    while tables.len() < TABLES_MAX
        && let Ok(table) = Table::reserve(1)
    {
        tables.push(table);
    }
    let full = tables.len() < TABLES_MAX;
    let within = |chunk: usize| chunk * CHUNK + 5 * PAGE_SIZE..chunk * CHUNK + 6 * PAGE_SIZE;
    let refused = (1..CHUNKS).step_by(2).find_map(|chunk| {
        let pinned = region.pin(within(chunk)).map(drop).err();
        pinned.or_else(|| region.control().page_out(within(chunk)).err())
    });
    drop(tables);
    assert!(refused.is_none(), "{refused:?}");
    let stats = region.stats();
    if full && pager.fault_mode() == FaultMode::Protection {
        // A page that is closed by itself splits a mapping. It stays, and the program goes on.
        assert_eq!((stats.stored_pages, stats.busy), (0, CHUNKS as u64 / 2), "{stats:?}");
    } else {
        assert_eq!(stats.stored_pages, CHUNKS as u64 / 2, "{stats:?}");
    }
    for (number, page) in region.as_slice().chunks(PAGE_SIZE).enumerate() {
        assert!(page.iter().all(|&byte| byte == number as u8), "page {number}");
    }
    assert!(region.control().check().expect("alive").is_empty());
    if !full {
        eprintln!("skipped: needs a vm.max_map_count below {TABLES_MAX}");
    }
}
