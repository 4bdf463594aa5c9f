//! Rows as an aligned table for people; units stand in the headings.
//!
//! Invariant: a column is as wide as its widest cell.

use super::{Field, Row, fields};
use serde_json::Value;

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
pub(crate) fn render(fields: &[Field], rows: &[Row]) -> String {
    let measured = |field: &&Field| rows.iter().any(|row| row.get(field.name) != &Value::Null);
    let mut lines = vec![String::new(); rows.len() + 1];
    for field in fields.iter().filter(measured) {
        let Some((heading, format)) = field.column else { continue };
        let mut cells = vec![heading.to_owned()];
        cells.extend(rows.iter().map(|row| fields::cell(row.get(field.name), format)));
        let width = cells.iter().map(String::len).max().unwrap_or(0);
        let text = rows.iter().any(|row| row.get(field.name).is_string());
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
    use crate::rows::Format;

    #[test]
    fn columns_are_aligned_and_unmeasured_ones_left_out() {
        let fields = [
            Field::key("store").shown("store", Format::Plain),
            Field::key("used").shown("used MiB", Format::Mib),
            Field::key("over").shown("over %", Format::Percent),
            Field::key("unprinted"),
            Field::key("none").shown("none", Format::Plain),
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
        assert_eq!(render(&fields, &[ours, kernel]), expected);
    }
}
