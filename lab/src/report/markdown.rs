//! Columns side by side, as a Markdown table.
//!
//! ```text
//!   | head | column .. |        a value of ours has three digits; a published one is as printed
//!   | name | cell ..   |        a table that is wide and short has one value a line instead
//! ```
//!
//! Invariant: every line of running text has at most 100 columns; a row of a table is one line.

use super::published::{Printed, PrintedValue};

/// What stands where a record has no value.
pub(crate) const NOT_RECORDED: &str = "not in this record";
const NOT_PRINTED: &str = "not printed";

/// More columns than this and fewer rows than [`FEW_ROWS`]: one value a line.
const MANY_COLUMNS: usize = 8;
const FEW_ROWS: usize = 4;

/// A column of a table that is being made, with a cell for each of its rows.
pub(crate) struct Made {
    pub(crate) head: String,
    /// What stands where there is no value.
    pub(crate) absent: &'static str,
    pub(crate) cells: Vec<Option<String>>,
}

/// Lines of at most 100 columns; those after the first of an item are indented.
pub(crate) fn wrapped(text: &str) -> String {
    const COLUMNS: usize = 100;
    let indent = if text.trim_start().starts_with("- ") { "  " } else { "" };
    let mut lines = String::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.trim().is_empty() && line.chars().count() + word.chars().count() > COLUMNS {
            lines += &format!("{}\n", line.trim_end());
            line = indent.to_owned();
        }
        line += &format!("{word} ");
    }
    format!("{lines}{}\n", line.trim_end())
}

/// The published columns. A unit that all values of a column share is in its heading.
pub(crate) fn as_printed(printed: &Printed) -> Vec<Made> {
    let column = |column: &String| {
        let values: Vec<_> = printed.rows.iter().map(|row| printed.get(row, column)).collect();
        let mut units: Vec<&str> = values.iter().flatten().map(|value| &*value.unit).collect();
        units.dedup();
        let shared = if let [unit] = units[..] { named(unit) } else { "" };
        let one = units.len() == 1;
        let cell = |value: &Option<&PrintedValue>| {
            let value = (*value)?;
            let unit = if one { "" } else { named(&value.unit) };
            Some(format!("{} {unit}", value.text).trim_end().to_owned())
        };
        let head = match column.ends_with(shared) {
            true => column.clone(),
            false => format!("{column}, {shared}"),
        };
        Made { head, absent: NOT_PRINTED, cells: values.iter().map(cell).collect() }
    };
    printed.columns.iter().map(column).collect()
}

fn named(unit: &str) -> &str {
    match unit {
        "ratio" | "count" | "unstated" => "",
        "percent" => "%",
        "files_per_s" => "files/s",
        unit => unit,
    }
}

/// Printed values and what was worked out for each: columns side by side, or a value a line.
pub(crate) fn joined(printed: &Printed, first: &[Made], ways: &[(&str, Vec<Made>)]) -> String {
    let wide = printed.rows.len() < FEW_ROWS && printed.columns.len() > MANY_COLUMNS;
    if !wide {
        let mut all = vec![first];
        all.extend(ways.iter().map(|(_, made)| &made[..]));
        return lines("", &printed.rows, &all);
    }
    let mut names = Vec::new();
    let mut published = Vec::new();
    let mut ours: Vec<Vec<Option<String>>> = vec![Vec::new(); ways.len()];
    for (at, row) in printed.rows.iter().enumerate() {
        for column in &printed.columns {
            let Some(value) = printed.get(row, column) else { continue };
            names.push(format!("{row}: {column}"));
            published
                .push(Some(format!("{} {}", value.text, named(&value.unit)).trim().to_owned()));
            for (cells, (name, made)) in ours.iter_mut().zip(ways) {
                let head = format!("{name}: {column}");
                let made = made.iter().find(|made| made.head == head);
                cells.push(made.and_then(|made| made.cells[at].clone()));
            }
        }
    }
    let ours = ways.iter().zip(ours).map(|((name, made), cells)| Made {
        head: name.to_string(),
        absent: made.first().map_or(NOT_RECORDED, |made| made.absent),
        cells,
    });
    let ours: Vec<Made> = ours.collect();
    let published = [Made { head: "published".into(), absent: NOT_PRINTED, cells: published }];
    lines("", &names, &[if first.is_empty() { &[] } else { &published }, &ours])
}

/// A Markdown table; `head` stands above the names of its rows. A row of which nothing is recorded
/// is left out.
pub(crate) fn lines(head: &str, names: &[String], groups: &[&[Made]]) -> String {
    let columns: Vec<&Made> = groups.iter().copied().flatten().collect();
    let heads: String = columns.iter().map(|column| format!(" {} |", column.head)).collect();
    let rules = "---|".repeat(columns.len());
    let mut text = format!("\n| {head} |{heads}\n|---|{rules}\n");
    let says =
        |column: &Made, at: usize| column.cells[at].is_some() || column.absent != NOT_RECORDED;
    let is_row = |at: usize| columns.iter().any(|column| says(column, at));
    for (at, name) in names.iter().enumerate().filter(|&(at, _)| is_row(at)) {
        let cells = columns.iter().map(|column| match &column.cells[at] {
            Some(cell) => format!(" {cell} |"),
            None => format!(" {} |", column.absent),
        });
        text += &format!("| {name} |{}\n", cells.collect::<String>());
    }
    text
}

/// A measured number with three significant digits, or whole from a thousand on.
pub(crate) fn figure(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 100.0 || size == 0.0 => 0,
        size if size >= 10.0 => 1,
        size if size >= 1.0 => 2,
        size if size >= 0.1 => 3,
        _ => 4,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let figures = [0.0123, 0.123, 1.234, 12.34, 123.4, 1234.5, 0.0].map(figure);
        assert_eq!(figures, ["0.0123", "0.123", "1.23", "12.3", "123", "1234", "0"]);
    }
}
