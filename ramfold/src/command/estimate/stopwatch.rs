//! The time that a codec takes, without the store around it.
//!
//! Every sixteenth page that is not same-filled is compressed and decompressed once more, on its
//! own stream. This happens just before it is stored, so the page is as warm in the cache as for
//! the store. A row shows the mean over those pages except the slowest sixteenth. In that are the
//! moments in which another thread had the CPU.
//!
//! ```text
//!   page -> same-filled? -> nothing
//!           the 16th?    -> compress, timed -> shorter? -> decompress, timed
//! ```
//!
//! Invariant: no time contains the building of a context. Locks: none.

use std::hint::black_box;
use std::time::Instant;

use codec::{Codec, Stream};
use host::PAGE_SIZE;

use super::device::Page;

/// One page in so many is timed.
const INTERVAL: u64 = 16;

/// Times one codec.
pub(super) struct Stopwatch {
    codec: Codec,
    stream: Stream,
    /// Pages seen that are not same-filled.
    seen: u64,
    compress: Times,
    decompress: Times,
}

/// The slowest of so many times is left out.
const OUTLIERS: usize = 16;

/// Times of single pages in nanoseconds, at most `sample::PAGES_MAX / INTERVAL` of them.
#[derive(Default)]
struct Times(Vec<u32>);

impl Times {
    fn add(&mut self, start: Instant) {
        self.0.push(u32::try_from(start.elapsed().as_nanos()).unwrap_or(u32::MAX));
    }

    fn mean(&self) -> Option<u64> {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        sorted.truncate(sorted.len() - sorted.len() / OUTLIERS);
        let total: u64 = sorted.iter().copied().map(u64::from).sum();
        total.checked_div(sorted.len() as u64)
    }
}

impl Stopwatch {
    pub(super) fn new(codec: Codec) -> Stopwatch {
        let mut stopwatch = Stopwatch {
            codec,
            stream: Stream::new(),
            seen: 0,
            compress: Times::default(),
            decompress: Times::default(),
        };
        stopwatch.warm_up();
        stopwatch
    }

    /// Builds the contexts, so that no timed page pays for them.
    fn warm_up(&mut self) {
        self.measure(&std::array::from_fn(|at| at as u8));
        (self.compress, self.decompress) = (Times::default(), Times::default());
    }

    /// Sees a page, and times it if it is its turn.
    pub(super) fn see(&mut self, page: &Page) {
        if is_same_filled(page) {
            return;
        }
        if self.seen.is_multiple_of(INTERVAL) {
            self.measure(page);
        }
        self.seen += 1;
    }

    /// Times one page. If the codec fails or makes it longer, a store keeps it as it is, so it is
    /// not decompressed.
    fn measure(&mut self, page: &Page) {
        let start = Instant::now();
        let blob = self.codec.compress(&mut self.stream, page).map(<[u8]>::to_vec);
        self.compress.add(start);
        if let Ok(blob) = blob
            && blob.len() < PAGE_SIZE
        {
            let mut back = [0; PAGE_SIZE];
            let start = Instant::now();
            let done = self.codec.decompress(&mut self.stream, &blob, &mut back);
            self.decompress.add(start);
            // The trial compares pages. Here the compiler must only not leave the work out.
            let _ = black_box((done, back));
        }
    }

    /// The mean time to compress a page, in nanoseconds. `None` if no page was timed.
    pub(super) fn compress_ns(&self) -> Option<u64> {
        self.compress.mean()
    }

    /// The mean time to decompress a page, in nanoseconds. `None` if no page was timed.
    pub(super) fn decompress_ns(&self) -> Option<u64> {
        self.decompress.mean()
    }
}

/// Whether a page repeats one word.
pub(super) fn is_same_filled(page: &Page) -> bool {
    let (words, _) = page.as_chunks::<8>();
    words.iter().all(|word| *word == words[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::Algorithm;

    #[test]
    fn same_filled_pages_are_not_timed() {
        let mut stopwatch = Stopwatch::new(Codec::new(Algorithm::Lz4));
        for byte in 0..100 {
            stopwatch.see(&[byte; PAGE_SIZE]);
        }
        assert_eq!((stopwatch.compress_ns(), stopwatch.decompress_ns()), (None, None));
        let page = std::array::from_fn(|at| (at / 100) as u8);
        (0..33).for_each(|_| stopwatch.see(&page));
        assert_eq!(stopwatch.compress.0.len(), 3, "the first of each sixteen");
        assert!(stopwatch.decompress_ns().is_some());
    }

    #[test]
    fn a_stolen_cpu_is_not_the_codecs_time() {
        let mut times = Times(vec![10; 15]);
        assert_eq!(times.mean(), Some(10));
        times.0.push(1_000_000);
        assert_eq!(times.mean(), Some(10), "one in sixteen is left out");
        assert_eq!(Times::default().mean(), None);
    }

    #[test]
    fn one_odd_word_makes_a_page_its_own() {
        let mut page = [0; PAGE_SIZE];
        assert!(is_same_filled(&page));
        page[PAGE_SIZE - 1] = 1;
        assert!(!is_same_filled(&page));
    }
}
