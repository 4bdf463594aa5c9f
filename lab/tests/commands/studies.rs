//! Every study runs in its quick form, verifies its answers, and reports the fields it promises.
//! Times are looked at only for being there.

use crate::support::{Scratch, json, lab, measured, number, rows, spreads, succeed};
use serde_json::Value;

#[test]
fn recompress_reports_what_it_saves() {
    let document = json("recompress", &["recompress", "--quick", "--to", "zstd,lz4hc"]);
    let rows = rows(&document);
    assert_eq!(rows.len(), 2);
    for row in rows {
        assert!(number(row, "recompressed_pages") > 0.0);
        assert!(number(row, "saved_data") > 0.0, "a page is replaced by a smaller one only");
        let least = number(row, "compr_data_size_before") * (1.0 - number(row, "saved_data"));
        assert!((least - number(row, "compr_data_size")).abs() < 2.0, "the fraction is of these");
    }
}

#[test]
fn chain_reports_every_order_under_every_rule() {
    let document = json("chain", &["chain", "--quick", "--mib", "2"]);
    assert_eq!(document["study"], "chain");
    assert_eq!(document["machine"]["corpus"]["name"], "synthetic");
    let rows = rows(&document);
    assert_eq!(rows.len(), 12, "two fills by two rules by three orders");
    for row in rows {
        measured(row, &spreads(row));
        assert_eq!(row["runs"], 2);
        assert!(number(row, "compr_data_size") <= number(row, "mem_used_total"));
        assert!(number(row, "object_bytes_resident") <= number(row, "mem_used_total"));
        assert!(number(row, "saves_bytes_ci95") >= 0.0);
    }
}

/// The published counts: 69/123/191 by the old rule, 69/119/192 by the new one.
#[test]
fn classes_are_the_published_ones() {
    let document = json("classes", &["chain", "--quick", "--mib", "1", "--fill", "whole"]);
    let of = |rule: &str| -> Vec<u64> {
        let ours = rows(&document).iter().filter(|row| row["rule"] == rule);
        ours.map(|row| row["classes"].as_u64().unwrap()).collect()
    };
    assert_eq!(of("used-percent"), [69, 123, 191]);
    assert_eq!(of("least-waste"), [69, 119, 192]);
    let watermarks = rows(&document).iter().map(|row| row["huge_watermark"].as_u64().unwrap());
    assert_eq!(watermarks.collect::<Vec<_>>(), [3264, 3632, 3840, 3264, 3632, 3840]);
}

#[test]
fn halves_are_the_same_for_every_order_and_the_whole_is_all_of_it() {
    let arguments = ["chain", "--quick", "--mib", "1,2", "--rule", "least-waste"];
    let mut half_arguments = arguments.to_vec();
    half_arguments.extend(["--fill", "half"]);
    let halves = json("halves", &half_arguments);
    let mut whole_arguments = arguments.to_vec();
    whole_arguments.extend(["--fill", "whole", "--runs", "1"]);
    let whole = json("whole", &whole_arguments);
    for (half, whole) in rows(&halves).iter().zip(rows(&whole)) {
        assert_eq!(half["corpus_bytes"], whole["corpus_bytes"]);
        assert_eq!(whole["orig_data_size"], whole["corpus_bytes"]);
        assert_eq!(2.0 * number(half, "orig_data_size"), number(whole, "orig_data_size"));
    }
    let same = |index: usize| &rows(&halves)[index]["same_pages"];
    assert_eq!((same(0), same(0)), (same(1), same(2)), "orders saw different pages");
}

#[test]
fn device_in_process_reports_the_store_beside_its_codec() {
    let document = json("device", &["device", "--quick", "--client", "in-process"]);
    let patterns: Vec<&Value> = rows(&document).iter().map(|row| &row["rw"]).collect();
    assert_eq!(patterns, ["randread", "overwrite", "fresh"].repeat(2), "lz4 and zstd");
    for row in rows(&document) {
        measured(
            row,
            &[
                "mib_per_s",
                "stored_bytes",
                "ns_per_page",
                "codec_ns_per_page",
                "ratio",
                "stored_pages",
                "huge_pages",
            ],
        );
        assert!(row["lat_us_p50"].is_null(), "calls are not timed one by one");
        assert_eq!((&row["device"], &row["client"]), (&"zram".into(), &"in-process".into()));
    }
}

/// The client waits in its events, so the server must have left them as they were made.
#[test]
fn doors_are_measured_in_pairs() {
    let document = json("doors", &["doors", "--quick"]);
    let doors: Vec<&Value> = rows(&document).iter().map(|row| &row["door"]).collect();
    assert_eq!(doors, ["nbd", "vhost-user"]);
    for row in rows(&document) {
        measured(row, &["iops", "lat_us_p50", "lat_us_p99"]);
    }
    measured(&rows(&document)[1], &["vs_nbd"]);
}

#[test]
fn a_file_is_a_corpus_and_is_named_with_its_checksum() {
    let file = Scratch::new("corpus-file");
    std::fs::write(&file.0, vec![b'a'; 200_000]).unwrap();
    let path = file.0.to_str().unwrap();
    let document = json("file", &["chain", "--quick", "--chain-order", "3", "--corpus", path]);
    let corpus = &document["machine"]["corpus"];
    assert_eq!(corpus["bytes"], 200_000);
    assert_eq!(corpus["name"], file.0.file_name().unwrap().to_str().unwrap());
    assert!(corpus["checksum"].as_str().unwrap().starts_with("cksum:"));
    assert_eq!(rows(&document)[0]["corpus_bytes"], 49 * 4096, "the last page is filled up");
}

#[test]
fn a_record_is_added_with_every_run() {
    let root = std::env::temp_dir().join(format!("lab-test-{}-records", std::process::id()));
    let record = format!("--record={}", root.display());
    let output = succeed(&["chain", "--quick", "--mib", "1", "--chain-order", "2", &record]);
    let said = String::from_utf8(output.stdout).unwrap();
    let path = said.lines().find_map(|line| line.strip_prefix("record: ")).expect("a record line");
    let document: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(document["runs"].as_array().unwrap().len(), 8, "two runs by two fills by two rules");
    assert!(document["command"].as_str().unwrap().starts_with("lab chain --quick"));
    std::fs::remove_dir_all(root).unwrap();
}

#[test]
fn mistakes_are_explained_and_exit_with_2() {
    let cases: [(&[&str], &str); 7] = [
        (
            &["chian"],
            "no study chian; there are alloc, breakdown, cache, chain, codecs, compact, cpulists, \
             device, doors, far, faultin, fs, locks, pagealloc, pagetypeinfo, recompress, run, \
             teardown, tiers, writeback, and the tools all, codec-tables, corpus, compare, report \
             and studies",
        ),
        (&["chain", "--corpus", "/dev/null"], "/dev/null is empty"),
        (&["chain", "--chain-order", "5"], "5 is not in 0..=4"),
        (&["chain", "--rule", "best"], "least-waste"),
        (&["device", "--client", "in-process", "--vs-kernel"], "add --client fio"),
        (&["device", "--client", "in-process", "--peers", "kernel"], "add --client fio"),
        (&["corpus", "--pid", "4000000000", "--out", "/dev/null"], "no such process"),
    ];
    for (arguments, expected) in cases {
        let output = lab().args(arguments).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(expected), "lab {arguments:?} said {errors}");
        assert_eq!(output.status.code(), Some(2), "lab {arguments:?}");
    }
}

/// An option that is accepted and changes nothing would be believed.
#[test]
fn a_study_measures_the_kernels_store_or_refuses_to() {
    const WITH: [&str; 7] = ["chain", "compact", "device", "faultin", "fs", "run", "teardown"];
    let unknown = lab().arg("every").output().unwrap();
    let errors = String::from_utf8(unknown.stderr).unwrap();
    let list = errors.split_once("there are ").unwrap().1.split_once(", and").unwrap().0;
    let studies: Vec<&str> = list.split(", ").collect();
    assert!(WITH.iter().all(|name| studies.contains(name)), "{studies:?}");
    for study in studies {
        let help = String::from_utf8(succeed(&[study, "--help"]).stdout).unwrap();
        assert_eq!(help.contains("--vs-kernel"), WITH.contains(&study), "{help}");
        if !WITH.contains(&study) {
            let refused = lab().args([study, "--quick", "--vs-kernel"]).output().unwrap();
            let errors = String::from_utf8_lossy(&refused.stderr);
            assert_eq!(refused.status.code(), Some(2), "{study}: {errors}");
            assert!(errors.contains(&format!("these do: {}", WITH.join(", "))), "{errors}");
        }
    }
}

/// One study cannot have its pages, and the next needs none.
#[test]
fn of_all_studies_one_that_fails_does_not_end_the_others() {
    let arguments = ["all", "--quick", "--corpus", "/dev/null", "recompress", "pagetypeinfo"];
    let output = lab().args(arguments).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let [other, failed] = &said.lines().collect::<Vec<_>>()[..] else { panic!("{said}") };
    assert!(failed.starts_with("recompress ") && failed.contains("FAILED: /dev/null"), "{failed}");
    assert!(other.starts_with("pagetypeinfo ") && other.ends_with("rows, verified"), "{other}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_corpus_too_small_is_refused() {
    let file = Scratch::new("small");
    std::fs::write(&file.0, vec![b'a'; 1 << 20]).unwrap();
    let path = file.0.to_str().unwrap();
    let output = lab().args(["chain", "--mib", "2", "--corpus", path]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("holds 1.0 MiB"));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn help_names_every_study() {
    let help = String::from_utf8(succeed(&["--help"]).stdout).unwrap();
    let names =
        ["alloc", "chain", "compact", "device", "locks", "pagealloc", "pagetypeinfo", "corpus"];
    for name in names {
        assert!(help.contains(name), "{name} is not in {help}");
    }
    assert!(!help.contains("-inside"), "what studies run as children is for studies");
}
