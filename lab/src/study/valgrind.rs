//! Instructions of a child of this program, as valgrind counts them.
//!
//! Invariant: a number is that of a child that ended well; a valgrind that is not there is missing
//! and nothing else.

use super::Lab;
use crate::error::LabError;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

const VALGRIND: &str = "valgrind";
/// Cachegrind without caches counts instructions; its report goes where the child writes nothing.
const TOOL: [&str; 4] =
    ["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", "--log-fd=1"];

/// All instructions of this program run as `inside`, from its start to its end.
pub(super) fn instructions(
    inside: &str,
    arguments: &[String],
    input: &[u8],
    lab: &Lab,
) -> Result<u64, LabError> {
    const PATIENCE: Duration = Duration::from_secs(10);
    let version = Command::new(VALGRIND).arg("--version").stdout(Stdio::null()).status();
    version.map_err(|error| LabError::missing(VALGRIND, error))?;
    let program = std::env::current_exe().map_err(LabError::io("this program"))?;
    let mut command = Command::new(VALGRIND);
    command.args(TOOL).arg(program).arg(inside).args(arguments);
    let child = lab.cleanup.spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()))?;
    if let Some(mut pipe) = child.stdin() {
        pipe.write_all(input).map_err(LabError::io(VALGRIND))?;
    }
    let mut said = String::new();
    if let Some(mut output) = child.stdout() {
        output.read_to_string(&mut said).map_err(LabError::io(VALGRIND))?;
    }
    let failed = |why: String| LabError::Store { what: VALGRIND.to_owned(), why };
    match child.wait(PATIENCE)? {
        status if !status.success() => Err(failed(format!("ended with {status}: {said}"))),
        _ => refs(&said).ok_or_else(|| failed(format!("not understood: {said}"))),
    }
}

/// The number in `==123== I   refs:      1,234,567`.
fn refs(report: &str) -> Option<u64> {
    let count = |line: &str| {
        let (what, count) = line.split_once("refs:")?;
        let digits: String = count.chars().filter(char::is_ascii_digit).collect();
        what.trim_end().ends_with('I').then(|| digits.parse().ok())?
    };
    report.lines().find_map(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_those_of_the_report() {
        for line in ["==12== I   refs:      1,234,567", "==12== I refs:  1,234,567  "] {
            assert_eq!(refs(&format!("==12== Cachegrind\n{line}\n")), Some(1_234_567));
        }
        assert_eq!(refs("==12== D refs: 5\n"), None);
    }
}
