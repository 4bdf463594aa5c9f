//! How long files and functions are, and how much is comment.
//!
//! Invariant: limits for one file or function hold in tests too; the totals leave tests out, so
//! that many short tests cannot hide long code.

use std::fmt;

use crate::items;
use crate::tree::{Document, Finding, Source};

const FILE_LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;
const FUNCTION_LINES_MEDIAN: usize = 8;
const FUNCTION_LINES_P90: usize = 30;

/// Documents that are read from beginning to end, and the lines that a reader has patience for.
const DOCUMENTS: [(&str, usize); 2] = [("README.md", 200), ("ARCHITECTURE.md", 250)];

pub(crate) fn documents(document: &Document) -> Vec<Finding> {
    let lines = document.text.lines().count();
    let bounds = DOCUMENTS.iter().filter(|row| row.0 == document.path && row.1 < lines);
    let what = |most: usize| format!("document of {lines} lines; the limit is {most}");
    bounds.map(|row| document.finding(1, what(row.1))).collect()
}

pub(crate) fn files(source: &Source) -> Vec<Finding> {
    let lines = source.text.lines().count();
    let long = lines > FILE_LINES_MAX;
    let what = format!("file of {lines} lines; the limit is {FILE_LINES_MAX}");
    long.then(|| source.finding(lines, what)).into_iter().collect()
}

pub(crate) fn functions(source: &Source) -> Vec<Finding> {
    let long = items::functions(&source.code).into_iter().filter(|f| f.lines > FUNCTION_LINES_MAX);
    let what = |f: &items::Function| {
        format!("fn {} has {} lines; the limit is {FUNCTION_LINES_MAX}", f.name, f.lines)
    };
    long.map(|f| source.finding(f.line, what(&f))).collect()
}

/// The figures of the whole tree, tests left out.
#[derive(Default)]
pub(crate) struct Totals {
    files: usize,
    code_lines: usize,
    comment_lines: usize,
    function_lines: Vec<usize>,
    file_lines: Vec<usize>,
}

impl Totals {
    pub(crate) fn of(sources: &[Source]) -> Totals {
        let mut totals = Totals::default();
        sources.iter().filter(|s| !s.is_test_file()).for_each(|s| totals.add(s));
        totals.function_lines.sort_unstable();
        totals.file_lines.sort_unstable();
        totals
    }

    fn add(&mut self, source: &Source) {
        self.files += 1;
        self.file_lines.push(source.text.lines().count());
        let mut at = 0;
        for (code, comment) in source.code.lines().zip(source.comments.lines()) {
            if !source.is_test(at) {
                self.code_lines += usize::from(!code.trim().is_empty());
                self.comment_lines += usize::from(!comment.trim().is_empty());
            }
            at += code.len() + 1;
        }
        let starts = items::functions(&source.code);
        let starts = starts.iter().filter(|f| !source.is_test(line_start(source, f.line)));
        self.function_lines.extend(starts.map(|f| f.lines));
    }

    pub(crate) fn findings(&self) -> Vec<Finding> {
        let (median, p90) =
            (percentile(&self.function_lines, 50), percentile(&self.function_lines, 90));
        let tree = Source::new("(the whole tree)", "");
        let limits = [
            ("median function", median, FUNCTION_LINES_MEDIAN),
            ("90th percentile of functions", p90, FUNCTION_LINES_P90),
        ];
        let over = limits.into_iter().filter(|(_, lines, limit)| lines > limit);
        over.map(|(what, lines, limit)| {
            tree.finding(1, format!("{what}: {lines} lines; the limit is {limit}"))
        })
        .collect()
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Totals { files, code_lines, comment_lines, function_lines, file_lines } = self;
        writeln!(
            f,
            "without tests: {files} files, {code_lines} lines of code, {comment_lines} of comment"
        )?;
        writeln!(
            f,
            "comment lines per code line: {:.2}",
            *comment_lines as f64 / *code_lines as f64
        )?;
        for (name, sorted) in [("file", file_lines), ("function", function_lines)] {
            let at = |p| percentile(sorted, p);
            writeln!(f, "{name} lines: median {}, p90 {}, max {}", at(50), at(90), at(100))?;
        }
        Ok(())
    }
}

/// The nearest-rank percentile of a sorted list; 0 of an empty one.
fn percentile(sorted: &[usize], percent: usize) -> usize {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

fn line_start(source: &Source, line: usize) -> usize {
    source.text.split_inclusive('\n').take(line - 1).map(str::len).sum()
}

#[test]
fn a_long_file_is_refused() {
    let fits = Source::new("a/src/x.rs", &"x;\n".repeat(FILE_LINES_MAX));
    let long = Source::new("a/src/x.rs", &"x;\n".repeat(FILE_LINES_MAX + 1));
    assert_eq!((files(&fits).len(), files(&long).len()), (0, 1));
}

#[test]
fn a_long_function_is_refused() {
    let of = |lines| format!("fn f() {{\n{}}}\n", "x;\n".repeat(lines - 2));
    let fits = Source::new("a/src/x.rs", &of(FUNCTION_LINES_MAX));
    let long = Source::new("a/src/x.rs", &of(FUNCTION_LINES_MAX + 1));
    assert_eq!((functions(&fits).len(), functions(&long).len()), (0, 1));
}

#[test]
fn a_tree_of_middling_functions_is_refused() {
    let middling = "fn f() {\nx\nx\nx\nx\nx\nx\nx\n}\n";
    let totals = |text: &str| Totals::of(&[Source::new("a/src/x.rs", text)]);
    assert_eq!(totals(middling).findings().len(), 1, "nine lines are over the median");
    assert_eq!(totals("fn f() {\n}\n").findings().len(), 0);
    let tail =
        "fn f() {\n}\n".repeat(8) + &format!("fn g() {{\n{}}}\n", "x\n".repeat(40)).repeat(2);
    assert_eq!(totals(&tail).findings().len(), 1, "a fifth of forty lines is over the 90th");
}

#[test]
fn tests_do_not_count_in_the_totals() {
    let text = "fn a() {}\n#[cfg(test)]\nmod tests {\nfn b() {\n}\n}\n";
    let totals = Totals::of(&[Source::new("a/src/x.rs", text)]);
    assert_eq!((totals.function_lines, totals.code_lines), (vec![1], 1));
}

#[test]
fn a_long_document_is_refused() {
    for (path, most) in DOCUMENTS {
        let count = |lines: usize| {
            documents(&Document { path: path.into(), text: "x\n".repeat(lines) }).len()
        };
        assert_eq!((count(most), count(most + 1)), (0, 1), "{path}");
    }
}
