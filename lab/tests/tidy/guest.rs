//! The differences from a newer kernel that the comparison allows are those of the document.
//!
//! ```text
//!   lab/guest/zram-attributes.allow    pattern <tab> difference
//!   docs/zram.md, "Seen beside .."     | difference | why |
//! ```
//!
//! Invariant: both have the same differences, so none is allowed that is not told, and none is told
//! that is gone.

use std::collections::BTreeSet;

use crate::tree::{Document, Finding};

/// The heading of the table.
const HEADING: &str = "### Seen beside a newer kernel";

pub(crate) fn undocumented(allowed: &Document, document: &Document) -> Vec<Finding> {
    let told: BTreeSet<&str> = rows(&document.text).collect();
    let mut seen = BTreeSet::new();
    let mut findings = Vec::new();
    for (number, line) in allowed.text.lines().enumerate() {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((pattern, difference)) = line.split_once('\t') else {
            findings.push(allowed.finding(number + 1, "a pattern, a tab, and the difference"));
            continue;
        };
        if !pattern.starts_with("\\[") {
            findings.push(allowed.finding(number + 1, "a pattern begins with the part it is for"));
        }
        if pattern.contains("[0-9]+ [0-9]+") {
            findings
                .push(allowed.finding(number + 1, "a pattern names numbers, and takes not any"));
        }
        if !told.contains(difference) {
            let what = format!("\"{difference}\" is no row below \"{HEADING}\"");
            findings.push(allowed.finding(number + 1, what));
        }
        seen.insert(difference);
    }
    let gone = told.difference(&seen);
    findings.extend(gone.map(|row| document.finding(0, format!("\"{row}\" is not allowed"))));
    findings
}

/// The first cells of the table.
fn rows(text: &str) -> impl Iterator<Item = &str> {
    let section = text.split_once(HEADING).map_or("", |(_, section)| section);
    let section = section.split("\n#").next().unwrap_or_default();
    let table = section.lines().filter_map(|line| line.strip_prefix("| "));
    table.filter_map(|row| row.split(" | ").next()).filter(|cell| *cell != "difference")
}

#[test]
fn a_difference_that_is_not_told_or_gone_is_found() {
    let document = |path: &str, text: &str| Document { path: path.into(), text: text.into() };
    let table =
        format!("{HEADING}\n\n| difference | why |\n|---|---|\n| one | a |\n| two | b |\n\n## x\n");
    let table = document("docs/zram.md", &table);
    let found = |allowed: &str| {
        let findings = undocumented(&document("list", allowed), &table);
        findings.iter().map(Finding::to_string).collect::<Vec<_>>()
    };
    assert_eq!(found("# a list\n\\[a\\] x\tone\n\\[b\\] y\ttwo\n\\[b\\] z\ttwo\n"), [""; 0]);
    assert_eq!(found("\\[a\\] x\tone\n"), ["docs/zram.md:0: \"two\" is not allowed"]);
    let three = found("\\[a\\] x\tone\n\\[b\\] y\ttwo\n\\[c\\] z\tthree\n");
    assert!(three.len() == 1 && three[0].starts_with("list:3: \"three\" is no row"), "{three:?}");
    let any = found("\\[a\\] [0-9]+ [0-9]+\tone\n\\[b\\] y\ttwo\n");
    assert!(any.len() == 1 && any[0].contains("takes not any"), "{any:?}");
    let loose = found("x\tone\n\\[b\\] y\ttwo\n");
    assert!(loose.len() == 1 && loose[0].contains("begins with the part"), "{loose:?}");
    assert_eq!(found("\\[a\\] x\tone\n\\[b\\] y\ttwo\nz\n").len(), 1, "no difference is named");
}
