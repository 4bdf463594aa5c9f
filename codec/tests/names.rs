//! Names and levels: what is accepted, what is printed, and what the errors say.

use codec::{Algorithm, Codec, LevelError};

#[test]
fn every_algorithm_is_found_by_its_name() {
    for &algorithm in Algorithm::ALL {
        assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        assert!(algorithm.levels().contains(&algorithm.default_level()), "{algorithm}");
    }
}

#[test]
fn an_unknown_name_is_told_the_known_ones() {
    for name in ["lz5", "", "LZ4", "lz4 "] {
        let error = name.parse::<Algorithm>().expect_err(name).to_string();
        assert_eq!(error, format!("unknown algorithm {name:?}; known: lz4 zstd"));
    }
}

#[test]
fn codecs_print_as_they_are_written() {
    for text in ["lz4", "lz4:9", "zstd", "zstd:7", "zstd:-5", "zstd:0"] {
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
        let levels = algorithm.levels();
        for level in [*levels.start() - 1, *levels.end() + 1, i32::MIN, i32::MAX] {
            let error = Codec::with_level(algorithm, level).expect_err("a level outside");
            assert_eq!(error, LevelError { algorithm, level });
        }
    }
    let error = "lz4:0".parse::<Codec>().expect_err("no such acceleration").to_string();
    assert_eq!(error, "lz4 has levels 1 to 65537, not 0");
}

#[test]
fn a_level_that_is_no_number_is_quoted() {
    for (text, quoted) in [("zstd:", "\"\""), ("zstd:fast", "\"fast\""), ("lz4:1:2", "\"1:2\"")] {
        let error = text.parse::<Codec>().expect_err(text).to_string();
        assert_eq!(error, format!("the level after the colon is a whole number, not {quoted}"));
    }
}
