//! Unsafe code lives in `host`, in the library inside programs, in the zspage module of `zsmalloc`,
//! in the promises of `region` and in the borders to C and Python, and the compiler knows it.

use crate::items::word_offsets;
use crate::tree::{Document, Finding, Source};

/// What opens a hole in the fence.
const WORD: &str = "unsafe";

/// What a crate root says about unsafe code. In `host` each module that has some is an exception;
/// `inside` is fence as a whole.
pub(crate) fn roots(source: &Source) -> Vec<Finding> {
    let attribute = match source.crate_name() {
        "inside" => return Vec::new(),
        "host" | "zsmalloc" | "region" | "capi" | "python" => "#![deny(unsafe_code)]",
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

/// The files of other crates that have some, one each. The module above names it as an exception.
const FILES: [&str; 2] = ["zsmalloc/src/zspages/zspage.rs", "region/src/way_in/promises.rs"];

/// Where all files may have some: the fence itself, and what has pointers of C and of Python.
const FENCED: [&str; 4] = ["host/", "inside/", "capi/src/border", "python/src/border"];

pub(crate) fn uses(source: &Source) -> Vec<Finding> {
    let fenced = FENCED.iter().any(|fenced| source.path.starts_with(fenced))
        || FILES.contains(&source.path.as_str());
    let uses = word_offsets(&source.code, WORD).filter(|_| !fenced);
    let what = "unsafe outside host, inside, zsmalloc's zspage, region's promises and the borders \
                of capi and python";
    uses.map(|at| source.finding_at(at, what)).collect()
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
    assert_eq!(findings("region/src/lib.rs", "#![deny(unsafe_code)]\n"), 0);
    assert_eq!((findings("host/src/lib.rs", ""), findings("inside/src/lib.rs", "")), (1, 0));
    assert_eq!(findings("zram/src/slot.rs", ""), 0, "not a root");
}

#[test]
fn unsafe_beyond_the_fence_is_refused() {
    let code = format!("fn f() {{ {WORD} {{ g() }} }}");
    let findings = |path| uses(&Source::new(path, &code)).len();
    for outside in ["zram/src/slot.rs", "zsmalloc/src/class.rs", "capi/src/handles.rs"] {
        assert_eq!(findings(outside), 1, "{outside}");
    }
    let fenced = FILES.into_iter().chain(["host/src/memory/arena.rs", "capi/src/border/store.rs"]);
    for inside in fenced {
        assert_eq!(findings(inside), 0, "{inside}");
    }
}

#[test]
fn a_package_without_lints_is_refused() {
    let manifest = |text: &str| Document { path: "a/Cargo.toml".into(), text: text.into() };
    let findings = |text| inherits_lints(&manifest(text)).len();
    assert_eq!((findings("[package]\n"), findings("[lints]\n[dependencies]\n")), (1, 1));
    assert_eq!(findings("[lints]\nworkspace = true\n"), 0);
}
