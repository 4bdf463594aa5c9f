//! Means, deviations and Student's t of single runs, in the form in which the studies print them.
//!
//! ```text
//!   printed row --> fields that runs must have --> samples --> printed column: a number
//!                                                 two of them --> test --> difference, interval
//! ```
//!
//! Source: S1 compares the peaks of two chain orders by a pooled t test, with N, average and
//! standard deviation. S4 prints average, median and standard deviation. A pooled test takes no
//! notice of which runs belong together; a paired one does.

use super::beside::Part;
use super::markdown::figure;
use super::plots::said;
use crate::ground::stats;

/// Some samples with what is printed of them.
struct Samples(Vec<f64>);

impl Samples {
    /// One field of the runs that say what is wanted.
    fn of(part: &Part, field: &str, wants: &[(&str, &str)]) -> Option<Samples> {
        let runs = part.runs.iter().filter(|run| {
            wants.iter().all(|(field, want)| said(run, field).as_deref() == Some(*want))
        });
        let samples: Vec<f64> = runs.filter_map(|run| run.number(field)).collect();
        (!samples.is_empty()).then_some(Samples(samples))
    }

    fn mean(&self) -> f64 {
        self.0.iter().sum::<f64>() / self.0.len() as f64
    }

    fn squares(&self) -> f64 {
        let mean = self.mean();
        self.0.iter().map(|sample| (sample - mean).powi(2)).sum()
    }

    /// Of the samples, not of what they are drawn from: divided by N - 1.
    fn sd(&self) -> Option<f64> {
        let freedom = self.0.len() as f64 - 1.0;
        (freedom > 0.0).then(|| (self.squares() / freedom).sqrt())
    }

    fn number(&self, column: &str) -> Option<f64> {
        let spread = stats::spread(&self.0)?;
        Some(match column {
            "N" => self.0.len() as f64,
            "Min" => spread.min,
            "Max" => spread.max,
            "Median" => spread.median,
            "Avg" | "Average" => self.mean(),
            "Stddev" => self.sd()?,
            _ => return None,
        })
    }
}

/// A difference of two means with its interval, and what it rests on.
struct Test {
    base: f64,
    difference: f64,
    half: f64,
    pooled: Option<f64>,
}

impl Test {
    fn pooled(before: &Samples, after: &Samples) -> Option<Test> {
        let (few, many) = (before.0.len() as f64, after.0.len() as f64);
        let freedom = few + many - 2.0;
        let pooled = ((before.squares() + after.squares()) / freedom).sqrt();
        let half = stats::t_975(freedom)? * pooled * (1.0 / few + 1.0 / many).sqrt();
        let difference = after.mean() - before.mean();
        Some(Test { base: before.mean(), difference, half, pooled: Some(pooled) })
    }

    fn paired(before: &Samples, after: &Samples) -> Option<Test> {
        let found = stats::paired(&before.0, &after.0)?;
        let base = before.mean();
        Some(Test { base, difference: found.mean, half: found.ci95?, pooled: None })
    }

    fn cell(&self, column: &str) -> Option<String> {
        let percent = |value: f64| format!("{:.4}", value / self.base * 100.0);
        Some(match column {
            "confidence" => "95.0".to_owned(),
            "difference" => whole(self.difference),
            "difference half-width" => whole(self.half),
            "relative difference" => percent(self.difference),
            "relative difference half-width" => percent(self.half),
            "pooled s" => whole(self.pooled?),
            _ => return None,
        })
    }
}

fn whole(value: f64) -> String {
    format!("{value:.0}")
}

/// S1: `order 3`, or `order 3 minus order 2`, of the most that a store held.
fn of_orders(
    part: &Part,
    row: &str,
    column: &str,
    test: fn(&Samples, &Samples) -> Option<Test>,
) -> Option<String> {
    const FIELD: &str = "mem_used_max";
    let order =
        |name: &str| Samples::of(part, FIELD, &[("chain_order", name.strip_prefix("order ")?)]);
    match row.split_once(" minus ") {
        Some((after, before)) => test(&order(before)?, &order(after)?)?.cell(column),
        None => Some(whole(order(row)?.number(column)?)),
    }
}

/// S1's test as published.
pub(crate) fn pooled(part: &Part, row: &str, column: &str) -> Option<String> {
    of_orders(part, row, column, Test::pooled)
}

/// The same runs, each order against the other order of the same run.
pub(crate) fn paired(part: &Part, row: &str, column: &str) -> Option<String> {
    row.contains(" minus ").then(|| of_orders(part, row, column, Test::paired))?
}

/// S1's mm_stat: `order 2 run 1` is one run.
pub(crate) fn mm_stat(part: &Part, row: &str, column: &str) -> Option<String> {
    let (order, run) = row.strip_prefix("order ")?.split_once(" run ")?;
    let run = (run.parse::<u64>().ok()? - 1).to_string();
    let wants = [("store", "zram"), ("chain_order", order), ("run", &run)];
    Some(whole(Samples::of(part, column, &wants)?.0[0]))
}

/// The kernel's at the same work, whose chains are those of order 3.
pub(crate) fn mm_stat_kernel(part: &Part, row: &str, column: &str) -> Option<String> {
    let run = row.strip_prefix("order 3 run ")?;
    let run = (run.parse::<u64>().ok()? - 1).to_string();
    let wants = [("store", "kernel-zram"), ("run", &*run)];
    Some(whole(Samples::of(part, column, &wants)?.0[0]))
}

/// S4: one lock for the pool is `with lock consolidation`; without, the pool lock stands before
/// those of the classes.
const CONSOLIDATED: [(&str, &str); 2] =
    [(" with lock consolidation", "pool"), (" without lock consolidation", "hierarchical")];

/// S4's fs_mark: `ext4 with lock consolidation`.
pub(crate) fn fsmark(part: &Part, row: &str, column: &str) -> Option<String> {
    let (fs, design) =
        CONSOLIDATED.iter().find_map(|(end, design)| Some((row.strip_suffix(end)?, design)))?;
    let wants = [("store", "zram"), ("fs", fs), ("design", design)];
    Some(figure(Samples::of(part, "fsmark_files_per_s", &wants)?.number(column)?))
}

/// The kernel's zram at the same work. Linux 6.18 has a pool lock before class locks.
pub(crate) fn fsmark_kernel(part: &Part, row: &str, column: &str) -> Option<String> {
    let fs = row.strip_suffix(CONSOLIDATED[1].0)?;
    let wants = [("store", "kernel-zram"), ("fs", fs)];
    Some(figure(Samples::of(part, "fsmark_files_per_s", &wants)?.number(column)?))
}

/// S4's build: `ext4 real with lock consolidation`.
pub(crate) fn build(part: &Part, row: &str, column: &str) -> Option<String> {
    let (work, design) =
        CONSOLIDATED.iter().find_map(|(end, design)| Some((row.strip_suffix(end)?, design)))?;
    let (fs, field) = timed(work)?;
    let wants = [("workload", "build"), ("store", "zram"), ("fs", fs), ("design", design)];
    Some(figure(Samples::of(part, field, &wants)?.number(column)?))
}

/// The kernel's zram at the same work.
pub(crate) fn build_kernel(part: &Part, row: &str, column: &str) -> Option<String> {
    let (fs, field) = timed(row.strip_suffix(CONSOLIDATED[1].0)?)?;
    let wants = [("workload", "build"), ("store", "kernel-zram"), ("fs", fs)];
    Some(figure(Samples::of(part, field, &wants)?.number(column)?))
}

/// The file system and the field of `ext4 real`.
fn timed(work: &str) -> Option<(&str, &'static str)> {
    let (fs, time) = work.split_once(' ')?;
    let fields = [("real", "wall_s"), ("user", "user_s"), ("sys", "sys_s")];
    Some((fs, fields.into_iter().find(|(name, _)| *name == time)?.1))
}

#[cfg(test)]
mod tests {
    use super::super::published::Published;
    use super::*;

    /// The published peaks of five runs give the published tests.
    #[test]
    fn the_published_tests_are_computed_again() {
        let published = Published::read().unwrap();
        let order = |order: u32| {
            let run = |run: u32| format!("order {order} run {run}");
            let value = |run: &str| published.get("S1-mm-stat", run, "mem_used_max");
            Samples((1..=5).map(|number| value(&run(number)).expect("five runs")).collect())
        };
        for number in [3, 4] {
            let (before, after) = (order(2), order(number));
            let test = Test::pooled(&before, &after).unwrap();
            let table = format!("S1-ttest-order{number}");
            let row = format!("order {number} minus order 2");
            let printed = |row: &str, column: &str| published.get(&table, row, column).unwrap();
            let near = |got: f64, row: &str, column: &str| {
                let printed = printed(row, column);
                let off = (got / printed - 1.0).abs();
                assert!(off < 1e-4, "{column}: {got}, printed {printed}");
            };
            near(test.difference, &row, "difference");
            near(test.half, &row, "difference half-width");
            near(test.pooled.unwrap(), &row, "pooled s");
            for column in ["N", "Min", "Max", "Median", "Avg", "Stddev"] {
                near(before.number(column).unwrap(), "order 2", column);
                near(after.number(column).unwrap(), &format!("order {number}"), column);
            }
        }
    }
}
