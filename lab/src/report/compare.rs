//! `lab compare A B`: two records of one study, row by row.
//!
//! ```text
//!   A, B --rows that measured the same--> pairs --each measured field--> ratio, interval, verdict
//! ```
//!
//! `before` and `after` are the medians of the rows, and `ratio` is theirs. The verdict rests on
//! means: the interval is Welch's for the difference of two means, at 95 %, over the single runs
//! that the records keep, as parts of A's mean.
//!
//! Records of two corpora are refused, and so are those of two machines unless that is asked for:
//! these differ in more than what is compared.

use super::kept::{self, Record};
use crate::ground::{LabError, stats};
use crate::rows::{Row, column, table};
use std::path::PathBuf;

/// Options of `lab compare`.
#[derive(clap::Args, Debug)]
pub(crate) struct Options {
    /// The record to compare with
    before: PathBuf,
    /// The record that is compared
    after: PathBuf,
    /// Compare only these fields
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',')]
    field: Vec<String>,
    /// Compare although the machines differ
    #[arg(long)]
    any_machine: bool,
}

/// Parts of A's mean within which B's mean lies, at 95 %.
#[derive(Debug, PartialEq)]
struct Change {
    ratio: f64,
    low: f64,
    high: f64,
}

/// Compares; the table that says how.
pub(crate) fn run(options: &Options) -> Result<String, LabError> {
    let (before, after) = (Record::read(&options.before)?, Record::read(&options.after)?);
    let refuse = |why: String| Err(LabError::Usage(why));
    if before.study != after.study {
        return refuse(format!("two studies: {} and {}", before.study, after.study));
    }
    if before.machine != after.machine && !options.any_machine {
        let (before, after) = (&before.machine, &after.machine);
        return refuse(format!("two machines: {before}; {after} (--any-machine compares them)"));
    }
    if before.corpus != after.corpus {
        let told = |record: &Record| record.corpus.clone().unwrap_or("none".into());
        let (before, after) = (told(&before), told(&after));
        return refuse(format!("two corpora: {before} and {after}; figures of two do not compare"));
    }
    let rows = rows(&before, &after, &options.field);
    if rows.is_empty() {
        return refuse(
            "no row of the two records measured the same, or none has such a field".into(),
        );
    }
    Ok(table::lines(&["row", "field", "before", "after", "ratio", "verdict"], &rows))
}

fn rows(before: &Record, after: &Record, fields: &[String]) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for row in &after.rows {
        let key = kept::key(row);
        let Some(old) = before.rows.iter().find(|old| kept::key(old) == key) else { continue };
        let runs = [before.runs_of(old), after.runs_of(row)];
        let wanted = |name: &str| fields.is_empty() || fields.iter().any(|field| field == name);
        for (name, _) in row.fields().filter(|(name, _)| kept::is_measured(row, name)) {
            if !wanted(name) {
                continue;
            }
            let (Some(was), Some(is)) = (old.number(name), row.number(name)) else { continue };
            let samples = |runs: &[Row]| column(runs, name);
            let change = change(&samples(&runs[0]), &samples(&runs[1]));
            let number = super::drawing::chart::short;
            let ratio = if was == 0.0 { "-".into() } else { format!("{:.3}", is / was) };
            rows.push(vec![
                key.clone(),
                name.to_owned(),
                number(was),
                number(is),
                ratio,
                verdict(change.as_ref()),
            ]);
        }
    }
    rows
}

/// Welch's interval; `None` where two runs each are not there, or nothing was measured.
fn change(before: &[f64], after: &[f64]) -> Option<Change> {
    let base = stats::mean(before)?;
    let (difference, half) = stats::welch(before, after)?;
    (base != 0.0).then(|| {
        let part = |difference: f64| 1.0 + difference / base;
        let ends = [part(difference - half), part(difference + half)];
        let (low, high) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
        Change { ratio: part(difference), low, high }
    })
}

fn verdict(change: Option<&Change>) -> String {
    let Some(Change { ratio, low, high }) = change else {
        return "one run: no interval".into();
    };
    let percent = |part: f64| format!("{:.1}", (part - 1.0).abs() * 100.0);
    if *low > 1.0 {
        format!("higher by {} % ({} to {})", percent(*ratio), percent(*low), percent(*high))
    } else if *high < 1.0 {
        format!("lower by {} % ({} to {})", percent(*ratio), percent(*high), percent(*low))
    } else {
        let sign = |part: f64| if part < 1.0 { "-" } else { "+" };
        let (below, above) = (percent(*low), percent(*high));
        format!("no difference shown ({}{below} to {}{above} %)", sign(*low), sign(*high))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_told_where_the_runs_show_one() {
        let old = [10.0, 10.1, 9.9, 10.0, 10.05];
        let said = |after: &[f64]| verdict(change(&old, after).as_ref());
        assert!(
            said(&[12.0, 12.1, 11.9]).starts_with("higher by 1"),
            "{}",
            said(&[12.0, 12.1, 11.9])
        );
        assert!(said(&[5.0, 5.1, 4.9]).starts_with("lower by 5"), "{}", said(&[5.0, 5.1, 4.9]));
        assert!(said(&[9.0, 11.0, 10.0]).starts_with("no difference shown (-"));
        assert_eq!(said(&[12.0]), "one run: no interval");
        assert_eq!(verdict(change(&[0.0, 0.0], &[1.0, 1.0]).as_ref()), "one run: no interval");
    }
}
