//! `lab report` and `lab compare`: what they write, what they refuse, and the page in a browser.

use crate::support::{Scratch, lab, succeed};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const BROWSER: &str = "chromium";
const RECORDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/records/amd-epyc-2c");

/// A directory of this test's own that is removed again.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Directory {
        let path =
            Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory for a test");
        Directory(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // A browser may still write to its profile; what it leaves is under target.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Some record of a study.
fn record(study: &str) -> String {
    let entries = std::fs::read_dir(RECORDS).expect("the lab has records");
    let mut names: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    names.sort();
    let of_study = |path: &PathBuf| path.to_string_lossy().contains(&format!("-{study}-"));
    names.into_iter().rfind(of_study).expect("a record of this study").display().to_string()
}

/// Has the browser load a page; `None` where there is none, which CI refuses.
fn browse(page: &Path, profile: &Path) -> Option<Output> {
    let mut browser = Command::new("timeout");
    browser.args(["--kill-after=5", "120", BROWSER, "--headless", "--no-sandbox", "--disable-gpu"]);
    browser.args(["--enable-logging=stderr", "--v=0", "--dump-dom"]);
    browser.arg(format!("--user-data-dir={}", profile.display()));
    browser.arg(format!("file://{}", page.display()));
    let there = Command::new(BROWSER).arg("--version").output().is_ok_and(|o| o.status.success());
    if !there {
        println!("skipped: needs {BROWSER}");
        assert!(std::env::var("CI").as_deref() != Ok("true"), "needs {BROWSER}, and this is CI");
        return None;
    }
    let output = browser.output().expect("timeout starts it");
    assert!(output.status.success(), "{BROWSER}: {}", output.status);
    Some(output)
}

fn complaints(output: &Output) -> Vec<String> {
    let said = String::from_utf8_lossy(&output.stderr);
    said.lines().filter(|line| line.contains(":CONSOLE")).map(str::to_owned).collect()
}

#[test]
fn the_page_has_a_mark_for_each_row_in_a_browser() {
    let directory = Directory::new("report");
    let out = directory.0.join("made/for/it");
    succeed(&["report", "--out", out.to_str().unwrap()]);
    let page = out.join("report.html");
    let Some(output) = browse(&page, &directory.0.join("profile")) else { return };
    assert_eq!(complaints(&output), [""; 0]);
    let dom = String::from_utf8_lossy(&output.stdout);
    let charts: Vec<&str> = dom.split("<section").skip(1).collect();
    assert!(charts.len() > 8, "{} charts", charts.len());
    for chart in charts {
        let (marks, rows) = (chart.matches("<circle").count(), chart.matches("<tr><td>").count());
        assert!(marks > 1 && marks == rows, "{marks} marks, {rows} rows: {chart:.80}");
    }
    // What the test looks for is what a browser says.
    let bad = directory.0.join("bad.html");
    std::fs::write(&bad, "<!DOCTYPE html><script>console.error(1)</script>").unwrap();
    let output = browse(&bad, &directory.0.join("profile")).expect("it was there before");
    assert_eq!(complaints(&output).len(), 1, "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn only_named_records_are_drawn() {
    let directory = Directory::new("report-one");
    let out = directory.0.to_str().unwrap();
    succeed(&["report", &record("pagetypeinfo"), "--out", out]);
    let html = std::fs::read_to_string(directory.0.join("report.html")).unwrap();
    assert_eq!(html.matches("<section").count(), 1, "one study");
}

fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let output = lab().args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn what_is_no_record_is_refused() {
    let file = Scratch::new("no-record");
    std::fs::write(&file.0, "{}").unwrap();
    let path = file.0.to_str().unwrap();
    let (code, said) = refused(&["report", path, "--out", "/nonexistent"]);
    assert!(code == Some(2) && said.contains("not a record of a study"), "{said}");
    let (code, said) = refused(&["report", "/nonexistent.json", "--out", "/nonexistent"]);
    assert!(code == Some(1) && said.contains("/nonexistent.json"), "{said}");
    let alone = record("recompress");
    let (code, said) = refused(&["report", &alone, "--out", "/nonexistent"]);
    assert!(code == Some(2) && said.contains("no chart has figures"), "{said}");
}

#[test]
fn two_records_of_one_study_are_compared() {
    let teardown = record("teardown");
    let output = succeed(&["compare", &teardown, &teardown, "--field", "teardown_ms"]);
    let said = String::from_utf8_lossy(&output.stdout);
    let rows: Vec<&str> = said.lines().skip(1).collect();
    assert!(rows.len() > 1, "{said}");
    for row in rows {
        assert!(row.contains("1.000") && row.contains("no difference shown"), "{row}");
    }
    let (code, said) = refused(&["compare", &teardown, &record("locks")]);
    assert!(code == Some(2) && said.contains("two studies"), "{said}");
    let text = std::fs::read_to_string(&teardown).expect("a record");
    let other = Scratch::new("other-corpus");
    std::fs::write(&other.0, text.replace("\"cksum:", "\"cksum:1")).expect("a copy");
    let (code, said) = refused(&["compare", &teardown, other.0.to_str().unwrap()]);
    assert!(code == Some(2) && said.contains("two corpora"), "{said}");
    let (code, said) = refused(&["compare", &teardown, &teardown, "--field", "colour"]);
    assert!(code == Some(2) && said.contains("no row"), "{said}");
}

#[test]
fn the_tables_of_the_studies_are_written_again() {
    const DOCUMENT: &str = include_str!("../../../docs/studies.md");
    let directory = Directory::new("studies");
    let path = directory.0.join("studies.md");
    let row = DOCUMENT.lines().find(|line| line.starts_with("| multi 2p |")).expect("a row");
    std::fs::write(&path, DOCUMENT.replace(row, "| multi 2p | 1 |")).expect("room for a document");
    let path = path.display().to_string();
    let said = |arguments: &[&str]| String::from_utf8(succeed(arguments).stdout).expect("UTF-8");
    assert!(said(&["studies", "--out", &path]).starts_with("27 tables, written: "));
    assert_eq!(std::fs::read_to_string(&path).expect("it was written"), DOCUMENT);
    assert!(said(&["studies", "--out", &path]).starts_with("27 tables, as before: "));

    std::fs::write(&path, "no tables\n").expect("room for a document");
    for path in [&path, "/nowhere/studies.md"] {
        let output = lab().args(["studies", "--out", path]).output().expect("it starts");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.contains(path), "{errors}");
    }
    assert_eq!(std::fs::read_to_string(&path).expect("it is left alone"), "no tables\n");
}
