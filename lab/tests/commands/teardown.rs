//! `lab teardown`: regions that are paged out and dropped together.

use crate::support::{golden, json, lab, measured, number, rows};
use serde_json::Value;

/// The fields of a row; those of `MEASURED` and the ratios have `_min` and `_max` besides.
pub(crate) const FIELDS: [&str; 22] = [
    "backend",
    "free",
    "mib",
    "threads",
    "algorithm",
    "corpus",
    "corpus_bytes",
    "runs",
    "teardown_ms",
    "freed_ms",
    "release_ms",
    "drain_ms",
    "pageout_ns_per_page",
    "faultin_ns_per_page",
    "faultin_sequential_ns_per_page",
    "growth_bytes",
    "speedup_vs_kernel",
    "drain_speedup_vs_kernel",
    "pageout_speedup_vs_kernel",
    "faultin_speedup_vs_kernel",
    "faultin_sequential_speedup_vs_kernel",
    "published_speedup",
];
/// What is measured of everybody.
pub(crate) const MEASURED: [&str; 8] = [
    "teardown_ms",
    "freed_ms",
    "release_ms",
    "drain_ms",
    "pageout_ns_per_page",
    "faultin_ns_per_page",
    "faultin_sequential_ns_per_page",
    "growth_bytes",
];

/// Whether folded memory works here; in CI it must.
pub(crate) fn has_userfault(document: &Value) -> bool {
    let has = !rows(document).is_empty();
    assert!(has || std::env::var("CI").is_err(), "CI is to have userfaultfd");
    if !has {
        println!("skipped: needs userfaultfd");
    }
    has
}

#[test]
fn regions_are_torn_down_in_every_way() {
    let arguments = ["teardown", "--quick", "--mib", "2", "--threads", "1,2"];
    let document = json("teardown", &arguments);
    if !has_userfault(&document) {
        return;
    }
    let cases: Vec<(&Value, &Value)> =
        rows(&document).iter().map(|row| (&row["free"], &row["threads"])).collect();
    let all = [("sync", 1), ("range", 1), ("sync", 2), ("range", 2)];
    let all = all.map(|(free, threads)| (Value::from(free), Value::from(threads)));
    assert_eq!(cases, all.iter().map(|(free, threads)| (free, threads)).collect::<Vec<_>>());
    for row in rows(&document) {
        golden(row, &FIELDS);
        measured(row, &MEASURED);
        assert_eq!(row["backend"], "zram");
        assert!(number(row, "freed_ms") >= number(row, "teardown_ms"), "{row}");
        assert!(number(row, "drain_ms") >= number(row, "freed_ms"), "{row}");
        let regions = number(row, "threads") * number(row, "mib") * f64::from(1 << 20);
        let growth = number(row, "growth_bytes");
        assert!(growth > 0.0 && growth < regions, "{growth} bytes hold {regions}");
    }
}

#[test]
fn more_than_the_machine_has_is_refused() {
    let output = lab().args(["teardown", "--mib", "65536", "--threads", "64"]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("more than half of what can be had"), "{errors}");
    assert_eq!(output.status.code(), Some(2));
}
