//! `lab pagealloc`: every order and batch under every monitor, and what counting costs.

use crate::support::{json, lab, measured, number, rows};
use serde_json::Value;
use std::process::{Command, Stdio};

/// What is told of a zone with a lock beside the same without a monitor.
const VS_NONE: [&str; 8] = [
    "alloc_ns_vs_none",
    "free_ns_vs_none",
    "alloc_ns_mean_vs_none",
    "free_ns_mean_vs_none",
    "alloc_ns_p99_vs_none",
    "free_ns_p99_vs_none",
    "alloc_sd_vs_none",
    "free_sd_vs_none",
];

fn of<'a>(document: &'a Value, zone: &str, monitor: &str) -> Vec<&'a Value> {
    let same = |row: &&Value| row["zone"] == zone && row["monitor"] == monitor;
    rows(document).iter().filter(same).collect()
}

#[test]
fn every_batch_that_fits_is_measured_under_every_monitor() {
    let arguments = ["pagealloc", "--quick", "--order", "0,4", "--batch", "1,16,2048,16384"];
    let document = json("pagealloc", &arguments);
    for row in rows(&document) {
        measured(
            row,
            &[
                "alloc_ns",
                "free_ns",
                "alloc_sd",
                "free_sd",
                "alloc_ns_mean",
                "free_ns_mean",
                "alloc_ns_p99",
                "free_ns_p99",
            ],
        );
        assert!(number(row, "alloc_ns") <= number(row, "alloc_ns_p99"), "{row}");
        assert_eq!(row["free_blocks"], 10_000);
    }
    let expected = [(0, 1), (0, 16), (0, 2048), (0, 16384), (4, 1), (4, 16), (4, 2048)];
    for monitor in ["none", "counts", "list-walk"] {
        let found = of(&document, "shared", monitor);
        let keys: Vec<(u64, u64)> = found
            .iter()
            .map(|row| (row["order"].as_u64().unwrap(), row["batch"].as_u64().unwrap()))
            .collect();
        assert_eq!(keys, expected, "{monitor}: 128 MiB at most");
        for row in found {
            measured(row, &VS_NONE);
            assert_eq!(row["monitor_reads"].is_number(), monitor != "none", "{row}");
            assert_eq!(row["lists"], "counts");
        }
    }
    let per_cpu = of(&document, "per-cpu", "none");
    assert_eq!(per_cpu.len(), 4, "the batches of order 0: order 4 is not listed");
    per_cpu.iter().for_each(|row| measured(row, &VS_NONE));
    let lists: Vec<&Value> =
        of(&document, "plain", "none").iter().map(|row| &row["lists"]).collect();
    assert_eq!(lists, ["counts", "heads", "counts", "heads"], "both orders, batches of one");
}

#[test]
fn instructions_of_counting_are_counted_under_valgrind() {
    let mut valgrind = Command::new("valgrind");
    if valgrind.arg("--version").stdout(Stdio::null()).status().is_err() {
        assert!(std::env::var("CI").is_err(), "CI is to have valgrind");
        println!("skipped: needs valgrind");
        return;
    }
    let arguments = ["pagealloc", "--quick", "--order", "4", "--batch", "1", "--instructions"];
    let document = json("counting", &arguments);
    let found = of(&document, "plain", "none");
    let [counts, heads] = found[..] else { panic!("two rows, not {}", found.len()) };
    let list_ops = number(counts, "list_ops_per_pair");
    assert_eq!(list_ops, 12.0, "a block of order 9 is halved five times");
    for row in [counts, heads] {
        let each = number(row, "instructions_per_list_op");
        assert!((5.0..1e4).contains(&each), "{each} instructions are not those of one: {row}");
        assert!((each * list_ops - number(row, "instructions_per_pair")).abs() < 1e-6);
    }
    let more = number(counts, "counting_per_list_op");
    assert!(more.abs() < number(heads, "instructions_per_list_op"), "{more} for counting alone");
    assert!(heads["counting_per_list_op"].is_null(), "heads are what counts are compared with");
}

#[test]
fn batches_that_are_all_too_large_are_refused() {
    let arguments = ["pagealloc", "--quick", "--order", "4", "--batch", "4096"];
    let output = lab().args(arguments).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("more than 128 MiB"));
    assert_eq!(output.status.code(), Some(2));
}
