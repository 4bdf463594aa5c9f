//! Reads that are timed one by one, and what they and the memory are beside those of `fast`.
//!
//! Invariant: every page that is read is compared with the corpus, outside of the time.
//!
//! Locks: none.

use crate::ground::{LabError, Rng, stats};
use crate::pages::{Corpus, PAGE_SIZE};
use crate::rows::Row;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;
use zram::{Density, Zram};

/// Zipf's law over pages in random order.
pub(super) struct Zipf {
    /// Sums of `1 / rank ^ exponent` over the ranks up to each.
    sums: Vec<f64>,
    by_rank: Vec<u32>,
}

impl Zipf {
    pub(super) fn new(pages: usize, exponent: f64, rng: &mut Rng) -> Zipf {
        let sums = (1..=pages).scan(0.0, |sum, rank| {
            *sum += (rank as f64).powf(-exponent);
            Some(*sum)
        });
        Zipf { sums: sums.collect(), by_rank: rng.permutation(pages) }
    }

    pub(super) fn page(&self, rng: &mut Rng) -> usize {
        let total = self.sums[self.sums.len() - 1];
        // 53 bits: as many as a fraction has.
        let at = (rng.next() >> 11) as f64 / (1_u64 << 53) as f64 * total;
        let rank = self.sums.partition_point(|&sum| sum <= at).min(self.by_rank.len() - 1);
        self.by_rank[rank] as usize
    }
}

/// How long reads took, in nanoseconds.
pub(super) struct Times {
    mean: f64,
    p99: u32,
    reads: usize,
}

impl Times {
    fn of(mut times: Vec<u32>) -> Times {
        times.sort_unstable();
        let (mean, _) = stats::mean_and_sd(&times).unwrap_or_default();
        Times { mean, p99: stats::percentile(&times, 99).unwrap_or(0), reads: times.len() }
    }

    pub(super) fn name_in(&self, kind: &str, row: &mut Row) {
        row.set(&format!("{kind}_mean_ns"), self.mean)
            .set(&format!("{kind}_p99_ns"), f64::from(self.p99))
            .set("reads", self.reads);
    }
}

/// Reads of one device before the next has its turn.
const TURN: usize = 500;

/// Times reads of `pages` of every device. The devices take turns.
pub(super) fn timed_in_turn(
    disks: &[Arc<Zram>],
    corpus: &Corpus,
    pages: &[usize],
) -> Result<Vec<Times>, LabError> {
    let mut times = vec![Vec::with_capacity(pages.len()); disks.len()];
    for turn in pages.chunks(TURN) {
        for (disk, times) in disks.iter().zip(&mut times) {
            time(disk, corpus, turn, times)?;
        }
    }
    Ok(times.into_iter().map(Times::of).collect())
}

fn time(
    disk: &Zram,
    corpus: &Corpus,
    pages: &[usize],
    times: &mut Vec<u32>,
) -> Result<(), LabError> {
    let mut data = [0; PAGE_SIZE];
    for &page in pages {
        let start = Instant::now();
        disk.read_page(page as u64, &mut data).map_err(LabError::store("a read"))?;
        times.push(start.elapsed().as_nanos() as u32);
        is_equal(page, &data, corpus)?;
    }
    Ok(())
}

/// Compares every page.
pub(super) fn compare(disk: &Zram, corpus: &Corpus) -> Result<(), LabError> {
    let mut data = [0; PAGE_SIZE];
    for page in 0..corpus.pages() {
        disk.read_page(page as u64, &mut data).map_err(LabError::store("a read"))?;
        is_equal(page, &data, corpus)?;
    }
    Ok(())
}

fn is_equal(page: usize, data: &[u8], corpus: &Corpus) -> Result<(), LabError> {
    if data == corpus.page(page) {
        return Ok(());
    }
    let what = format!("zram: read of page {page}");
    Err(LabError::Store { what, why: "other bytes than were stored".into() })
}

/// What is divided by the same of `fast`, and the name of the ratio.
const RATIOS: [(&str, &str); 4] = [
    ("zipf_mean_ns", "zipf_mean_ratio"),
    ("zipf_p99_ns", "zipf_p99_ratio"),
    ("uniform_mean_ns", "uniform_mean_ratio"),
    ("uniform_p99_ns", "uniform_p99_ratio"),
];

/// Adds to each row what it is beside `fast` in the same run and corpus.
pub(super) fn add_ratios(rows: &mut [Row]) {
    let of = |row: &Row| Some((row.get("corpus").as_str()?.to_owned(), row.number("run")? as u64));
    let fast: BTreeMap<(String, u64), Row> = rows
        .iter()
        .filter(|row| row.is("density", Density::Fast.name()))
        .filter_map(|row| Some((of(row)?, row.clone())))
        .collect();
    for row in rows {
        let Some(base) = of(row).and_then(|key| fast.get(&key)) else { continue };
        for (field, ratio) in RATIOS {
            if let (Some(this), Some(base)) = (row.number(field), base.number(field)) {
                row.set(ratio, this / base);
            }
        }
        let bytes = |row: &Row| row.number("accounted_bytes");
        if let (Some(this), Some(base)) = (bytes(row), bytes(base)) {
            row.set("saved", 1.0 - this / base);
        }
    }
}

/// The geometric means over the corpora, as sentences.
pub(super) fn means(rows: &[Row]) -> Vec<String> {
    let dense = Density::ALL.into_iter().filter(|&density| density != Density::Fast);
    dense.filter_map(|density| mean_of(rows, density)).collect()
}

fn mean_of(rows: &[Row], density: Density) -> Option<String> {
    let of: Vec<&Row> = rows.iter().filter(|row| row.is("density", density.name())).collect();
    let mean = |value: &dyn Fn(&Row) -> Option<f64>| -> Option<f64> {
        let logs: Option<Vec<f64>> = of.iter().map(|row| value(row).map(f64::ln)).collect();
        stats::mean(&logs?).map(f64::exp)
    };
    let left = mean(&|row| row.number("saved").map(|saved| 1.0 - saved))?;
    let ratios: Option<Vec<f64>> =
        RATIOS.iter().map(|(_, ratio)| mean(&|row| row.number(ratio))).collect();
    let ratios = ratios?;
    Some(format!(
        "{density}: {:.1} % fewer bytes than lz4 in the geometric mean; reads by Zipf's law take \
         {:.2} times as long, p99 {:.2}; reads of any page {:.2}, p99 {:.2}",
        100.0 * (1.0 - left),
        ratios[0],
        ratios[1],
        ratios[2],
        ratios[3]
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_ranks_are_read_more() {
        let mut rng = Rng::new(1, 1);
        let zipf = Zipf::new(1000, 0.99, &mut rng);
        let first = zipf.by_rank[0] as usize;
        let reads = (0..10_000).filter(|_| zipf.page(&mut rng) == first).count();
        assert!((1000..1700).contains(&reads), "{reads} of 10000 are of the first rank");
    }

    #[test]
    fn ratios_are_those_of_the_same_corpus() {
        let row = |corpus: &str, density: &str, bytes: u64| {
            let mut row = Row::default();
            row.set("corpus", corpus).set("density", density).set("run", 0);
            row.set("accounted_bytes", bytes).set("zipf_mean_ns", bytes as f64);
            row
        };
        let mut rows = [row("a", "fast", 100), row("b", "fast", 50), row("a", "dense", 60)];
        add_ratios(&mut rows);
        assert_eq!(rows[2].number("saved"), Some(0.4));
        assert_eq!(rows[2].number("zipf_mean_ratio"), Some(0.6));
        assert_eq!(rows[1].number("saved"), Some(0.0));
    }
}
