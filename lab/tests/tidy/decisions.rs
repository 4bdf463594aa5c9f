//! Decisions have one form, and the index lists every one of them.
//!
//! ```text
//!   docs/decisions/12-some-words.md    # 12. Title
//!                                      ## Context, ## Decision, ## Alternatives, ..
//!   docs/decisions/README.md           | 12 | [Title](12-some-words.md) | .. |
//! ```
//!
//! Invariant: numbers count from 1 without a gap, so a decision can be cited by its number.

use crate::tree::{Document, Finding};

const FOLDER: &str = "docs/decisions/";

const PARTS: [&str; 5] = ["Context", "Decision", "Alternatives", "Consequences", "Revisit when"];

pub(crate) fn findings(documents: &[Document]) -> Vec<Finding> {
    let named = documents.iter().filter_map(|d| Some((d.path.strip_prefix(FOLDER)?, d)));
    let (index, pages): (Vec<_>, Vec<_>) = named.partition(|(name, _)| *name == "README.md");
    let rows = index.first().map_or("", |(_, document)| &document.text);
    let mut findings = Vec::new();
    for (number, (name, page)) in (1..).zip(pages) {
        let title = page.text.lines().next().unwrap_or_default();
        let title = title.strip_prefix(&format!("# {number}. "));
        if !name.starts_with(&format!("{number:02}-")) || title.is_none() {
            let what = format!("decision {number} is {number:02}-name.md, \"# {number}. Title\"");
            findings.push(page.finding(1, what));
        }
        let parts: Vec<&str> = page.text.lines().filter_map(|l| l.strip_prefix("## ")).collect();
        if parts != PARTS {
            findings.push(page.finding(1, format!("its parts are {PARTS:?}, in this order")));
        }
        let row = format!("| {number} | [{}]({name}) | ", title.unwrap_or_default());
        if !rows.contains(&row) {
            findings.push(page.finding(1, format!("the index has no row \"{row}\"")));
        }
    }
    findings
}

#[test]
fn a_decision_without_its_form_is_refused() {
    let parts: String = PARTS.iter().map(|part| format!("\n## {part}\n\nText.\n")).collect();
    let count = |name: &str, text: &str, row: &str| {
        let document = |name: &str, text: &str| Document {
            path: format!("{FOLDER}{name}"),
            text: text.into(),
        };
        findings(&[document(name, text), document("README.md", row)]).len()
    };
    let (text, row) = (format!("# 1. A b\n{parts}"), "| 1 | [A b](01-a.md) | c |\n");
    assert_eq!(count("01-a.md", &text, row), 0);
    assert_eq!(count("01-a.md", &text, ""), 1, "not in the index");
    assert_eq!(count("01-a.md", &text.replace("## Context", "## Why"), row), 1, "another part");
    assert_eq!(count("01-a.md", &text.replace("# 1. ", "# 2. "), row), 2, "another number");
    assert_eq!(count("02-a.md", &text, row), 2, "a gap");
}
