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

/// Sets `release_saves_time` of rows with release outside, where inside was measured alike.
pub(super) fn saved_by_release(rows: &mut [Row]) {
    const ALIKE: [&str; 5] = ["mix", "threads", "design", "shards", "run"];
    let saved: Vec<Option<f64>> = rows
        .iter()
        .map(|row| {
            let alike = |other: &&Row| ALIKE.iter().all(|field| other.get(field) == row.get(field));
            let inside = rows.iter().filter(alike).find(|other| other.is("release", "inside"))?;
            let outside = row.is("release", "outside").then(|| row.number("ops_per_s"))??;
            Some(1.0 - inside.number("ops_per_s")? / outside)
        })
        .collect();
    for (row, saved) in rows.iter_mut().zip(saved) {
        row.set("release_saves_time", saved);
    }
}

/// The rate of the row that is as `like` with other values of some fields.
fn rate(rows: &[Row], like: &Row, others: &[(&str, serde_json::Value)]) -> Option<f64> {
    let mut wanted = like.clone();
    for (field, value) in others {
        wanted.set(field, value.clone());
    }
    let fields = ["mix", "release", "threads", "design", "shards"];
    let same = |row: &&Row| fields.iter().all(|field| row.get(field) == wanted.get(field));
    rows.iter().find(same)?.number("ops_per_s")
}

/// Compares the class design with the others, first with one shard and then spread, and itself with
/// more threads and without sharing, as far as it releases outside; that is compared with inside.
pub(super) fn notes(rows: &[Row], notes: &mut Vec<String>) {
    let outside = rows.iter().filter(|row| row.is("release", "outside"));
    for row in outside.filter(|row| row.is("design", "class")) {
        let (mix, threads) = (row.get("mix").as_str().unwrap_or(""), row.get("threads"));
        let shards = row.get("shards").as_str().unwrap_or("");
        let class = if shards == "one" { "class with one shard" } else { "class" };
        let what = format!("{mix}, threads {threads}: {class}");
        let mut ratio = |to: &str, other: Option<f64>| {
            let Some((a, b)) = row.number("ops_per_s").zip(other) else { return };
            note(notes, format!("{what} / {to} = {:.2} (ops/s)", a / b));
        };
        let one = ("shards", "one".into());
        for design in ["hierarchical", "pool"] {
            let others = [("design", design.into()), one.clone()];
            ratio(design, rate(rows, row, &others));
        }
        if shards != "one" {
            ratio("class with one shard", rate(rows, row, &[one]));
        }
        if *threads != 1 {
            ratio("itself at one thread", rate(rows, row, &[("threads", 1.into())]));
            ratio("its split ceiling", row.number("split_ceiling_ops_per_s"));
            ratio("class with the threads apart", row.number("apart_ops_per_s"));
        }
        ratio("itself with release inside", rate(rows, row, &[("release", "inside".into())]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(design: &str, threads: u32, run: u32, rate: f64) -> Row {
        let mut row = Row::default();
        let shards = if design == "class" { "spread" } else { "one" };
        row.set("design", design).set("shards", shards);
        row.set("mix", "free").set("release", "outside");
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
    fn release_outside_saves_time_of_its_own_run_and_design() {
        let mut rows = [row("class", 2, 0, 20.0), row("class", 2, 0, 25.0), row("pool", 2, 0, 9.0)];
        rows[0].set("release", "inside");
        saved_by_release(&mut rows);
        let found: Vec<_> = rows.iter().map(|row| row.number("release_saves_time")).collect();
        assert_eq!(found, [None, Some(0.19999999999999996), None]);
    }

    #[test]
    fn sentences_name_what_is_compared() {
        let mut two = row("class", 2, 0, 30.0);
        two.set("split_ceiling_ops_per_s", 40.0).set("apart_ops_per_s", 60.0);
        let mut one = row("class", 2, 0, 12.0);
        one.set("shards", "one");
        let rows = [row("class", 1, 0, 20.0), row("hierarchical", 2, 0, 10.0), one, two];
        let mut said = Vec::new();
        notes(&rows, &mut said);
        let expected = [
            "free, threads 2: class with one shard / hierarchical = 1.20 (ops/s)",
            "free, threads 2: class / hierarchical = 3.00 (ops/s)",
            "free, threads 2: class / class with one shard = 2.50 (ops/s)",
            "free, threads 2: class / itself at one thread = 1.50 (ops/s)",
            "free, threads 2: class / its split ceiling = 0.75 (ops/s)",
            "free, threads 2: class / class with the threads apart = 0.50 (ops/s)",
        ];
        assert_eq!(said, expected);
    }
}
