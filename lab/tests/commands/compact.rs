//! `lab compact`: what is left is verified, counted and reported, with and without busy threads.

use crate::support::{golden, json, measured, number, rows};

/// The fields of a row; those measured have `_min` and `_max` besides.
pub(crate) const FIELDS: [&str; 33] = [
    "store",
    "algorithm",
    "corpus",
    "corpus_bytes",
    "chain_order",
    "discard",
    "busy",
    "pace",
    "evacuation",
    "runs",
    "compr_data_size",
    "mem_used_before",
    "mem_used_after",
    "freed_bytes",
    "resident_before",
    "resident_after",
    "accounted_after",
    "pages_compacted",
    "compact_ms",
    "compact_ms_per_mib",
    "returned_ms",
    "returned_bytes",
    "returned_gb_per_s",
    "held_over",
    "used_over_before",
    "used_over",
    "overhead_all_in",
    "ops",
    "op_us_p50",
    "op_us_p99",
    "compacting_ops",
    "compacting_op_us_p50",
    "compacting_op_us_p99",
];

#[test]
fn compaction_is_reported_with_and_without_busy_threads() {
    let document = json("compact", &["compact", "--quick", "--discard", "50,90", "--busy", "0,2"]);
    let keys: Vec<(f64, f64)> =
        rows(&document).iter().map(|row| (number(row, "discard"), number(row, "busy"))).collect();
    assert_eq!(keys, [(50.0, 0.0), (50.0, 2.0), (90.0, 0.0), (90.0, 2.0)]);
    for row in rows(&document) {
        golden(row, &FIELDS);
        measured(row, &FIELDS[10..20]);
        measured(row, &FIELDS[24..27]);
        measured(row, &["returned_bytes", "held_over"]);
        if row["busy"] == 0 {
            assert!(number(row, "freed_bytes") > 0.0, "nothing was freed: {row}");
            assert!(number(row, "used_over") < number(row, "used_over_before"), "{row}");
            assert!(row["op_us_p99"].is_null(), "nobody was there to be timed: {row}");
            measured(row, &["returned_ms", "returned_gb_per_s"]);
        } else {
            measured(row, &FIELDS[27..30]);
            // So little is compacted soon: there may be no operation beside it.
            if number(row, "compacting_ops") > 0.0 {
                measured(row, &FIELDS[30..33]);
            }
            assert!(number(row, "op_us_p50") <= number(row, "op_us_p99"));
        }
    }
}
