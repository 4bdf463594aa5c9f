//! Unsafe code lives in `host` and in one module each of `zsmalloc` and `region`, and the compiler
//! knows it.

use crate::items::word_offsets;
use crate::tree::{Document, Finding, Source};

/// What a crate root says about unsafe code; `host` is the fence itself.
pub(crate) fn roots(source: &Source) -> Vec<Finding> {
    let attribute = match source.crate_name() {
        "host" => return Vec::new(),
        "zsmalloc" | "region" => "#![deny(unsafe_code)]",
        _ => "#![forbid(unsafe_code)]",
    };
    let missing = is_root(&source.path) && !source.code.contains(attribute);
    let what = format!("a crate root without {attribute}");
    missing.then(|| source.finding(1, what)).into_iter().collect()
}

fn is_root(path: &str) -> bool {
    let inside = path.split_once('/').map_or("", |parts| parts.1);
    matches!(inside, "src/lib.rs" | "src/main.rs") || inside.starts_with("src/bin/")
}

pub(crate) fn uses(source: &Source) -> Vec<Finding> {
    let inside = ["host/", "zsmalloc/src/zspage", "region/src/promises"];
    let fenced = inside.iter().any(|path| source.path.starts_with(path));
    let uses = word_offsets(&source.code, "unsafe").filter(|_| !fenced);
    uses.map(|at| source.finding_at(at, "unsafe outside host, zspage and promises")).collect()
}

/// Lints are set once for the workspace; a package that forgets them has none.
pub(crate) fn inherits_lints(manifest: &Document) -> Vec<Finding> {
    let section = manifest.text.split_once("[lints]\n").map_or("", |parts| parts.1);
    let inherits = section.lines().next() == Some("workspace = true");
    let finding = || manifest.finding(1, "a package without the workspace's lints");
    (!inherits).then(finding).into_iter().collect()
}

#[test]
fn a_root_without_the_attribute_is_refused() {
    let findings = |path, text| roots(&Source::new(path, text)).len();
    assert_eq!(findings("zram/src/lib.rs", "//! x\n"), 1);
    assert_eq!(findings("zram/src/lib.rs", "// #![forbid(unsafe_code)]\n"), 1, "a comment");
    assert_eq!(findings("zram/src/lib.rs", "#![forbid(unsafe_code)]\n"), 0);
    assert_eq!(findings("zsmalloc/src/lib.rs", "#![deny(unsafe_code)]\n"), 0);
    assert_eq!(findings("zram/src/slot.rs", ""), 0, "not a root");
}

#[test]
fn unsafe_beyond_the_fence_is_refused() {
    let findings = |path| uses(&Source::new(path, "fn f() { unsafe { g() } }")).len();
    let outside = ["zram/src/slot.rs", "zsmalloc/src/class.rs", "region/src/fault_in.rs"];
    assert_eq!(outside.map(findings), [1; 3]);
    let inside = ["host/src/arena.rs", "zsmalloc/src/zspage.rs", "region/src/promises.rs"];
    assert_eq!(inside.map(findings), [0; 3]);
}

#[test]
fn a_package_without_lints_is_refused() {
    let manifest = |text: &str| Document { path: "a/Cargo.toml".into(), text: text.into() };
    let findings = |text| inherits_lints(&manifest(text)).len();
    assert_eq!((findings("[package]\n"), findings("[lints]\n[dependencies]\n")), (1, 1));
    assert_eq!(findings("[lints]\nworkspace = true\n"), 0);
}
