//! `lab writeback`: ours through the real store beside the simulated orders.

use crate::support::{json, measured, number, rows};
use serde_json::Value;

const TRACES: [&str; 4] = ["zipf", "scan", "shift", "mixed"];
const SIMULATED: [&str; 5] = ["fifo", "lru", "s3-fifo", "kernel-order", "optimum"];

fn row<'a>(document: &'a Value, trace: &str, store: &str, policy: &str) -> &'a Value {
    let is =
        |row: &&Value| row["trace"] == trace && row["store"] == store && row["policy"] == policy;
    rows(document).iter().find(is).unwrap_or_else(|| panic!("{trace} {store} {policy}"))
}

#[test]
fn ours_is_as_near_to_s3_fifo_as_was_promised_and_nothing_beats_the_optimum() {
    let document = json("writeback", &["writeback", "--quick", "--runs", "1", "--in-use", "0"]);
    assert_eq!(rows(&document).len(), TRACES.len() * (2 + SIMULATED.len()));
    for trace in TRACES {
        let best = number(row(&document, trace, "simulated", "optimum"), "hit_rate");
        for policy in SIMULATED {
            let row = row(&document, trace, "simulated", policy);
            measured(row, &["accesses", "hit_rate", "writes_back"]);
            assert!(number(row, "hit_rate") <= best, "{row}");
        }
        for policy in ["s3-fifo", "kernel-order"] {
            let row = row(&document, trace, "zswap", policy);
            measured(row, &["accesses", "hit_rate", "writes_back", "load_ns", "store_ns"]);
            assert!(number(row, "hit_rate") <= best, "{row}");
        }
        let ours = row(&document, trace, "zswap", "s3-fifo");
        assert!(number(ours, "vs_reference_points").abs() <= 2.0, "{ours}");
        let reference = row(&document, trace, "simulated", "s3-fifo");
        assert_eq!(number(reference, "vs_reference_points"), 0.0, "{reference}");
        let simulated = number(row(&document, trace, "simulated", "kernel-order"), "hit_rate");
        let kernels = number(row(&document, trace, "zswap", "kernel-order"), "hit_rate");
        assert!((simulated - kernels).abs() <= 0.02, "{trace}: {kernels} for {simulated}");
    }
}

#[test]
fn a_scan_costs_the_hot_set_less_than_a_tenth_of_its_hits_and_lru_nearly_all() {
    let document = json(
        "writeback-scan",
        &["writeback", "--quick", "--runs", "1", "--in-use", "0", "--trace", "scan"],
    );
    let loss = |store, policy| number(row(&document, "scan", store, policy), "scan_loss");
    assert!(loss("zswap", "s3-fifo") < 0.10, "{}", loss("zswap", "s3-fifo"));
    assert!(loss("simulated", "lru") > 0.25, "the scan is no scan: {}", loss("simulated", "lru"));
}
