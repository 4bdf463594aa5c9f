//! Where a page equal to a given one may be.
//!
//! ```text
//!   bucket   | entry | entry | ... 8 ... |      an entry:   page + 1   | sum of the page, low half
//!      `-- by the high half of the sum                       32 bits   |  32 bits
//! ```
//!
//! Invariant: an entry is a hint. Its page may have other content by now, or none. A caller locks
//! the page's cell and compares all bytes before it believes the hint. So a lost or a wrong entry
//! costs some memory or some time, and nothing else.
//!
//! The sums are keyed, so a client cannot choose pages that fall in one bucket.
//!
//! Lock: none; each entry is one word.

use std::ops::Range;

use disk::Seal;
use host::sync::atomic::{AtomicU64, Ordering};
use host::{PAGE_SIZE, Table};
use zsmalloc::{MemoryError, Pool};

/// Entries of a bucket: a cache line.
const WAYS: usize = 8;
/// The most buckets: entries for 64 GiB of pages that differ.
const BUCKETS_MAX: u64 = 1 << 21; // 128 MiB
/// Bits of an entry that tell one page's sum from others in its bucket.
const TAG_BITS: u32 = 32;

const _: () = assert!(TAG_BITS + u32::BITS == u64::BITS, "a page and a tag fill an entry");

/// A sum of all bytes of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PageSum(u64);

impl PageSum {
    /// Which of so many turns pages with this sum have. Equal pages have the same.
    pub(super) fn turn(self, turns: usize) -> usize {
        self.0 as usize % turns
    }
}

/// The hints of a device.
pub(crate) struct Hints {
    entries: Table<AtomicU64>,
    seal: Seal,
}

impl Hints {
    /// Hints for a disk of so many pages. The table is touched only as pages come.
    pub(crate) fn new(pool: &Pool, pages: u64) -> Result<Hints, MemoryError> {
        let buckets = pages.div_ceil(WAYS as u64).next_power_of_two().min(BUCKETS_MAX);
        let entries = pool.table(buckets as usize * WAYS)?;
        Ok(Hints { entries, seal: Seal::random() })
    }

    /// The sum of a page.
    pub(crate) fn sum(&self, data: &[u8]) -> PageSum {
        let (low, high) = data.split_at(data.len().min(PAGE_SIZE / 2));
        let [low, high] =
            [(0, low), (1, high)].map(|(half, bytes)| self.seal.sum([0, half], bytes));
        // Pages with one equal half are common, so the tag depends on both halves.
        PageSum(u64::from(high) << TAG_BITS | u64::from(low ^ high))
    }

    /// A page that had this sum once.
    pub(crate) fn page(&self, sum: PageSum) -> Option<u64> {
        let found = self.bucket(sum).map(|at| self.entry(at)).find(|&entry| is_of(entry, sum))?;
        Some((found >> TAG_BITS) - 1)
    }

    /// Notes that a page has this sum now.
    pub(crate) fn note(&self, sum: PageSum, page: u64) {
        let entry = (page + 1) << TAG_BITS | tag(sum);
        let free =
            |wanted: &dyn Fn(u64) -> bool| self.bucket(sum).find(|&at| wanted(self.entry(at)));
        let at = free(&|entry| is_of(entry, sum))
            .or_else(|| free(&|entry| entry == 0))
            // Any of them. The entry that goes is one that the sum chooses.
            .unwrap_or(self.bucket(sum).start + sum.0 as usize % WAYS);
        self.entries.touch(at..at + 1);
        // relaxed: a hint. If two threads race, one of the two is kept.
        self.entries[at].store(entry, Ordering::Relaxed);
    }

    /// Bytes held: mapped, and on the heap.
    pub(super) fn bytes(&self) -> (u64, u64) {
        (self.entries.held_bytes(), self.entries.heap_bytes())
    }

    /// The table's addresses.
    pub(super) fn range(&self) -> Range<usize> {
        self.entries.range()
    }

    fn bucket(&self, sum: PageSum) -> Range<usize> {
        let buckets = self.entries.len() / WAYS;
        let first = (sum.0 >> TAG_BITS) as usize % buckets * WAYS;
        first..first + WAYS
    }

    fn entry(&self, at: usize) -> u64 {
        // relaxed: a hint, which is judged under the lock of the page's cell.
        self.entries.get(at).map_or(0, |entry| entry.load(Ordering::Relaxed))
    }
}

fn tag(sum: PageSum) -> u64 {
    sum.0 & ((1 << TAG_BITS) - 1)
}

/// Whether an entry is one of pages with this sum.
fn is_of(entry: u64, sum: PageSum) -> bool {
    entry >> TAG_BITS != 0 && entry & ((1 << TAG_BITS) - 1) == tag(sum)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::small;
    use zsmalloc::PoolConfig;

    fn hints(pages: u64) -> Hints {
        let pool = Pool::new(small::memory(), PoolConfig::default()).expect("a pool");
        Hints::new(&pool, pages).expect("address space")
    }

    #[test]
    fn a_page_is_found_by_its_sum_and_the_latest_one_wins() {
        let hints = hints(64);
        let sum = hints.sum(&[7; PAGE_SIZE]);
        assert_eq!(hints.page(sum), None);
        for page in [0, 5] {
            hints.note(sum, page);
            assert_eq!(hints.page(sum), Some(page));
        }
        let (mut other, mut last) = ([7; PAGE_SIZE], [7; PAGE_SIZE]);
        (other[0], last[PAGE_SIZE - 1]) = (8, 8);
        assert_eq!(hints.page(hints.sum(&other)), None, "its first half differs");
        assert_eq!(hints.page(hints.sum(&last)), None, "its second half differs");
    }

    #[test]
    fn a_full_bucket_forgets_one_page_for_each_that_comes() {
        let hints = hints(1);
        let sums: Vec<PageSum> = (0..9).map(PageSum).collect();
        sums.iter().zip(0..).for_each(|(&sum, page)| hints.note(sum, page));
        let known = sums.iter().filter(|&&sum| hints.page(sum).is_some()).count();
        assert_eq!((known, hints.page(sums[8])), (WAYS, Some(8)));
    }
}
