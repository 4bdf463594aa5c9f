//! A comment on an atomic ordering says what the pair guarantees; its partner is in the sources.
//!
//! ```text
//!   // Acquire pairs with the Release in `open`, so that a thread that sees the bit may write.
//!                                         |      |
//!                         a name in the code     the guarantee
//! ```
//!
//! Invariant: a comment is judged as a whole, from its first line to its last.

use std::collections::HashSet;

use crate::items::word_offsets;
use crate::tree::{Finding, Source};

const PAIRS: &str = "pairs with";
const GUARANTEE: &str = "so that";

/// What gives a partner its name.
const ITEMS: [&str; 4] = ["fn", "struct", "trait", "mod"];

/// A comment of one or more lines, and where it begins.
struct Comment {
    line: usize,
    text: String,
}

/// Comments that name a partner, those of tests left out.
fn pairings(source: &Source) -> impl Iterator<Item = Comment> {
    let lines: Vec<&str> = match source.is_test_file() {
        true => Vec::new(),
        false => source.comments.lines().collect(),
    };
    let mut comments: Vec<Comment> = Vec::new();
    let mut open = false;
    for (index, line) in lines.into_iter().enumerate() {
        let text = line.trim().trim_start_matches(['/', '!']).trim();
        match comments.last_mut().filter(|_| open) {
            Some(last) if !text.is_empty() => last.text += &format!(" {text}"),
            _ if text.is_empty() => {}
            _ => comments.push(Comment { line: index + 1, text: text.to_string() }),
        }
        open = !text.is_empty();
    }
    comments.into_iter().filter(|comment| comment.text.contains(PAIRS))
}

/// Comments that say what an ordering pairs with, and not what that is good for.
pub(crate) fn without_guarantee(source: &Source) -> Vec<Finding> {
    let bare = pairings(source).filter(|comment| !comment.text.contains(GUARANTEE));
    let what = format!("a comment with \"{PAIRS}\" and without \"{GUARANTEE} ..\"");
    bare.map(|comment| source.finding(comment.line, &*what)).collect()
}

/// Partners that no item of the sources is called.
pub(crate) fn that_are_nowhere(sources: &[Source]) -> Vec<Finding> {
    let items: HashSet<&str> = sources.iter().flat_map(|source| named(&source.code)).collect();
    let finding = |source: &Source, comment: &Comment| {
        let gone = partners(&comment.text).find(|partner| !items.contains(partner))?;
        Some(source.finding(comment.line, format!("the partner `{gone}` is not in the sources")))
    };
    let of = |source| pairings(source).filter_map(move |comment| finding(source, &comment));
    sources.iter().flat_map(of).collect()
}

/// The names that a text gives to items.
fn named(code: &str) -> impl Iterator<Item = &str> {
    let offsets = ITEMS.iter().flat_map(move |item| {
        word_offsets(code, item).map(move |at| code[at + item.len()..].trim_start())
    });
    offsets.map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or(""))
}

/// Names in backticks between "pairs with" and what it is good for, or the end of the sentence.
fn partners(text: &str) -> impl Iterator<Item = &str> {
    let clauses = text.split(PAIRS).skip(1);
    let clauses = clauses.map(|rest| {
        let end = [GUARANTEE, ". "].iter().filter_map(|end| rest.find(end)).min();
        &rest[..end.unwrap_or(rest.len())]
    });
    let quoted = clauses.flat_map(|clause| clause.split('`').skip(1).step_by(2));
    quoted.map(|path| path.rsplit("::").next().unwrap_or(path))
}

#[test]
fn a_pair_without_a_guarantee_is_refused() {
    let findings = |text: &str| without_guarantee(&Source::new("a/src/x.rs", text)).len();
    assert_eq!(findings("// Acquire pairs with\n// the Release in `f`.\nx.load(Acquire);"), 1);
    assert_eq!(findings("// Acquire pairs with `f`,\n// so that g.\nx.load(Acquire);"), 0);
    assert_eq!(findings("// pairs with `f`.\n\n// so that g.\n"), 1, "another comment");
    assert_eq!(findings("// relaxed: a total.\n"), 0);
    let test = Source::new("a/tests/x.rs", "// pairs with `f`.\n");
    assert_eq!(without_guarantee(&test).len(), 0, "a test");
}

#[test]
fn a_partner_that_is_nowhere_is_refused() {
    let sources = |partner: &str| {
        let comment = format!("// Acquire pairs with the Release in `{partner}`, so that `h`.\n");
        [Source::new("a/src/x.rs", &comment), Source::new("b/src/y.rs", "fn open() {}\nstruct S;")]
    };
    let findings = |partner| that_are_nowhere(&sources(partner)).len();
    assert_eq!((findings("open"), findings("S::open"), findings("S")), (0, 0, 0));
    assert_eq!((findings("opened"), findings("open::S2")), (1, 1));
}
