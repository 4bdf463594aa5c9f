//! Cuts a document into passages of prose: Markdown, the manual, heads of crates and help texts.
//!
//! ```text
//!   # Heading         a passage, not counted   (words are looked at, length is not)
//!   | a | b |         a passage, not counted
//!   - an item         a passage; its continuation lines belong to it
//!   text, text        lines up to a blank one are one passage
//!   ```fence```       nothing: code
//!
//!   .It Fl -size      manual: a macro that opens something ends the passage before it
//!   .Bd .. .Ed, .Dl   nothing: code; nor does SYNOPSIS hold any prose
//!
//!   /// text          help: the doc comments of a type that derives one of clap's traits
//! ```
//!
//! In a passage a code span is the one word `x`, and the target of a link is left out.
//!
//! Invariant: a passage keeps its line breaks, so an offset in it gives a line of the document.

use std::ops::Range;

use crate::items;
use crate::tree::{Document, Source};

/// Text that is read in one go.
#[derive(Debug, PartialEq)]
pub(crate) struct Passage {
    /// The line of the document at which it begins.
    pub(crate) line: usize,
    pub(crate) text: String,
    /// Whether its sentences count; those of headings and tables do not.
    pub(crate) counted: bool,
}

/// The traits by which clap makes help texts out of doc comments.
const HELP: [&str; 4] = ["Parser", "Args", "Subcommand", "ValueEnum"];

/// Manual: macros that begin something new. The text behind `Sh`, `Ss` and `It` is a heading.
const MANUAL_BREAKS: [&str; 12] =
    ["Dd", "Dt", "Os", "Sh", "Ss", "It", "Pp", "Bl", "El", "Bd", "Ed", "Nd"];

/// The passages of a document, by the kind that its name says.
pub(crate) fn passages(document: &Document) -> Vec<Passage> {
    if document.path.ends_with(['1', '5']) {
        manual(&document.text)
    } else {
        markdown(&document.text)
    }
}

/// Collects lines into passages.
#[derive(Default)]
struct Reader {
    passages: Vec<Passage>,
    open: bool,
}

impl Reader {
    fn close(&mut self) {
        self.open = false;
    }

    fn begin(&mut self, line: usize, text: &str, counted: bool) {
        self.passages.push(Passage { line, text: text.into(), counted });
        self.open = counted;
    }

    /// A line that continues what is open; blank lines in between stand for lines without prose.
    fn add(&mut self, line: usize, text: &str) {
        match self.passages.last_mut() {
            Some(passage) if self.open => {
                let reached = passage.line + passage.text.matches('\n').count();
                passage.text.push_str(&"\n".repeat(line - reached));
                passage.text.push_str(text);
            }
            _ => self.begin(line, text, true),
        }
    }

    fn finish(mut self) -> Vec<Passage> {
        for passage in &mut self.passages {
            passage.text = plain(&passage.text);
        }
        self.passages
    }
}

fn markdown(text: &str) -> Vec<Passage> {
    let mut reader = Reader::default();
    let mut fenced = false;
    for (number, line) in text.lines().enumerate() {
        let (line, number) = (line.trim(), number + 1);
        let fence = line.starts_with("```");
        fenced ^= fence;
        if fence || fenced || line.is_empty() || line.starts_with("<!--") {
            reader.close();
        } else if line.starts_with(['#', '|']) {
            reader.begin(number, line.trim_start_matches('#'), false);
        } else if let Some(item) = list_item(line) {
            reader.begin(number, item, true);
        } else {
            reader.add(number, line);
        }
    }
    reader.finish()
}

/// What follows the mark of a list item.
fn list_item(line: &str) -> Option<&str> {
    let numbered = line.split_once(". ").filter(|(mark, _)| {
        !mark.is_empty() && mark.len() <= 2 && mark.bytes().all(|b| b.is_ascii_digit())
    });
    line.strip_prefix("- ").or(line.strip_prefix("* ")).or(numbered.map(|(_, item)| item))
}

fn manual(text: &str) -> Vec<Passage> {
    let mut reader = Reader::default();
    let mut skipped = false;
    for (number, line) in text.lines().enumerate() {
        let number = number + 1;
        let Some(request) = line.strip_prefix('.') else {
            if !skipped && !line.trim().is_empty() {
                reader.add(number, &unescaped(line));
            }
            continue;
        };
        let name = request.split(' ').next().unwrap_or_default();
        match name {
            "Sh" => skipped = request == "Sh SYNOPSIS",
            "Bd" => skipped = true,
            "Ed" => skipped = false,
            _ => {}
        }
        if MANUAL_BREAKS.contains(&name) {
            reader.close();
        } else if !skipped && name != "Dl" && !name.starts_with('\\') {
            reader.add(number, &arguments(request));
        }
    }
    reader.finish()
}

/// A line of requests as a reader sees it: `Fl -size Ar SIZE .` is `-size SIZE.`
fn arguments(request: &str) -> String {
    let mut text = String::new();
    for word in request.split_ascii_whitespace() {
        let bytes = word.as_bytes();
        let is_macro =
            bytes.len() == 2 && bytes[0].is_ascii_uppercase() && bytes[1].is_ascii_lowercase();
        let named = request == "Nm" || request.starts_with("Nm ");
        let word = if word == "Nm" && named && text.is_empty() { "ramfold" } else { word };
        if is_macro && word != "ramfold" {
            continue;
        }
        let closes = word.bytes().all(|b| b".,;:)?!".contains(&b));
        if !text.is_empty() && !closes {
            text.push(' ');
        }
        text.push_str(word);
    }
    unescaped(&text)
}

fn unescaped(line: &str) -> String {
    line.replace("\\-", "-").replace("\\(aq", "'").replace("\\&", "")
}

/// The head of a source as a document.
pub(crate) fn head(source: &Source) -> Document {
    let head = source.head();
    let lines: Vec<&str> = head.lines().map(|line| line[3..].trim_start_matches(' ')).collect();
    Document { path: source.path.clone(), text: lines.join("\n") }
}

/// All doc comments of a source as a document: other lines are blank.
pub(crate) fn doc_comments(source: &Source) -> Document {
    let lines = source.text.lines().map(|line| {
        let line = line.trim_start();
        let comment = line.strip_prefix("//!").or(line.strip_prefix("///"));
        comment.unwrap_or_default().trim_start_matches(' ')
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    Document { path: source.path.clone(), text }
}

/// The help texts of a source: a passage for each run of `///` lines.
pub(crate) fn help(source: &Source) -> Vec<Passage> {
    let types: Vec<Range<usize>> = items::word_offsets(&source.code, "derive")
        .filter(|&at| derives_help(&source.code[at..]))
        .filter_map(|at| Some(documented_from(source, at)..derived_to(&source.code, at)?))
        .collect();
    let lines = types.iter().map(|range| line_range(&source.text, range));
    lines.flat_map(|(first, last)| comments(&source.text, first, last)).collect()
}

fn derives_help(code: &str) -> bool {
    let list = code.split(')').next().unwrap_or_default();
    HELP.iter().any(|name| items::word_offsets(list, name).next().is_some())
}

/// Where the type ends whose attribute is at `at`.
fn derived_to(code: &str, at: usize) -> Option<usize> {
    items::item_end(code, at + code[at..].find(']')? + 1)
}

/// Where the doc comment above a `derive` begins.
fn documented_from(source: &Source, at: usize) -> usize {
    let mut start = source.text[..at].rfind('\n').map_or(0, |end| end + 1);
    while let Some(above) = source.text[..start].strip_suffix('\n') {
        let line = above.rfind('\n').map_or(0, |end| end + 1);
        if !above[line..].trim_start().starts_with("///") {
            break;
        }
        start = line;
    }
    start
}

fn line_range(text: &str, range: &Range<usize>) -> (usize, usize) {
    (items::line_of(text, range.start), items::line_of(text, range.end))
}

fn comments(text: &str, first: usize, last: usize) -> Vec<Passage> {
    let mut reader = Reader::default();
    let lines = text.lines().enumerate().skip(first - 1).take(last + 1 - first);
    for (number, line) in lines {
        match line.trim().strip_prefix("///") {
            Some(comment) if !comment.trim().is_empty() => reader.add(number + 1, comment.trim()),
            _ => reader.close(),
        }
    }
    reader.finish()
}

/// Text without link targets, and with code spans as the word `x`.
fn plain(text: &str) -> String {
    let mut spans = String::new();
    for (index, part) in text.split('`').enumerate() {
        let is_code = index % 2 == 1;
        match is_code {
            true => spans.push_str(&format!("x{}", "\n".repeat(part.matches('\n').count()))),
            false => spans.push_str(part),
        }
    }
    without_targets(&spans)
}

/// `[text](target)` without what stands in the round brackets.
pub(crate) fn without_targets(text: &str) -> String {
    let mut parts = text.split("](");
    let mut plain = parts.next().unwrap_or_default().to_string();
    for part in parts {
        plain.push(']');
        plain.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    plain
}

#[cfg(test)]
fn texts(path: &str, text: &str) -> Vec<(usize, String)> {
    let document = Document { path: path.into(), text: text.into() };
    let counted = passages(&document).into_iter().filter(|passage| passage.counted);
    counted.map(|passage| (passage.line, passage.text)).collect()
}

#[test]
fn markdown_is_cut_at_items_tables_headings_and_code() {
    let text =
        "# Head\n\nOne\ntwo.\n- three\n  four\n10. five\n\n```sh\nsix\n```\n| seven |\neight\n";
    let lines = texts("a.md", text);
    let expected = [(3, "One\ntwo."), (5, "three\nfour"), (7, "five"), (13, "eight")];
    assert_eq!(lines, expected.map(|(line, text)| (line, text.to_string())));
}

#[test]
fn code_and_targets_are_no_words() {
    let lines = texts("a.md", "See [the\ntext](a/b.md#c) and `a\nb. C`.");
    assert_eq!(lines, [(1, "See [the\ntext] and x\n.".to_string())]);
}

#[test]
fn the_manual_is_read_as_it_is_seen() {
    let text = ".Sh SYNOPSIS\n.Nm\n.Cm serve\n.Sh DESCRIPTION\n.Nm\nkeeps\n.Em pages ,\nas\n\
                .Xr sd_notify 3 .\n.It Fl -size\nText.\n.Bd -literal\ncode\n.Ed\n.Dl code\nMore.\n";
    let lines = texts("a.1", text);
    let first = "ramfold\nkeeps\npages,\nas\nsd_notify 3.";
    let expected = [(5, first), (11, "Text."), (16, "More.")];
    assert_eq!(lines, expected.map(|(line, text)| (line, text.to_string())));
}

#[test]
fn a_head_is_read_without_its_marks() {
    let source = Source::new("a/src/lib.rs", "//! One\n//! two.\n//!\n//! - three\n\n//! Four.\n");
    let found: Vec<(usize, String)> =
        passages(&head(&source)).into_iter().map(|p| (p.line, p.text)).collect();
    assert_eq!(found, [(1, "One\ntwo.".to_string()), (4, "three".to_string())]);
}

#[test]
fn doc_comments_are_read_where_they_stand() {
    let text = "//! Head.\n\nfn f() {\n    // No doc.\n}\n    /// An\n    /// item.\nstruct A;\n";
    let document = doc_comments(&Source::new("a/src/b.rs", text));
    let found: Vec<(usize, String)> =
        passages(&document).into_iter().map(|p| (p.line, p.text)).collect();
    assert_eq!(found, [(1, "Head.".to_string()), (6, "An\nitem.".to_string())]);
}

#[test]
fn help_is_the_comments_of_types_that_derive_it() {
    let text = "/// Of a type.\n#[derive(Args, Debug)]\nstruct A {\n    /// One\n    /// two\n    \
                #[arg(long)]\n    a: u8,\n}\n/// Of none.\n#[derive(Debug)]\nstruct B;\n";
    let found = help(&Source::new("a/src/args.rs", text));
    let found: Vec<(usize, &str)> = found.iter().map(|p| (p.line, &*p.text)).collect();
    assert_eq!(found, [(1, "Of a type."), (4, "One\ntwo")]);
}
