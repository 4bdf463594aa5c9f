//! `lab faultin`: pages that are out are touched.

use crate::support::{golden, json, measured, number, rows};
use crate::teardown::has_userfault;

const FIELDS: [&str; 13] = [
    "handler",
    "around",
    "backend",
    "mode",
    "order",
    "threads",
    "algorithm",
    "corpus",
    "mib",
    "runs",
    "faultin_ns_per_page",
    "pages_per_s",
    "rate_vs_copy",
];

/// Signal mode needs no privilege.
#[test]
fn a_region_stands_beside_a_handler_that_only_copies() {
    for backend in ["zram", "zswap"] {
        stands_beside(backend);
    }
}

fn stands_beside(backend: &str) {
    let arguments = ["faultin", "--quick", "--mib", "1", "--mode", "signal", "--backend", backend];
    let document = json(&format!("faultin-{backend}"), &arguments);
    if !has_userfault(&document) {
        return;
    }
    let three = "a region with quads, one without, and copies; two orders, one thread and two";
    assert_eq!(rows(&document).len(), 12, "{three}");
    for row in rows(&document) {
        golden(row, &FIELDS);
        assert_eq!(row["backend"], backend);
        measured(row, &["faultin_ns_per_page", "pages_per_s"]);
        let region = row["handler"] == "region";
        assert_eq!(row["rate_vs_copy"].is_number(), region, "{row}");
        assert_eq!(row["around"].is_string(), region, "{row}");
        let product = number(row, "faultin_ns_per_page_min") * number(row, "pages_per_s_max");
        let threads = number(row, "threads") * 1e9;
        assert!((product / threads - 1.0).abs() < 1e-6, "rate and time disagree in {row}");
    }
}
