//! `lab cpulists`: every mix with per-CPU lists and without.

use crate::support::{golden, json, measured, number, rows};

const FIELDS: [&str; 9] = [
    "mix",
    "threads",
    "lists",
    "corpus",
    "corpus_bytes",
    "runs",
    "ops_per_s",
    "ns_per_op",
    "ns_per_op_vs_without",
];

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
        golden(row, &FIELDS);
        measured(row, &FIELDS[6..]);
        assert!(number(row, "ns_per_op") > 0.0, "{row}");
        if row["lists"] == "without" {
            assert_eq!(number(row, "ns_per_op_vs_without"), 1.0, "{row}");
        }
    }
}
