//! What the five studies published: `lab/published.csv`, one value a line.
//!
//! ```text
//!   table_id, study, title, machine, row, column, value, unit, note
//! ```
//!
//! Values are as printed. Invariant: a table, row and column name one value; the lines of a table
//! follow each other.

use crate::ground::LabError;
use std::collections::BTreeMap;

const TEXT: &str = include_str!("../../published.csv");

/// Every published table, in the order of the file.
pub(crate) struct Published(Vec<Printed>);

/// One published table. Rows and columns are in the order in which they were printed.
pub(crate) struct Printed {
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) machine: String,
    pub(crate) rows: Vec<String>,
    pub(crate) columns: Vec<String>,
    values: BTreeMap<[String; 2], PrintedValue>,
}

/// A value with its unit, both as text.
pub(crate) struct PrintedValue {
    pub(crate) text: String,
    pub(crate) unit: String,
}

impl Published {
    /// Reads the file that is part of this program.
    pub(crate) fn read() -> Result<Published, LabError> {
        Published::parse(TEXT)
    }

    fn parse(text: &str) -> Result<Published, LabError> {
        let wrong = |what: String| LabError::Wrong(format!("published.csv: {what}"));
        let mut tables: Vec<Printed> = Vec::new();
        for line in csv::Reader::from_reader(text.as_bytes()).records() {
            let line = line.map_err(|error| wrong(error.to_string()))?;
            let cell = |at: usize| line.get(at).unwrap_or_default();
            if tables.last().is_none_or(|table| table.id != cell(0)) {
                if tables.iter().any(|table| table.id == cell(0)) {
                    return Err(wrong(format!("{} is in two places", cell(0))));
                }
                tables.push(Printed::named([cell(0), cell(2), cell(3)]));
            }
            let table = tables.last_mut().expect("a table was begun above");
            if !table.add(cell(4), cell(5), cell(6), cell(7)) {
                return Err(wrong(format!("{}, {}, {} is there twice", cell(0), cell(4), cell(5))));
            }
        }
        Ok(Published(tables))
    }

    pub(crate) fn tables(&self) -> &[Printed] {
        &self.0
    }

    /// One published value, if it is a number. A machine's word or a dash is not drawn.
    pub(crate) fn get(&self, table: &str, row: &str, column: &str) -> Option<f64> {
        let table = self.0.iter().find(|printed| printed.id == table)?;
        table.get(row, column)?.text.parse().ok()
    }
}

impl Printed {
    fn named([id, title, machine]: [&str; 3]) -> Printed {
        let [id, title, machine] = [id, title, machine].map(str::to_owned);
        let (rows, columns, values) = (Vec::new(), Vec::new(), BTreeMap::new());
        Printed { id, title, machine, rows, columns, values }
    }

    /// Whether the value was not there before.
    fn add(&mut self, row: &str, column: &str, text: &str, unit: &str) -> bool {
        for (names, name) in [(&mut self.rows, row), (&mut self.columns, column)] {
            if !names.iter().any(|there| there == name) {
                names.push(name.to_owned());
            }
        }
        let value = PrintedValue { text: text.to_owned(), unit: unit.to_owned() };
        self.values.insert([row, column].map(str::to_owned), value).is_none()
    }

    pub(crate) fn get(&self, row: &str, column: &str) -> Option<&PrintedValue> {
        self.values.get(&[row, column].map(str::to_owned))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_has_the_values_that_were_printed() {
        let published = Published::read().unwrap();
        assert_eq!(published.get("S3-test2", "256MB", "base"), Some(57.01));
        assert_eq!(published.get("S0-i7", "multi 4p", "speedup"), Some(1.39));
        assert_eq!(published.get("S3-test2", "256MB", "no such column"), None);
        let values: usize = published.tables().iter().map(|table| table.values.len()).sum();
        assert_eq!((published.tables().len(), values), (27, 1742));
    }

    #[test]
    fn a_value_that_is_there_twice_is_refused() {
        let head = "table_id,study,title,machine,row,column,value,unit,note\n";
        let line = "a,S0,t,m,r,c,1,ms,\n";
        let other = "b,S0,t,m,r,c,1,ms,\n";
        assert!(Published::parse(&format!("{head}{line}{other}")).is_ok());
        assert!(Published::parse(&format!("{head}{line}{line}")).is_err());
        assert!(Published::parse(&format!("{head}{line}{other}{line}")).is_err());
    }
}
