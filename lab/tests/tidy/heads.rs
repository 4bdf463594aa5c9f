//! How a file opens and what it is called.

use crate::tree::{Finding, Source};

/// From this many lines on, the head must say more than what the file is.
const LONG_FILE_LINES: usize = 100;

/// What the head of a long file in `lab` shows, one of these at least.
const CONTRACTS: [&str; 3] = ["```", "Invariant", "Lock"];

/// What the head of any other long file has at the beginning of a line, with a sentence after it.
const INVARIANT: &str = "//! Invariant";

/// The shortest sentence that can state an invariant, in words.
const INVARIANT_WORDS_MIN: usize = 5;

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
    let long = source.text.lines().count() >= LONG_FILE_LINES && !source.is_test_file();
    let head = source.head();
    let (says, missing) = match source.path.starts_with("lab/") {
        true => (CONTRACTS.iter().any(|word| head.contains(word)), "picture, Invariant or Lock"),
        false => (states_an_invariant(&head), "line that begins \"Invariant\", with a sentence"),
    };
    let what = format!("{LONG_FILE_LINES} lines or more, and its head has no {missing}");
    (long && !says).then(|| source.finding(1, what)).into_iter().collect()
}

fn states_an_invariant(head: &str) -> bool {
    let after = |at: usize| head[at + INVARIANT.len()..].split_whitespace();
    let said = |at| after(at).filter(|word| word.starts_with(char::is_alphanumeric));
    head.find(INVARIANT).is_some_and(|at| said(at).nth(INVARIANT_WORDS_MIN - 1).is_some())
}

/// A reader of a figure must know what it does not show.
pub(crate) fn studies_say_what_they_do_not_show(source: &Source) -> Vec<Finding> {
    let file = source.path.strip_prefix("lab/src/study/");
    let is_study = file.is_some_and(|file| !file.contains('/'));
    let says = source.head().contains("These figures do not show ");
    let what = "the head of a study has no sentence \"These figures do not show ..\"";
    (is_study && !says).then(|| source.finding(1, what)).into_iter().collect()
}

pub(crate) fn named_by_what_it_holds(source: &Source) -> Vec<Finding> {
    let mut names = source.path.trim_end_matches(".rs").split('/');
    let empty = names.any(|name| EMPTY_NAMES.contains(&name));
    let what = "named after no idea; name it by a noun of the domain or a verb of the algorithm";
    empty.then(|| source.finding(1, what)).into_iter().collect()
}

#[test]
fn a_study_that_shows_everything_is_refused() {
    let count = |path, text| studies_say_what_they_do_not_show(&Source::new(path, text)).len();
    assert_eq!(count("lab/src/study/x.rs", "//! Study `x`.\n"), 1);
    assert_eq!(count("lab/src/study/x.rs", "//! Study.\n//! These figures do not show y.\n"), 0);
    assert_eq!(count("lab/src/study/x/part.rs", "//! A part.\n"), 0);
}

#[test]
fn a_file_without_a_head_is_refused() {
    for (text, findings) in [("//! What.\n", 0), ("use x;\n", 1), ("//!\n", 1), ("", 1)] {
        let source = Source::new("a/src/x.rs", text);
        assert_eq!(opens_with_doc(&source).len(), findings, "{text:?}");
    }
}

#[test]
fn a_long_file_without_an_invariant_is_refused() {
    let findings = |path, head: &str| {
        let body = "x;\n".repeat(LONG_FILE_LINES - head.lines().count());
        long_files_say_more(&Source::new(path, &format!("{head}\n{body}"))).len()
    };
    let invariant = "//! What.\n//!\n//! Invariant: a word is\n//! never half written.";
    assert_eq!(findings("a/src/x.rs", invariant), 0);
    assert_eq!(
        findings("a/src/x.rs", "//! What.\n//!\n//! Invariants\n//! - I1 a b\n//! - I2 c"),
        0
    );
    assert_eq!(findings("a/src/x.rs", "//! What."), 1);
    assert_eq!(
        findings("a/src/x.rs", "//! What.\n//!\n//! Invariant: none.\n//!\n//! Lock."),
        1,
        "no sentence"
    );
    assert_eq!(findings("a/src/x.rs", "//! What. Invariant: not where one looks for it."), 1);
    assert_eq!(
        findings("a/src/x.rs", "//! What.\n\n//! Invariant: not in the head, but below."),
        1
    );
    assert_eq!(findings("a/src/x.rs", "//! Locks: none."), 1, "locks alone");
    assert_eq!(findings("lab/src/x.rs", "//! Locks: none."), 0);
    assert_eq!(findings("lab/src/x.rs", "//! What."), 1);
    assert_eq!(findings("a/tests/x.rs", "//! What."), 0, "a test");
    let short = "x;\n".repeat(LONG_FILE_LINES - 2);
    assert_eq!(
        long_files_say_more(&Source::new("a/src/x.rs", &format!("//! What.\n{short}"))).len(),
        0
    );
}

#[test]
fn an_empty_name_is_refused() {
    let findings = |path| named_by_what_it_holds(&Source::new(path, "")).len();
    assert_eq!((findings("a/src/util.rs"), findings("a/src/common/mod.rs")), (1, 1));
    assert_eq!(findings("a/src/zone.rs"), 0);
}
