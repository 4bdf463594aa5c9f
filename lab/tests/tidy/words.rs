//! Lines are short, plain ASCII, finished, and speak of the code instead of its making.

use crate::items::word_offsets;
use crate::tree::{Document, Finding, Source};

const COLUMNS_MAX: usize = 100;

/// Marks of unfinished work. Written in pieces, so that this file does not refuse itself.
const MARKERS: [&str; 4] =
    [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X"), concat!("dbg", "!")];

/// Words about how the work was organised. They mean nothing to a reader of the tree.
const HISTORY: [&str; 4] = ["session", "sessions", "helper", "helpers"];

const TICKET: &str = concat!("issue ", "#");

pub(crate) fn columns(source: &Source) -> Vec<Finding> {
    let long = source.text.lines().enumerate().filter(|(_, l)| l.chars().count() > COLUMNS_MAX);
    let what = |line: &str| format!("{} columns; the limit is {COLUMNS_MAX}", line.chars().count());
    long.map(|(number, line)| source.finding(number + 1, what(line))).collect()
}

pub(crate) fn ascii(source: &Source) -> Vec<Finding> {
    let wide = source.text.lines().enumerate().filter(|(_, line)| !line.is_ascii());
    wide.map(|(number, _)| source.finding(number + 1, "a character outside ASCII")).collect()
}

pub(crate) fn markers(source: &Source) -> Vec<Finding> {
    let marks = MARKERS.iter().flat_map(|mark| source.text.match_indices(mark));
    marks.map(|(at, mark)| source.finding_at(at, format!("{mark} left in the source"))).collect()
}

pub(crate) fn history(source: &Source) -> Vec<Finding> {
    let tickets = source.comments.match_indices(TICKET);
    let what = "a comment about the work; say what the code does and why";
    tickets.map(|(at, _)| source.finding_at(at, what)).collect()
}

pub(crate) fn document_history(document: &Document) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in document.text.lines().enumerate() {
        let line = line.to_lowercase();
        let word = HISTORY.iter().find(|word| word_offsets(&line, word).next().is_some());
        if let Some(word) = word.or(line.contains(TICKET).then_some(&TICKET)) {
            let what = format!("\"{word}\" speaks of the work, not of the system");
            findings.push(document.finding(number + 1, what));
        }
    }
    findings
}

#[test]
fn a_wide_line_is_refused() {
    let findings = |columns| columns_of(&"x".repeat(columns));
    assert_eq!((findings(COLUMNS_MAX), findings(COLUMNS_MAX + 1)), (0, 1));
}

#[cfg(test)]
fn columns_of(text: &str) -> usize {
    columns(&Source::new("a/src/x.rs", text)).len()
}

#[test]
fn foreign_characters_are_refused() {
    assert_eq!(ascii(&Source::new("a/src/x.rs", "// caf\u{e9}\n")).len(), 1);
    assert_eq!(ascii(&Source::new("a/src/x.rs", "// coffee\n")).len(), 0);
}

#[test]
fn unfinished_work_is_refused() {
    for mark in MARKERS {
        let source = Source::new("a/src/x.rs", &format!("fn f() {{}} // {mark} later\n"));
        assert_eq!(markers(&source).len(), 1, "{mark}");
    }
}

#[test]
fn talk_about_the_work_is_refused() {
    let source = Source::new("a/src/x.rs", &format!("// see {TICKET}7\n"));
    assert_eq!(history(&source).len(), 1);
    let document = |text: &str| Document { path: "README.md".into(), text: text.into() };
    assert_eq!(document_history(&document("Written in one Session.")).len(), 1);
    assert_eq!(document_history(&document(&format!("see {TICKET}7"))).len(), 1);
    assert_eq!(document_history(&document("An obsession with pages.")).len(), 0);
}
