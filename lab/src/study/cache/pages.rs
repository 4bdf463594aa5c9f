//! The pages of the study, and the codec alone on a part of them.
//!
//! ```text
//!   Pages    page 0 | page 1 | ...       sorted: same-filled, compressible, huge; checksums
//!   Part     pages of one thread         blobs behind one another, and where each begins
//! ```
//!
//! Invariant: a part's blobs are those of its pages, in the order in which they are stored. Each is
//! as long as the zswap's object: a page whose blob is longer than the watermark is kept whole, and
//! a same-filled page as its word.

use super::checksum;
use crate::ground::{LabError, Rng};
use crate::pages::{PAGE_SIZE, is_same_filled};
use codec::same;
use codec::{Codec, Stream};
use std::hint::black_box;
use std::ops::Range;

/// In which order pages are loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Order {
    /// A permutation
    Random,
    /// As they were stored
    Stored,
}

impl Order {
    pub(super) fn name(self) -> &'static str {
        match self {
            Order::Random => "random",
            Order::Stored => "stored",
        }
    }
}

/// Bytes of a word.
const WORD: usize = size_of::<u64>();

/// Bytes that an allocator has from the system for this alone: zeros that nobody has touched.
const FRESH: usize = 64 << 20;

/// What becomes of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Same,
    Blob,
    Huge,
}

/// See the module documentation.
pub(super) struct Pages<'a> {
    bytes: &'a [u8],
    codec: &'a Codec,
    kinds: Vec<Kind>,
    sums: Vec<u64>,
    /// Bytes of all blobs and pages that are kept.
    lens: Vec<usize>,
}

impl<'a> Pages<'a> {
    /// Compresses every page once; longer than `watermark` is huge.
    pub(super) fn new(
        bytes: &'a [u8],
        codec: &'a Codec,
        watermark: usize,
    ) -> Result<Pages<'a>, LabError> {
        let mut pages =
            Pages { bytes, codec, kinds: Vec::new(), sums: Vec::new(), lens: Vec::new() };
        let mut stream = Stream::new();
        for page in bytes.chunks_exact(PAGE_SIZE) {
            let len = codec.compress(&mut stream, page).map_err(LabError::store("codec"))?.len();
            let (kind, len) = match () {
                () if is_same_filled(page) => (Kind::Same, WORD),
                () if len > watermark => (Kind::Huge, PAGE_SIZE),
                () => (Kind::Blob, len),
            };
            pages.kinds.push(kind);
            pages.lens.push(len);
            pages.sums.push(checksum::of(page));
        }
        Ok(pages)
    }

    pub(super) fn codec(&self) -> &'a Codec {
        self.codec
    }

    pub(super) fn count(&self) -> usize {
        self.kinds.len()
    }

    /// Pages that are same-filled, and that do not compress.
    pub(super) fn same_and_huge(&self) -> [u64; 2] {
        let of = |kind| self.kinds.iter().filter(|&&it| it == kind).count() as u64;
        [of(Kind::Same), of(Kind::Huge)]
    }

    pub(super) fn page(&self, page: usize) -> &'a [u8] {
        &self.bytes[page * PAGE_SIZE..][..PAGE_SIZE]
    }

    /// Sees that `page` came back.
    #[inline]
    pub(super) fn verify(&self, page: usize, data: &[u8]) -> Result<(), LabError> {
        if checksum::of(data) == self.sums[page] {
            return Ok(());
        }
        Err(LabError::Wrong(format!("page {page} came back as another")))
    }

    /// The pages of each of so many threads.
    pub(super) fn parts(&self, threads: u32) -> Vec<Range<usize>> {
        let (count, threads) = (self.count(), threads as usize);
        (0..threads).map(|part| count * part / threads..count * (part + 1) / threads).collect()
    }
}

/// The codec alone, for one thread's pages.
pub(super) struct Part<'p> {
    pages: &'p Pages<'p>,
    own: Range<usize>,
    stream: Stream,
    blobs: Vec<u8>,
    starts: Vec<usize>,
}

impl<'p> Part<'p> {
    /// With memory for the blobs that nobody has touched.
    pub(super) fn new(pages: &'p Pages<'p>, own: Range<usize>) -> Part<'p> {
        let bytes = pages.lens[own.clone()].iter().sum::<usize>().max(FRESH);
        let starts = vec![0; own.len() + 1];
        Part { pages, own, stream: Stream::new(), blobs: vec![0; bytes], starts }
    }

    /// The first of its pages.
    pub(super) fn first(&self) -> usize {
        self.own.start
    }

    /// The order in which its pages are loaded.
    pub(super) fn order(&self, order: Order, run: u32) -> Vec<usize> {
        const SEED: u64 = 0x0063_6163_6865;
        let first = self.own.start;
        match order {
            Order::Stored => self.own.clone().collect(),
            Order::Random => {
                let shuffled =
                    Rng::new(SEED + first as u64, u64::from(run)).permutation(self.own.len());
                shuffled.into_iter().map(|page| first + page as usize).collect()
            }
        }
    }

    /// Compresses pages, and keeps nothing.
    pub(super) fn compress(&mut self, pages: Range<usize>) -> Result<(), LabError> {
        for page in pages {
            let data = self.pages.page(page);
            match self.pages.kinds[page] {
                Kind::Same => {
                    black_box(same::repeated_word(data));
                }
                _ => {
                    black_box(compressed(self.pages.codec, &mut self.stream, data)?);
                }
            }
        }
        Ok(())
    }

    /// Compresses pages, and keeps the blobs: the first ones first.
    pub(super) fn store(&mut self, pages: Range<usize>) -> Result<(), LabError> {
        let first = self.own.start;
        let mut end = self.starts[pages.start - first];
        for page in pages {
            let (data, kind) = (self.pages.page(page), self.pages.kinds[page]);
            let word;
            let kept = match kind {
                Kind::Same => {
                    word = same::repeated_word(data).unwrap_or(0).to_ne_bytes();
                    &word
                }
                Kind::Huge => {
                    black_box(compressed(self.pages.codec, &mut self.stream, data)?);
                    data
                }
                Kind::Blob => compressed(self.pages.codec, &mut self.stream, data)?,
            };
            self.blobs[end..end + kept.len()].copy_from_slice(kept);
            end += kept.len();
            self.starts[page - first + 1] = end;
        }
        Ok(())
    }

    /// Decompresses what was kept, in `order`.
    pub(super) fn load(&mut self, order: &[usize]) -> Result<(), LabError> {
        let mut data = [0; PAGE_SIZE];
        for &page in order {
            let index = page - self.own.start;
            let blob = &self.blobs[self.starts[index]..self.starts[index + 1]];
            match self.pages.kinds[page] {
                Kind::Same => same::fill(black_box(&mut data), word_of(blob)),
                Kind::Huge => data.copy_from_slice(black_box(blob)),
                Kind::Blob => {
                    let codec = self.pages.codec;
                    let done = codec.decompress(&mut self.stream, blob, black_box(&mut data));
                    done.map_err(|error| LabError::store("codec")(error))?;
                }
            }
            self.pages.verify(page, &data)?;
        }
        Ok(())
    }
}

/// The word by which a same-filled page is kept.
fn word_of(blob: &[u8]) -> u64 {
    blob.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word))
}

fn compressed<'s>(
    codec: &Codec,
    stream: &'s mut Stream,
    data: &[u8],
) -> Result<&'s [u8], LabError> {
    codec.compress(stream, data).map_err(|error| LabError::store("codec")(error))
}
