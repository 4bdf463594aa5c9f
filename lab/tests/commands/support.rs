//! Running the lab from a test.

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};

/// The program under test.
pub(crate) fn lab() -> Command {
    Command::new(env!("CARGO_BIN_EXE_lab"))
}

/// A path of this test's own that is removed again.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        Scratch(std::env::temp_dir().join(format!("lab-test-{}-{name}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Gone already when the test failed early.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs to the end and wants success.
pub(crate) fn succeed(arguments: &[&str]) -> Output {
    let output = lab().args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "lab {arguments:?}: {}\n{errors}", output.status);
    output
}

/// Runs with `--json` and returns what it wrote.
pub(crate) fn json(name: &str, arguments: &[&str]) -> Value {
    let file = Scratch::new(name);
    let mut all = arguments.to_vec();
    all.extend(["--json", file.0.to_str().unwrap()]);
    succeed(&all);
    serde_json::from_str(&std::fs::read_to_string(&file.0).unwrap()).unwrap()
}

/// The rows of a document.
pub(crate) fn rows(document: &Value) -> &[Value] {
    document["rows"].as_array().expect("a document has an array of rows")
}

/// A field that must be a number.
pub(crate) fn number(row: &Value, field: &str) -> f64 {
    row[field].as_f64().unwrap_or_else(|| panic!("{field} is {} in {row}", row[field]))
}

/// Every field of a row that has its spread beside it.
pub(crate) fn spreads(row: &Value) -> Vec<&str> {
    let names = row.as_object().expect("a row is an object").keys();
    names.filter_map(|name| name.strip_suffix("_min")).collect()
}

/// Medians lie between their extremes; what a study must know of our store is not null.
pub(crate) fn measured(row: &Value, fields: &[&str]) {
    for field in fields {
        let (least, most) = (format!("{field}_min"), format!("{field}_max"));
        let (least, median, most) = (number(row, &least), number(row, field), number(row, &most));
        assert!(least <= median && median <= most, "{field}: {least} {median} {most}");
    }
}
