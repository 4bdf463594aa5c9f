//! The tables of ARCHITECTURE.md say what the code says.
//!
//! ```text
//!   | `zram` | host, zsmalloc | ..     crates: the table of arrows, which cargo's metadata meets
//!   | `Cell` | cell | ..               ranks: the variants of `Rank`, in the same order
//! ```

use crate::arrows;
use crate::items;
use crate::tree::{Document, Finding, Source};

pub(crate) const RANKS: &str = "host/src/locks/rank.rs";

/// Rows of crates that are not those of the table of arrows.
pub(crate) fn crates(architecture: &Document) -> Vec<Finding> {
    let rows: Vec<String> = section(architecture, "## Crates").collect();
    let wanted: Vec<String> =
        arrows::rows().map(|(name, may)| format!("`{name}` | {may}")).collect();
    let starts =
        |row: &String, want: &String| row.strip_prefix(want).is_some_and(|r| r.starts_with(" | "));
    let same = rows.len() == wanted.len() && rows.iter().zip(&wanted).all(|(r, w)| starts(r, w));
    let what = format!("the table of crates has not the rows {wanted:?}");
    (!same).then(|| architecture.finding(1, what)).into_iter().collect()
}

/// Ranks of the table that are not those of the enumeration.
pub(crate) fn ranks(architecture: &Document, sources: &[Source]) -> Vec<Finding> {
    let rows = section(architecture, "## Locks");
    let first_cells = rows.filter_map(|row| Some(row.split(" | ").next()?.to_string()));
    let told: Vec<String> = first_cells
        .flat_map(|cell| cell.split('`').skip(1).step_by(2).map(str::to_string).collect::<Vec<_>>())
        .collect();
    let source = sources
        .iter()
        .find(|source| source.path.starts_with("host/") && source.file_name() == "rank.rs");
    let known = source.and_then(|source| variants(&source.code)).unwrap_or_default();
    let what = format!("the table of locks has the ranks {told:?}, {RANKS} has {known:?}");
    (told != known).then(|| architecture.finding(1, what)).into_iter().collect()
}

/// Ranks of the picture in the file of ranks that are not those of its enumeration.
pub(crate) fn rank_picture(source: &Source) -> Vec<Finding> {
    let picture = source.text.split("//! ```").nth(1).unwrap_or_default();
    let is_rank = |word: &&str| word.starts_with(|first: char| first.is_ascii_uppercase());
    let told: Vec<&str> = picture.split_whitespace().filter(is_rank).collect();
    let known = variants(&source.code).unwrap_or_default();
    let what = format!("the picture has the ranks {told:?}, the enumeration has {known:?}");
    (told != known).then(|| source.finding(1, what)).into_iter().collect()
}

/// Crates that the picture of ARCHITECTURE.md does not name.
pub(crate) fn picture(architecture: &Document) -> Vec<Finding> {
    let picture = architecture.text.split("```").nth(1).unwrap_or_default();
    let missing = arrows::rows().filter(|(name, _)| !picture.contains(&format!("{name}:")));
    let what = |name: &str| format!("the picture has not `{name}:`");
    missing.map(|(name, _)| architecture.finding(1, what(name))).collect()
}

/// The rows of the first table of a section, without its heading.
fn section<'a>(document: &'a Document, heading: &str) -> impl Iterator<Item = String> + 'a {
    let text = document.text.split_once(&format!("{heading}\n")).map_or("", |(_, text)| text);
    let text = text.split("\n## ").next().unwrap_or_default();
    text.lines().filter_map(|line| line.strip_prefix("| ")).skip(1).map(str::to_string)
}

fn variants(code: &str) -> Option<Vec<String>> {
    let head = code.find("enum Rank {")? + "enum Rank ".len();
    let body = &code[head + 1..items::closing(code, head)? - 1];
    let names = body.split(',').map(|name| name.trim().to_string());
    Some(names.filter(|name| !name.is_empty()).collect())
}

#[cfg(test)]
fn architecture(text: &str) -> Document {
    Document { path: "ARCHITECTURE.md".into(), text: text.into() }
}

#[test]
fn a_table_of_crates_that_is_not_so_is_refused() {
    let row = |(name, may): (&str, String)| format!("| `{name}` | {may} | x |\n");
    let rows: Vec<String> = arrows::rows().map(row).collect();
    let count = |rows: &[String]| {
        let text =
            format!("## Crates\n\n| crate | may use | holds |\n|---|---|---|\n{}", rows.concat());
        crates(&architecture(&text)).len()
    };
    assert_eq!(count(&rows), 0);
    assert_eq!(count(&rows[1..]), 1, "a crate is missing");
    assert_eq!(
        count(&rows.iter().map(|row| row.replace("| - |", "| disk |")).collect::<Vec<_>>()),
        1
    );
}

#[test]
fn a_picture_without_a_crate_is_refused() {
    let names: Vec<String> = arrows::rows().map(|(name, _)| format!("{name}: x ")).collect();
    let count = |names: &[String]| {
        picture(&architecture(&format!("```text\n{}\n```", names.concat()))).len()
    };
    assert_eq!(count(&names), 0);
    assert_eq!(count(&names[1..]), 1);
}

#[test]
fn a_picture_of_other_ranks_is_refused() {
    let count = |picture: &str| {
        let text = format!(
            "//! x\n//! ```text\n//! {picture}\n//! ```\nenum Rank {{\n    Gate,\n    Cell,\n}}\n"
        );
        rank_picture(&Source::new(RANKS, &text)).len()
    };
    assert_eq!(count("Gate -> Cell     of a device"), 0);
    assert_eq!(count("Gate"), 1);
    assert_eq!(count("Cell -> Gate"), 1, "another order");
}

#[test]
fn a_table_of_ranks_that_is_not_so_is_refused() {
    let source = Source::new(RANKS, "pub enum Rank {\n    /// One.\n    Gate,\n    Cell,\n}\n");
    let count = |rows: &str| {
        let text =
            format!("## Locks\n\n| rank | lock |\n|---|---|\n{rows}\n## More\n| `x` | y |\n");
        ranks(&architecture(&text), std::slice::from_ref(&source)).len()
    };
    assert_eq!(count("| `Gate` | a |\n| `Cell` | b |\n"), 0);
    assert_eq!(count("| `Gate`, then `Cell` | a |\n"), 0);
    assert_eq!(count("| `Cell` | a |\n| `Gate` | b |\n"), 1, "another order");
    assert_eq!(count("| `Gate` | a |\n"), 1);
}
