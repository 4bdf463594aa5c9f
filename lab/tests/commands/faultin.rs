//! `lab faultin`: pages that are out are touched.

use crate::support::{json, lab, measured, number, rows};
use crate::teardown::has_userfault;

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
        assert_eq!(row["backend"], backend);
        measured(row, &["faultin_ns_per_page", "pages_per_s"]);
        let region = row["handler"] == "region";
        assert_eq!(row["rate_vs_copy"].is_number(), region, "{row}");
        assert_eq!(row["around"].is_string(), region, "{row}");
        for cost in ["fault_overhead_ns", "fault_page_ns", "fault_page_out_ns"] {
            assert_eq!(row[cost].as_f64().is_some_and(|ns| ns > 0.0), region, "{cost} in {row}");
        }
        assert!(row["time_vs_kernel"].is_null(), "nobody asked for the kernel: {row}");
        let product = number(row, "faultin_ns_per_page_min") * number(row, "pages_per_s_max");
        let threads = number(row, "threads") * 1e9;
        assert!((product / threads - 1.0).abs() < 1e-6, "rate and time disagree in {row}");
    }
}

#[test]
fn more_than_the_machine_has_is_refused() {
    let output = lab().args(["faultin", "--mib", "65536"]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("3 x --mib 65536 is more than half of what can be had"), "{errors}");
    assert_eq!(output.status.code(), Some(2));
}
