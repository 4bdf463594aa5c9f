//! Every Rust example of a document is compiled and run.
//!
//! ```text
//!   README.md    fence: rust ---- a crate includes the document in its documentation tests
//!                fence: sh, text, ...    anything but a bare fence, which rustdoc takes for Rust
//! ```

use crate::tree::{Document, Finding, Source};

/// Fences without a language, and documents with Rust that no crate includes.
pub(crate) fn findings(document: &Document, sources: &[Source]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut rust = false;
    for (line, language) in fences(&document.text) {
        if language.is_empty() {
            findings.push(document.finding(line, "a fence that names no language"));
        }
        rust |= language == "rust";
    }
    if rust && !is_included(&document.path, sources) {
        let what = "Rust that no documentation test includes; see face/src/lib.rs";
        findings.push(document.finding(1, what));
    }
    findings
}

/// Lines at which fences open, with what stands behind the backticks.
fn fences(text: &str) -> Vec<(usize, &str)> {
    let marks = text.lines().enumerate().filter_map(|(number, line)| {
        line.trim_start().strip_prefix("```").map(|language| (number + 1, language.trim()))
    });
    marks.step_by(2).collect()
}

fn is_included(path: &str, sources: &[Source]) -> bool {
    let include = format!("#[doc = include_str!(\"../../{path}\")]");
    sources
        .iter()
        .any(|source| source.path.ends_with("src/lib.rs") && source.text.contains(&include))
}

#[test]
fn an_example_that_nobody_compiles_is_refused() {
    let count = |text: &str, root: &str| {
        let document = Document { path: "docs/x.md".into(), text: text.into() };
        findings(&document, &[Source::new("a/src/lib.rs", root)]).len()
    };
    let included = "#[doc = include_str!(\"../../docs/x.md\")]\nstruct X;\n";
    assert_eq!(count("a\n```rust\nf();\n```\n", included), 0);
    assert_eq!(count("a\n```rust\nf();\n```\n", ""), 1, "not included");
    assert_eq!(count("```text\n-->\n```\n", ""), 0, "no Rust");
    assert_eq!(count("```\n-->\n```\n", included), 1, "rustdoc would take it for Rust");
}
