//! The jobs of study `run` in a document: their time, their memory, and their ends in small groups.
//!
//! ```text
//!   rows of a record --job--> lines
//!                    --share of the peak, form, algorithm--> columns
//! ```
//!
//! Invariant: a cell without a figure says why there is none.

use super::beside::{Cited, source};
use super::markdown::{Made, figure, lines, wrapped};
use crate::ground::size;
use crate::kernel::NAME;
use crate::rows::Row;

/// Names the part of a document.
pub(crate) const ID: &str = "run";

const NO_RECORD: &str = "No record has these figures yet. `lab run --vs-kernel --density \
                         fast,dense --bounds --runs 3 --record` makes one.";
const NOT_MEASURED: &str = "not measured";
const OURS: &str = "ramfold";
/// The forms of a job in a group of the size of its bound.
const BOUNDED: [&str; 2] = ["in-bound", "plain-bound"];

/// What a job's pages would take in a store, near its peak.
const ESTIMATE: &str = "estimate";
/// A job should end with so many times the size that its peak has in a store.
const AMPLE: f64 = 1.15;

/// All that is generated.
pub(crate) fn section(records: &[Cited]) -> String {
    if records.is_empty() {
        return wrapped(NO_RECORD);
    }
    records.iter().map(of_record).collect::<Vec<_>>().join("\n")
}

/// The tables of a record; one that would have no column is left out.
fn of_record(cited: &Cited) -> String {
    let rows = &cited.record.rows;
    let all = Table { rows, jobs: distinct(rows.iter().map(|row| text(row, "job"))) };
    let ours: Vec<Row> = rows.iter().filter(|row| row.is("form", OURS)).cloned().collect();
    let mut plain =
        vec![all.column("peak, MiB", "plain", peak), all.column("plain, s", "plain", seconds)];
    if rows.iter().any(|row| row.is("form", ESTIMATE)) {
        plain.push(all.column("R, zstd", ESTIMATE, |row| figure(number(row, "ratio"))));
        plain.push(all.column("115 % / R", ESTIMATE, least));
    }
    let (times, memory, ends) =
        (all.made(&[OURS, NAME], time), all.made(&[OURS, NAME], held), all.made(&BOUNDED, end));
    let titled =
        |title: &str, groups: &[&[Made]]| format!("\n{title}\n{}", lines("job", &all.jobs, groups));
    let mut made = source(cited, &ours, "");
    made += &titled("Time, in times of the plain job's:", &[&plain, &times]);
    made += &titled("The most memory, in percent of the limit:", &[&memory]);
    if !ends.is_empty() {
        made += &titled("In a group of the size of the bound, without swap:", &[&ends]);
    }
    made
}

struct Table<'a> {
    rows: &'a [Row],
    jobs: Vec<String>,
}

impl Table<'_> {
    /// A column for each share, form and algorithm that there is of these forms.
    fn made(&self, forms: &[&str], cell: fn(&Row) -> String) -> Vec<Made> {
        let of_forms = |row: &&Row| forms.iter().any(|form| row.is("form", form));
        let heads = distinct(self.rows.iter().filter(of_forms).map(head));
        let column = |head: &String| {
            let of = |job: &String| {
                let is =
                    |row: &&Row| of_forms(row) && row.is("job", job) && self::head(row) == *head;
                self.rows.iter().find(is).map(cell)
            };
            let cells = self.jobs.iter().map(of).collect();
            Made { head: head.clone(), absent: NOT_MEASURED, cells }
        };
        heads.iter().map(column).collect()
    }

    /// One column of a form that has no limit.
    fn column(&self, head: &str, form: &str, cell: fn(&Row) -> String) -> Made {
        let of = |job: &String| {
            self.rows.iter().find(|row| row.is("job", job) && row.is("form", form)).map(cell)
        };
        let cells = self.jobs.iter().map(of).collect();
        Made { head: head.to_owned(), absent: NOT_MEASURED, cells }
    }
}

/// In the order in which they first occur.
fn distinct(names: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    names.for_each(|name| {
        if !all.contains(&name) {
            all.push(name);
        }
    });
    all
}

fn text(row: &Row, field: &str) -> String {
    row.get(field).as_str().unwrap_or_default().to_owned()
}

/// What a column is about.
fn head(row: &Row) -> String {
    let percent = row.number("limit_percent").unwrap_or(0.0);
    let (form, algorithm) = (text(row, "form"), text(row, "algorithm"));
    match &*form {
        OURS => format!("{percent} %, {algorithm}"),
        NAME => format!("{percent} %, the kernel's zram, {algorithm}"),
        "in-bound" => format!("{percent} %, `ramfold run`, {algorithm}"),
        _ => format!("{percent} %, plain, beside {algorithm}"),
    }
}

fn number(row: &Row, field: &str) -> f64 {
    row.number(field).unwrap_or(0.0)
}

fn peak(row: &Row) -> String {
    figure(size::mib(number(row, "peak_bytes") as u64))
}

/// The least share of the peak with which a job should end, in percent.
fn least(row: &Row) -> String {
    figure(100.0 * AMPLE / number(row, "ratio"))
}

fn seconds(row: &Row) -> String {
    figure(number(row, "wall_s"))
}

/// A time, or why there is none. It may be both in several runs.
fn time(row: &Row) -> String {
    let time = row.number("time_vs_plain").map(figure);
    let (killed, late) = (number(row, "killed_max") > 0.0, number(row, "late_max") > 0.0);
    let why = match (killed, late) {
        (true, _) => Some("killed"),
        (false, true) => Some("too slow"),
        (false, false) => None,
    };
    match (time, why) {
        (Some(time), Some(why)) => format!("{time}, or {why}"),
        (Some(time), None) => time,
        (None, why) => why.unwrap_or(NOT_MEASURED).to_owned(),
    }
}

fn held(row: &Row) -> String {
    let percent = figure(number(row, "peak_of_limit") * 100.0);
    match number(row, "over_bound_bytes") as u64 {
        0 => percent,
        over => format!("{percent}; {} MiB over its bound", figure(size::mib(over))),
    }
}

fn end(row: &Row) -> String {
    let killed = number(row, "killed_max") > 0.0;
    let said = if killed { "killed" } else { "ends" };
    let late = number(row, "late_max") > 0.0;
    if late { "too slow".to_owned() } else { said.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(form: &str, percent: u32, fields: &[(&str, f64)]) -> Row {
        let mut row = Row::default();
        row.set("job", "sort").set("form", form).set("limit_percent", percent);
        row.set("algorithm", "lz4");
        for (field, value) in fields {
            row.set(field, *value);
        }
        row
    }

    #[test]
    fn a_time_or_why_there_is_none() {
        let said = |fields: &[(&str, f64)]| time(&row(NAME, 70, fields));
        assert_eq!(said(&[("time_vs_plain", 1.234)]), "1.23");
        assert_eq!(said(&[("killed_max", 1.0)]), "killed");
        assert_eq!(said(&[("late_max", 1.0)]), "too slow");
        assert_eq!(said(&[("time_vs_plain", 1.5), ("killed_max", 1.0)]), "1.50, or killed");
        assert_eq!(said(&[]), NOT_MEASURED);
    }

    #[test]
    fn memory_over_the_bound_is_said() {
        let said = |over: f64| {
            held(&row(OURS, 70, &[("peak_of_limit", 1.07), ("over_bound_bytes", over)]))
        };
        assert_eq!(said(0.0), "107");
        assert_eq!(said(f64::from(32 << 20)), "107; 32.0 MiB over its bound");
    }

    #[test]
    fn a_job_is_a_line_and_a_share_a_column() {
        let rows = [
            row(OURS, 70, &[("time_vs_plain", 2.0)]),
            row(NAME, 70, &[("killed_max", 1.0)]),
            row(OURS, 50, &[("time_vs_plain", 3.0)]),
        ];
        let table = Table { rows: &rows, jobs: vec!["sort".into(), "java".into()] };
        let made = table.made(&[OURS, NAME], time);
        let heads: Vec<&str> = made.iter().map(|made| &*made.head).collect();
        assert_eq!(heads, ["70 %, lz4", "70 %, the kernel's zram, lz4", "50 %, lz4"]);
        let text = lines("job", &table.jobs, &[&made]);
        assert!(text.contains("| sort | 2.00 | killed | 3.00 |"), "{text}");
        assert!(text.contains("| java | not measured | not measured | not measured |"), "{text}");
    }
}
