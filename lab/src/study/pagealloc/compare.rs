//! What the rows say about each other: ratios to no monitor, and the sentences below the table.
//!
//! Invariant: a ratio is taken within one run; sentences are about medians.

use super::lists::{self, PLAIN};
use super::monitor::SHARED;
use super::per_cpu::PER_CPU;
use crate::frame::note;
use crate::ground::stats;
use crate::rows::{Row, column};

/// What is compared with the same batches and no monitor.
const COMPARED: [&str; 8] = [
    "alloc_ns",
    "free_ns",
    "alloc_ns_mean",
    "free_ns_mean",
    "alloc_ns_p99",
    "free_ns_p99",
    "alloc_sd",
    "free_sd",
];

/// Sets `.._vs_none` where the zone with a lock was measured alike without a monitor.
pub(super) fn ratios(runs: &mut [Row]) {
    const ALIKE: [&str; 3] = ["order", "batch", "run"];
    let bases: Vec<Option<Row>> = runs
        .iter()
        .map(|row| {
            let alike = |other: &&Row| ALIKE.iter().all(|field| other.get(field) == row.get(field));
            let compared = !row.is("zone", PLAIN);
            let mut others = runs.iter().filter(|_| compared).filter(alike);
            let base = |other: &&Row| other.is("zone", SHARED) && other.is("monitor", "none");
            others.find(base).cloned()
        })
        .collect();
    for (row, base) in runs.iter_mut().zip(bases) {
        for field in COMPARED {
            let base = base.as_ref().and_then(|base| base.number(field));
            let ratio = row.number(field).zip(base).map(|(with, without)| with / without);
            row.set(&format!("{field}_vs_none"), ratio);
        }
    }
}

/// For every order and monitor the range of its ratios over the batches, beside what was published.
pub(super) fn notes(rows: &[Row], notes: &mut Vec<String>) {
    for row in rows {
        let order = row.get("order");
        let of = |row: &Row| match row.is("zone", PER_CPU) {
            true => PER_CPU.to_owned(),
            false => row.get("monitor").as_str().unwrap_or("").to_owned(),
        };
        let monitor = of(row);
        if monitor == "none" {
            continue;
        }
        let alike = |other: &&Row| of(other) == monitor && other.get("order") == order;
        let alike: Vec<Row> = rows.iter().filter(alike).cloned().collect();
        let range = |what: &str| {
            let found = stats::spread(&column(&alike, &format!("{what}_vs_none")));
            found.map_or("-".into(), |found| format!("{:.3}..{:.3}", found.min, found.max))
        };
        for (kind, end) in [("median", "_ns"), ("mean", "_ns_mean"), ("p99", "_ns_p99")] {
            let [alloc, free] = ["alloc", "free"].map(|what| range(&format!("{what}{end}")));
            note(
                notes,
                format!("order {order}: {monitor} / none, {kind}: alloc {alloc}, free {free}"),
            );
        }
        let [alloc, free] = ["alloc_sd", "free_sd"].map(range);
        note(notes, format!("order {order}: {monitor} / none, sd: alloc {alloc}, free {free}"));
    }
    notes.extend(PUBLISHED.map(str::to_owned));
}

/// Study S2.
const PUBLISHED: [&str; 2] = [
    "published (S2; i7-12700, order 4, batches 1..1024, monitor every 10 ms), list walk / none: \
     alloc 1.03..1.18, free 1.13..1.60 as a rule, 1.86 at most; sd 3..250",
    "published (S2, the same), counts / none: alloc 1.00..1.02, 1.046 at batch 1024; free \
     1.00..1.10",
];

/// Sets what counting costs, where both kinds of lists were counted under valgrind; says so.
pub(super) fn counting(rows: &mut [Row], notes: &mut Vec<String>) {
    let (mut of_counts, mut of_heads) = (Vec::new(), Vec::new());
    for at in 0..rows.len() {
        let per_op = |row: &Row| {
            Some(row.number("instructions_per_pair")? / row.number("list_ops_per_pair")?)
        };
        let own = per_op(&rows[at]);
        let heads = rows.iter().find(|other| {
            let same = ["order", "batch", "zone"];
            other.is("lists", lists::HEADS)
                && same.iter().all(|field| other.get(field) == rows[at].get(field))
        });
        let heads = heads.and_then(per_op).filter(|_| rows[at].is("lists", lists::COUNTS));
        let more = own.zip(heads).map(|(counts, heads)| counts - heads);
        of_counts.extend(own.filter(|_| more.is_some()));
        of_heads.extend(heads);
        rows[at].set("instructions_per_list_op", own).set("counting_per_list_op", more);
    }
    let medians = stats::spread(&of_counts).zip(stats::spread(&of_heads));
    if let Some((counts, heads)) = medians.map(|(a, b)| (a.median, b.median)) {
        let more = counts - heads;
        note(
            notes,
            format!(
                "instructions a list operation, medians: {counts:.1} with counts, {heads:.1} by \
                 testing heads: {more:+.1}"
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(monitor: &str, run: u32, ns: f64) -> Row {
        let mut row = Row::default();
        row.set("order", 4).set("batch", 16).set("monitor", monitor);
        row.set("zone", super::SHARED).set("run", run);
        for field in COMPARED {
            row.set(field, ns);
        }
        row
    }

    #[test]
    fn ratios_are_within_a_run() {
        let mut runs = [
            row("none", 0, 10.0),
            row("counts", 0, 11.0),
            row("none", 1, 20.0),
            row("counts", 1, 20.0),
            row("counts", 2, 20.0),
        ];
        ratios(&mut runs);
        let found: Vec<Option<f64>> =
            runs.iter().map(|row| row.number("free_ns_p99_vs_none")).collect();
        assert_eq!(found, [Some(1.0), Some(1.1), Some(1.0), Some(1.0), None]);
    }

    #[test]
    fn sentences_give_the_range_over_the_batches_and_what_was_published() {
        let mut rows = [row("none", 0, 10.0), row("counts", 0, 11.0)];
        ratios(&mut rows);
        let (mut more, mut said) = (rows[1].clone(), Vec::new());
        more.set("batch", 64).set("alloc_ns_vs_none", 1.25);
        notes(&[rows[0].clone(), rows[1].clone(), more], &mut said);
        assert_eq!(said.len(), 4 + PUBLISHED.len());
        let expected = "order 4: counts / none, median: alloc 1.100..1.250, free 1.100..1.100";
        assert_eq!(said[0], expected);
    }

    #[test]
    fn counting_costs_what_heads_do_not() {
        let mut rows = [row("none", 0, 1.0), row("none", 0, 1.0), row("none", 0, 1.0)];
        for (row, (lists, instructions)) in
            rows.iter_mut().zip([(lists::COUNTS, 130.0), (lists::HEADS, 100.0)])
        {
            row.set("zone", super::PLAIN).set("lists", lists);
            row.set("list_ops_per_pair", 10).set("instructions_per_pair", instructions);
        }
        let mut said = Vec::new();
        counting(&mut rows, &mut said);
        let found = rows.map(|row| row.number("counting_per_list_op"));
        assert_eq!(found, [Some(3.0), None, None]);
        assert_eq!(
            said,
            ["instructions a list operation, medians: 13.0 with counts, 10.0 by testing heads: \
                 +3.0"]
        );
    }
}
