//! Pages of every sort, and how long their blobs may become.

use ramfold_codec::Stream;

use super::{compress, decompress, lzo, lzo_rle, naive};

/// A small generator of random numbers, Steele and others' SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// Runs of literals, of zeros, and of what was there before, up to a page.
    pub(crate) fn page(&mut self) -> Vec<u8> {
        let len = 1 + self.below(4096);
        let (longest, mut page) = (1 << self.below(9), Vec::with_capacity(len));
        while page.len() < len {
            let run = 1 + self.below(longest);
            match self.below(3) {
                0 => page.extend(self.bytes(run)),
                1 => page.resize(page.len() + run, 0),
                _ if page.is_empty() => page.push(1),
                _ => {
                    let distance = 1 + self.below(page.len());
                    (0..run).for_each(|_| page.push(page[page.len() - distance]));
                }
            }
        }
        page.truncate(len);
        page
    }
}

/// Four bytes that never come again and four zeros, over and over: nine bytes for eight.
#[test]
fn no_page_becomes_longer_than_nine_eighths() {
    let mut random = Random(1);
    for literals in 1..=8 {
        for zeros in 0..=8 {
            let unit = |random: &mut Random| {
                let bytes: Vec<u8> = (0..literals).map(|_| random.next() as u8 | 1).collect();
                [bytes, vec![0; zeros]].concat()
            };
            let mut page = Vec::new();
            while page.len() < 4096 {
                page.extend(unit(&mut random));
            }
            page.truncate(4096);
            for codec in [lzo(), lzo_rle()] {
                let blob = compress(&codec, &page);
                let what = format!("{codec}: {literals} literals, {zeros} zeros");
                assert!(blob.len() <= 4096 / 8 * 9 + 8, "{what}: {} bytes", blob.len());
                assert_eq!(decompress(&blob, 4096), Some(page.clone()), "{what}");
            }
        }
    }
}

/// The compressor's table is cleared once in fifteen pages: what is left in it is never used. The
/// short pages leave it as it is, so that a page meets its own old places if it is not cleared.
#[test]
fn blobs_do_not_depend_on_the_pages_before() {
    let mut random = Random(5);
    let page = random.bytes(4096);
    for codec in [lzo(), lzo_rle()] {
        let (fresh, mut stream) = (compress(&codec, &page), Stream::new());
        for between in 0..40 {
            let blob = codec.compress(&mut stream, &page).expect("every page compresses");
            assert!(blob == fresh, "{codec}: {between} pages after itself");
            for _ in 0..between {
                codec.compress(&mut stream, &[1]).expect("every page compresses");
            }
        }
    }
}

#[test]
fn random_pages_come_back_from_decoder_and_twin() {
    let mut random = Random(2);
    for _ in 0..3000 {
        let page = random.page();
        for codec in [lzo(), lzo_rle()] {
            let blob = compress(&codec, &page);
            assert_eq!(decompress(&blob, page.len()), Some(page.clone()), "{codec}");
            assert_eq!(naive::decompress(&blob, page.len()), Some(page.clone()), "{codec}, twin");
        }
    }
}
