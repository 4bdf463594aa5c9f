//! `lab alloc`: pool and mallocs hold the same objects, phase by phase.

use crate::support::{json, lab, measured, number, rows};
use serde_json::Value;
use std::process::Stdio;

const PHASES: [&str; 6] = ["fill", "churn", "churn_compact", "half", "compact", "refill"];

/// Memory of the child that was used and free again before its baseline.
const REUSED_BYTES: f64 = 64.0 * 1024.0;

fn of<'a>(document: &'a Value, allocator: &str, threads: u32) -> Vec<&'a Value> {
    let same = |row: &&Value| row["allocator"] == allocator && row["threads"] == threads;
    rows(document).iter().filter(same).collect()
}

#[test]
fn every_allocator_holds_the_same_objects_in_every_phase() {
    let document = json("alloc", &["alloc", "--quick", "--threads", "1,2", "--peers", "malloc"]);
    for threads in [1, 2] {
        let (ours, malloc) = (of(&document, "zsmalloc", threads), of(&document, "malloc", threads));
        let phases: Vec<&Value> = ours.iter().map(|row| &row["phase"]).collect();
        assert_eq!(phases, PHASES);
        assert_eq!(malloc.len(), PHASES.len());
        for (ours, malloc) in ours.iter().zip(malloc) {
            for row in [*ours, malloc] {
                measured(row, &["resident_bytes", "payload_bytes", "overhead_all_in"]);
                let resident = number(row, "resident_bytes");
                assert!(resident > number(row, "payload_bytes") - REUSED_BYTES, "{row}");
            }
            assert_eq!(malloc["give_back"], "malloc_trim", "what is free was asked for");
            assert!(ours["give_back"].is_null());
            for field in ["objects", "payload_bytes"] {
                assert_eq!(ours[field], malloc[field], "{field} of {}", ours["phase"]);
            }
        }
    }
}

/// The system's view of the process and the pool's own are two counts of the same memory.
#[test]
fn what_a_pool_counts_is_what_the_system_sees() {
    const UNCOUNTED_BYTES: f64 = 512.0 * 1024.0; // stacks, heap of the program itself
    let document = json("alloc-count", &["alloc", "--quick", "--peers", "malloc"]);
    for row in of(&document, "zsmalloc", 1) {
        let difference = number(row, "resident_bytes") - number(row, "accounted_bytes");
        assert!(difference.abs() < UNCOUNTED_BYTES, "{difference} bytes apart in {row}");
    }
    for phase in ["churn_compact", "compact"] {
        let row = rows(&document).iter().find(|row| row["phase"] == phase).unwrap();
        assert!(number(row, "compact_ms") > 0.0, "{row}");
    }
}

#[test]
fn preloaded_libraries_serve_the_child() {
    let arguments = ["alloc", "--quick", "--runs", "1", "--peers", "mimalloc,jemalloc"];
    let document = json("alloc-preload", &arguments);
    for peer in ["mimalloc", "jemalloc"] {
        let found = of(&document, peer, 1).len();
        assert!(found == PHASES.len() || std::env::var("CI").is_err(), "CI is to have {peer}");
        if found == 0 {
            println!("skipped: needs lib{peer}");
        }
    }
}

#[test]
fn a_library_that_is_not_loaded_is_missing() {
    let mut command = lab();
    command.args(["alloc-inside", "--library", "libnosuch.so", "--threads", "1"]);
    command.args(["--run", "0", "--rest-ms", "0", "--chain-order", "3", "--rule", "fitted"]);
    let output = command.stdin(Stdio::null()).output();
    let said = String::from_utf8(output.unwrap().stdout).unwrap();
    assert_eq!(said.trim(), r#"{"missing":"no libnosuch.so here to preload"}"#);
}
