//! Names and levels: which are accepted, how they are printed, and what the errors say.

use ramfold_codec::{Algorithm, Codec, ParameterError, Parameters};

#[test]
fn every_algorithm_is_found_by_its_name() {
    for &algorithm in Algorithm::ALL {
        assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        match (algorithm.levels(), algorithm.default_level()) {
            (Some(levels), Some(level)) => assert!(levels.contains(&level), "{algorithm}"),
            none => assert_eq!(none, (None, None), "{algorithm}"),
        }
    }
}

#[test]
fn an_unknown_name_is_told_the_known_ones() {
    for name in ["lz5", "", "LZ4", "lz4 "] {
        let error = name.parse::<Algorithm>().expect_err(name).to_string();
        assert_eq!(
            error,
            format!("unknown algorithm {name:?}; known: lzo-rle lzo lz4 lz4hc zstd deflate pagelz")
        );
    }
    let error = "842".parse::<Algorithm>().expect_err("the kernel's seventh").to_string();
    assert_eq!(error, "842 is not offered; there are: lzo-rle lzo lz4 lz4hc zstd deflate pagelz");
}

#[test]
fn codecs_print_as_they_are_written() {
    for text in [
        "lzo-rle",
        "lzo",
        "lz4",
        "lz4:9",
        "lz4hc",
        "lz4hc:16",
        "zstd",
        "zstd:7",
        "zstd:-5",
        "zstd:0",
        "deflate",
        "deflate:6",
        "pagelz",
        "pagelz:1",
    ] {
        let codec: Codec = text.parse().expect(text);
        assert_eq!(codec.to_string(), text);
    }
    let explicit: Codec = "zstd:3".parse().expect("the default level may be written out");
    assert_eq!(explicit, Codec::new(Algorithm::Zstd));
    assert_eq!(explicit.to_string(), "zstd");
}

#[test]
fn a_level_outside_is_told_the_range() {
    for &algorithm in Algorithm::ALL {
        let Some(levels) = algorithm.levels() else { continue };
        for level in [*levels.start() - 1, *levels.end() + 1, i32::MIN, i32::MAX] {
            let error = Codec::with_level(algorithm, level).expect_err("a level outside");
            assert_eq!(error, ParameterError::Level { algorithm, level });
            assert!(!error.is_unsupported(), "{error}");
        }
    }
    let rows = [
        ("lz4:0", "lz4 has levels 1 to 65537, not 0"),
        ("lz4hc:17", "lz4hc has levels 1 to 16, not 17"),
        ("deflate:-2", "deflate has levels -1 to 9, not -2"),
        ("pagelz:3", "pagelz has levels 1 to 2, not 3"),
        ("lzo-rle:1", "lzo-rle has no levels"),
        ("lzo:0", "lzo has no levels"),
    ];
    for (text, expected) in rows {
        assert_eq!(text.parse::<Codec>().expect_err(text).to_string(), expected);
    }
}

/// What the kernel answers with EOPNOTSUPP is told apart from a value out of range.
#[test]
fn a_parameter_that_an_algorithm_does_not_have_is_unsupported() {
    for &algorithm in Algorithm::ALL {
        let level = Parameters { level: Some(1), ..Parameters::default() };
        let dictionary = Parameters { dictionary: Some(b"words"), ..Parameters::default() };
        let winbits = Parameters { winbits: Some(-9), ..Parameters::default() };
        let takes_level = algorithm.default_level().is_some();
        let rows = [
            (level, takes_level, ParameterError::NoLevels(algorithm)),
            (dictionary, algorithm.takes_dictionary(), ParameterError::NoDictionary(algorithm)),
            (winbits, algorithm.takes_winbits(), ParameterError::NoWinbits(algorithm)),
        ];
        for (parameters, takes, refused) in rows {
            let outcome = Codec::with_parameters(algorithm, &parameters);
            assert_eq!(outcome.is_ok(), takes, "{algorithm}, {parameters:?}");
            if let Err(error) = outcome {
                assert_eq!(error, refused);
                assert!(error.is_unsupported(), "{error}");
            }
        }
    }
}

#[test]
fn a_parameter_with_a_wrong_value_is_refused() {
    for winbits in [-16, -8, -1, 0, 8, 16, i32::MIN, i32::MAX] {
        let parameters = Parameters { winbits: Some(winbits), ..Parameters::default() };
        let error = Codec::with_parameters(Algorithm::Deflate, &parameters).expect_err("no window");
        assert_eq!(error, ParameterError::Winbits(winbits));
    }
    for algorithm in [Algorithm::Lz4, Algorithm::Lz4hc, Algorithm::Zstd, Algorithm::Pagelz] {
        let parameters = Parameters { dictionary: Some(b""), ..Parameters::default() };
        let error = Codec::with_parameters(algorithm, &parameters).expect_err("nothing in it");
        assert_eq!(error, ParameterError::EmptyDictionary);
    }
    let damaged = [&0xec30_a437_u32.to_le_bytes()[..], &[7; 100]].concat();
    let parameters = Parameters { dictionary: Some(&damaged), ..Parameters::default() };
    let error = Codec::with_parameters(Algorithm::Zstd, &parameters).expect_err("no tables in it");
    assert_eq!(error, ParameterError::DamagedDictionary);
}

#[test]
fn codecs_are_equal_when_their_blobs_are() {
    let parameters = Parameters { dictionary: Some(b"words"), ..Parameters::default() };
    let with = Codec::with_parameters(Algorithm::Lz4, &parameters).expect("lz4 takes one");
    assert_eq!(with, with.clone());
    assert_ne!(with, Codec::new(Algorithm::Lz4));
    assert_ne!(Codec::new(Algorithm::Zstd), "zstd:4".parse().expect("a level"));
    assert!(with.dictionary_bytes() > 0);
    assert_eq!(Codec::new(Algorithm::Lz4).dictionary_bytes(), 0);
}

#[test]
fn a_level_that_is_no_number_is_quoted() {
    for (text, quoted) in [("zstd:", "\"\""), ("zstd:fast", "\"fast\""), ("lz4:1:2", "\"1:2\"")] {
        let error = text.parse::<Codec>().expect_err(text).to_string();
        assert_eq!(error, format!("the level after the colon is a whole number, not {quoted}"));
    }
}

#[test]
fn a_shuffle_is_kept_and_told_apart() {
    let plain = Codec::new(Algorithm::Lz4);
    let shuffled = plain.with_shuffle(4).expect("a size");
    assert_eq!((plain.shuffle(), shuffled.shuffle()), (None, Some(4)));
    assert_ne!(plain, shuffled);
    assert_ne!(plain.with_shuffle(8), plain.with_shuffle(4));
    assert_eq!(shuffled.clone(), shuffled);
    let with_dictionary = shuffled.with_dictionary(&[7; 2000]).expect("lz4 takes one");
    assert_eq!(with_dictionary.shuffle(), Some(4));
    assert_eq!(plain.with_shuffle(3), Err(ParameterError::Element(3)));
}

#[test]
fn codecs_that_sample_are_equal_to_their_clones() {
    let sampled = Codec::new(Algorithm::Lz4).with_sampled_shuffle();
    assert!(sampled.samples_shuffle() && sampled.shuffle().is_none());
    assert_eq!(sampled.clone(), sampled);
    assert_ne!(Codec::new(Algorithm::Lz4).with_sampled_shuffle(), sampled);
    assert_ne!(Codec::new(Algorithm::Lz4), sampled);
    let with_dictionary = sampled.with_dictionary(&[7; 2000]).expect("lz4 takes one");
    assert!(with_dictionary.samples_shuffle(), "a dictionary does not end it");
    assert!(!sampled.with_shuffle(4).expect("a size").samples_shuffle(), "a size does");
    assert!(sampled.dictionary_bytes() > 0, "what it learns is counted");
}
