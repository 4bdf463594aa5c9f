//! A page that is compressed and decompressed comes back the same, with every algorithm and at
//! every length. The blob is small if the page is simple.
//!
//! ```text
//!   page --compress--> blob --decompress-----------> the same page
//!                       '---decompress_stateless---> the same page, if the algorithm can
//! ```

use proptest::collection::vec;
use proptest::prelude::*;
use ramfold_codec::{
    Algorithm, Codec, CodecError, PAGE_LEN_MAX, Parameters, Stream, TrainError, train_samples,
};
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// Every algorithm at its default and at the ends of its levels.
fn codecs() -> Vec<Codec> {
    let of = |algorithm: Algorithm, level| {
        Codec::with_level(algorithm, level).expect("a level of the algorithm")
    };
    let ends = |algorithm: Algorithm| algorithm.levels().map(RangeInclusive::into_inner);
    let at_ends = |algorithm: Algorithm| {
        let levels = ends(algorithm).map(|(lowest, highest)| [lowest, highest]);
        levels.into_iter().flatten().map(move |level| of(algorithm, level))
    };
    let all = Algorithm::ALL.iter();
    let mut codecs: Vec<Codec> =
        all.flat_map(|&algorithm| at_ends(algorithm).chain([Codec::new(algorithm)])).collect();
    codecs.extend(with_parameters());
    let sizes = [2, 4, 8];
    let shuffled = |codec: &Codec| sizes.map(|size| codec.with_shuffle(size).expect("a size"));
    let sampled = codecs.iter().map(Codec::with_sampled_shuffle);
    let others: Vec<Codec> = codecs.iter().flat_map(shuffled).chain(sampled).collect();
    codecs.extend(others);
    codecs
}

/// Windows of deflate, with and without zlib's frame, and dictionaries of every algorithm that
/// takes one: text as in the pages, and text as far as LZ4 can reach and beyond.
fn with_parameters() -> Vec<Codec> {
    let winbits = [-15, -9, 9, 12, 15].map(|winbits| {
        let parameters = Parameters { winbits: Some(winbits), ..Parameters::default() };
        Codec::with_parameters(Algorithm::Deflate, &parameters).expect("a window of deflate")
    });
    let contents = [text(20_000), text(100_000), vec![1]];
    let takers = Algorithm::ALL.iter().filter(|algorithm| algorithm.takes_dictionary());
    let with_dictionaries = takers.flat_map(|&algorithm| {
        contents.iter().map(move |content| {
            let parameters = Parameters { dictionary: Some(content), ..Parameters::default() };
            Codec::with_parameters(algorithm, &parameters).expect("it takes a dictionary")
        })
    });
    winbits.into_iter().chain(with_dictionaries).collect()
}

#[track_caller]
fn round_trip(codec: &Codec, stream: &mut Stream, page: &[u8]) -> usize {
    let blob = codec.compress(stream, page).expect("every page compresses").to_vec();
    let mut back = vec![0xA5; page.len()];
    let outcome = codec.decompress(stream, &blob, &mut back);
    assert_eq!(outcome, Ok(()), "{codec}, {} bytes", page.len());
    assert!(back == page, "{codec}: {} bytes came back changed", page.len());
    if !codec.needs_stream_to_decompress() {
        back.fill(0xA5);
        assert_eq!(codec.decompress_stateless(&blob, &mut back), Ok(()), "{codec}, stateless");
        assert!(back == page, "{codec}, stateless: the page came back changed");
    }
    blob.len()
}

/// Bytes that do not compress.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(step).collect()
}

fn text(len: usize) -> Vec<u8> {
    (0..)
        .flat_map(|line| format!("{line}: a page, a frame, a slot\n").into_bytes())
        .take(len)
        .collect()
}

#[test]
fn every_length_of_every_sort_of_page() {
    let mut stream = Stream::new();
    let sorts = [vec![0; PAGE_LEN_MAX], text(PAGE_LEN_MAX), noise(PAGE_LEN_MAX)];
    for codec in Algorithm::ALL.iter().map(|&algorithm| Codec::new(algorithm)) {
        for len in 1..=PAGE_LEN_MAX {
            sorts.iter().for_each(|page| {
                round_trip(&codec, &mut stream, &page[..len]);
            });
        }
    }
}

#[test]
fn simple_pages_become_small_and_noise_does_not() {
    let mut stream = Stream::new();
    for codec in Algorithm::ALL.iter().map(|&algorithm| Codec::new(algorithm)) {
        let zeros = round_trip(&codec, &mut stream, &[0; PAGE_LEN_MAX]);
        assert!(zeros < 64, "{codec}: a page of zeros became {zeros} bytes");
        let words = round_trip(&codec, &mut stream, &text(PAGE_LEN_MAX));
        assert!(words < PAGE_LEN_MAX / 2, "{codec}: a page of text became {words} bytes");
        let random = round_trip(&codec, &mut stream, &noise(PAGE_LEN_MAX));
        assert!(random >= PAGE_LEN_MAX, "{codec}: noise became {random} bytes");
    }
}

#[test]
fn a_zstd_blob_carries_no_more_header_than_it_must() {
    let mut stream = Stream::new();
    let len = round_trip(&Codec::new(Algorithm::Zstd), &mut stream, &noise(PAGE_LEN_MAX));
    // Frame descriptor, window descriptor and the header of one raw block.
    assert_eq!(len, PAGE_LEN_MAX + 1 + 1 + 3);
}

/// A dictionary says which distances are repeated first. Trained ones say what a frame without a
/// dictionary expects too, so that would hide that a frame is read with the wrong ones.
fn with_other_distances(mut trained: Vec<u8>) -> Vec<u8> {
    let usual = [1, 4, 8].map(u32::to_le_bytes).concat();
    let at = trained.windows(usual.len()).position(|window| window == usual).expect("they are in");
    trained[at..at + usual.len()].copy_from_slice(&[9, 11, 5].map(u32::to_le_bytes).concat());
    trained
}

/// A blob says whether it needs the dictionary.
#[test]
fn blobs_from_before_a_dictionary_was_learned_are_read_after_it() {
    let mut stream = Stream::new();
    let trained = train_samples(&text(200_000), &[2000; 100], 4096).expect("a dictionary");
    let trained = with_other_distances(trained);
    let words = [b"abcd".repeat(30), text(3000), b"12345678".repeat(122)].concat();
    let sorts = [vec![0; PAGE_LEN_MAX], words, noise(PAGE_LEN_MAX), vec![7; 3]];
    let lens = [1, 3, 100, 255, 256, 257, 1000, PAGE_LEN_MAX - 1, PAGE_LEN_MAX];
    let pages = || sorts.iter().flat_map(|page| lens.map(|len| &page[..len.min(page.len())]));
    let zstd = [1, 3, 9, 19, 22].map(|level| (Algorithm::Zstd, level));
    let all = zstd.into_iter().chain([3, 9, 12].map(|level| (Algorithm::Lz4hc, level)));
    for ((algorithm, level), content) in all.zip([&trained, &text(9000)].repeat(4)) {
        let plain = Codec::with_level(algorithm, level).expect("a level");
        for codec in [plain.learning(), plain.with_sampled_shuffle().learning()] {
            let codec = codec.expect("it learns");
            let clone = codec.clone();
            let make = |stream: &mut Stream, page: &[u8]| {
                codec.compress(stream, page).expect("it compresses").to_vec()
            };
            let before: Vec<_> = pages().map(|page| make(&mut stream, page)).collect();
            assert!(codec.is_learning());
            let bytes = clone.dictionary_bytes() + content.len();
            assert_eq!(clone.learn(content), Ok(true));
            assert!(!codec.is_learning() && codec.dictionary_bytes() >= bytes);
            assert_eq!(codec.learn(&[1, 2, 3]), Ok(false), "it has one");
            for (page, blob) in pages().zip(&before) {
                let mut back = vec![1; page.len()];
                assert_eq!(clone.decompress(&mut stream, blob, &mut back), Ok(()), "{codec}");
                assert!(back == page, "{codec}: {} bytes came back changed", page.len());
                round_trip(&codec, &mut stream, page);
            }
            let after = make(&mut stream, &sorts[1]);
            assert!(!before.contains(&after), "{codec} uses the dictionary");
        }
    }
}

/// The allocator is likely to give the place of a dictionary that is gone to the next one.
#[test]
fn a_stream_takes_no_dictionary_for_one_that_is_gone() {
    let mut stream = Stream::new();
    for round in 0..40 {
        let algorithm = if round % 2 == 0 { Algorithm::Zstd } else { Algorithm::Lz4hc };
        let codec = Codec::new(algorithm).learning().expect("it learns");
        let content = [noise(2000 + round), text(3000)].concat();
        assert_eq!(codec.learn(&content), Ok(true));
        let blob = codec.compress(&mut stream, &content[..4000]).expect("it compresses").to_vec();
        let mut back = vec![0; 4000];
        assert_eq!(codec.decompress(&mut Stream::new(), &blob, &mut back), Ok(()), "{round}");
        assert!(back == content[..4000], "round {round}");
    }
}

#[test]
fn only_zstandard_and_lz4hc_without_a_dictionary_learn_one() {
    for codec in codecs() {
        if ![Algorithm::Zstd, Algorithm::Lz4hc].contains(&codec.algorithm()) {
            assert_eq!(codec.learning(), None, "{codec}");
        }
        assert_eq!(codec.learn(&text(5000)), Ok(false), "{codec} does not learn");
        let none = codec.train(&text(200_000), 4096);
        assert_eq!(none, Err(TrainError::NothingCommon), "{codec} has no trainer");
    }
    let given = Codec::new(Algorithm::Zstd).with_dictionary(&text(5000)).expect("any bytes");
    assert_eq!(given.learning(), None, "it has a dictionary");
    let learning = Codec::new(Algorithm::Zstd).learning().expect("it is Zstandard");
    assert_ne!(learning, Codec::new(Algorithm::Zstd), "it is equal only to its clones");
    assert_eq!(learning, learning.clone());
    assert!(learning.learn(&[]).is_err() && learning.is_learning(), "an empty dictionary");
}

#[test]
fn codecs_take_turns_on_one_stream() {
    let mut stream = Stream::new();
    for _ in 0..3 {
        for codec in codecs() {
            round_trip(&codec, &mut stream, &text(PAGE_LEN_MAX));
            round_trip(&codec, &mut stream, &noise(100));
        }
    }
}

#[test]
fn a_blob_does_not_depend_on_what_the_stream_did_before() {
    // One that samples learns from what it sees.
    for codec in codecs().into_iter().filter(|codec| !codec.samples_shuffle()) {
        let mut used = Stream::new();
        for page in [noise(PAGE_LEN_MAX), text(PAGE_LEN_MAX), vec![7; PAGE_LEN_MAX], text(999)] {
            let after_others = codec.compress(&mut used, &page).unwrap().to_vec();
            let mut fresh = Stream::new();
            let alone = codec.compress(&mut fresh, &page).unwrap();
            assert!(after_others == alone, "{codec}: history changed the blob");
        }
    }
}

#[test]
fn pages_of_other_lengths_are_refused() {
    let mut stream = Stream::new();
    for codec in codecs() {
        for len in [0, PAGE_LEN_MAX + 1] {
            let mut page = vec![0; len];
            let refused = CodecError::PageLength(len);
            assert_eq!(codec.compress(&mut stream, &page), Err(refused));
            assert_eq!(codec.decompress(&mut stream, &[0], &mut page), Err(refused));
            assert_eq!(codec.decompress_stateless(&[0], &mut page), Err(refused));
        }
    }
}

#[test]
fn stateless_is_refused_exactly_where_a_stream_is_needed() {
    let mut stream = Stream::new();
    for codec in codecs() {
        let blob = codec.compress(&mut stream, &[1; 64]).unwrap();
        let outcome = codec.decompress_stateless(blob, &mut [0; 64]);
        let refused = outcome == Err(CodecError::NeedsStream);
        assert_eq!(refused, codec.needs_stream_to_decompress(), "{codec}: {outcome:?}");
    }
}

proptest! {
    /// Repetitive pages: runs of short phrases, the input that exercises matches of every kind.
    #[test]
    fn any_page_comes_back(
        phrases in vec((vec(any::<u8>(), 1..40), 1..30_usize), 1..40),
        cut in 1..=PAGE_LEN_MAX,
    ) {
        let runs = phrases.iter().flat_map(|(phrase, times)| phrase.repeat(*times));
        let page: Vec<u8> = runs.take(cut).collect();
        let mut stream = Stream::new();
        codecs().into_iter().for_each(|codec| { round_trip(&codec, &mut stream, &page); });
    }
}

/// Numbers of `bytes` bytes each that grow slowly.
fn numbers(bytes: usize, from: u64) -> Vec<u8> {
    let number = |n: u64| (from + n * 1001).to_le_bytes();
    (0..4096 / bytes as u64).flat_map(|n| number(n)[..bytes].to_vec()).collect()
}

/// Bytes of which the second half compresses to nothing, in any order of bytes.
fn half(len: usize) -> Vec<u8> {
    let mut page = noise(len / 2);
    page.resize(len, 0);
    page
}

#[test]
fn pages_are_shuffled_where_samples_gained() {
    let plain = Codec::new(Algorithm::Lz4);
    let sampled = plain.with_sampled_shuffle();
    let mut stream = Stream::new();
    let kinds: [&dyn Fn(u64) -> Vec<u8>; 4] =
        [&|at| numbers(8, at << 20), &|at| numbers(4, at << 20), &|_| half(4096), &|_| noise(4096)];
    for (place, kind) in (0..).zip(kinds) {
        stream.set_place(place);
        let lens = |codec: &Codec, stream: &mut Stream| -> usize {
            (0..256).map(|at| round_trip(codec, stream, &kind(at))).sum()
        };
        let (without, with) = (lens(&plain, &mut stream), lens(&sampled, &mut stream));
        match place {
            0 | 1 => assert!(with * 4 < without * 3, "place {place}: {with} of {without}"),
            _ => assert_eq!(with, without + 256, "place {place}: a byte for each page"),
        }
    }
}

#[test]
fn a_blob_is_read_after_something_else_was_learned() {
    let sampled = Codec::new(Algorithm::Lz4).with_sampled_shuffle();
    let mut stream = Stream::new();
    let pages: Vec<Vec<u8>> =
        (0..16).map(|at| if at < 4 { numbers(8, at) } else { half(4096) }).collect();
    // The first page of a stream is a sample.
    let blob = |page: &Vec<u8>| sampled.compress(&mut Stream::new(), page).unwrap().to_vec();
    let blobs: Vec<Vec<u8>> = pages.iter().map(blob).collect();
    let ends: BTreeSet<u8> = blobs.iter().filter_map(|blob| blob.last().copied()).collect();
    assert!(ends.len() > 1, "it changed its mind: {ends:?}");
    for (page, blob) in pages.iter().zip(&blobs) {
        let mut back = vec![0; 4096];
        sampled.clone().decompress(&mut stream, blob, &mut back).expect("it is whole");
        assert_eq!(&back, page);
    }
}
