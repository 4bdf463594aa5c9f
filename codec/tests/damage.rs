//! Damaged blobs. Decoding one is an error, or gives a page of the right length. It never panics,
//! and it writes nothing outside of the page.
//!
//! Most decoders are C. Two guards stand in for an address sanitizer. The page lies between
//! canaries, and a blob is decoded from an allocation of exactly its length.
//!
//! ```text
//!   [ blob ]                               no byte of the test follows it
//!   [ canary 64 | page | canary 64 ]       both canaries are whole after every attempt
//! ```

use ramfold_codec::{Algorithm, Codec, CodecError, PAGE_LEN_MAX, Parameters, Stream};

const SEED: u64 = 0x5EED;
const CORRUPTIONS: u64 = 100_000;
const CANARY: [u8; 64] = [0xC5; 64];

/// A generator of 64-bit numbers (Marsaglia: Xorshift RNGs, 2003).
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// Every decoder: each algorithm's, with a dictionary, and with zlib's frame.
fn all_codecs() -> impl Iterator<Item = Codec> {
    let with = |algorithm, parameters| {
        Codec::with_parameters(algorithm, &parameters).expect("it takes them")
    };
    let content = &pages()[1];
    let takers = Algorithm::ALL.iter().filter(|algorithm| algorithm.takes_dictionary());
    let with_dictionary = takers.map(|&algorithm| {
        with(algorithm, Parameters { dictionary: Some(content), ..Parameters::default() })
    });
    let framed =
        with(Algorithm::Deflate, Parameters { winbits: Some(15), ..Parameters::default() });
    let plain = Algorithm::ALL.iter().map(|&algorithm| Codec::new(algorithm));
    let sampled = Algorithm::ALL.iter().map(|&it| Codec::new(it).with_sampled_shuffle());
    plain.chain(with_dictionary).chain([framed]).chain(sampled).collect::<Vec<_>>().into_iter()
}

/// Pages with few and many matches, short and long literals, and of more than one length.
fn pages() -> Vec<Vec<u8>> {
    let mut rng = Rng(SEED);
    let text = (0..).flat_map(|line| format!("{line} pages of {}\n", line * 7919).into_bytes());
    let sparse: Vec<u8> =
        (0..PAGE_LEN_MAX).map(|_| if rng.below(8) == 0 { rng.next() as u8 } else { 0 }).collect();
    let noise = (0..1000).map(|_| rng.next() as u8).collect();
    vec![vec![0; PAGE_LEN_MAX], text.take(PAGE_LEN_MAX).collect(), sparse, noise, vec![1]]
}

/// A page between canaries.
struct Guarded(Vec<u8>);

impl Guarded {
    fn new(len: usize) -> Self {
        Self([&CANARY[..], &vec![0xA5; len], &CANARY].concat())
    }

    fn page(&mut self) -> &mut [u8] {
        let end = self.0.len() - CANARY.len();
        &mut self.0[CANARY.len()..end]
    }

    fn intact(&self) -> bool {
        self.0.starts_with(&CANARY) && self.0.ends_with(&CANARY)
    }
}

/// Decodes a copy of `blob` that ends where its allocation ends.
fn decode(
    codec: &Codec,
    stream: &mut Stream,
    blob: &[u8],
    page_len: usize,
) -> Result<(), CodecError> {
    let exact: Box<[u8]> = blob.into();
    let mut guarded = Guarded::new(page_len);
    let outcome = codec.decompress(stream, &exact, guarded.page());
    assert!(guarded.intact(), "{codec}: wrote beside the page, blob {blob:02x?}");
    outcome
}

#[test]
fn every_truncation_is_corrupt() {
    let mut stream = Stream::new();
    for codec in all_codecs() {
        for page in pages() {
            let blob = codec.compress(&mut stream, &page).unwrap().to_vec();
            for len in 0..blob.len() {
                let outcome = decode(&codec, &mut stream, &blob[..len], page.len());
                let part = format!("{codec}: {len} of {} bytes", blob.len());
                assert_eq!(outcome, Err(CodecError::Corrupt), "{part}");
            }
            assert_eq!(decode(&codec, &mut stream, &blob, page.len()), Ok(()), "{codec}: whole");
        }
    }
}

#[test]
fn a_blob_with_a_tail_is_corrupt() {
    let mut stream = Stream::new();
    for codec in all_codecs() {
        for page in pages() {
            let mut blob = codec.compress(&mut stream, &page).unwrap().to_vec();
            for byte in [0, 0x50, 0xFF] {
                blob.push(byte);
                let outcome = decode(&codec, &mut stream, &blob, page.len());
                assert_eq!(outcome, Err(CodecError::Corrupt), "{codec}: tail of {byte:#x}");
                blob.pop();
            }
        }
    }
}

#[test]
fn a_page_of_another_length_is_corrupt() {
    let mut stream = Stream::new();
    for codec in all_codecs() {
        let blob = codec.compress(&mut stream, &pages()[1][..2000]).unwrap().to_vec();
        for len in [1, 1999, 2001, PAGE_LEN_MAX] {
            let outcome = decode(&codec, &mut stream, &blob, len);
            assert_eq!(outcome, Err(CodecError::Corrupt), "{codec}: 2000 bytes into {len}");
        }
    }
}

#[test]
fn random_damage_never_escapes() {
    let mut rng = Rng(SEED);
    let mut stream = Stream::new();
    for codec in all_codecs() {
        let pages = pages();
        let blobs: Vec<Vec<u8>> =
            pages.iter().map(|page| codec.compress(&mut stream, page).unwrap().to_vec()).collect();
        let mut rejected = 0_u64;
        for _ in 0..CORRUPTIONS {
            let which = rng.below(blobs.len());
            let mut blob = blobs[which].clone();
            damage(&mut rng, &mut blob);
            let outcome = decode(&codec, &mut stream, &blob, pages[which].len());
            rejected += u64::from(outcome.is_err());
            let expected = matches!(outcome, Ok(()) | Err(CodecError::Corrupt));
            assert!(expected, "{codec}: {outcome:?} for {blob:02x?}");
        }
        assert!(rejected > CORRUPTIONS / 10, "{codec}: only {rejected} were noticed");
        // The stream has met every error, and none of them must have changed it.
        let mut back = Guarded::new(pages[1].len());
        codec.decompress(&mut stream, &blobs[1], back.page()).unwrap();
        assert!(back.page() == &pages[1][..], "{codec}: damage left its mark on the stream");
    }
}

/// One to eight bytes changed, or a run of them, or bytes exchanged with another place.
fn damage(rng: &mut Rng, blob: &mut [u8]) {
    let len = blob.len();
    match rng.below(4) {
        0 => blob[rng.below(len)] ^= 1 << rng.below(8),
        1 => (0..=rng.below(8)).for_each(|_| blob[rng.below(len)] = rng.next() as u8),
        2 => {
            let start = rng.below(len);
            let end = (start + rng.below(16) + 1).min(len);
            blob[start..end].fill(rng.next() as u8);
        }
        _ => blob.swap(rng.below(len), rng.below(len)),
    }
}

#[test]
fn bytes_that_were_never_a_blob_are_harmless() {
    let mut rng = Rng(SEED);
    let mut stream = Stream::new();
    let codecs: Vec<Codec> = all_codecs().collect();
    for _ in 0..CORRUPTIONS / 10 {
        let blob: Vec<u8> = (0..rng.below(200)).map(|_| rng.next() as u8).collect();
        let page_len = 1 + rng.below(PAGE_LEN_MAX);
        codecs.iter().for_each(|codec| {
            let outcome = decode(codec, &mut stream, &blob, page_len);
            let expected = matches!(outcome, Ok(()) | Err(CodecError::Corrupt));
            assert!(expected, "{codec}: {outcome:?} for {blob:02x?}");
        });
    }
}

#[test]
fn a_blob_says_by_what_its_page_was_shuffled_or_is_refused() {
    let codec = Codec::new(Algorithm::Lz4).with_sampled_shuffle();
    let mut stream = Stream::new();
    let mut blob = codec.compress(&mut stream, &[1; 4096]).expect("it compresses").to_vec();
    let mut page = [0; 4096];
    for (end, expected) in [(0, Ok(())), (3, Ok(())), (4, Err(CodecError::Corrupt))] {
        *blob.last_mut().expect("it has an end") = end;
        assert_eq!(codec.decompress(&mut stream, &blob, &mut page), expected, "{end}");
        assert_eq!(codec.decompress_stateless(&blob, &mut page), expected, "{end}");
    }
    assert_eq!(codec.decompress(&mut stream, &[], &mut page), Err(CodecError::Corrupt));
}
