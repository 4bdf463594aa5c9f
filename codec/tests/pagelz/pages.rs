//! Pages of every sort come back from both decoders, and none becomes longer than it may.

use ramfold_codec::{Algorithm, Codec, Stream, train};

use super::{compress, decompress, naive, raw, shipped, twin};

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

    /// Literals of few values or of all, runs, and what was there before at offsets of all classes.
    pub(crate) fn page(&mut self) -> Vec<u8> {
        let len = if self.below(2) == 0 { 4096 } else { 1 + self.below(4096) };
        let (longest, values, mut page) = (1 << self.below(9), 1 << self.below(9), Vec::new());
        while page.len() < len {
            let run = 1 + self.below(longest);
            match self.below(4) {
                0 | 1 => page.extend((0..run).map(|_| self.below(values) as u8)),
                2 => page.resize(page.len() + run, 0),
                _ if page.is_empty() => page.push(1),
                _ => {
                    let unit = 1 << self.below(5);
                    let distance = unit * (1 + self.below(page.len())) % page.len() + 1;
                    (0..run).for_each(|_| page.push(page[page.len() - distance]));
                }
            }
        }
        page.truncate(len);
        page
    }
}

/// Tables of their own for `pages`, as a codec and as a twin.
fn trained(pages: &[u8]) -> (Codec, naive::Tables) {
    let tables = train(Algorithm::Pagelz, pages, 1 << 16).expect("tables");
    (shipped().with_dictionary(&tables).expect("they are tables"), naive::Tables::parse(&tables))
}

#[test]
fn random_pages_come_back_from_decoder_and_twin() {
    let mut random = Random(3);
    let sample: Vec<u8> = (0..64).flat_map(|_| random.page()).collect();
    let (own, own_twin) = trained(&sample);
    for _ in 0..2000 {
        let page = random.page();
        for (codec, twin) in [(shipped(), &twin()), (raw(), &twin()), (own.clone(), &own_twin)] {
            let blob = compress(&codec, &page);
            assert!(blob.len() <= page.len() + 2, "{} from {}", blob.len(), page.len());
            assert!(decompress(&codec, &blob, page.len()) == Some(page.clone()), "{codec}");
            let naively = naive::decompress(twin, &blob, page.len());
            assert!(naively == Some(page.clone()), "{codec}, twin");
        }
    }
}

/// Both levels are read by both, because the flag is in the blob.
#[test]
fn levels_read_each_other() {
    let page = Random(5).page();
    let (one, two) = (compress(&raw(), &page), compress(&shipped(), &page));
    assert_eq!(decompress(&shipped(), &one, page.len()), decompress(&raw(), &two, page.len()));
}

/// The places are cleared once in fifteen pages: what is left in them is never used.
#[test]
fn blobs_do_not_depend_on_the_pages_before() {
    let mut random = Random(7);
    let page = [random.bytes(2048), random.page()].concat()[..2049].to_vec();
    let (fresh, mut stream) = (compress(&shipped(), &page), Stream::new());
    for between in 0..40 {
        let blob = shipped().compress(&mut stream, &page).expect("every page compresses");
        assert!(blob == fresh, "{between} pages after itself");
        for _ in 0..between {
            shipped().compress(&mut stream, &[1]).expect("every page compresses");
        }
    }
}

#[test]
fn pages_without_a_match_are_two_bytes_longer() {
    for len in [1, 2, 3, 4, 5, 100, 4096] {
        let page = Random(9).bytes(len);
        assert_eq!(compress(&raw(), &page).len(), len + 2);
    }
}
