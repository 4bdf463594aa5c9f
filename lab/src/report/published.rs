//! What the five studies published: `lab/published.csv`, one value a line.
//!
//! ```text
//!   table_id, study, title, machine, row, column, value, unit, note
//! ```
//!
//! Values are as printed. Invariant: a table, row and column name one value.

use crate::ground::LabError;
use std::collections::BTreeMap;

const TEXT: &str = include_str!("../../published.csv");

/// Every published value by table, row and column.
pub(crate) struct Published(BTreeMap<[String; 3], f64>);

impl Published {
    /// Reads the file that is part of this program.
    pub(crate) fn read() -> Result<Published, LabError> {
        Published::parse(TEXT)
    }

    fn parse(text: &str) -> Result<Published, LabError> {
        let wrong = |what: String| LabError::Wrong(format!("published.csv: {what}"));
        let mut values = BTreeMap::new();
        for line in csv::Reader::from_reader(text.as_bytes()).records() {
            let line = line.map_err(|error| wrong(error.to_string()))?;
            let cell = |at: usize| line.get(at).unwrap_or_default();
            // What is not a number (a machine's word, a dash) is not drawn.
            let Ok(value) = cell(6).parse::<f64>() else { continue };
            let name = [cell(0), cell(4), cell(5)].map(str::to_owned);
            if values.insert(name.clone(), value).is_some() {
                return Err(wrong(format!("{} is there twice", name.join(", "))));
            }
        }
        Ok(Published(values))
    }

    /// One published value.
    pub(crate) fn get(&self, table: &str, row: &str, column: &str) -> Option<f64> {
        self.0.get(&[table, row, column].map(str::to_owned)).copied()
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
    }

    #[test]
    fn a_value_that_is_there_twice_is_refused() {
        let head = "table_id,study,title,machine,row,column,value,unit,note\n";
        let line = "a,S0,t,m,r,c,1,ms,\n";
        assert!(Published::parse(&format!("{head}{line}")).is_ok());
        assert!(Published::parse(&format!("{head}{line}{line}")).is_err());
    }
}
