//! `comp_algorithm`, `recomp_algorithm`, `algorithm_params`.

use ramfold_zram::{Algorithm, DeviceDefaults, Errno};

use crate::rig::{Scratch, Use, added, devices_with, fresh, initialised, page};

/// All names with one in brackets, made only from the names.
fn bracketed(chosen: &str) -> String {
    let names = Algorithm::ALL.iter().map(|algorithm| algorithm.name());
    let words =
        names.map(|name| if name == chosen { format!("[{name}] ") } else { format!("{name} ") });
    words.collect::<String>() + "\n"
}

#[test]
fn comp_algorithm_prints_all_names_and_brackets_the_chosen() {
    let device = fresh();
    assert_eq!(device.read("comp_algorithm"), bracketed("lz4"));
    for algorithm in Algorithm::ALL {
        device.write("comp_algorithm", &format!("{algorithm}\n"));
        assert_eq!(device.read("comp_algorithm"), bracketed(algorithm.name()));
    }
}

#[test]
fn comp_algorithm_is_what_pages_are_compressed_with() {
    let stored = |algorithm: &str| {
        let device = fresh();
        device.write("comp_algorithm", algorithm);
        device.write("disksize", "1M");
        (0..16).for_each(|number| device.put(number, &page(number, 4)));
        device.column("mm_stat", 1)
    };
    let (lz4, zstd) = (stored("lz4"), stored("zstd"));
    assert!(zstd < lz4, "{zstd} bytes, {lz4} with lz4");
}

#[test]
fn comp_algorithm_refuses_unknown_long_and_late_names() {
    let device = fresh();
    let line = device.refuses("comp_algorithm", "842", Errno::Invalid);
    assert!(line.contains("lz4") && line.contains("zstd"), "{line}");
    device.refuses("comp_algorithm", "", Errno::Invalid);
    device.refuses("comp_algorithm", "lz4 ", Errno::Invalid);
    device.refuses("comp_algorithm", &"x".repeat(127), Errno::Invalid);
    device.refuses("comp_algorithm", &"x".repeat(128), Errno::TooLong);
    device.write("disksize", "1M");
    device.refuses("comp_algorithm", "zstd", Errno::Busy);
    device.refuses("comp_algorithm", "nonsense", Errno::Invalid);
    assert_eq!(device.read("comp_algorithm"), bracketed("lz4"));
}

#[test]
fn comp_algorithm_forgets_the_parameters_of_the_one_before() {
    let device = fresh();
    device.write("comp_algorithm", "zstd");
    device.write("algorithm_params", "level=1000");
    device.write("comp_algorithm", "zstd");
    device.write("disksize", "1M");
}

#[test]
fn recomp_algorithm_prints_a_line_for_each_priority_that_has_one() {
    let device = fresh();
    assert_eq!(device.read("recomp_algorithm"), "");
    device.write("recomp_algorithm", "algo=zstd\n");
    assert_eq!(device.read("recomp_algorithm"), format!("#1: {}", bracketed("zstd")));
    device.write("recomp_algorithm", "algo=lz4 priority=3");
    let (first, third) = (bracketed("zstd"), bracketed("lz4"));
    assert_eq!(device.read("recomp_algorithm"), format!("#1: {first}#3: {third}"));
    device.write("recomp_algorithm", "priority=1 colour=red algo=lz4");
    assert_eq!(device.read("recomp_algorithm"), format!("#1: {third}#3: {third}"));
}

#[test]
fn recomp_algorithm_needs_an_algorithm_and_a_priority_from_1_to_3() {
    let device = fresh();
    for text in [
        "",
        "zstd",
        "priority=1",
        "algo=",
        "algo",
        "algo=zstd priority",
        "algo=zstd priority=0",
        "algo=zstd priority=4",
        "algo=zstd priority=-1",
        "algo=zstd priority=x",
        "algo=best",
        "algo=zstd colour",
    ] {
        device.refuses("recomp_algorithm", text, Errno::Invalid);
    }
    device.refuses("recomp_algorithm", "algo=zstd priority=9999999999", Errno::Range);
    assert_eq!(device.read("recomp_algorithm"), "");
    device.write("disksize", "1M");
    device.refuses("recomp_algorithm", "algo=zstd", Errno::Busy);
}

#[test]
fn algorithm_params_find_their_algorithm_by_priority_or_name() {
    let device = fresh();
    device.write("comp_algorithm", "zstd");
    device.write("recomp_algorithm", "algo=lz4 priority=2");
    device.write("algorithm_params", "level=7");
    device.write("algorithm_params", "algo=lz4 level=2\n");
    device.write("algorithm_params", "priority=2 algo=lz4 level=2");
    device.write("algorithm_params", "priority=3 level=2");
    device.write("algorithm_params", "unknown=1");
    for text in ["algo=best level=1", "priority=4", "priority=-1", "level", "level=", "level=x"] {
        device.refuses("algorithm_params", text, Errno::Invalid);
    }
    device.refuses("algorithm_params", "priority=1 algo=lz4", Errno::Invalid);
    device.refuses("algorithm_params", "level=9999999999", Errno::Range);
    device.write("disksize", "1M");
    device.refuses("algorithm_params", "level=1", Errno::Busy);
}

#[test]
fn algorithm_params_take_effect_and_replace_each_other() {
    let stored = |params: &[&str]| {
        let device = fresh();
        device.write("comp_algorithm", "zstd");
        params.iter().for_each(|text| device.write("algorithm_params", text));
        device.write("disksize", "4M");
        (0..256).for_each(|number| device.put(number, &page(number, 4)));
        device.column("mm_stat", 1)
    };
    let (fast, default) = (stored(&["level=-50"]), stored(&[]));
    assert!(default < fast, "{default} bytes by default, {fast} at level -50");
    assert_eq!(stored(&["level=-50", "priority=0"]), default, "the set is replaced as a whole");
}

#[test]
fn bad_parameter_values_surface_with_the_size_and_all_choices_fall_back() {
    let device = fresh();
    device.write("comp_algorithm", "zstd");
    device.write("recomp_algorithm", "algo=lz4");
    device.write("algorithm_params", "algo=zstd level=1000");
    let line = device.refuses("disksize", "1M", Errno::Invalid);
    assert!(line.contains("zstd has levels") && line.contains("1000"), "{line}");
    assert_eq!(device.read("initstate"), "0\n");
    assert_eq!(device.read("comp_algorithm"), bracketed("lz4"), "the default");
    assert_eq!(device.read("recomp_algorithm"), "");
    device.write("disksize", "1M");
}

#[test]
fn parameters_that_an_algorithm_does_not_have_are_not_supported() {
    let dictionary = Scratch::file("some.dict", &page(1, 4));
    let dictionary = format!("dict={}", dictionary.text());
    for (algorithm, params, errno) in [
        ("lzo-rle", "level=1", Errno::NotSupported),
        ("lzo", "level=1", Errno::NotSupported),
        ("lzo", &dictionary, Errno::NotSupported),
        ("lz4", "level=0", Errno::Invalid),
        ("lz4hc", "level=17", Errno::Invalid),
        ("deflate", "level=10", Errno::Invalid),
        ("deflate", "deflate.winbits=8", Errno::Invalid),
        ("deflate", "deflate.winbits=-16", Errno::Invalid),
    ] {
        let device = fresh();
        device.write("comp_algorithm", algorithm);
        device.write("algorithm_params", params);
        let objection = device.objection().expect("it is known before");
        let line = device.refuses("disksize", "1M", errno);
        assert!(line.contains(&objection), "{line}: {objection}");
        assert_eq!(device.objection(), None, "forgotten");
        assert_eq!(device.read("comp_algorithm"), bracketed("lz4"), "the default");
    }
}

#[test]
fn parameters_within_their_ranges_are_taken() {
    let dictionary = Scratch::file("good.dict", &page(1, 4));
    let dictionary = format!("dict={}", dictionary.text());
    for (algorithm, params) in [
        ("lz4", "level=8"),
        ("lz4", &dictionary),
        ("lz4hc", "level=16"),
        ("zstd", "level=-5"),
        ("zstd", &dictionary),
        ("deflate", "level=-1 deflate.winbits=-15"),
        ("deflate", "deflate.winbits=9"),
        ("lzo", "deflate.winbits=9"),
    ] {
        let device = fresh();
        device.write("recomp_algorithm", &format!("algo={algorithm} priority=3"));
        device.write("algorithm_params", &format!("algo={algorithm} {params}"));
        assert_eq!(device.objection(), None, "{algorithm} {params}");
        device.write("comp_algorithm", algorithm);
        device.write("algorithm_params", &format!("priority=0 {params}"));
        device.write("disksize", "1M");
        (0..64).for_each(|number| device.put(number, &page(number, 8)));
        let disk = device.disk().unwrap();
        let mut back = vec![0; 4096];
        for number in 0..64 {
            disk::Disk::read(&*disk, number << 12, &mut back).unwrap();
            assert!(back == page(number, 8), "{algorithm} {params}: page {number}");
        }
    }
}

#[test]
fn dictionaries_are_read_when_they_are_named() {
    let device = fresh();
    let empty = Scratch::file("empty.dict", b"");
    device.refuses("algorithm_params", &format!("dict={}", empty.text()), Errno::Invalid);
    device.write("algorithm_params", "level=0");
    device.refuses("algorithm_params", "dict=/nonexistent/dict", Errno::Os(2));
    assert_eq!(device.objection(), None, "the set was replaced by none");
    device.refuses("algorithm_params", "dict=/tmp", Errno::Invalid);
    // It was once read like any file, and a reader of the kernel's messages waits for the next one.
    let endless = device.refuses("algorithm_params", "dict=/proc/kmsg", Errno::Invalid);
    assert!(endless.contains("is empty"), "{endless}");
    let large = Scratch::sized("large.dict", (16 << 20) + 1);
    device.refuses("algorithm_params", &format!("dict={}", large.text()), Errno::FileTooBig);
    device.write("disksize", "1M");
}

#[test]
fn a_default_algorithm_with_a_level_is_what_resets_go_back_to() {
    let algorithm = "zstd:7".parse().unwrap();
    let devices = devices_with(DeviceDefaults { algorithm, ..DeviceDefaults::default() });
    let device = added(&devices);
    let stored = || {
        device.write("disksize", "1M");
        device.disk().unwrap().stat().algorithm
    };
    assert_eq!(stored(), "zstd:7");
    device.write("reset", "1");
    assert_eq!(device.read("comp_algorithm"), bracketed("zstd"));
    assert_eq!(stored(), "zstd:7");
    device.write("reset", "1");
    device.write("comp_algorithm", "zstd");
    assert_eq!(stored(), "zstd", "its own default level once it is named");
}

/// Numbers that grow, as an array has them.
fn numbers(page: u64) -> Vec<u8> {
    (0..512).flat_map(|n| ((page * 512 + n) * 1_000_003).to_le_bytes()).collect()
}

#[test]
fn a_default_shuffle_is_that_of_every_algorithm() {
    let stored = |shuffle, algorithm: &str| {
        let devices = devices_with(DeviceDefaults { shuffle, ..DeviceDefaults::default() });
        let device = added(&devices);
        let of_another = || {
            device.write("comp_algorithm", algorithm);
            device.write("recomp_algorithm", "algo=deflate priority=1");
            device.write("disksize", "1M");
            (0..128).for_each(|number| device.put(number, &numbers(number)));
            assert_eq!(device.disk().unwrap().stat().shuffle, shuffle);
            let first = device.column("mm_stat", 1);
            device.write("recompress", "priority=1");
            (first, device.column("mm_stat", 1))
        };
        let first = of_another();
        device.write("reset", "1");
        assert_eq!(of_another(), first, "a reset changes nothing of it");
        first
    };
    for algorithm in ["lz4", "zstd"] {
        let (plain, shuffled) = (stored(false, algorithm), stored(true, algorithm));
        assert!(shuffled.0 * 100 < plain.0 * 70, "{algorithm}: {shuffled:?} of {plain:?}");
        assert!(shuffled.1 * 100 < plain.1 * 90, "{algorithm}: {shuffled:?} of {plain:?}");
    }
}

#[test]
fn an_initialised_device_shows_its_algorithms() {
    let device = initialised();
    assert_eq!(device.read("comp_algorithm"), bracketed("lz4"));
}
