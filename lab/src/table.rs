//! Rows as an aligned table for people; units stand in the headings.
//!
//! Invariant: a column is as wide as its widest cell.

use crate::row::Row;
use serde_json::Value;

/// How the cells of a column are written.
#[derive(Clone, Copy)]
pub(crate) enum Format {
    /// As it is.
    Plain,
    /// Bytes as MiB.
    Mib,
    /// A fraction as a percentage.
    Percent,
    /// A number with so many decimals.
    Fixed(usize),
}

/// One column: which field, under which heading.
pub(crate) struct Column {
    pub(crate) field: &'static str,
    pub(crate) heading: &'static str,
    pub(crate) format: Format,
}

impl Column {
    pub(crate) const fn new(field: &'static str, heading: &'static str, format: Format) -> Column {
        Column { field, heading, format }
    }

    fn cell(&self, row: &Row) -> String {
        let value = row.get(self.field);
        match (self.format, value.as_f64()) {
            (_, None) if value.is_boolean() => value.to_string(),
            (_, None) => value.as_str().unwrap_or("-").to_owned(),
            (Format::Plain, _) => value.to_string(),
            (Format::Mib, Some(x)) => format!("{:.2}", x / f64::from(1 << 20)),
            (Format::Percent, Some(x)) => format!("{:.2}", x * 100.0),
            (Format::Fixed(digits), Some(x)) => format!("{x:.digits$}"),
        }
    }
}

/// Cells that are text already, as an aligned table.
pub(crate) fn lines(headings: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = headings.iter().map(|&heading| heading.to_owned()).collect();
    let all: Vec<&Vec<String>> = std::iter::once(&head).chain(rows).collect();
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..head.len()).map(|column| width(column).unwrap_or(0)).collect();
    let line = |row: &&Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    all.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The table: text to the left, numbers to the right; a column nobody measured is left out.
pub(crate) fn render(columns: &[Column], rows: &[Row]) -> String {
    let measured = |column: &&Column| rows.iter().any(|row| row.get(column.field) != &Value::Null);
    let mut lines = vec![String::new(); rows.len() + 1];
    for column in columns.iter().filter(measured) {
        let mut cells = vec![column.heading.to_owned()];
        cells.extend(rows.iter().map(|row| column.cell(row)));
        let width = cells.iter().map(String::len).max().unwrap_or(0);
        let text = rows.iter().any(|row| row.get(column.field).is_string());
        for (line, cell) in lines.iter_mut().zip(cells) {
            if !line.is_empty() {
                line.push_str("  ");
            }
            line.push_str(&if text {
                format!("{cell:<width$}")
            } else {
                format!("{cell:>width$}")
            });
        }
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_unmeasured_ones_left_out() {
        let columns = [
            Column::new("store", "store", Format::Plain),
            Column::new("used", "used MiB", Format::Mib),
            Column::new("over", "over %", Format::Percent),
            Column::new("none", "none", Format::Plain),
        ];
        let mut ours = Row::default();
        ours.set("store", "zram").set("used", 3 << 20).set("over", 0.045);
        let mut kernel = Row::default();
        kernel.set("store", "kernel-zram").set("used", 128 << 20);
        let expected = "\
store        used MiB  over %
zram             3.00    4.50
kernel-zram    128.00       -
";
        assert_eq!(render(&columns, &[ours, kernel]), expected);
    }
}
