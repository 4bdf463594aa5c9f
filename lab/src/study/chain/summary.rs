//! Medians over the runs, and what every order saves against order 2.
//!
//! Invariant: a difference is taken between runs of the same number, which stored the same pages.

use super::fields::FIELDS;
use crate::ground::stats;
use crate::rows::{Row, column, fields, grouped};

/// The order others are compared with.
const BASE_ORDER: f64 = 2.0;

/// One row per store, size, rule and order, in the order they were first measured.
pub(super) fn rows(runs: &[Row]) -> Vec<Row> {
    let groups = grouped(runs, &fields::keys(&FIELDS));
    groups.iter().map(|group| summarise(group, base_of(group, &groups))).collect()
}

/// The runs of order 2 with everything else equal; none for a store whose order is not known.
fn base_of<'a>(group: &[Row], groups: &'a [Vec<Row>]) -> Option<&'a [Row]> {
    const SAME: [&str; 5] = ["store", "algorithm", "corpus_bytes", "fill", "rule"];
    group[0].number("chain_order")?;
    let is_base = |other: &&Vec<Row>| {
        let same = SAME.iter().all(|key| other[0].get(key) == group[0].get(key));
        same && other[0].number("chain_order") == Some(BASE_ORDER)
    };
    groups.iter().find(is_base).map(Vec::as_slice)
}

fn summarise(group: &[Row], base: Option<&[Row]>) -> Row {
    let mut row = fields::median(&FIELDS, group);
    for (name, field) in [("saves", "accounted_bytes"), ("saves_mem_used", "mem_used_total")] {
        let base = base.map_or(Vec::new(), |base| column(base, field));
        savings(&mut row, name, &base, &column(group, field));
    }
    row
}

/// Bytes and percent saved: positive where less is used than at order 2.
fn savings(row: &mut Row, name: &str, base: &[f64], ours: &[f64]) {
    let percent: Vec<f64> = ours.iter().zip(base).map(|(a, b)| a / b * 100.0).collect();
    let hundred = vec![100.0; percent.len()];
    let saved =
        [("bytes", stats::paired(ours, base)), ("percent", stats::paired(&percent, &hundred))];
    for (unit, difference) in saved {
        row.set(&format!("{name}_{unit}"), difference.map(|d| d.mean));
        row.set(&format!("{name}_{unit}_ci95"), difference.and_then(|d| d.ci95));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(order: u32, accounted: f64) -> Row {
        let mut row = Row::default();
        row.set("store", "zram").set("chain_order", order).set("accounted_bytes", accounted);
        row
    }

    #[test]
    fn savings_are_paired_and_positive_when_less_is_used() {
        let runs = [run(2, 1000.0), run(4, 900.0), run(2, 2000.0), run(4, 1880.0)];
        let rows = rows(&runs);
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0].number("saves_bytes"), Some(0.0));
        let saved = &rows[1];
        assert_eq!(saved.number("accounted_bytes"), Some(1390.0));
        assert_eq!(saved.number("saves_bytes"), Some(110.0));
        assert!((saved.number("saves_percent").unwrap() - 8.0).abs() < 1e-9);
        // Two pairs, 100 and 120: sd 14.142, t(1) 12.706, half the interval 127.06.
        assert!((saved.number("saves_bytes_ci95").unwrap() - 127.062).abs() < 1e-2);
    }

    #[test]
    fn without_order_2_nothing_is_claimed() {
        let rows = rows(&[run(3, 1000.0), run(4, 900.0)]);
        assert_eq!(rows[1].number("saves_bytes"), None);
    }
}
