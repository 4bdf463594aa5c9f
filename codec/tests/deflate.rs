//! Our deflate compared with zlib, which the kernel uses.

use ramfold_codec::{Algorithm, Codec, Parameters, Stream};

/// Sums of the blobs of eight pages that zlib 1.2.13 makes at level 6 and memory level 8, which is
/// what the kernel's default asks for: raw with a window of 11 bits, and in a frame with 12.
const ZLIB: [(i32, usize); 2] = [(-11, 20048), (12, 20218)];

/// Three bytes that come again and one that does not, in turn.
fn triples(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = move || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize
    };
    let triples: Vec<[u8; 3]> = (0..32).map(|_| std::array::from_fn(|_| next() as u8)).collect();
    let mut page = Vec::new();
    while page.len() < 4096 {
        page.extend(triples[next() % 32]);
        page.push(next() as u8);
    }
    page
}

/// At the same level the library finds no copies of three bytes, and machine code has many. Such
/// pages used to be up to a third larger than the kernel's.
#[test]
fn the_default_is_as_small_as_zlibs() {
    for (winbits, zlib) in ZLIB {
        let parameters = Parameters { winbits: Some(winbits), ..Parameters::default() };
        let codec = Codec::with_parameters(Algorithm::Deflate, &parameters).expect("a window");
        let mut stream = Stream::new();
        let mut len = |seed| codec.compress(&mut stream, &triples(seed)).expect("memory").len();
        let sum: usize = (0..8).map(&mut len).sum();
        assert!(sum <= zlib, "bytes with winbits {winbits}: {sum} here, {zlib} in zlib");
    }
}
