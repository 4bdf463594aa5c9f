//! A code span of a document that looks like a member of a type, or like a source, names one.
//!
//! ```text
//!   `Descriptor::take_lowest`     a source that has the type has the member too
//!   `zsmalloc/src/class.rs`       a source; the beginning of the path may be left out
//! ```
//!
//! Invariant: a span that may mean something else, such as a path with a `*`, is left alone.

use crate::items::word_offsets;
use crate::tree::{Document, Finding, Source};

/// What gives a type its name, or members.
const ITEMS: [&str; 5] = ["struct", "enum", "trait", "type", "impl"];

/// Spans that name a member or a source which is not there.
pub(crate) fn of_nothing(document: &Document, sources: &[Source]) -> Vec<Finding> {
    let gone = |span: &str| match member(span) {
        Some((of, name)) => !sources.iter().any(|source| has(source, of, name)),
        None => is_source(span) && !sources.iter().any(|source| is_called(source, span)),
    };
    let spans = spans(&document.text).filter(|(_, span)| gone(span));
    let what = |span| format!("`{span}` is not in the sources");
    spans.map(|(line, span)| document.finding(line, what(span))).collect()
}

/// Code spans, with their lines. A block of code has none.
fn spans(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    let lines = text.lines().enumerate().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        !fenced && !fence
    });
    lines.flat_map(|(index, line)| {
        line.split('`').skip(1).step_by(2).map(move |span| (index + 1, span))
    })
}

/// The type and the member that `Type::member` and `Type::member(..)` name.
fn member(span: &str) -> Option<(&str, &str)> {
    let path = span.split('(').next()?;
    let (of, name) = path.rsplit_once("::")?;
    let of = of.rsplit("::").next()?;
    let is_word =
        |text: &str| !text.is_empty() && text.chars().all(|c| c == '_' || c.is_alphanumeric());
    (of.starts_with(char::is_uppercase) && is_word(of) && is_word(name)).then_some((of, name))
}

fn has(source: &Source, of: &str, name: &str) -> bool {
    let code = &source.code;
    let is_item = |at: usize| {
        let line = code[..at].rsplit('\n').next().unwrap_or_default();
        ITEMS.iter().any(|item| word_offsets(line, item).next().is_some())
    };
    word_offsets(code, name).next().is_some() && word_offsets(code, of).any(is_item)
}

fn is_source(span: &str) -> bool {
    span.ends_with(".rs") && !span.contains(['*', ' ', '<']) && !span.contains("NAME")
}

fn is_called(source: &Source, path: &str) -> bool {
    let rest = source.path.strip_suffix(path);
    rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('/'))
}

#[test]
fn a_span_of_nothing_is_refused() {
    let code = "pub struct Pool;\nimpl Pool {\n    fn alloc(&self) {}\n}\n";
    let sources = [Source::new("a/src/pool.rs", code), Source::new("a/src/b.rs", "fn free() {}")];
    let findings = |text: &str| {
        let document = Document { path: "docs/x.md".into(), text: text.into() };
        of_nothing(&document, &sources).len()
    };
    assert_eq!(findings("`Pool::alloc`, `a::Pool::alloc(1)`, `pool.rs`, `a/src/b.rs`"), 0);
    assert_eq!(findings("`Pool::free` and `Pile::alloc`"), 2, "of another source; no such type");
    assert_eq!(findings("`ool.rs`, `b/src/b.rs`"), 2);
    assert_eq!(findings("`algorithms/NAME.rs`, `*/tests/x.rs`, `x::y`, `std`"), 0);
    assert_eq!(findings("```rust\n`Pool::free`\n```\n"), 0, "code");
}
