//! Every atomic ordering says what it pairs with, or why it needs no partner.

use crate::items::{line_of, word_offsets};
use crate::tree::{Finding, Source};
use std::ops::Range;

const ORDERINGS: [&str; 5] = ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];
const TYPE: &str = "Ordering";
const PARTNERS: [&str; 2] = ["pairs with", "relaxed:"];

/// A comment this many lines above an ordering still speaks about it.
const LINES_ABOVE_MAX: usize = 6;

pub(crate) fn partners(source: &Source) -> Vec<Finding> {
    if source.file_name() == "sync.rs" {
        return Vec::new();
    }
    let imports = imports(&source.code);
    let comments: Vec<String> = source.comments.lines().map(str::to_lowercase).collect();
    let uses = ORDERINGS.iter().flat_map(|name| orderings_named(name, &source.code, &imports));
    let mut silent: Vec<usize> = uses
        .filter(|&at| !source.is_test(at))
        .map(|at| line_of(&source.code, at))
        .filter(|&line| !is_argued(&comments, line))
        .collect();
    silent.sort_unstable();
    silent.dedup();
    let what = "an atomic ordering without \"pairs with ..\" or \"relaxed: ..\" above it";
    silent.into_iter().map(|line| source.finding(line, what)).collect()
}

/// Where `name` is an ordering: not in imports, and without its path only where nothing else has
/// that name. A type of the file's own, or imported from elsewhere, may.
fn orderings_named(name: &str, code: &str, imports: &[Range<usize>]) -> Vec<usize> {
    let imported =
        |range: &&Range<usize>| word_offsets(&code[(*range).clone()], name).next().is_some();
    let other = imports.iter().filter(imported).any(|range| !code[range.clone()].contains(TYPE));
    let other = other || code.contains(&format!("enum {name} "));
    let is_ordering = |at: &usize| {
        let path = code[..*at].strip_suffix("::");
        path.map_or(!other, |path| path.ends_with(TYPE))
    };
    let uses =
        word_offsets(code, name).filter(|at| !imports.iter().any(|range| range.contains(at)));
    uses.filter(is_ordering).collect()
}

fn is_argued(comments: &[String], line: usize) -> bool {
    let first = line.saturating_sub(LINES_ABOVE_MAX + 1);
    let window = &comments[first..line];
    window.iter().any(|comment| PARTNERS.iter().any(|partner| comment.contains(partner)))
}

/// What only a protocol between threads needs; counters do without.
const PROTOCOL: [&str; 3] = ["compare_exchange", "compare_exchange_weak", "fetch_update"];

/// Crates with a lock-free protocol and no loom suite.
pub(crate) fn unmodelled(sources: &[Source]) -> Vec<Finding> {
    let has_suite = |name: &str| sources.iter().any(|s| s.path == format!("{name}/tests/loom.rs"));
    let bare = sources.iter().filter(|source| !has_suite(source.crate_name()));
    bare.flat_map(|source| {
        let uses = PROTOCOL.iter().flat_map(|word| word_offsets(&source.code, word));
        let uses = uses.filter(|&at| !source.is_test(at));
        let what = format!("a lock-free protocol, and no {}/tests/loom.rs", source.crate_name());
        uses.map(|at| source.finding_at(at, &what)).collect::<Vec<_>>()
    })
    .collect()
}

/// The ranges of `use` items, which name orderings without using them.
fn imports(code: &str) -> Vec<Range<usize>> {
    let starts = word_offsets(code, "use");
    starts.map(|at| at..code[at..].find(';').map_or(code.len(), |len| at + len)).collect()
}

#[cfg(test)]
fn lines(text: &str) -> Vec<String> {
    partners(&Source::new("a/src/x.rs", text)).iter().map(ToString::to_string).collect()
}

#[test]
fn a_silent_ordering_is_refused() {
    assert_eq!(lines("fn f() { a.load(Ordering::Acquire) }").len(), 1);
    assert_eq!(lines("// Acquire pairs with g's store.\nfn f() { a.load(Acquire) }").len(), 0);
    assert_eq!(lines("fn f() { a.load(Relaxed) } // relaxed: a counter").len(), 0);
    assert_eq!(lines("use x::{\n  Ordering::Relaxed,\n};").len(), 0, "an import");
    assert_eq!(lines("// SeqCst is a word here\nstruct ReleaseQueue;").len(), 0);
}

#[test]
fn a_type_with_the_name_of_an_ordering_is_none() {
    let own = "pub enum Release { Inside }\nfn f(when: Release) { g(Release::Inside) }";
    assert_eq!(lines(own).len(), 0);
    assert_eq!(lines("use zsmalloc::{Pool, Release};\nfn f(when: Release) {}").len(), 0);
    assert_eq!(lines("fn f(when: crate::Release) {}").len(), 0);
    assert_eq!(lines(&format!("{own}\nfn h() {{ a.load(Ordering::Release) }}")).len(), 1);
    assert_eq!(lines("use x::Ordering::{self, Release};\nfn f() { a.store(1, Release) }").len(), 1);
}

#[test]
fn a_comment_too_far_above_does_not_count() {
    let far = |gap: usize| {
        format!("// relaxed: a counter\n{}fn f() {{ a.load(Relaxed) }}", "x;\n".repeat(gap))
    };
    assert_eq!(lines(&far(LINES_ABOVE_MAX - 1)).len(), 0);
    assert_eq!(lines(&far(LINES_ABOVE_MAX)).len(), 1);
}

#[test]
fn a_protocol_without_a_model_is_refused() {
    let code = "fn f() { a.compare_exchange(0, 1, AcqRel, Acquire) }";
    let bare = [Source::new("a/src/x.rs", code), Source::new("b/tests/loom.rs", "")];
    let modelled = [Source::new("a/src/x.rs", code), Source::new("a/tests/loom.rs", "")];
    assert_eq!((unmodelled(&bare).len(), unmodelled(&modelled).len()), (1, 0));
}

#[test]
fn tests_and_the_sync_module_are_free() {
    assert_eq!(lines("#[cfg(test)]\nmod tests { fn f() { a.load(Acquire) } }").len(), 0);
    let sync = Source::new("a/src/sync.rs", "fn f() { a.load(Acquire) }");
    assert_eq!(partners(&sync), []);
}
