//! What a codec costs: its own time, without the store around it.
//!
//! Every sixteenth page that is not same-filled is compressed and decompressed once more on a
//! stream of its own, just before it is stored, so that the page is as warm as the store finds it.
//! What a row says is the mean over those pages but the slowest sixteenth, which has the moments
//! in which somebody else had the CPU.
//!
//! ```text
//!   page -> same-filled? -> nothing
//!           the 16th?    -> compress, timed -> shorter? -> decompress, timed
//! ```

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

/// One measured time in so many, the slowest ones, is left out.
const OUTLIERS: usize = 16;

/// Times of single pages, in nanoseconds; `sample::PAGES_MAX / INTERVAL` of them at most.
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

    /// Builds the contexts, which no page should pay for.
    fn warm_up(&mut self) {
        self.measure(&std::array::from_fn(|at| at as u8));
        (self.compress, self.decompress) = (Times::default(), Times::default());
    }

    /// Takes notice of a page, and times it when its turn has come.
    pub(super) fn see(&mut self, page: &Page) {
        if is_same_filled(page) {
            return;
        }
        if self.seen.is_multiple_of(INTERVAL) {
            self.measure(page);
        }
        self.seen += 1;
    }

    /// A page that the codec fails on, or makes longer, is stored as it is and costs no
    /// decompression.
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
            // The trial compares; here it only must have been done.
            let _ = black_box((done, back));
        }
    }

    /// Nanoseconds per page; `None` where no page was timed.
    pub(super) fn compress_ns(&self) -> Option<u64> {
        self.compress.mean()
    }

    /// As above.
    pub(super) fn decompress_ns(&self) -> Option<u64> {
        self.decompress.mean()
    }
}

fn is_same_filled(page: &Page) -> bool {
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
