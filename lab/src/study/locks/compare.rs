//! What the rows say about each other: speed-ups, and the sentences below the table.
//!
//! Invariant: a speed-up is taken within one run; sentences are about medians.

use crate::frame::note;
use crate::rows::Row;

/// Sets `speedup_vs_hierarchical` where that design was measured alike.
pub(super) fn speedups(rows: &mut [Row]) {
    const ALIKE: [&str; 4] = ["mix", "release", "threads", "run"];
    let rates: Vec<Option<f64>> = rows
        .iter()
        .map(|row| {
            let alike = |other: &&Row| ALIKE.iter().all(|field| other.get(field) == row.get(field));
            let base =
                rows.iter().filter(alike).find(|other| other.is("design", "hierarchical"))?;
            Some(row.number("ops_per_s")? / base.number("ops_per_s")?)
        })
        .collect();
    for (row, speedup) in rows.iter_mut().zip(rates) {
        row.set("speedup_vs_hierarchical", speedup);
    }
}

/// The rate of one design, mix, release and number of threads, measured.
fn rate(rows: &[Row], design: &str, like: &Row, threads: &serde_json::Value) -> Option<f64> {
    let found = rows.iter().find(|row| {
        let same = ["mix", "release"].iter().all(|field| row.get(field) == like.get(field));
        same && row.is("design", design) && row.get("threads") == threads
    });
    found?.number("ops_per_s")
}

/// Compares the class design with the others, and itself with more threads and without sharing,
/// as far as it releases outside; that is then compared with inside.
pub(super) fn notes(rows: &[Row], notes: &mut Vec<String>) {
    let outside = rows.iter().filter(|row| row.is("release", "outside"));
    for row in outside.filter(|row| row.is("design", "class")) {
        let (mix, threads) = (row.get("mix").as_str().unwrap_or(""), row.get("threads"));
        let what = format!("{mix}, threads {threads}: class");
        let mut ratio = |to: &str, other: Option<f64>| {
            let Some((a, b)) = row.number("ops_per_s").zip(other) else { return };
            note(notes, format!("{what} / {to} = {:.2} (ops/s)", a / b));
        };
        for design in ["hierarchical", "pool"] {
            ratio(design, rate(rows, design, row, threads));
        }
        if *threads != 1 {
            ratio("class at one thread", rate(rows, "class", row, &1.into()));
            ratio("its split ceiling", row.number("split_ceiling_ops_per_s"));
            ratio("class with the threads apart", row.number("apart_ops_per_s"));
        }
        let mut inside = row.clone();
        inside.set("release", "inside");
        ratio("class with release inside", rate(rows, "class", &inside, threads));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(design: &str, threads: u32, run: u32, rate: f64) -> Row {
        let mut row = Row::default();
        row.set("design", design).set("mix", "free").set("release", "outside");
        row.set("threads", threads).set("run", run).set("ops_per_s", rate);
        row
    }

    #[test]
    fn speedups_are_within_a_run() {
        let mut rows = [
            row("hierarchical", 2, 0, 10.0),
            row("class", 2, 0, 15.0),
            row("hierarchical", 2, 1, 20.0),
            row("class", 2, 1, 36.0),
            row("class", 4, 1, 36.0),
        ];
        speedups(&mut rows);
        let found: Vec<Option<f64>> =
            rows.iter().map(|row| row.number("speedup_vs_hierarchical")).collect();
        assert_eq!(found, [Some(1.0), Some(1.5), Some(1.0), Some(1.8), None]);
    }

    #[test]
    fn sentences_name_what_is_compared() {
        let mut two = row("class", 2, 0, 30.0);
        two.set("split_ceiling_ops_per_s", 40.0).set("apart_ops_per_s", 60.0);
        let rows = [row("class", 1, 0, 20.0), row("hierarchical", 2, 0, 10.0), two];
        let mut said = Vec::new();
        notes(&rows, &mut said);
        let expected = [
            "free, threads 2: class / hierarchical = 3.00 (ops/s)",
            "free, threads 2: class / class at one thread = 1.50 (ops/s)",
            "free, threads 2: class / its split ceiling = 0.75 (ops/s)",
            "free, threads 2: class / class with the threads apart = 0.50 (ops/s)",
        ];
        assert_eq!(said, expected);
    }
}
