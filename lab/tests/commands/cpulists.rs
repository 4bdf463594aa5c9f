//! `lab cpulists`: every mix with per-CPU lists and without.

use crate::support::{json, measured, number, rows};
use std::process::{Command, Stdio};

#[test]
fn every_mix_is_measured_with_lists_and_without() {
    let document = json("cpulists", &["cpulists", "--quick"]);
    let key = |row: &serde_json::Value| {
        let text = |field: &str| row[field].as_str().unwrap_or_default().to_owned();
        (text("mix"), row["threads"].as_u64().unwrap(), text("lists"))
    };
    let found: Vec<_> = rows(&document).iter().map(key).collect();
    let steps = [("free", 1), ("free", 2), ("free-batch", 1), ("free-batch", 2), ("mixed", 1)];
    let steps = steps.into_iter().chain([("mixed", 2), ("alloc", 1)]);
    let expected: Vec<_> = steps
        .flat_map(|(mix, threads)| {
            ["with", "without"].map(|lists| (mix.to_owned(), threads, lists.to_owned()))
        })
        .collect();
    assert_eq!(found, expected);
    for row in rows(&document) {
        measured(row, &["ops_per_s", "ns_per_op", "ns_per_op_vs_without"]);
        assert!(number(row, "ns_per_op") > 0.0, "{row}");
        if row["lists"] == "without" {
            assert_eq!(number(row, "ns_per_op_vs_without"), 1.0, "{row}");
        }
    }
}

#[test]
fn instructions_are_counted_with_lists_and_without() {
    let mut valgrind = Command::new("valgrind");
    if valgrind.arg("--version").stdout(Stdio::null()).status().is_err() {
        assert!(std::env::var("CI").is_err(), "CI is to have valgrind");
        println!("skipped: needs valgrind");
        return;
    }
    let arguments = ["cpulists", "--quick", "--instructions", "--mix", "alloc"];
    let document = json("cpulists-instructions", &arguments);
    let counts: Vec<f64> =
        rows(&document).iter().map(|row| number(row, "instructions_per_op")).collect();
    let [with, without] = counts[..] else { panic!("two rows, not {counts:?}") };
    assert!(with != without, "{with}: the children differ in nothing");
    assert!(counts.iter().all(|count| (10.0..1e5).contains(count)), "{counts:?}");
}
