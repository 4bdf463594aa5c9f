//! Flat rows: what a study reports, field by field, in the order they are set.
//!
//! Invariant: a number is finite or null; null means not measured.

use crate::ground::stats;
use serde_json::{Map, Value};

/// One line of a report.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Row(Map<String, Value>);

impl Row {
    /// Sets one field; a number that is not finite becomes null, which means not measured.
    pub(crate) fn set(&mut self, field: &str, value: impl Into<Value>) -> &mut Row {
        self.0.insert(field.to_owned(), value.into());
        self
    }

    /// Sets `field` to the median and `_min` and `_max` beside it. Samples that are all whole
    /// numbers (bytes, pages) keep a whole median.
    pub(crate) fn spread(&mut self, field: &str, samples: &[f64]) -> &mut Row {
        let whole = samples.iter().all(|x| x.fract() == 0.0);
        let value = |x: f64| if whole { Value::from(x.round() as i64) } else { Value::from(x) };
        let spread = stats::spread(samples);
        let number = |x: Option<f64>| x.map_or(Value::Null, value);
        self.set(field, number(spread.map(|s| s.median)));
        self.set(&format!("{field}_min"), number(spread.map(|s| s.min)));
        self.set(&format!("{field}_max"), number(spread.map(|s| s.max)))
    }

    /// A row from its JSON.
    pub(crate) fn parse(json: &str) -> Option<Row> {
        match serde_json::from_str(json) {
            Ok(Value::Object(fields)) => Some(Row(fields)),
            _ => None,
        }
    }

    /// All fields, in the order in which they were set.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(name, value)| (&**name, value))
    }

    pub(crate) fn has(&self, field: &str) -> bool {
        self.0.contains_key(field)
    }

    pub(crate) fn get(&self, field: &str) -> &Value {
        self.0.get(field).unwrap_or(&Value::Null)
    }

    pub(crate) fn number(&self, field: &str) -> Option<f64> {
        self.get(field).as_f64()
    }

    pub(crate) fn is(&self, field: &str, value: &str) -> bool {
        self.get(field) == value
    }
}

impl From<Row> for Value {
    fn from(row: Row) -> Value {
        Value::Object(row.0)
    }
}

/// One column of `rows`, as far as measured.
pub(crate) fn column(rows: &[Row], field: &str) -> Vec<f64> {
    rows.iter().filter_map(|row| row.number(field)).collect()
}

/// The runs that agree in every field of `key`, in the order they first occur.
pub(crate) fn grouped(runs: &[Row], key: &[&str]) -> Vec<Vec<Row>> {
    let mut groups: Vec<Vec<Row>> = Vec::new();
    for run in runs {
        let same = |group: &&mut Vec<Row>| key.iter().all(|&at| group[0].get(at) == run.get(at));
        match groups.iter_mut().find(same) {
            Some(group) => group.push(run.clone()),
            None => groups.push(vec![run.clone()]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_samples_stay_whole_and_others_do_not() {
        let mut row = Row::default();
        row.spread("bytes", &[3.0, 1.0, 4.0, 2.0]).spread("ns", &[1.5, 2.5, 9.0]);
        let json = Value::from(row).to_string();
        assert_eq!(
            json,
            r#"{"bytes":3,"bytes_min":1,"bytes_max":4,"ns":2.5,"ns_min":1.5,"ns_max":9.0}"#
        );
    }

    #[test]
    fn not_measured_is_null() {
        let mut row = Row::default();
        row.spread("us", &[]).set("ratio", f64::NAN);
        for field in ["us", "us_min", "us_max", "ratio", "absent"] {
            assert_eq!(row.get(field), &Value::Null, "{field}");
        }
    }
    #[test]
    fn a_row_is_read_back_from_its_json() {
        let mut row = Row::default();
        row.set("phase", "fill").set("ns", 1.5).set("bytes", 3).set("ratio", f64::NAN);
        assert_eq!(Row::parse(&Value::from(row.clone()).to_string()), Some(row));
        assert_eq!(Row::parse("[1]"), None);
        assert_eq!(Row::parse("{"), None);
    }
}
