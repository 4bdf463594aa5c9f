//! `lab locks`: every design under every mix.

use crate::support::{json, measured, number, rows};
use serde_json::Value;
use std::process::{Command, Stdio};

fn of<'a>(document: &'a Value, mix: &str, threads: usize) -> Vec<&'a Value> {
    let same = |row: &&Value| row["mix"] == mix && row["threads"] == threads;
    rows(document).iter().filter(same).collect()
}

#[test]
fn every_design_is_measured_under_every_mix() {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let many = 2 * cores;
    let threads = format!("1,2,{many}");
    let document = json("locks", &["locks", "--quick", "--threads", &threads]);
    for row in rows(&document) {
        assert!(number(row, "ops_per_s") > 0.0 && number(row, "ns_per_op") > 0.0, "{row}");
        assert!(number(row, "speedup_vs_hierarchical") > 0.0, "{row}");
    }
    for mix in ["free", "free-at-once", "free-batch", "mixed"] {
        for threads in [1, 2, many] {
            let found = of(&document, mix, threads);
            assert_eq!(found.len(), 8, "{mix}: four layouts, inside and outside");
            for row in found {
                measured(row, &["ops_per_s", "ns_per_op", "speedup_vs_hierarchical"]);
                assert_eq!(row["split_ceiling_ops_per_s"].is_null(), threads == 1, "{row}");
                let apart = threads > 1 && row["shards"] == "spread";
                assert_eq!(row["apart_ops_per_s"].is_number(), apart, "{row}");
                let outside = row["release"] == "outside";
                assert_eq!(row["release_saves_time"].is_number(), outside, "{row}");
                let class = row["design"] == "class";
                assert!(class || row["shards"] == "one", "no other design is spread: {row}");
            }
        }
    }
    for mix in ["pin", "alloc"] {
        assert_eq!(of(&document, mix, 1).len(), 4, "{mix}: four layouts");
        assert!(of(&document, mix, 2).is_empty(), "{mix} is measured at one thread");
    }
}

#[test]
fn instructions_are_counted_under_valgrind() {
    let mut valgrind = Command::new("valgrind");
    if valgrind.arg("--version").stdout(Stdio::null()).status().is_err() {
        assert!(std::env::var("CI").is_err(), "CI is to have valgrind");
        println!("skipped: needs valgrind");
        return;
    }
    let arguments = ["locks", "--quick", "--instructions", "--threads", "1", "--design", "class"];
    let arguments = [&arguments[..], &["--shards", "spread"]].concat();
    let document = json("instructions", &[&arguments[..], &["--mix", "pin,alloc"]].concat());
    let count = |mix| number(of(&document, mix, 1)[0], "instructions_per_op");
    let (pin, alloc) = (count("pin"), count("alloc"));
    assert!((10.0..alloc).contains(&pin), "{pin} to pin and unpin, {alloc} to allocate");
    assert!(alloc < 1e5, "{alloc} instructions are not one allocation's");
}
