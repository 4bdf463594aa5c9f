//! Pages of every sort, and codecs of every algorithm.

use ramfold_codec::{Algorithm, Codec, Parameters};

/// A page unlike that of another seed.
pub(crate) fn page(seed: u32) -> Vec<u8> {
    let words = (0..1024_u32).map(|word| ((word / 3) ^ seed).wrapping_mul(2_654_435_761));
    words.flat_map(u32::to_le_bytes).collect()
}

/// Every algorithm at several levels, and what else it takes.
pub(crate) fn codecs() -> Vec<Codec> {
    let texts = [
        "lzo-rle",
        "lzo",
        "lz4",
        "lz4:17",
        "lz4hc",
        "lz4hc:1",
        "lz4hc:12",
        "zstd:-7",
        "zstd:1",
        "zstd",
        "zstd:9",
        "zstd:15",
        "zstd:22",
        "deflate",
        "deflate:0",
        "deflate:1",
        "deflate:9",
        "pagelz",
        "pagelz:1",
    ];
    let mut codecs: Vec<Codec> = texts.iter().map(|text| text.parse().expect("a codec")).collect();
    let content: Vec<u8> = (0..20).flat_map(page).collect();
    let dictionary = Parameters { dictionary: Some(&content), ..Parameters::default() };
    for algorithm in [Algorithm::Lz4, Algorithm::Lz4hc, Algorithm::Zstd, Algorithm::Pagelz] {
        codecs.push(Codec::with_parameters(algorithm, &dictionary).expect("it takes them"));
    }
    for winbits in [-15, -9, 9, 15] {
        let window = Parameters { winbits: Some(winbits), ..Parameters::default() };
        codecs.push(Codec::with_parameters(Algorithm::Deflate, &window).expect("it takes them"));
    }
    for &algorithm in Algorithm::ALL {
        assert!(
            codecs.iter().any(|c| c.algorithm() == algorithm),
            "{algorithm} is not in this list"
        );
    }
    codecs
}
