//! What the in-process client goes over: the stored pages of the disk, in which order, and the
//! codec's work on exactly these.
//!
//! Invariant: only stored pages are timed. Same-filled pages cost no codec and huge ones only a
//! copy; they are on the disk, and counted apart.

use super::bench::ns_per_page;
use crate::ground::{LabError, Rng};
use crate::pages::{PAGE_SIZE, is_same_filled};
use codec::{Codec, Stream};
use std::hint::black_box;
use std::time::Instant;

/// The pages of a disk, sorted by what becomes of them, and the blobs of those stored.
pub(super) struct Pages<'a> {
    bytes: &'a [u8],
    codec: Codec,
    /// Slots whose pages are stored compressed.
    pub(super) stored: Vec<u32>,
    /// Slots whose pages are not: same-filled or huge.
    pub(super) others: Vec<u32>,
    pub(super) huge: usize,
    blobs: Vec<u8>,
    /// Where the blob of `stored[i]` begins; one more entry for the end of the last.
    starts: Vec<usize>,
}

impl<'a> Pages<'a> {
    /// Compresses every page once; longer than `watermark` is huge.
    pub(super) fn new(
        bytes: &'a [u8],
        codec: Codec,
        watermark: usize,
        stream: &mut Stream,
    ) -> Pages<'a> {
        let mut pages = Pages {
            bytes,
            codec,
            stored: Vec::new(),
            others: Vec::new(),
            huge: 0,
            blobs: Vec::new(),
            starts: vec![0],
        };
        for (slot, page) in bytes.chunks_exact(PAGE_SIZE).enumerate() {
            pages.sort_in(slot as u32, page, watermark, stream);
        }
        pages
    }

    fn sort_in(&mut self, slot: u32, page: &[u8], watermark: usize, stream: &mut Stream) {
        if is_same_filled(page) {
            self.others.push(slot);
            return;
        }
        match self.codec.compress(stream, page) {
            Ok(blob) if blob.len() <= watermark => {
                self.blobs.extend_from_slice(blob);
                self.starts.push(self.blobs.len());
                self.stored.push(slot);
            }
            _ => {
                self.huge += 1;
                self.others.push(slot);
            }
        }
    }

    pub(super) fn page(&self, slot: u32) -> &'a [u8] {
        &self.bytes[slot as usize * PAGE_SIZE..][..PAGE_SIZE]
    }

    /// Positions in `stored` in random order.
    pub(super) fn shuffled(&self, round: u32) -> Vec<u32> {
        const SEED: u64 = 0x6465_7669_6365;
        Rng::new(SEED, u64::from(round)).permutation(self.stored.len())
    }

    /// Pairs of a stored slot and the page it gets, `shift` places further on: with 0 its own,
    /// else one of another length.
    pub(super) fn assignment(&self, shift: usize) -> Vec<(u32, u32)> {
        let pages = self.stored.iter().cycle().skip(shift);
        self.stored.iter().copied().zip(pages.copied()).collect()
    }

    /// The codec alone: decompresses the blobs in `order`. Checked afterwards on the last one.
    pub(super) fn time_decompress(
        &self,
        order: &[u32],
        stream: &mut Stream,
    ) -> Result<f64, LabError> {
        let mut page = [0; PAGE_SIZE];
        let start = Instant::now();
        for &at in order {
            let blob = &self.blobs[self.starts[at as usize]..self.starts[at as usize + 1]];
            let result = self.codec.decompress(stream, blob, black_box(&mut page));
            result.map_err(|error| LabError::store("codec")(error))?;
        }
        let elapsed = start.elapsed();
        let last = order.last().map(|&at| self.page(self.stored[at as usize]));
        if last.is_some_and(|expected| expected != page) {
            return Err(LabError::Wrong("a blob does not decompress to its page".into()));
        }
        Ok(ns_per_page(elapsed, order.len()))
    }

    /// The codec alone: compresses the pages of `assignment` in its order.
    pub(super) fn time_compress(
        &self,
        assignment: &[(u32, u32)],
        stream: &mut Stream,
    ) -> Result<f64, LabError> {
        let start = Instant::now();
        for &(_, page) in assignment {
            let blob = self.codec.compress(stream, self.page(page));
            black_box(blob.map_err(|error| LabError::store("codec")(error))?);
        }
        Ok(ns_per_page(start.elapsed(), assignment.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use codec::Algorithm;

    fn bytes() -> Vec<u8> {
        let mut bytes = crate::pages::synthetic::bytes(64 * PAGE_SIZE);
        bytes[..PAGE_SIZE].fill(0);
        let mut rng = Rng::new(1, 1);
        bytes[PAGE_SIZE..2 * PAGE_SIZE].fill_with(|| rng.next() as u8);
        bytes
    }

    #[test]
    fn every_page_is_stored_same_filled_or_huge() {
        let (bytes, mut stream) = (bytes(), Stream::new());
        let pages = Pages::new(&bytes, Codec::new(Algorithm::Lz4), 3632, &mut stream);
        assert_eq!(pages.stored.len() + pages.others.len(), 64);
        assert!(pages.others.contains(&0), "a page of zeros is same-filled");
        assert!(pages.others.contains(&1) && pages.huge > 0, "random bytes are huge");
        let order = pages.shuffled(0);
        pages.time_decompress(&order, &mut stream).unwrap();
    }

    #[test]
    fn an_assignment_gives_every_slot_one_page() {
        let (bytes, mut stream) = (bytes(), Stream::new());
        let pages = Pages::new(&bytes, Codec::new(Algorithm::Lz4), 3632, &mut stream);
        assert!(pages.assignment(0).iter().all(|(slot, page)| slot == page));
        let shifted = pages.assignment(1);
        assert!(shifted.iter().all(|(slot, page)| slot != page));
        let mut given: Vec<u32> = shifted.iter().map(|&(_, page)| page).collect();
        given.sort_unstable();
        assert_eq!(given, pages.stored);
    }
}
