//! A published table with ours beside it, as Markdown.
//!
//! ```text
//!   Printed --rows, columns--> | row | as printed .. | ours .. |    one table for each part
//!   Record --split--> Part --columns that have a value--------'     of each record
//!                             '-- columns that have none anywhere --> a list, with the reason
//! ```
//!
//! Invariant: a column stands in a table if one of its cells has a value there, so each column is
//! either in a table or in the list. A row that two runs answer to is an error.

use super::kept::Record;
use super::markdown::{Made, NOT_RECORDED, as_printed, figure, joined, lines, wrapped};
use super::plots::said;
use super::published::Printed;
use crate::ground::LabError;
use crate::rows::Row;
use std::collections::BTreeSet;

/// What stands beside one published table.
pub(crate) struct Table {
    pub(crate) id: &'static str,
    pub(crate) ours: Ours,
    /// Tables of our own below it: one row for each value of a field.
    pub(crate) more: &'static [(&'static str, &'static [Column])],
    /// These make records of as much of the table as the lab can measure; none if that is nothing.
    pub(crate) commands: &'static [&'static str],
    /// What no record can have, each with the reason.
    pub(crate) missing: &'static [(&'static str, &'static str)],
}

/// Where our figures come from.
pub(crate) enum Ours {
    /// Rows of a record, each beside the printed row that it repeats.
    Beside(fn(&str) -> Option<Place>, &'static [Column]),
    /// Rows of a record in a table of their own, one for each value of a field.
    Alone(&'static str, &'static [Column]),
    /// A value for each printed one, worked out from the single runs, in one or several ways.
    Worked(&'static [Way]),
    /// A value for each printed one, from a pool of this program; no record is needed.
    Exact(fn(&str, &str) -> Option<String>),
    /// None.
    Nothing,
}

/// The rows of a record that repeat a printed row.
pub(crate) struct Place {
    /// Fields with what they must say.
    pub(crate) wants: Vec<(&'static str, String)>,
    /// Stands for `*` in the fields of a column.
    pub(crate) field: &'static str,
}

/// A column of ours or of the kernel's.
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) wants: &'static [(&'static str, &'static str)],
    /// One cell has all of them.
    pub(crate) fields: &'static [&'static str],
    pub(crate) turn: fn(f64) -> f64,
    /// Why it is in no record, if that can be said.
    pub(crate) reason: &'static str,
}

/// One way to work values out.
pub(crate) struct Way {
    pub(crate) name: &'static str,
    /// What stands where it has no value.
    pub(crate) absent: &'static str,
    pub(crate) value: fn(&Part, &str, &str) -> Option<String>,
}

/// A record that a document cites.
pub(crate) struct Cited {
    /// From the root of the repository.
    pub(crate) path: String,
    pub(crate) record: Record,
}

/// The rows of a record that one table is made of.
pub(crate) struct Part {
    pub(crate) rows: Vec<Row>,
    pub(crate) runs: Vec<Row>,
    name: String,
}

/// Rows that differ in one of these are in tables of their own.
const SPLIT: [&str; 2] = ["workload", "algorithm"];

impl Column {
    /// Its cell for one place; `None` where no row of the part has it.
    fn cell(&self, part: &Part, place: &Place) -> Result<Option<String>, LabError> {
        let mut rows = part.rows.iter().filter(|row| self.takes(row, place));
        let Some(row) = rows.next() else { return Ok(None) };
        if rows.next().is_some() {
            let (what, name) = (&place.wants, self.name);
            return Err(LabError::Wrong(format!("two rows are \"{name}\" at {what:?}")));
        }
        let names = self.fields.iter().map(|field| field.replace('*', place.field));
        let values: Option<Vec<String>> =
            names.map(|name| row.number(&name).map(|value| figure((self.turn)(value)))).collect();
        Ok(values.map(|values| values.join(" / ")))
    }

    fn takes(&self, row: &Row, place: &Place) -> bool {
        let says = |field: &str, want: &str| said(row, field).as_deref() == Some(want);
        self.wants.iter().all(|(field, want)| says(field, want))
            && place.wants.iter().all(|(field, want)| says(field, want))
    }
}

/// What was found in any record.
#[derive(Default)]
struct Found {
    columns: BTreeSet<&'static str>,
    /// Numbers of printed rows.
    rows: BTreeSet<usize>,
}

/// All that is generated for one published table.
pub(crate) fn section(
    table: &Table,
    printed: &Printed,
    records: &[Cited],
) -> Result<String, LabError> {
    let mut text = wrapped(&format!("Published: {}. Machine: {}.", printed.title, printed.machine));
    let mut first = as_printed(printed);
    let with_records = matches!(table.ours, Ours::Beside(..) | Ours::Worked(_));
    if !with_records || records.is_empty() {
        let exact = match table.ours {
            Ours::Exact(value) => vec![("ours", worked(printed, "ours", NOT_RECORDED, value))],
            _ => Vec::new(),
        };
        text += &joined(printed, &first, &exact);
        first.clear();
    }
    let mut found = Found::default();
    for cited in records {
        for part in parts(&cited.record) {
            let made = table.of(&part, printed, &first, &mut found)?;
            let more = table.more_of(&part, &mut found)?;
            if made.is_empty() && more.is_empty() {
                continue;
            }
            text += &format!("\n{}{made}{more}", source(cited, &part.rows, &part.name));
            if !made.is_empty() {
                first.clear();
            }
        }
    }
    text += &table.missing(printed, !records.is_empty(), &found);
    Ok(text)
}

impl Table {
    /// The table of one part of a record.
    fn of(
        &self,
        part: &Part,
        printed: &Printed,
        first: &[Made],
        found: &mut Found,
    ) -> Result<String, LabError> {
        match &self.ours {
            Ours::Beside(place, columns) => {
                let places: Vec<_> = printed.rows.iter().map(|row| place(row)).collect();
                let made = columns_of(columns, part, &places, found)?;
                let groups = [first, &made];
                Ok(if made.is_empty() { String::new() } else { lines("", &printed.rows, &groups) })
            }
            Ours::Alone(field, columns) => {
                let (names, places) = places_of(part, field);
                let made = columns_of(columns, part, &places, found)?;
                Ok(lines(field, &names, &[&made]))
            }
            Ours::Worked(ways) => {
                let mut all = Vec::new();
                for way in *ways {
                    let value = |row: &str, column: &str| (way.value)(part, row, column);
                    let made = worked(printed, way.name, way.absent, value);
                    found.note(&made);
                    all.push((way.name, made));
                }
                Ok(joined(printed, first, &all))
            }
            Ours::Exact(_) if !self.more.is_empty() => Ok(String::new()),
            Ours::Exact(_) | Ours::Nothing => {
                Err(LabError::Wrong(format!("{} is made without a record", self.id)))
            }
        }
    }

    /// The further tables of one part of a record.
    fn more_of(&self, part: &Part, found: &mut Found) -> Result<String, LabError> {
        let mut text = String::new();
        for (field, columns) in self.more {
            let (names, places) = places_of(part, field);
            // What is noted of rows is about the printed ones.
            let mut seen = Found::default();
            let made = columns_of(columns, part, &places, &mut seen)?;
            found.columns.extend(seen.columns);
            if !made.is_empty() {
                text += &lines(field, &names, &[&made]);
            }
        }
        Ok(text)
    }

    /// What is in no record, with the reason, and the commands for a whole record.
    fn missing(&self, printed: &Printed, recorded: bool, found: &Found) -> String {
        let unmade = match self.commands.len() {
            0 => "No command of the lab measures this yet.",
            1 => "In no record yet; the command below measures this.",
            _ => "In no record yet; the commands below measure this.",
        };
        let mut reasons: Vec<(Vec<String>, &str)> = Vec::new();
        let own = match self.ours {
            Ours::Beside(_, columns) | Ours::Alone(_, columns) => columns,
            _ => &[],
        };
        let all = own.iter().chain(self.more.iter().flat_map(|(_, columns)| *columns));
        for column in all.filter(|column| !found.columns.contains(column.name)) {
            let reason = if column.reason.is_empty() { unmade } else { column.reason };
            match reasons.iter_mut().find(|(_, there)| *there == reason) {
                Some((names, _)) => names.push(column.name.to_owned()),
                None => reasons.push((vec![column.name.to_owned()], reason)),
            }
        }
        match self.ours {
            Ours::Beside(..) | Ours::Worked(_) if recorded => {
                let rows = printed.rows.iter().enumerate();
                let rows = rows.filter(|(at, _)| !found.rows.contains(at));
                let rows: Vec<String> = rows.map(|(_, row)| format!("`{row}`")).collect();
                if !rows.is_empty() {
                    reasons.push((vec![format!("the rows {}", rows.join(", "))], unmade));
                }
            }
            Ours::Worked(_) | Ours::Nothing => reasons.push((vec!["ours".to_owned()], unmade)),
            _ => {}
        }
        reasons.extend(self.missing.iter().map(|&(what, why)| (vec![what.to_owned()], why)));
        let items = reasons.iter().map(|(what, why)| item(what, why));
        let mut text = match items.collect::<String>() {
            none if none.is_empty() => none,
            items => format!("\nNot in these tables:\n\n{items}"),
        };
        if !self.commands.is_empty() {
            let commands: Vec<String> =
                self.commands.iter().map(|command| format!("`{command}`")).collect();
            let told = "As much of this table as the lab can measure:";
            text += &format!("\n{}", wrapped(&format!("{told} {}", commands.join(" and "))));
        }
        text
    }
}

impl Found {
    fn note(&mut self, made: &[Made]) {
        for made in made {
            let cells = made.cells.iter().enumerate();
            self.rows.extend(cells.filter(|(_, cell)| cell.is_some()).map(|(at, _)| at));
        }
    }
}

/// What has one reason, as an item of a list; if it is much, as a list in it.
fn item(what: &[String], why: &str) -> String {
    const FEW: usize = 3;
    if what.len() <= FEW {
        return wrapped(&format!("- {}: {why}", what.join("; ")));
    }
    let each: String = what.iter().map(|one| wrapped(&format!("  - {one}"))).collect();
    format!("{}{each}", wrapped(&format!("- {why}")))
}

/// The record of a table, and how it was made.
pub(crate) fn source(cited: &Cited, rows: &[Row], name: &str) -> String {
    let mut runs: Vec<u64> = rows.iter().filter_map(|row| row.get("runs").as_u64()).collect();
    runs.sort_unstable();
    let runs = match (runs.first(), runs.last()) {
        (Some(least), Some(most)) if least != most => format!(", {least} to {most} runs"),
        (Some(1), _) => ", one run".to_owned(),
        (Some(runs), _) => format!(", {runs} runs"),
        _ => String::new(),
    };
    let Cited { path, record } = cited;
    let command = match &*record.command {
        "" => "The record does not say its command".to_owned(),
        command => format!("`{command}`"),
    };
    let (machine, date) = (&record.machine, &record.date);
    wrapped(&format!("[{machine}, {date}](../{path}){name}{runs}: {command}"))
}

/// A record's rows, by what tables are split by.
fn parts(record: &Record) -> impl Iterator<Item = Part> {
    let key = |row: &Row| SPLIT.map(|field| said(row, field));
    let mut keys: Vec<[Option<String>; 2]> = Vec::new();
    for row in &record.rows {
        if !keys.contains(&key(row)) {
            keys.push(key(row));
        }
    }
    keys.into_iter().map(move |wanted| {
        let of = |rows: &[Row]| rows.iter().filter(|row| key(row) == wanted).cloned().collect();
        let name = wanted.iter().flatten().map(|word| format!(", {word}")).collect();
        Part { rows: of(&record.rows), runs: of(&record.runs), name }
    })
}

/// A place for each value of a field, in the order of the rows.
fn places_of(part: &Part, field: &'static str) -> (Vec<String>, Vec<Option<Place>>) {
    let mut names: Vec<String> = Vec::new();
    for name in part.rows.iter().filter_map(|row| said(row, field)) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let place = |name: &String| Some(Place { wants: vec![(field, name.clone())], field: "" });
    let places = names.iter().map(place).collect();
    (names, places)
}

/// The columns that have a value in a part.
fn columns_of(
    columns: &'static [Column],
    part: &Part,
    places: &[Option<Place>],
    found: &mut Found,
) -> Result<Vec<Made>, LabError> {
    let mut all = Vec::new();
    for column in columns {
        let cell = |place: &Option<Place>| match place {
            Some(place) => column.cell(part, place),
            None => Ok(None),
        };
        let cells = places.iter().map(cell).collect::<Result<Vec<_>, LabError>>()?;
        if cells.iter().any(Option::is_some) {
            found.columns.insert(column.name);
            all.push(Made { head: column.name.to_owned(), absent: NOT_RECORDED, cells });
        }
    }
    found.note(&all);
    Ok(all)
}

/// A column for each printed one in which at least one value can be worked out.
fn worked(
    printed: &Printed,
    way: &str,
    absent: &'static str,
    value: impl Fn(&str, &str) -> Option<String>,
) -> Vec<Made> {
    let column = |column: &String| {
        let cells = printed.rows.iter().map(|row| value(row, column)).collect();
        Made { head: format!("{way}: {column}"), absent, cells }
    };
    let all = printed.columns.iter().map(column);
    all.filter(|made| made.cells.iter().any(Option::is_some)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(rows: &[&str]) -> Part {
        let rows = rows.iter().map(|row| Row::parse(row).unwrap()).collect();
        Part { rows, runs: Vec::new(), name: String::new() }
    }

    const COLUMN: Column = Column {
        name: "deferred",
        wants: &[("free", "entries")],
        fields: &["*_ms", "back_ms"],
        turn: |value| value,
        reason: "",
    };

    #[test]
    fn a_cell_is_of_the_one_row_that_answers() {
        let place = Place { wants: vec![("mib", "64".into())], field: "drop" };
        let row = r#"{"free":"entries","mib":64,"drop_ms":0.4277,"back_ms":506.3}"#;
        let other = r#"{"free":"slots","mib":64,"drop_ms":1,"back_ms":1}"#;
        let larger = r#"{"free":"entries","mib":128,"drop_ms":1,"back_ms":1}"#;
        let cell = |rows: &[&str]| COLUMN.cell(&part(rows), &place);
        assert_eq!(cell(&[larger, row, other]).unwrap().as_deref(), Some("0.428 / 506"));
        assert_eq!(cell(&[other]).unwrap(), None);
        assert!(cell(&[row, row]).is_err(), "two rows");
    }
}
