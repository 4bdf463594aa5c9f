//! `lab far`: three servers, and pages that go from one to another.

use crate::support::{json, measured, number, rows};
use std::path::Path;
use std::process::{Command, Stdio};

/// What the study needs and is not here. In CI both are: `./test unit` builds all.
fn missing() -> Option<&'static str> {
    let ramfold = Path::new(env!("CARGO_BIN_EXE_lab")).with_file_name("ramfold");
    let mut nbdcopy = Command::new("nbdcopy");
    let nbdcopy = nbdcopy.arg("--version").stdout(Stdio::null()).status();
    let missing = match (ramfold.exists(), nbdcopy.is_ok_and(|status| status.success())) {
        (true, true) => return None,
        (false, _) => "ramfold: cargo build -p ramfold-cli",
        (_, false) => "nbdcopy",
    };
    assert!(std::env::var("CI").is_err(), "{missing} is to be there");
    Some(missing)
}

#[test]
fn pages_go_far_by_each_way() {
    if let Some(missing) = missing() {
        return println!("skipped: needs {missing}");
    }
    let document = json("far", &["far", "--quick", "--runs", "1"]);
    let ways: Vec<&str> = rows(&document).iter().filter_map(|row| row["way"].as_str()).collect();
    assert_eq!(ways, ["nbdcopy", "asked", "target"]);
    for row in rows(&document) {
        measured(row, &["mib_per_s"]);
        assert_eq!(row["vs_nbdcopy"].is_null(), row["way"] == "nbdcopy", "{row}");
    }
    let rate = |at: usize| number(&rows(&document)[at], "mib_per_s");
    assert_eq!(number(&rows(&document)[1], "vs_nbdcopy"), rate(1) / rate(0));
}
