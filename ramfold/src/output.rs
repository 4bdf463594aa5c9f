//! The ways out: standard output, whose reader may leave, and one line of complaint.

use std::io::{Write, stderr, stdout};

use crate::failure::Failure;

/// Prints text as it is.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// Prints a JSON value, indented, and a line end.
pub(crate) fn print_json(value: &serde_json::Value) -> Result<(), Failure> {
    print(&format!("{value:#}\n"))
}

/// Says something that nobody needs to hear: on a closed stream it is lost, and all goes on.
pub(crate) fn mention(line: &str) {
    let _ = writeln!(stdout().lock(), "{line}");
}

/// Says on one line what is wrong.
pub(crate) fn complain(what: &str) {
    let line: Vec<&str> = what.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    // There is no further stream to complain on.
    let _ = writeln!(stderr().lock(), "ramfold: {}", line.join(" "));
}
