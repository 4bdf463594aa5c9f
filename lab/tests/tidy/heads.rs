//! How a file opens and what it is called.

use crate::tree::{Finding, Source};

/// From this many lines on, the head must show a picture, invariants or locks.
const LONG_FILE_LINES: usize = 100;

/// What the head of a long file shows, one of these at least.
const CONTRACTS: [&str; 3] = ["```", "Invariant", "Lock"];

/// Names that say nothing about what a file holds.
const EMPTY_NAMES: [&str; 7] = ["util", "utils", "common", "misc", "types", "helper", "helpers"];

pub(crate) fn opens_with_doc(source: &Source) -> Vec<Finding> {
    let first = source.text.lines().next().unwrap_or_default();
    let opens = first.starts_with("//! ") && first.len() > "//! ".len();
    let finding = || source.finding(1, "the first line is not a //! sentence about the file");
    (!opens).then(finding).into_iter().collect()
}

/// Tests are exempt: theirs are claims, and stand in their names.
pub(crate) fn long_files_say_more(source: &Source) -> Vec<Finding> {
    let long = source.text.lines().count() > LONG_FILE_LINES && !source.is_test_file();
    let head = source.head();
    let says = CONTRACTS.iter().any(|word| head.contains(word));
    let what =
        format!("over {LONG_FILE_LINES} lines, and no picture, Invariant or Lock in its head");
    (long && !says).then(|| source.finding(1, what)).into_iter().collect()
}

pub(crate) fn named_by_what_it_holds(source: &Source) -> Vec<Finding> {
    let mut names = source.path.trim_end_matches(".rs").split('/');
    let empty = names.any(|name| EMPTY_NAMES.contains(&name));
    let what = "named after no idea; name it by a noun of the domain or a verb of the algorithm";
    empty.then(|| source.finding(1, what)).into_iter().collect()
}

#[test]
fn a_file_without_a_head_is_refused() {
    for (text, findings) in [("//! What.\n", 0), ("use x;\n", 1), ("//!\n", 1), ("", 1)] {
        let source = Source::new("a/src/x.rs", text);
        assert_eq!(opens_with_doc(&source).len(), findings, "{text:?}");
    }
}

#[test]
fn a_long_file_without_a_contract_is_refused() {
    let body = "x;\n".repeat(LONG_FILE_LINES);
    let findings = |path, head: &str| {
        long_files_say_more(&Source::new(path, &format!("{head}\n{body}"))).len()
    };
    assert_eq!(findings("a/src/x.rs", "//! What."), 1);
    assert_eq!(findings("a/src/x.rs", "//! What.\n\n//! Invariant"), 1, "not in the head");
    assert_eq!(findings("a/src/x.rs", "//! Locks: none."), 0);
    assert_eq!(findings("a/tests/x.rs", "//! What."), 0, "a test");
}

#[test]
fn an_empty_name_is_refused() {
    let findings = |path| named_by_what_it_holds(&Source::new(path, "")).len();
    assert_eq!((findings("a/src/util.rs"), findings("a/src/common/mod.rs")), (1, 1));
    assert_eq!(findings("a/src/zone.rs"), 0);
}
