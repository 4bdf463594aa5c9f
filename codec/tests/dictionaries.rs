//! Dictionaries: with one, blobs are smaller, cannot be read without it, and every clone reads
//! them.

use ramfold_codec::{
    Algorithm, Codec, CodecError, ParameterError, Stream, TABLES_LEN, TrainError, shipped_tables,
    train,
};
use std::thread;

/// Records of the same words in different orders, as different pages have them.
fn page(seed: usize) -> Vec<u8> {
    const WORDS: [&str; 6] =
        ["timestamp", "identifier", "description", "quantity", "warehouse", "customer"];
    let record = |number: usize| {
        let mixed = (number + seed * 1000).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        format!("{{\"{}\": {}}}, ", WORDS[mixed % WORDS.len()], mixed % 100_003)
    };
    (0..).map(record).flat_map(String::into_bytes).take(4096).collect()
}

fn takers() -> impl Iterator<Item = Codec> {
    let takers = Algorithm::ALL.iter().filter(|algorithm| algorithm.takes_dictionary());
    takers.map(|&algorithm| Codec::new(algorithm))
}

fn content() -> Vec<u8> {
    (100..104).flat_map(page).collect()
}

fn compress(codec: &Codec, page: &[u8]) -> Vec<u8> {
    codec.compress(&mut Stream::new(), page).expect("every page compresses").to_vec()
}

#[test]
fn blobs_are_smaller_with_a_dictionary() {
    for codec in takers() {
        let with = codec.with_dictionary(&content()).expect("it takes one");
        let (before, after) = (compress(&codec, &page(1)).len(), compress(&with, &page(1)).len());
        assert!(after * 100 < before * 95, "{codec}: {after} bytes, {before} without");
    }
}

/// A block of LZ4 refers to the last 64 KiB before it, so a longer dictionary is cut at its front.
#[test]
fn the_end_of_a_long_dictionary_counts() {
    let long: Vec<u8> = (200..240).flat_map(page).chain(content()).collect();
    assert!(long.len() > 1 << 16, "longer than what a block can refer to");
    for codec in [Algorithm::Lz4, Algorithm::Lz4hc].map(Codec::new) {
        let [cut, whole] = [&long[long.len() - (1 << 16)..], &long]
            .map(|content| compress(&codec.with_dictionary(content).expect("bytes"), &page(1)));
        assert_eq!(whole, cut, "{codec}");
    }
}

/// The wrong dictionary is damage or another page, never the right one.
#[test]
fn a_blob_is_read_with_its_dictionary_only() {
    for codec in takers() {
        let with = codec.with_dictionary(&content()).expect("it takes one");
        let other = codec.with_dictionary(&page(7)).expect("it takes one");
        let blob = compress(&with, &page(1));
        let read = |codec: &Codec| {
            let mut back = vec![0; 4096];
            codec.decompress(&mut Stream::new(), &blob, &mut back).map(|()| back)
        };
        assert_eq!(read(&with), Ok(page(1)), "{codec}");
        for wrong in [&codec, &other] {
            let outcome = read(wrong);
            let refused = outcome.as_ref().err() == Some(&CodecError::Corrupt);
            assert!(refused || outcome != Ok(page(1)), "{codec}");
        }
    }
}

/// A stream of one dictionary after another, and of none: each blob as from a fresh stream.
#[test]
fn dictionaries_take_turns_on_one_stream() {
    let others: Vec<Codec> = (0..6)
        .flat_map(|seed| takers().map(move |codec| codec.with_dictionary(&page(seed))))
        .collect::<Result<_, _>>()
        .expect("they take one");
    let codecs: Vec<Codec> = takers().chain(others).collect();
    let mut stream = Stream::new();
    for round in 0..3 {
        for codec in &codecs {
            let blob = codec.compress(&mut stream, &page(round)).expect("a page").to_vec();
            assert!(blob == compress(codec, &page(round)), "{codec}: depends on the page before");
            let mut back = vec![0; 4096];
            codec.decompress(&mut stream, &blob, &mut back).expect("it comes back");
            assert!(back == page(round), "{codec}");
        }
    }
}

/// The tables are shared, and no thread writes to them.
#[test]
fn clones_are_used_by_many_threads_at_once() {
    for codec in takers() {
        let with = codec.with_dictionary(&content()).expect("it takes one");
        let expected: Vec<Vec<u8>> = (0..64).map(|seed| compress(&with, &page(seed))).collect();
        thread::scope(|scope| {
            for _ in 0..4 {
                let (with, expected) = (with.clone(), &expected);
                scope.spawn(move || {
                    let mut stream = Stream::new();
                    for (seed, expected) in expected.iter().enumerate() {
                        let blob = with.compress(&mut stream, &page(seed)).expect("a page");
                        assert!(blob == expected, "{with}: page {seed}");
                    }
                });
            }
        });
    }
}

/// A dictionary may go while contexts that used it stay.
#[test]
fn a_stream_outlives_the_dictionaries_it_used() {
    let mut stream = Stream::new();
    for round in 0..20 {
        for codec in takers() {
            let with = codec.with_dictionary(&page(round)).expect("it takes one");
            let blob = with.compress(&mut stream, &page(1)).expect("a page").to_vec();
            drop(with);
            let again = codec.with_dictionary(&page(round)).expect("it takes one");
            let mut back = vec![0; 4096];
            again.decompress(&mut stream, &blob, &mut back).expect("it comes back");
            assert!(back == page(1), "{codec}");
            codec.compress(&mut stream, &page(2)).expect("a page");
        }
    }
}

#[test]
fn what_is_trained_helps_and_what_cannot_be_is_refused() {
    let pages: Vec<u8> = (10..110).flat_map(page).collect();
    for codec in takers() {
        let content = train(codec.algorithm(), &pages, 8 << 10).expect("much in common");
        assert!(content.len() <= 8 << 10);
        let with = codec.with_dictionary(&content).expect("it takes one");
        let (before, after) = (compress(&codec, &page(1)).len(), compress(&with, &page(1)).len());
        assert!(after < before, "{codec}: {after} bytes, {before} without");
        let mut back = vec![0; 4096];
        let blob = compress(&with, &page(1));
        with.decompress(&mut Stream::new(), &blob, &mut back).expect("it comes back");
        assert!(back == page(1), "{codec}");
    }
    for algorithm in takers().map(|codec| codec.algorithm()) {
        assert_eq!(train(algorithm, &pages, 100), Err(TrainError::TooSmall));
        assert_eq!(train(algorithm, &[], 8 << 10), Err(TrainError::NothingCommon));
        assert_eq!(train(algorithm, &page(1), 8 << 10), Err(TrainError::NothingCommon));
    }
    let tables = |len_max| train(Algorithm::Pagelz, &pages, len_max);
    assert_eq!(tables(TABLES_LEN - 1), Err(TrainError::TooSmallForTables));
    assert_eq!(tables(TABLES_LEN).map(|tables| tables.len()), Ok(TABLES_LEN));
}

/// Tables are what they say, or nothing: a newer version is not taken for pages to train on.
#[test]
fn tables_of_another_version_are_refused() {
    let codec = Codec::new(Algorithm::Pagelz);
    let mut tables = shipped_tables();
    let with = codec.with_dictionary(&tables).expect("the shipped ones");
    assert_eq!(compress(&with, &page(1)), compress(&codec, &page(1)));
    tables[7] += 1;
    let refused = codec.with_dictionary(&tables).expect_err("version 2");
    assert_eq!(refused, ParameterError::DamagedDictionary);
}
