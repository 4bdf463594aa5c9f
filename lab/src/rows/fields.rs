//! The fields of a study's rows: one table for the record, for the medians and for what is printed.
//!
//! ```text
//!   row   keys | runs | measured, _min, _max, ... | added
//!         what was measured                         what other rows have to say of it
//! ```
//!
//! Invariant: a row of a report has the fields of its study's table in this order, and no other;
//! [`check`] says so of every report. A field that has one right value has it in every run in which
//! it was measured.

use super::{Row, column, grouped};
use crate::ground::LabError;
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Key,
    Measured,
    Added,
    OfRun,
}

/// One field of a study's rows.
pub(crate) struct Field {
    pub(crate) name: &'static str,
    role: Role,
    /// The heading under which it is printed, with its unit, and how.
    pub(crate) column: Option<(&'static str, Format)>,
    /// The only value that is right, if there is one.
    always: Option<f64>,
}

impl Field {
    const fn new(name: &'static str, role: Role) -> Field {
        Field { name, role, column: None, always: None }
    }

    /// What was measured: runs that agree in all keys make one row.
    pub(crate) const fn key(name: &'static str) -> Field {
        Field::new(name, Role::Key)
    }

    /// A number of each run; the row has the median, with `_min` and `_max` beside it.
    pub(crate) const fn measured(name: &'static str) -> Field {
        Field::new(name, Role::Measured)
    }

    /// A number that the study adds to the row.
    pub(crate) const fn added(name: &'static str) -> Field {
        Field::new(name, Role::Added)
    }

    /// What is kept of each run, beside its number, and in no row.
    pub(crate) const fn of_run(name: &'static str) -> Field {
        Field::new(name, Role::OfRun)
    }

    /// The same, printed under `heading`.
    pub(crate) const fn shown(mut self, heading: &'static str, format: Format) -> Field {
        self.column = Some((heading, format));
        self
    }

    /// The same, with one value that is right.
    pub(crate) const fn always(mut self, value: f64) -> Field {
        self.always = Some(value);
        self
    }

    /// Its name in a row, with those of its spread.
    pub(crate) fn names(&self) -> Vec<String> {
        let ends = if self.role == Role::Measured { &["", "_min", "_max"][..] } else { &[""] };
        ends.iter().map(|end| format!("{}{end}", self.name)).collect()
    }
}

fn of(fields: &[Field], role: Role) -> Vec<&'static str> {
    fields.iter().filter(|field| field.role == role).map(|field| field.name).collect()
}

pub(crate) fn keys(fields: &[Field]) -> Vec<&'static str> {
    of(fields, Role::Key)
}

pub(crate) fn measured(fields: &[Field]) -> Vec<&'static str> {
    of(fields, Role::Measured)
}

/// The keys of some runs that agree in them, their number, and the spread of what was measured.
pub(crate) fn median(fields: &[Field], group: &[Row]) -> Row {
    let mut row = Row::default();
    for key in keys(fields) {
        row.set(key, group[0].get(key).clone());
    }
    row.set("runs", group.len());
    for field in measured(fields) {
        row.spread(field, &column(group, field));
    }
    row
}

/// One row for each distinct key, in the order in which they first occur.
pub(crate) fn medians(fields: &[Field], runs: &[Row]) -> Vec<Row> {
    grouped(runs, &keys(fields)).iter().map(|group| median(fields, group)).collect()
}

/// Whether every row has the fields of the table, each with a value of its kind, and no other; and
/// whether the table has every field of a run, which would be lost otherwise. Last, whether every
/// run has the values that alone are right.
///
/// # Errors
///
/// `Wrong` names the first row or run, and the field.
pub(crate) fn check(fields: &[Field], rows: &[Row], runs: &[Row]) -> Result<(), LabError> {
    check_names(fields, rows, runs)?;
    runs.iter().try_for_each(|run| check_values(fields, run))
}

fn check_values(fields: &[Field], run: &Row) -> Result<(), LabError> {
    for field in fields {
        let (Some(right), Some(value)) = (field.always, run.number(field.name)) else { continue };
        if value != right {
            let case = keys(fields).into_iter().chain(["run"]).map(|key| run.get(key).to_string());
            let case = case.collect::<Vec<_>>().join(" ");
            let name = field.name;
            return Err(LabError::Wrong(format!("{name} is {value}, not {right}, in {case}")));
        }
    }
    Ok(())
}

fn check_names(fields: &[Field], rows: &[Row], runs: &[Row]) -> Result<(), LabError> {
    let known = |name: &str| name == "run" || fields.iter().any(|field| field.name == name);
    for (at, run) in runs.iter().enumerate() {
        if let Some((name, _)) = run.fields().find(|(name, _)| !known(name)) {
            return Err(LabError::Wrong(format!("run {at}: {name} is in no table of fields")));
        }
    }
    let of_rows = fields.iter().filter(|field| field.role != Role::OfRun);
    let (keys, figures): (Vec<&Field>, Vec<&Field>) =
        of_rows.partition(|field| field.role == Role::Key);
    let names = |fields: &[&Field]| fields.iter().flat_map(|field| field.names()).collect();
    let (keys, figures): (Vec<String>, Vec<String>) = (names(&keys), names(&figures));
    let runs = ["runs".to_owned()];
    let expected: Vec<&String> = keys.iter().chain(&runs).chain(&figures).collect();
    for (at, row) in rows.iter().enumerate() {
        let wrong = |what: String| Err(LabError::Wrong(format!("row {at}: {what}")));
        let found: Vec<&str> = row.fields().map(|(name, _)| name).collect();
        if found != expected {
            return wrong(format!("it has the fields {found:?}, not {expected:?}"));
        }
        for name in &figures {
            let value = row.get(name);
            if !value.is_number() && !value.is_null() {
                return wrong(format!("{name} is {value}, which is no number"));
            }
        }
        for name in &keys {
            let value = row.get(name);
            if value.is_array() || value.is_object() {
                return wrong(format!("{name} is {value}, which is no single value"));
            }
        }
    }
    Ok(())
}

/// A cell of a printed table.
pub(crate) fn cell(value: &Value, format: Format) -> String {
    match (format, value.as_f64()) {
        (_, None) if value.is_boolean() => value.to_string(),
        (_, None) => value.as_str().unwrap_or("-").to_owned(),
        (Format::Plain, _) => value.to_string(),
        (Format::Mib, Some(x)) => format!("{:.2}", x / f64::from(1 << 20)),
        (Format::Percent, Some(x)) => format!("{:.2}", x * 100.0),
        (Format::Fixed(digits), Some(x)) => format!("{x:.digits$}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: [Field; 4] = [
        Field::key("store"),
        Field::measured("ns"),
        Field::added("x").shown("x", Format::Plain),
        Field::of_run("seed"),
    ];

    fn rows() -> Vec<Row> {
        let run = |store: &str, ns: f64| {
            let mut row = Row::default();
            row.set("store", store).set("ns", ns).set("run", 0);
            row
        };
        medians(&FIELDS, &[run("b", 1.5), run("a", 7.0), run("b", 2.5), run("b", 9.0)])
    }

    #[test]
    fn medians_are_by_key_in_order_of_appearance() {
        let text: Vec<String> =
            rows().into_iter().map(|row| Value::from(row).to_string()).collect();
        assert_eq!(
            text,
            [
                r#"{"store":"b","runs":3,"ns":2.5,"ns_min":1.5,"ns_max":9.0}"#,
                r#"{"store":"a","runs":1,"ns":7,"ns_min":7,"ns_max":7}"#
            ]
        );
    }

    #[test]
    fn a_run_with_a_field_that_no_table_has_is_refused() {
        let with = |field: &str| {
            let mut run = Row::default();
            run.set("store", "b").set("run", 0).set(field, 1.5);
            check(&FIELDS, &[], &[run])
        };
        assert!(with("ns").is_ok() && with("seed").is_ok());
        assert!(with("us").is_err(), "it would be in no row");
    }

    #[test]
    fn a_run_with_another_value_than_the_right_one_is_refused() {
        let fields = [Field::key("job"), Field::measured("same").always(1.0)];
        let with = |same: Value| {
            let mut run = Row::default();
            run.set("job", "sort").set("same", same).set("run", 2);
            check(&fields, &[], &[run])
        };
        assert!(with(1.into()).is_ok() && with(Value::Null).is_ok());
        let said = with(0.into()).unwrap_err().to_string();
        assert_eq!(said, "wrong answer: same is 0, not 1, in \"sort\" 2");
    }

    #[test]
    fn a_field_that_is_missing_too_many_or_of_another_kind_is_refused() {
        let with = |field: &str, value: Value| {
            let mut row = rows().remove(0);
            row.set("x", 1).set(field, value);
            check(&FIELDS, &[row], &[])
        };
        assert!(check(&FIELDS, &rows(), &[]).is_err(), "x is missing");
        assert!(with("x", 2.5.into()).is_ok() && with("x", Value::Null).is_ok());
        assert!(with("y", 1.into()).is_err(), "y is in no table");
        assert!(with("ns_max", "nine".into()).is_err(), "a figure is a number");
        assert!(with("store", serde_json::json!([1])).is_err(), "a key is one value");
        let mut other = Row::default();
        other.set("runs", 1).set("store", "b");
        other.set("ns", 1).set("ns_min", 1).set("ns_max", 1).set("x", 1);
        assert!(check(&FIELDS, &[other], &[]).is_err(), "another order");
    }
}
