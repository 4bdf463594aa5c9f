//! The table of mutations is about the code that there is.
//!
//! ```text
//!   file zram/src/device/target.rs      one row of scripts/mutations
//!   old limit.min(soft)                 occurs once in the file
//!   new limit.max(soft)                 something else
//!   test -p ramfold-zram --lib target   a package of the workspace
//! ```

use crate::tree::{Document, Finding, Source};

/// The crates that have rows, and how many at least.
const CRATES: [&str; 13] = [
    "host", "zsmalloc", "zram", "zswap", "region", "inside", "serve", "disk", "codec", "buddy",
    "values", "capi", "lab",
];
const ROWS_MIN: usize = 7;

const KEYS: [&str; 4] = ["file", "old", "new", "test"];

/// A row, and the line at which it begins.
#[derive(Default)]
struct Row<'a> {
    line: usize,
    values: [&'a str; 4],
}

/// Rows whose text is not there, or that change nothing.
pub(crate) fn stale(table: &Document, sources: &[Source]) -> Vec<Finding> {
    let rows = rows(&table.text);
    let wrong = rows.iter().filter_map(|row| Some(table.finding(row.line, defect(row, sources)?)));
    let few = CRATES.into_iter().filter_map(|name| {
        let of = |row: &&Row<'_>| row.values[0].starts_with(&format!("{name}/"));
        let count = rows.iter().filter(of).count();
        let what = format!("{count} mutations of {name}, and at least {ROWS_MIN} are wanted");
        (count < ROWS_MIN).then(|| table.finding(1, what))
    });
    wrong.chain(few).collect()
}

fn defect(row: &Row<'_>, sources: &[Source]) -> Option<String> {
    let [file, old, new, test] = row.values;
    let Some(source) = sources.iter().find(|source| source.path == file) else {
        return Some(format!("there is no file {file:?}"));
    };
    let count = source.text.matches(old).count();
    if old.is_empty() || count != 1 {
        return Some(format!("{old:?} occurs {count} times in {file}"));
    }
    if old == new {
        return Some(format!("{old:?} is not changed"));
    }
    let package = match source.crate_name() {
        "ramfold" => "-p ramfold-cli ".to_owned(),
        "lab" => "-p lab ".to_owned(),
        folder => format!("-p ramfold-{folder} "),
    };
    // Tests of `host` fold memory with `region`, because signals and threads are its subject. And
    // programs of the command's tests have the library of `inside` in them.
    let others = match source.crate_name() {
        "inside" => "-p ramfold-cli --test system ",
        _ => "-p ramfold-host ",
    };
    let known = [package.as_str(), others].iter().any(|of| test.starts_with(of));
    (!known).then(|| format!("the tests {test:?} are not of {package:?}"))
}

/// Rows are separated by empty lines; a line is a key and its value.
fn rows(text: &str) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let (key, value) = line.split_once(' ').unwrap_or((line, ""));
        let Some(index) = KEYS.iter().position(|known| *known == key) else { continue };
        if index == 0 {
            rows.push(Row { line: number + 1, ..Row::default() });
        }
        if let Some(row) = rows.last_mut() {
            row.values[index] = value;
        }
    }
    rows
}

#[cfg(test)]
fn findings(row: &str) -> Vec<String> {
    let text = "fn f() { a.min(b); c(); c() }";
    let sources =
        ["zram/src/x.rs", "lab/src/x.rs", "inside/src/x.rs"].map(|path| Source::new(path, text));
    let table = Document { path: "scripts/mutations".into(), text: row.into() };
    let all = stale(&table, &sources).into_iter().map(|finding| finding.to_string());
    all.filter(|finding| !finding.contains("are wanted")).collect()
}

#[test]
fn a_row_about_other_code_is_refused() {
    let row = |file, old, new, test| format!("file {file}\nold {old}\nnew {new}\ntest {test}\n");
    let (file, test) = ("zram/src/x.rs", "-p ramfold-zram --lib f");
    assert_eq!(findings(&row(file, "a.min(b)", "a.max(b)", test)), [""; 0]);
    assert_eq!(
        findings(&row("lab/src/x.rs", "a.min(b)", "a.max(b)", "-p lab --bin lab f")),
        [""; 0]
    );
    assert_eq!(
        findings(&format!("# c() is twice\nfile {file}\nold a.min(b)\nnew\ntest {test}")),
        [""; 0]
    );
    let of_programs = "-p ramfold-cli --test system f";
    assert_eq!(findings(&row("inside/src/x.rs", "a.min(b)", "a", of_programs)), [""; 0]);
    let wrong = [
        row("zram/src/y.rs", "a.min(b)", "a", test),
        row(file, "a.min(c)", "a", test),
        row(file, "c()", "d()", test),
        row(file, "a.min(b)", "a.min(b)", test),
        row(file, "a.min(b)", "a", "-p ramfold-zswap --lib f"),
        row(file, "a.min(b)", "a", ""),
        row(file, "a.min(b)", "a", of_programs),
    ];
    for row in wrong {
        assert_eq!(findings(&row).len(), 1, "{row}");
    }
}

#[test]
fn a_crate_with_few_rows_is_refused() {
    let table = Document { path: "scripts/mutations".into(), text: String::new() };
    assert_eq!(stale(&table, &[]).len(), CRATES.len());
}
