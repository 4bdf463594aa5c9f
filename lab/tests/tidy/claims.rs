//! A document that says which test checks a claim names one that exists.
//!
//! ```text
//!   | attribute | .. | test                 |        a table whose last column is headed so
//!   | disksize  | .. | `disksize_is_set_once` |      each row names at least one
//! ```
//!
//! Invariant: names in the last column are functions of tests, spelled as they are there, or rows
//! from which a macro makes functions: `name: "claim";` or `name: ["claim"];`.

use std::collections::BTreeSet;

use crate::tree::{Document, Finding, Source};

const HEADING: &str = "test";

/// The functions of tests, and the names in rows from which a macro makes some.
pub(crate) fn functions<'a>(sources: &'a [Source]) -> BTreeSet<&'a str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let word = |rest: &'a str| rest.split(|c| !is_word(c)).next().unwrap_or_default();
    let of_file = |source: &'a Source| {
        let functions = source.code.match_indices("fn ").filter(|(at, _)| source.is_test(*at));
        let functions = functions.map(move |(at, fn_)| word(&source.code[at + fn_.len()..]));
        let rows = source.text.lines().filter(|_| source.is_test_file()).map(str::trim);
        let rows = rows.filter(|line| line.ends_with("\";") || line.ends_with("\"];"));
        let made = rows.filter_map(|row| row.split_once(": \"").or(row.split_once(": [\"")));
        functions.chain(made.map(|(name, _)| name))
    };
    sources.iter().flat_map(of_file).collect()
}

/// Rows of such tables without a test, and tests that are none.
pub(crate) fn unchecked(document: &Document, known: &BTreeSet<&str>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut in_table = false;
    for (number, line) in document.text.lines().enumerate() {
        let Some(last) = last_cell(line) else {
            in_table = false;
            continue;
        };
        if last == HEADING || !in_table || last.starts_with("---") {
            in_table |= last == HEADING;
            continue;
        }
        let names: Vec<&str> = last.split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            findings.push(document.finding(number + 1, "a row that names no test"));
        }
        let gone = names.iter().filter(|name| !known.contains(*name));
        findings.extend(
            gone.map(|name| document.finding(number + 1, format!("there is no test {name}"))),
        );
    }
    findings
}

/// What stands in the last column of a table's row.
fn last_cell(line: &str) -> Option<&str> {
    let row = line.trim().strip_prefix('|')?.strip_suffix('|')?;
    row.rsplit('|').next().map(str::trim)
}

#[cfg(test)]
fn findings(text: &str) -> usize {
    let made = "claims! {\n    it_is_right: \"right\";\n}\n#[test]\nfn it_holds() {}\n";
    let sources = [Source::new("a/tests/x.rs", made)];
    let document = Document { path: "docs/x.md".into(), text: text.into() };
    unchecked(&document, &functions(&sources)).len()
}

#[test]
fn a_test_that_is_gone_is_refused() {
    let table = |row: &str| format!("| claim | test |\n|---|---|\n{row}\n");
    assert_eq!(findings(&table("| a | `it_holds` |")), 0);
    assert_eq!(findings(&table("| a | `it_is_right` |")), 0, "a row of a macro");
    assert_eq!(findings(&table("| a | `it_held` |")), 1);
    assert_eq!(findings(&table("| a | `it_holds`, `it_held` |")), 1);
    assert_eq!(findings(&table("| a | |")), 1, "no test");
    assert_eq!(findings("| a | b |\n|---|---|\n| `c` | `d` |\n"), 0, "another table");
    assert_eq!(findings(&(table("| a | `it_holds` |") + "\n| a | b |\n|---|---|\n| c | d |\n")), 0);
}
