//! The accesses of a trace through a zswap of ours, with every page verified.
//!
//! ```text
//!   access   load -> memory: a hit | disk: a miss | absent: only the first time, else it is lost
//!            verify; the page is in use; more are than may be? the one that is longest:
//!              stamp its number and a new version, store it
//!              more pages in memory than the cache may have? write back
//! ```
//!
//! How many pages the cache has is decided here, by asking it to write back: a limit in bytes would
//! make the number depend on how the pages compress. Times are of loads, of stores and of writing
//! back to a disk in RAM; making and comparing pages is outside.

use super::trace::Access;
use crate::ground::LabError;
use crate::pages::{Corpus, PAGE_SIZE};
use disk::RamDisk;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use zsmalloc::{Memory, MemoryConfig};
use zswap::{Area, EvictionOrder, GroupId, Limit, Loaded, Zswap, ZswapConfig};

/// The store's name in messages.
const NAME: &str = "zswap";
/// Pages written back at once: so few that the cache is hardly ever smaller for it.
const BATCH_PARTS: usize = 512;
/// Sectors of the disk for each page: what a page may take there, and what is being written.
const DISK_PARTS: usize = 2;

/// Pages of the trace, in the cache, and in use at most.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) pages: usize,
    pub(super) cached: usize,
    pub(super) in_use: usize,
}

/// What a run gave.
pub(super) struct Measured {
    pub(super) hits: Vec<bool>,
    pub(super) writes_back: u64,
    pub(super) load_ns: f64,
    pub(super) store_ns: f64,
    pub(super) write_back_ns: f64,
}

struct Cache<'a> {
    zswap: Zswap,
    area: Area,
    corpus: &'a Corpus,
    /// How often each page was stored.
    versions: Vec<u32>,
    in_memory: usize,
    size: Size,
    /// Pages that were loaded and are to be stored again, oldest first.
    in_use: VecDeque<u32>,
    writes_back: u64,
    data: Vec<u8>,
    expected: Vec<u8>,
    ns: [u64; 3],
}

/// Runs `accesses`, to pages that are not in use.
pub(super) fn run(
    order: EvictionOrder,
    size: Size,
    corpus: &Corpus,
    accesses: &[Access],
) -> Result<Measured, LabError> {
    let mut cache = Cache::new(order, size, corpus)?;
    let mut hits = Vec::with_capacity(accesses.len());
    for access in accesses {
        hits.push(cache.access(access.page)?);
    }
    let per_access = |ns: u64| ns as f64 / accesses.len().max(1) as f64;
    let [load_ns, store_ns, write_back_ns] = cache.ns.map(per_access);
    Ok(Measured { hits, writes_back: cache.writes_back, load_ns, store_ns, write_back_ns })
}

impl Cache<'_> {
    fn new(order: EvictionOrder, size: Size, corpus: &Corpus) -> Result<Cache<'_>, LabError> {
        let bytes = (size.pages * PAGE_SIZE) as u64;
        let config = MemoryConfig { worker: false, ..MemoryConfig::for_disk(bytes) };
        let memory = Memory::new(config).map_err(LabError::store(NAME))?;
        let disk = RamDisk::new(bytes * DISK_PARTS as u64).map_err(LabError::store("RAM disk"))?;
        let config = ZswapConfig {
            order,
            limit: Limit::None,
            backing: Some(Arc::new(disk)),
            worker: false,
            ..ZswapConfig::new("lab")
        };
        let zswap = Zswap::new(memory, config).map_err(LabError::store(NAME))?;
        let area = zswap.add_area(size.pages as u64).map_err(LabError::store(NAME))?;
        Ok(Cache {
            zswap,
            area,
            corpus,
            versions: vec![0; size.pages],
            in_memory: 0,
            size,
            in_use: VecDeque::with_capacity(size.in_use + 1),
            writes_back: 0,
            data: vec![0; PAGE_SIZE],
            expected: vec![0; PAGE_SIZE],
            ns: [0; 3],
        })
    }

    /// Loads and verifies a page, and stores the one that was in use the longest; true when the
    /// page was in memory.
    fn access(&mut self, page: u32) -> Result<bool, LabError> {
        let start = Instant::now();
        let loaded = self.area.load(u64::from(page), &mut self.data);
        self.ns[0] += ns_since(start);
        let loaded = loaded.map_err(LabError::store(format_args!("{NAME}: load of {page}")))?;
        self.verify(page, loaded)?;
        self.in_memory -= usize::from(loaded == Loaded::Memory);
        self.in_use.push_back(page);
        if self.in_use.len() > self.size.in_use
            && let Some(oldest) = self.in_use.pop_front()
        {
            self.store(oldest)?;
        }
        Ok(loaded == Loaded::Memory)
    }

    fn store(&mut self, page: u32) -> Result<(), LabError> {
        self.versions[page as usize] += 1;
        self.compose(page);
        let start = Instant::now();
        let stored = self.area.store(u64::from(page), &self.expected, GroupId::ROOT);
        self.ns[1] += ns_since(start);
        stored.map_err(LabError::store(format_args!("{NAME}: store of {page}")))?;
        self.in_memory += 1;
        self.make_room()
    }

    /// A page is what was stored last, or absent if nothing was.
    fn verify(&mut self, page: u32, loaded: Loaded) -> Result<(), LabError> {
        let stored = self.versions[page as usize] > 0;
        if stored == (loaded == Loaded::Absent) {
            return Err(LabError::Wrong(format!("page {page}: {loaded:?}, stored: {stored}")));
        }
        self.compose(page);
        if stored && self.data != self.expected {
            return Err(LabError::Wrong(format!("page {page} is not what was stored")));
        }
        Ok(())
    }

    /// The page as it was stored last: the corpus's, with number and version before it.
    fn compose(&mut self, page: u32) {
        self.expected.copy_from_slice(self.corpus.page(page as usize % self.corpus.pages()));
        self.expected[..4].copy_from_slice(&page.to_le_bytes());
        self.expected[4..8].copy_from_slice(&self.versions[page as usize].to_le_bytes());
        // Never one word repeated, which takes no memory and has no turn.
        self.expected[8..12].copy_from_slice(&(!page).to_le_bytes());
    }

    fn make_room(&mut self) -> Result<(), LabError> {
        if self.in_memory <= self.size.cached {
            return Ok(());
        }
        let start = Instant::now();
        let batch = (self.size.cached / BATCH_PARTS).max(1) as u64;
        let wrote = self.zswap.write_back(batch);
        self.ns[2] += ns_since(start);
        if wrote.pages == 0 || wrote.failed > 0 {
            return Err(LabError::Wrong(format!("{NAME} cannot write back: {wrote:?}")));
        }
        self.writes_back += wrote.pages;
        self.in_memory -= wrote.pages as usize;
        Ok(())
    }
}

fn ns_since(start: Instant) -> u64 {
    start.elapsed().as_nanos() as u64
}
