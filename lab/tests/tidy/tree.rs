//! The files of the workspace, read once per rule.
//!
//! Invariant: paths are relative to the workspace root and use `/`; nothing that git ignores is
//! read.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::items;
use crate::scan::scan;

/// Something a rule refuses, and where.
#[derive(Debug, PartialEq)]
pub(crate) struct Finding {
    path: String,
    line: usize,
    what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// A document: any text that is not Rust.
pub(crate) struct Document {
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Document {
    pub(crate) fn finding(&self, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), line, what: what.into() }
    }
}

/// One Rust file with its scanned views.
pub(crate) struct Source {
    pub(crate) path: String,
    pub(crate) text: String,
    pub(crate) code: String,
    pub(crate) comments: String,
    test_file: bool,
    test_items: Vec<std::ops::Range<usize>>,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Source {
        let scan = scan(text);
        let test_items = items::test_items(&scan.code);
        let test_file = path.contains("/tests/") || path.ends_with("/tests.rs");
        let (path, text) = (path.to_string(), text.to_string());
        Source { path, text, code: scan.code, comments: scan.comments, test_file, test_items }
    }

    pub(crate) fn finding(&self, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), line, what: what.into() }
    }

    /// A finding at a byte offset.
    pub(crate) fn finding_at(&self, at: usize, what: impl Into<String>) -> Finding {
        self.finding(items::line_of(&self.text, at), what)
    }

    /// Does the whole file exist only in test builds?
    pub(crate) fn is_test_file(&self) -> bool {
        self.test_file
    }

    /// Is the byte at this offset part of a test build only?
    pub(crate) fn is_test(&self, at: usize) -> bool {
        self.test_file || self.test_items.iter().any(|range| range.contains(&at))
    }

    /// The file's leading `//!` block.
    pub(crate) fn head(&self) -> String {
        let head = self.text.lines().take_while(|line| line.starts_with("//!"));
        head.collect::<Vec<_>>().join("\n")
    }

    /// Is it the file that a crate begins with?
    pub(crate) fn is_crate_root(&self) -> bool {
        let inside = self.path.split_once('/').map_or("", |(_, inside)| inside);
        ["src/lib.rs", "src/main.rs"].contains(&inside)
    }

    pub(crate) fn crate_name(&self) -> &str {
        self.path.split('/').next().unwrap_or_default()
    }

    pub(crate) fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    /// Where this file's child modules live.
    fn module_directory(&self) -> String {
        let stem = self.path.trim_end_matches(".rs");
        match self.file_name() {
            "lib.rs" | "main.rs" | "mod.rs" => {
                stem.rsplit_once('/').map_or("", |s| s.0).to_string()
            }
            _ => stem.to_string(),
        }
    }
}

/// The workspace root.
pub(crate) fn root() -> PathBuf {
    let lab = Path::new(env!("CARGO_MANIFEST_DIR"));
    lab.parent().expect("lab lies in the workspace").to_path_buf()
}

/// Directories of the workspace's packages.
pub(crate) fn members(root: &Path) -> Vec<String> {
    let entries = entries(root).into_iter().filter(|path| path.join("Cargo.toml").is_file());
    entries.map(|path| relative(&path, root)).collect()
}

/// Every Rust file, those of test-only modules marked as such.
pub(crate) fn sources(root: &Path) -> Vec<Source> {
    let files = files(root).into_iter().filter(|path| has_extension(path, "rs"));
    let mut sources: Vec<Source> =
        files.map(|path| Source::new(&relative(&path, root), &read(&path))).collect();
    mark_test_modules(&mut sources);
    sources
}

/// Every document: Markdown and the scripts at fixed places.
pub(crate) fn documents(root: &Path) -> Vec<Document> {
    let markdown = files(root).into_iter().filter(|path| has_extension(path, "md"));
    let scripts = [root.join("test"), root.join(".ci/run")].into_iter().filter(|p| p.is_file());
    let document = |path: PathBuf| Document { path: relative(&path, root), text: read(&path) };
    markdown.chain(scripts).map(document).collect()
}

/// The pages of the manual.
pub(crate) fn manuals(root: &Path) -> Vec<Document> {
    let sections = ["1", "5"];
    let is_page = |path: &PathBuf| sections.iter().any(|section| has_extension(path, section));
    let pages = files(root).into_iter().filter(is_page);
    pages.map(|path| Document { path: relative(&path, root), text: read(&path) }).collect()
}

/// The manifests of the workspace's packages.
pub(crate) fn manifests(root: &Path) -> Vec<Document> {
    let paths = members(root).into_iter().map(|member| format!("{member}/Cargo.toml"));
    paths.map(|path| Document { text: read(&root.join(&path)), path }).collect()
}

fn mark_test_modules(sources: &mut [Source]) {
    let mut stems = Vec::new();
    for source in sources.iter() {
        let directory = source.module_directory();
        stems.extend(items::test_modules(&source.code).iter().map(|m| format!("{directory}/{m}")));
    }
    for source in sources {
        let path = &source.path;
        source.test_file |= stems.iter().any(|stem| {
            path.strip_prefix(stem).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        });
    }
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let (directories, files): (Vec<_>, Vec<_>) =
        entries(directory).into_iter().partition(|path| path.is_dir());
    files.into_iter().chain(directories.iter().flat_map(|d| self::files(d))).collect()
}

/// What a directory holds, sorted, without hidden entries and build output.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let listing = std::fs::read_dir(directory)
        .unwrap_or_else(|e| panic!("cannot list {}: {e}", directory.display()));
    let mut paths: Vec<PathBuf> = listing.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        !name.starts_with('.') && name != "target" && !path.is_symlink()
    });
    paths.sort();
    paths
}

fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|e| e == extension)
}

fn relative(path: &Path, root: &Path) -> String {
    let inside = path.strip_prefix(root).expect("the walk starts at the root");
    inside.to_string_lossy().into_owned()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("cannot read {}: {e}", path.display()))
}

#[test]
fn modules_declared_for_tests_are_test_files() {
    let mut sources = [
        Source::new("a/src/lib.rs", "mod real;\n#[cfg(test)]\nmod naive;\n"),
        Source::new("a/src/naive.rs", ""),
        Source::new("a/src/naive/deep.rs", ""),
        Source::new("a/src/real.rs", "#[cfg(test)]\nmod tests;\n"),
        Source::new("a/src/real/tests.rs", ""),
    ];
    mark_test_modules(&mut sources);
    let marks: Vec<bool> = sources.iter().map(Source::is_test_file).collect();
    assert_eq!(marks, [false, true, true, false, true]);
}

#[test]
fn offsets_in_test_items_are_tests() {
    let source = Source::new("a/src/x.rs", "fn a() {}\n#[cfg(test)]\nmod tests { fn b() {} }\n");
    assert!(!source.is_test(3), "a is real code");
    assert!(source.is_test(source.text.find("fn b").unwrap()), "b is a test");
}
