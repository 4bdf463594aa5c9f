//! `lab compact`: what is left is verified, counted and reported, with and without busy threads.

use crate::support::{json, measured, number, rows};

#[test]
fn compaction_is_reported_with_and_without_busy_threads() {
    let document = json("compact", &["compact", "--quick", "--discard", "50,90", "--busy", "0,2"]);
    let keys: Vec<(f64, f64)> =
        rows(&document).iter().map(|row| (number(row, "discard"), number(row, "busy"))).collect();
    assert_eq!(keys, [(50.0, 0.0), (50.0, 2.0), (90.0, 0.0), (90.0, 2.0)]);
    for row in rows(&document) {
        measured(
            row,
            &[
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
            ],
        );
        measured(row, &["used_over_before", "used_over", "overhead_all_in"]);
        measured(row, &["returned_bytes", "held_over"]);
        if row["busy"] == 0 {
            assert!(number(row, "freed_bytes") > 0.0, "nothing was freed: {row}");
            assert!(number(row, "used_over") < number(row, "used_over_before"), "{row}");
            assert!(row["op_us_p99"].is_null(), "nobody was there to be timed: {row}");
            measured(row, &["returned_ms", "returned_gb_per_s"]);
        } else {
            measured(row, &["ops", "op_us_p50", "op_us_p99"]);
            // So little is compacted soon: there may be no operation beside it.
            if number(row, "compacting_ops") > 0.0 {
                measured(row, &["compacting_ops", "compacting_op_us_p50", "compacting_op_us_p99"]);
            }
            assert!(number(row, "op_us_p50") <= number(row, "op_us_p99"));
        }
    }
}
