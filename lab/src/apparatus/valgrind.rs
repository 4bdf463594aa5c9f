//! Instructions of a child of this program, as valgrind counts them.
//!
//! Invariant: a number is that of a child that ended well; a valgrind that is not there is missing
//! and nothing else.

use super::spoken;
use crate::frame::{Lab, present};
use crate::ground::LabError;
use crate::rows::Row;
use std::process::{Command, Stdio};

const VALGRIND: &str = "valgrind";
/// Cachegrind without caches counts instructions; its report goes where the child writes nothing.
const TOOL: [&str; 3] = ["--tool=cachegrind", "--cache-sim=no", "--log-fd=1"];
const NO_LINES: &str = "--cachegrind-out-file=/dev/null";
const LINES: &str = "--cachegrind-out-file=/dev/stdout";

/// All instructions of this program run as `inside`, from its start to its end.
pub(crate) fn instructions(
    inside: &str,
    arguments: &[String],
    input: &[u8],
    lab: &Lab,
) -> Result<u64, LabError> {
    let said = report(NO_LINES, inside, arguments, input, lab)?;
    refs(&said).ok_or_else(|| failed(format!("not understood: {said}")))
}

/// The same by place: the source file that an instruction comes from (that of the innermost
/// function where functions are inlined), and the function that it is compiled into.
pub(crate) fn instructions_by_place(
    inside: &str,
    arguments: &[String],
    input: &[u8],
    lab: &Lab,
) -> Result<Vec<Spent>, LabError> {
    report(LINES, inside, arguments, input, lab).map(|said| by_place(&said))
}

/// Sets `field` of every row to what `count` says of it, or to nothing where it is not asked. A
/// valgrind that is not there is a note.
pub(crate) fn add_counts(
    rows: &mut [Row],
    field: &str,
    is_asked: impl Fn(&Row) -> bool,
    count: impl Fn(&Row) -> Result<f64, LabError>,
    lab: &Lab,
    notes: &mut Vec<String>,
) -> Result<(), LabError> {
    let bar = lab.progress(rows.len());
    bar.set_message("instructions");
    for row in rows {
        let counted = if is_asked(row) { present(count(row), notes)? } else { None };
        row.set(field, counted);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(())
}

/// Instructions of a place.
#[derive(Debug, PartialEq)]
pub(crate) struct Spent {
    pub(crate) file: String,
    pub(crate) function: String,
    pub(crate) instructions: u64,
}

/// What valgrind says of a child that ended well.
fn report(
    lines: &str,
    inside: &str,
    arguments: &[String],
    input: &[u8],
    lab: &Lab,
) -> Result<String, LabError> {
    let version = Command::new(VALGRIND).arg("--version").stdout(Stdio::null()).status();
    version.map_err(|error| LabError::missing(VALGRIND, error))?;
    let program = std::env::current_exe().map_err(LabError::io("this program"))?;
    let mut command = Command::new(VALGRIND);
    command.args(TOOL).arg(lines).arg(program).arg(inside).args(arguments);
    spoken::said(&mut command, input, lab)
}

fn failed(why: String) -> LabError {
    LabError::Store { what: VALGRIND.to_owned(), why }
}

/// The lines of a cachegrind file: `fl=FILE` and `fn=NAME` open a place, `LINE COUNT` is what one
/// line of it took.
fn by_place(report: &str) -> Vec<Spent> {
    let mut places: Vec<Spent> = Vec::new();
    let mut file = "";
    for line in report.lines() {
        if let Some(name) = line.strip_prefix("fl=") {
            file = name;
        } else if let Some(name) = line.strip_prefix("fn=") {
            let (file, function) = (file.to_owned(), name.to_owned());
            places.push(Spent { file, function, instructions: 0 });
        } else if let Some((place, count)) = places.last_mut().zip(count(line)) {
            place.instructions += count;
        }
    }
    places
}

/// The count in `LINE COUNT`.
fn count(line: &str) -> Option<u64> {
    let (number, count) = line.split_once(' ')?;
    number.parse::<u64>().ok().and(count.parse().ok())
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

    #[test]
    fn lines_are_summed_by_place() {
        let report = "desc: I1 cache: none\ncmd: lab\nevents: Ir\nfl=a.rs\nfn=one\n12 5\n0 3\n\
                      fn=two\n7 2\nfl=b.rs\nfn=one\n1 1\nsummary: 11\n==9== I refs: 11\n";
        let spent = |file: &str, function: &str, instructions| Spent {
            file: file.into(),
            function: function.into(),
            instructions,
        };
        let expected = [spent("a.rs", "one", 8), spent("a.rs", "two", 2), spent("b.rs", "one", 1)];
        assert_eq!(by_place(report), expected);
    }
}
