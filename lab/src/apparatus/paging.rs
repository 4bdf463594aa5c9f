//! What is done with memory that is paged out and in, the same for the kernel's and for ours.
//!
//! ```text
//!   page p of the memory holds page p mod n of a corpus of n pages
//!
//!   | first half                        | second half                       |
//!     touched at random, a sample         touched in sequence, a sample
//! ```
//!
//! Invariant: a touch reads one byte of a page that nobody has touched since all were paged out.

use crate::ground::{LabError, Rng};
use crate::pages::{Corpus, PAGE_SIZE};
use region::{Region, RegionError};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::hint;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Pages touched in one order, at most: the mean settles long before.
const SAMPLE_PAGES: usize = 1 << 14; // 64 MiB
/// Pages read from the source at once.
const CHUNK_PAGES: usize = 64;
const SEED: u64 = 5;

const _: () = assert!(CHUNK_PAGES <= SAMPLE_PAGES, "a chunk is the smaller unit");

/// The corpus as a file without a name, for processes that have none of their own.
pub(crate) struct Source {
    file: File,
    pages: usize,
}

impl Source {
    /// Keeps the pages of `corpus` in memory, once for all processes.
    pub(crate) fn new(corpus: &Corpus) -> Result<Source, LabError> {
        let what = "a file in memory";
        let file = memfd_create("lab-corpus", MemfdFlags::CLOEXEC);
        let mut file = File::from(file.map_err(|errno| LabError::io(what)(errno.into()))?);
        file.write_all(corpus.bytes()).map_err(LabError::io(what))?;
        Ok(Source { file, pages: corpus.pages() })
    }

    pub(crate) fn open(path: &Path) -> Result<Source, LabError> {
        let file = File::open(path).map_err(LabError::io(path.display()))?;
        let length = file.metadata().map_err(LabError::io(path.display()))?.len() as usize;
        Ok(Source { file, pages: length / PAGE_SIZE })
    }

    /// Where a child of this process finds it.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }

    /// Fills `memory`, whose first page is page 0.
    pub(crate) fn fill(&self, memory: &mut [u8]) -> Result<(), LabError> {
        for (number, chunk) in memory.chunks_mut(CHUNK_PAGES * PAGE_SIZE).enumerate() {
            self.fill_from(number * CHUNK_PAGES, chunk)?;
        }
        Ok(())
    }

    /// Compares every page of `memory` with what `fill` put there.
    pub(crate) fn verify(&self, memory: &[u8]) -> Result<(), LabError> {
        let mut chunks = memory.chunks(CHUNK_PAGES * PAGE_SIZE).enumerate();
        chunks.try_for_each(|(number, chunk)| self.verify_from(number * CHUNK_PAGES, chunk))
    }

    /// The same for pages from `first` on.
    pub(crate) fn verify_from(&self, first: usize, pages: &[u8]) -> Result<(), LabError> {
        let mut expected = vec![0; pages.len()];
        self.fill_from(first, &mut expected)?;
        let mut pairs = pages.chunks(PAGE_SIZE).zip(expected.chunks(PAGE_SIZE));
        let wrong = |at| LabError::Wrong(format!("page {} came back different", first + at));
        let differs = pairs.position(|(found, expected)| found != expected);
        differs.map_or(Ok(()), |at| Err(wrong(at)))
    }

    /// What the pages from `page` on hold.
    pub(crate) fn fill_from(&self, page: usize, bytes: &mut [u8]) -> Result<(), LabError> {
        let mut done = 0;
        while done < bytes.len() {
            let at = (page + done / PAGE_SIZE) % self.pages;
            let length = (bytes.len() - done).min((self.pages - at) * PAGE_SIZE);
            let part = &mut bytes[done..done + length];
            let read = self.file.read_exact_at(part, (at * PAGE_SIZE) as u64);
            read.map_err(LabError::io("corpus"))?;
            done += length;
        }
        Ok(())
    }
}

/// Which pages are touched, in which order.
pub(crate) struct Plan {
    random: Vec<u32>,
    sequential: std::ops::Range<usize>,
}

impl Plan {
    /// Of a memory of `pages`; every run has an order of its own.
    pub(crate) fn new(pages: usize, run: u32) -> Plan {
        let half = pages / 2;
        let mut random = Rng::new(SEED, u64::from(run)).permutation(half);
        random.truncate(SAMPLE_PAGES);
        Plan { random, sequential: half..pages.min(half + SAMPLE_PAGES) }
    }

    pub(crate) fn random(&self) -> impl ExactSizeIterator<Item = usize> {
        self.random.iter().map(|&page| page as usize)
    }

    pub(crate) fn sequential(&self) -> impl ExactSizeIterator<Item = usize> {
        self.sequential.clone()
    }
}

/// Reads a byte of each of `pages` of `memory`; nanoseconds for each, nothing without pages.
pub(crate) fn touch(memory: &[u8], pages: impl ExactSizeIterator<Item = usize>) -> Option<f64> {
    let count = pages.len();
    let start = Instant::now();
    for page in pages {
        hint::black_box(memory[page * PAGE_SIZE]);
    }
    let ns = start.elapsed().as_nanos() as f64;
    (count > 0).then(|| ns / count as f64)
}

/// Refuses `bytes` of memory if they are more than half of what is available; `what` asked for
/// them.
pub(crate) fn refuse_if_too_large(bytes: u64, what: &str) -> Result<(), LabError> {
    let to_be_had = host::limits::memory_available().default_limit.unwrap_or(u64::MAX);
    let most = to_be_had >> 20;
    let usage =
        || LabError::Usage(format!("{what} is more than half of what can be had, {most} MiB"));
    (bytes <= to_be_had).then_some(()).ok_or_else(usage)
}

/// The time it took until every page was in the store.
pub(crate) fn fold(region: &Region) -> Result<Duration, LabError> {
    let (control, all) = (region.control(), 0..region.len());
    let start = Instant::now();
    control.page_out(all).map_err(refused)?;
    let spent = start.elapsed();
    let stats = region.stats();
    let left = || LabError::Wrong(format!("not every page is in the store: {stats:?}"));
    (stats.stored_pages == stats.pages).then_some(spent).ok_or_else(left)
}

/// A system without what folded memory needs is a missing peer, and no failure.
pub(crate) fn refused(error: RegionError) -> LabError {
    match error {
        RegionError::Fault(why) => LabError::missing("region", why),
        error => LabError::store("region")(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(pages: usize) -> (Corpus, Source) {
        let corpus = Corpus::open(None, (pages * PAGE_SIZE) as u64).unwrap();
        let source = Source::new(&corpus).unwrap();
        (corpus, source)
    }

    #[test]
    fn memory_larger_than_the_corpus_repeats_it() {
        let (corpus, source) = source(5);
        let mut memory = vec![0; 2 * CHUNK_PAGES * PAGE_SIZE];
        let opened = Source::open(&source.path()).unwrap();
        opened.fill(&mut memory).unwrap();
        for (page, bytes) in memory.chunks(PAGE_SIZE).enumerate() {
            assert!(bytes == corpus.page(page % 5), "page {page}");
        }
        source.verify(&memory).unwrap();
    }

    #[test]
    fn one_wrong_byte_is_found_and_its_page_named() {
        let (_, source) = source(70);
        let mut memory = vec![0; 70 * PAGE_SIZE];
        source.fill(&mut memory).unwrap();
        memory[66 * PAGE_SIZE + 4095] ^= 1;
        let error = source.verify(&memory).unwrap_err().to_string();
        assert_eq!(error, "wrong answer: page 66 came back different");
    }

    #[test]
    fn no_page_is_touched_twice() {
        for pages in [2, 3, 256, 5 * SAMPLE_PAGES] {
            let plan = Plan::new(pages, 1);
            let mut touched: Vec<usize> = plan.random().chain(plan.sequential()).collect();
            let count = touched.len();
            touched.sort_unstable();
            touched.dedup();
            assert_eq!(touched.len(), count, "of {pages}");
            assert!(touched.last().is_some_and(|&last| last < pages));
        }
    }
}
