//! Figures beside those of lz4 in the same run, and their geometric means over the corpora.
//!
//! Invariant: a ratio is of two figures of one run and one corpus. Locks: none.

use crate::rows::{Row, grouped};

/// A row of the geometric means over all corpora.
pub(super) const MEAN: &str = "geometric mean";

/// Whether `row` is of lz4 at its default, one page at a time, without a dictionary or shuffle.
fn is_base(row: &Row) -> bool {
    let plain = row.number("unit_kib") == Some(4.0) && row.number("shuffle") == Some(0.0);
    row.is("codec", "lz4") && plain && row.is("dictionary", "none")
}

/// What a case is of, beside its corpus.
const KEYS: [&str; 4] = ["codec", "unit_kib", "dictionary", "shuffle"];

/// Figures, and the fields of their ratios.
const RATIOS: [(&str, &str); 3] = [
    ("class_cost", "cost_ratio"),
    ("compress_us", "compress_ratio"),
    ("decompress_us", "decompress_ratio"),
];

/// Sets the ratios of every run, and adds a row of means for each case and run.
pub(super) fn add(runs: &mut Vec<Row>) {
    let bases: Vec<Row> = runs.iter().filter(|row| is_base(row)).cloned().collect();
    for row in runs.iter_mut() {
        let same = |base: &&Row| ["corpus", "run"].iter().all(|key| base.get(key) == row.get(key));
        let Some(base) = bases.iter().find(same) else { continue };
        for (figure, ratio) in RATIOS {
            let value = row.number(figure).zip(base.number(figure)).map(|(one, other)| one / other);
            row.set(ratio, value);
        }
    }
    let groups = grouped(runs, &[&KEYS[..], &["run"][..]].concat());
    runs.extend(groups.iter().map(|group| means(group)));
}

fn means(group: &[Row]) -> Row {
    let mut row = Row::default();
    row.set("corpus", MEAN);
    for key in KEYS {
        row.set(key, group[0].get(key).clone());
    }
    let pages: f64 = group.iter().filter_map(|row| row.number("pages")).sum();
    row.set("pages", pages as u64).set("run", group[0].get("run").clone());
    for (_, ratio) in RATIOS {
        row.set(ratio, mean(group, ratio));
    }
    row
}

fn mean(group: &[Row], ratio: &str) -> Option<f64> {
    let logs: Option<Vec<f64>> = group.iter().map(|row| row.number(ratio).map(f64::ln)).collect();
    logs.map(|logs| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

/// What pagelz is beside lz4, in a sentence for each of its cases.
pub(super) fn notes(rows: &[Row]) -> Vec<String> {
    let ours = |row: &&Row| row.is("corpus", MEAN) && row.is("codec", "pagelz");
    let sentence = |row: &Row| {
        let of = |field| row.number(field).unwrap_or(f64::NAN);
        let worst = |field| {
            let same =
                rows.iter().filter(|other| KEYS.iter().all(|key| other.get(key) == row.get(key)));
            same.filter_map(|row| row.number(field)).fold(0.0, f64::max)
        };
        let tables =
            if row.is("dictionary", "own") { "tables of each corpus" } else { "shipped tables" };
        format!(
            "pagelz with {tables}, times lz4: class cost {:.3} (at most {:.3}), compression {:.2} \
             ({:.2}), decompression {:.2} ({:.2})",
            of("cost_ratio"),
            worst("cost_ratio"),
            of("compress_ratio"),
            worst("compress_ratio"),
            of("decompress_ratio"),
            worst("decompress_ratio"),
        )
    };
    rows.iter().filter(ours).map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(corpus: &str, codec: &str, cost: f64) -> Row {
        let mut row = Row::default();
        row.set("corpus", corpus).set("codec", codec).set("unit_kib", 4).set("dictionary", "none");
        row.set("shuffle", 0).set("pages", 10).set("run", 0).set("class_cost", cost);
        row
    }

    #[test]
    fn ratios_are_of_the_same_corpus_and_means_are_geometric() {
        let mut runs = vec![
            run("a", "lz4", 1000.0),
            run("a", "pagelz", 500.0),
            run("b", "lz4", 2000.0),
            run("b", "pagelz", 4000.0),
        ];
        add(&mut runs);
        assert_eq!(runs.len(), 6);
        assert_eq!(runs[1].number("cost_ratio"), Some(0.5));
        assert_eq!(runs[3].number("cost_ratio"), Some(2.0));
        let mean = &runs[5];
        assert!(mean.is("corpus", MEAN) && mean.is("codec", "pagelz"));
        assert!((mean.number("cost_ratio").unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(mean.number("pages"), Some(20.0));
        assert_eq!(mean.number("compress_ratio"), None, "not measured");
    }
}
