//! Lint exceptions and `expect` messages say why.

use crate::items::{closing, word_offsets};
use crate::tree::{Finding, Source};

pub(crate) fn allows(source: &Source) -> Vec<Finding> {
    let attribute = |at: &usize| {
        let line = source.code[..*at].rsplit('\n').next().unwrap_or_default().trim_start();
        line.starts_with('#') && source.code[at + "allow".len()..].starts_with('(')
    };
    let uses = word_offsets(&source.code, "allow").filter(attribute);
    uses.map(|at| source.finding_at(at, "#[allow]: write #[expect(.., reason = \"..\")]")).collect()
}

pub(crate) fn expectations(source: &Source) -> Vec<Finding> {
    let starts = ["#[expect(", "#![expect("].into_iter().flat_map(|s| source.code.match_indices(s));
    let bare = starts.map(|(at, _)| at).filter(|&at| !gives_reason(source, at));
    bare.map(|at| source.finding_at(at, "#[expect] without a reason")).collect()
}

fn gives_reason(source: &Source, at: usize) -> bool {
    let open = at + source.code[at..].find('[').unwrap_or(0);
    let end = closing(&source.code, open).unwrap_or(source.code.len());
    let reason = source.text[at..end].split_once("reason = \"");
    reason.is_some_and(|(_, text)| !text.starts_with('"'))
}

/// A message names an invariant or a reason, which takes at least two words; a test, which may
/// unwrap, only must not pretend to have one.
pub(crate) fn expect_messages(source: &Source) -> Vec<Finding> {
    let calls = source.code.match_indices(".expect(").map(|(at, call)| at + call.len());
    let poor = calls.filter(|&at| {
        let words_min = if source.is_test(at) { 1 } else { 2 };
        literal(&source.text[at..])
            .is_some_and(|words| words.split_whitespace().count() < words_min)
    });
    poor.map(|at| source.finding_at(at, "an expect message that gives no reason")).collect()
}

fn literal(rest: &str) -> Option<&str> {
    rest.trim_start().strip_prefix('"')?.split('"').next()
}

#[test]
fn an_allow_is_refused() {
    let findings = |text| allows(&Source::new("a/src/x.rs", text)).len();
    assert_eq!(findings("#[allow(dead_code)]\nfn f() {}"), 1);
    assert_eq!(findings("#![cfg_attr(loom, allow(dead_code))]"), 1);
    assert_eq!(findings("fn f() { set.allow(x) } // #[allow(x)]"), 0);
}

#[test]
fn an_expectation_without_a_reason_is_refused() {
    let findings = |text| expectations(&Source::new("a/src/x.rs", text)).len();
    assert_eq!(findings("#[expect(dead_code)]\nfn f() {}"), 1);
    assert_eq!(findings("#[expect(dead_code, reason = \"\")]\nfn f() {}"), 1);
    assert_eq!(findings("#[expect(\n  dead_code,\n  reason = \"why\"\n)]\nfn f() {}"), 0);
}

#[test]
fn an_expect_without_words_is_refused() {
    let findings = |path: &str, text: &str| expect_messages(&Source::new(path, text)).len();
    for (text, real, test) in [("", 1, 1), ("oops", 1, 0), ("I3: the class is locked", 0, 0)] {
        let text = format!("x.expect(\"{text}\");");
        assert_eq!(findings("a/src/x.rs", &text), real, "{text}");
        assert_eq!(findings("a/tests/x.rs", &text), test, "{text}");
    }
}
