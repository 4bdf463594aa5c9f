//! Constants used as shifts or masks come with compile-time assertions and their reasons.

use crate::items::{line_of, word_offsets};
use crate::scan::is_word;
use crate::tree::{Finding, Source};

/// How binary operators look after rustfmt; a reference has no space after its `&`.
const OPERATORS: [&str; 7] = ["<< ", ">> ", " & ", " & !", "<<= ", ">>= ", "&= "];

const ASSERTION: &str = "const _: () =";

/// How the names of constants end that are sizes or bounds.
const SIZES: [&str; 11] = [
    "_MAX", "_MIN", "_BYTES", "_PAGES", "_FRAMES", "_WORDS", "_ENTRIES", "_BLOCKS", "_SHIFT",
    "_MASK", "_BITS",
];

/// Operators by which a constant is derived from other numbers.
const DERIVING: [&str; 3] = [" * ", " / ", " << "];

pub(crate) fn shifts_and_masks(source: &Source) -> Vec<Finding> {
    if source.is_test_file() || asserts(source).next().is_some() {
        return Vec::new();
    }
    let shifting = constants(source).find(|name| is_operand(&source.code, name));
    let what =
        |name| format!("{name} is used as a shift or mask, and no `{ASSERTION} assert!(..)`");
    shifting.map(|name| source.finding(1, what(name))).into_iter().collect()
}

pub(crate) fn asserts_have_reasons(source: &Source) -> Vec<Finding> {
    let bare = asserts(source).filter(|&at| !has_reason(source, at));
    bare.map(|at| source.finding_at(at, "an assertion without a reason beside it")).collect()
}

/// A reader should not have to compute a derived size.
pub(crate) fn derived_sizes_are_told(source: &Source) -> Vec<Finding> {
    let exempt = source.is_test_file() || source.path.starts_with("lab/");
    let lines = source.text.lines().enumerate().filter(|_| !exempt);
    let untold = lines.filter_map(|(number, line)| Some((number, untold(line)?)));
    let what = |name: &str| format!("{name} is derived, and no comment behind it has its value");
    untold.map(|(number, name)| source.finding(number + 1, what(name))).collect()
}

/// The name of the size that a line derives and does not tell.
fn untold(line: &str) -> Option<&str> {
    let (name, value) = line.split_once("const ")?.1.split_once(": ")?;
    let (value, rest) = value.split_once(';')?;
    let is_size = SIZES.iter().any(|end| name.ends_with(end));
    let derived = DERIVING.iter().any(|operator| value.contains(operator));
    let top = line.starts_with("const ") || line.starts_with("pub");
    (top && is_size && derived && !rest.contains("//")).then_some(name)
}

fn asserts(source: &Source) -> impl Iterator<Item = usize> {
    let code = &source.code;
    code.match_indices(ASSERTION).map(|(at, _)| at).filter(|&at| {
        let end = crate::items::item_end(code, at).unwrap_or(code.len());
        code[at..end].contains("assert!")
    })
}

/// Names of the constants a file defines.
fn constants(source: &Source) -> impl Iterator<Item = &str> {
    let code = &source.code;
    word_offsets(code, "const").filter_map(move |at| {
        let name = code[at + "const".len()..].trim_start();
        let len = name.bytes().take_while(|&b| is_word(b)).count();
        let upper = name[..len].bytes().any(|b| b.is_ascii_uppercase());
        (upper && name[len..].starts_with(':') && !source.is_test(at)).then_some(&name[..len])
    })
}

fn is_operand(code: &str, name: &str) -> bool {
    word_offsets(code, name).any(|at| {
        let before = code[..at].trim_end_matches("Self::").trim_end_matches('(');
        OPERATORS.iter().any(|operator| before.ends_with(operator))
    })
}

/// A message in the assertion, or a comment on the lines directly above it or its neighbours.
fn has_reason(source: &Source, at: usize) -> bool {
    let end = crate::items::item_end(&source.code, at).unwrap_or(source.code.len());
    if source.text[at..end].contains('"') || !source.comments[at..end].trim().is_empty() {
        return true;
    }
    let comments: Vec<&str> = source.comments.lines().collect();
    let code: Vec<&str> = source.code.lines().collect();
    let above = (0..line_of(&source.code, at) - 1).rev();
    for line in above {
        if !comments[line].trim().is_empty() {
            return true;
        }
        if !code[line].starts_with(ASSERTION) {
            return false;
        }
    }
    false
}

#[test]
fn a_shift_without_an_assertion_is_refused() {
    let findings = |text| shifts_and_masks(&Source::new("a/src/x.rs", text)).len();
    assert_eq!(findings("const SHIFT: u32 = 3;\nfn f(x: u32) -> u32 { x >> SHIFT }"), 1);
    assert_eq!(findings("const MASK: u32 = 3;\nfn f(x: u32) -> u32 { x & !MASK }"), 1);
    assert_eq!(findings("impl A { const M: u32 = 3; fn f(x: u32) -> u32 { x & Self::M } }"), 1);
    assert_eq!(findings("const NAME: u32 = 3;\nfn f() { g(&NAME) }"), 0, "a reference");
    assert_eq!(findings("fn f(x: u32) -> u32 { x >> SHIFT }"), 0, "defined elsewhere");
    let asserted = "const S: u32 = 3;\n// Why.\nconst _: () = assert!(S < 4);\nfn f() { 1 << S }";
    assert_eq!(findings(asserted), 0);
}

#[test]
fn an_assertion_without_a_reason_is_refused() {
    let findings = |text| asserts_have_reasons(&Source::new("a/src/x.rs", text)).len();
    assert_eq!(findings("use a;\nconst _: () = assert!(A < 4);\n"), 1);
    assert_eq!(findings("use a;\nconst _: () = assert!(A < 4, \"why\");\n"), 0);
    assert_eq!(
        findings("// Why.\nconst _: () = assert!(A < 4);\nconst _: () = assert!(B < 4);\n"),
        0
    );
}

#[test]
fn a_derived_size_without_its_value_is_refused() {
    let findings = |text| derived_sizes_are_told(&Source::new("a/src/x.rs", text)).len();
    assert_eq!(findings("pub const PAGES_MAX: u64 = 1 << 20;"), 1);
    assert_eq!(findings("const RING_BYTES: usize = 4 * PAGE;"), 1);
    assert_eq!(findings("const RING_BYTES: usize = 4 * PAGE; // 16 KiB"), 0);
    assert_eq!(findings("const RING_BYTES: usize = PAGE;"), 0, "not derived");
    assert_eq!(findings("const DIRTY: u8 = 1 << 2;"), 0, "a flag");
}
