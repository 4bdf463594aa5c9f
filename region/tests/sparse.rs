//! A page in every other chunk of a large region leaves memory. The test counts how many of the
//! process's mappings that takes. It is alone in its process, because its mappings are counted.

use ramfold_region::{
    FaultMode, Memory, MemoryConfig, Pager, PagerConfig, Region, RegionConfig, RegionError,
    RegionStats, Teardown,
};
use std::fs;
use std::sync::Arc;

const PAGE: usize = 4096;
const CHUNK: usize = 2 << 20;
/// A page of every other chunk leaves: 136 GiB of addresses, 133 MiB of pages.
const CHUNKS: usize = 68_000;
/// The same where each closed page may split a mapping: more mappings than there are all the same.
const CLOSED_CHUNKS: usize = 24_000;

fn mappings() -> u64 {
    fs::read_to_string("/proc/self/maps").expect("the mappings can be read").lines().count() as u64
}

/// A pager for a region of so many chunks, that may make so many mappings.
fn pager(chunks: usize, mappings_max: Option<u64>) -> Option<Arc<Pager>> {
    let memory = Memory::new(MemoryConfig::for_disk((chunks * CHUNK) as u64)).expect("a memory");
    let config = PagerConfig { mappings_max, ..PagerConfig::default() };
    let pager = Pager::new(memory, &config);
    pager.inspect_err(|error| eprintln!("skipped: needs {error}")).ok()
}

fn region(pager: &Arc<Pager>, chunks: usize) -> Region {
    Region::map(pager, chunks * CHUNK, &RegionConfig::default()).expect("a region")
}

/// Whether pages that are out are closed, so that each range of them takes a mapping.
fn closes(pager: &Pager) -> bool {
    pager.fault_mode() == FaultMode::Protection
}

/// Checks that `pages` pages have left, or more of them where neighbours leave together.
fn assert_left(pager: &Pager, stats: &RegionStats, pages: u64) {
    let most = if closes(pager) { 64 * pages } else { pages };
    assert!((pages..=most).contains(&stats.stored_pages) && stats.refused == 0, "{stats:?}");
}

/// Pages out page 7 of every other chunk. The page begins with its chunk's number. The page before
/// it stays.
fn page_out_sparsely(pager: &Pager, region: &mut Region) -> RegionStats {
    let closes = closes(pager);
    let control = region.control();
    let bytes = region.as_mut_slice();
    for chunk in (0..bytes.len() / CHUNK).step_by(2) {
        let at = chunk * CHUNK + 7 * PAGE;
        bytes[at..at + 8].copy_from_slice(&chunk.to_ne_bytes());
        bytes[at - 8..at].copy_from_slice(&(chunk + 1).to_ne_bytes());
        let out = control.page_out(at..at + PAGE);
        // Where each closed page may split a mapping, its group comes and leaves with it.
        let most = if closes { 64 } else { 1 };
        let stored = out.expect("watched").stored;
        assert!((1..=most).contains(&stored), "{stored} of chunk {chunk}");
    }
    region.stats()
}

/// Checks that pages have what was written, and zeros elsewhere, also in chunks that are registered
/// for others.
fn assert_content(region: &Region) {
    let bytes = region.as_slice();
    let number = |at: usize| {
        let (word, rest) = bytes[at..].split_first_chunk().expect("within");
        (usize::from_ne_bytes(*word), rest[0])
    };
    for chunk in (0..bytes.len() / CHUNK).step_by(2) {
        let at = chunk * CHUNK + 7 * PAGE;
        assert_eq!((number(at), number(at - 8).0), ((chunk, 0), chunk + 1), "chunk {chunk}");
        assert_eq!(number(at + CHUNK), (0, 0), "after chunk {chunk}");
    }
}

/// At about 32 700 chunks the system once refused to watch another one. From then on it refused
/// threads to the program, and would not let it read its mappings. All of `vm.max_map_count` was
/// the region's.
#[test]
fn a_sparse_region_leaves_mappings_to_the_program() {
    let before = mappings();
    let Some(pager) = pager(CHUNKS, None) else { return };
    let chunks = if closes(&pager) { CLOSED_CHUNKS } else { CHUNKS };
    let mut region = region(&pager, chunks);
    let stats = page_out_sparsely(&pager, &mut region);
    assert_left(&pager, &stats, chunks as u64 / 2);
    let share = if closes(&pager) { 2 } else { 8 };
    let made = mappings() - before;
    // Besides the region's mappings there are those of its memory, its store and its threads.
    assert!(made <= host::limits::max_map_count() / share + 200, "{made} mappings");
    let thread = std::thread::Builder::new().stack_size(8 << 20);
    let thread = thread.spawn(|| 7).expect("a thread");
    assert_eq!(thread.join().expect("it ends"), 7);
    assert_content(&region);
    // Otherwise its mappings would go while those of the next one are counted.
    region.teardown(Teardown::Sync);
    few_mappings();
    ranges_given_back();
}

/// As above, with so few mappings that all are used up. Then the gaps between registered chunks are
/// registered.
fn few_mappings() {
    let before = mappings();
    let Some(pager) = pager(600, Some(40)) else { return };
    let mut region = region(&pager, 600);
    let stats = page_out_sparsely(&pager, &mut region);
    assert_left(&pager, &stats, 300);
    let made = mappings() - before;
    assert!(made <= 40 + 200, "{made} mappings");
    assert_content(&region);
    assert!(region.stats().first_touches > 0, "of chunks that were registered for others");
    assert_eq!(region.control().check().expect("alive"), [""; 0]);
}

/// Each range given back is a mapping, and splits one.
fn ranges_given_back() {
    let Some(pager) = pager(1, Some(40)) else { return };
    let mut region = region(&pager, 1);
    let mut give_back = |page: usize| region.unmap(page * PAGE..(page + 1) * PAGE);
    let refused = (0..500).step_by(2).find_map(|page| give_back(page).err().map(|e| (page, e)));
    let (page, error) = refused.expect("each takes two mappings");
    assert!(matches!(error, RegionError::TooManyMappings { max: 40 }), "{error}");
    assert!((30..=40).contains(&page), "page {page}");
    region.discard(page * PAGE..(page + 1) * PAGE).expect("as the message says");
    assert_eq!(region.bytes(page * PAGE..(page + 1) * PAGE).expect("there")[0], 0);
}
