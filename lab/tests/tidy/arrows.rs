//! The arrows between crates, compared with what cargo builds.
//!
//! ```text
//!         ramfold   lab   face   tools, and the library that hands all on: nothing depends on them
//!            |      /|
//!          serve   / |           doors
//!             \   /  |
//!             zram   |           stores
//!            /  |  \ |
//!        disk codec zsmalloc
//!                    /   \
//!                 host   buddy
//!
//!   host: also for zram, zswap, region, disk and serve, which start threads there
//!   capi, python: faces for C and Python, over host, codec, zsmalloc, region and values
//!   values stands on host, codec and zsmalloc
//!   zswap stands beside zram and has the same arrows; region stands on zram and zswap, and inside
//!   on zram and disk
//! ```
//!
//! A crate is named by its folder: its package is called `ramfold-FOLDER`, because the short names
//! are other people's in the public registry.
//!
//! Invariant: the table below is the drawing; a crate that needs another arrow changes both, and
//! ARCHITECTURE.md says why.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::tree::{Document, Finding};

/// What a crate may depend on.
enum Arrows {
    To(&'static [&'static str]),
    AnyLibrary,
}

const TABLE: [(&str, Arrows); 16] = [
    ("host", Arrows::To(&[])),
    ("buddy", Arrows::To(&[])),
    ("codec", Arrows::To(&[])),
    ("disk", Arrows::To(&["host"])),
    ("zsmalloc", Arrows::To(&["host", "buddy"])),
    ("zram", Arrows::To(&["host", "zsmalloc", "codec", "disk"])),
    ("zswap", Arrows::To(&["host", "zsmalloc", "codec", "disk"])),
    ("region", Arrows::To(&["host", "zram", "zswap"])),
    ("inside", Arrows::To(&["host", "disk", "zram"])),
    ("serve", Arrows::To(&["host", "disk", "zram"])),
    ("values", Arrows::To(&["host", "codec", "zsmalloc"])),
    ("capi", Arrows::To(&["host", "codec", "zsmalloc", "region", "values"])),
    ("python", Arrows::To(&["host", "codec", "zsmalloc", "region", "values"])),
    (
        "face",
        Arrows::To(&["buddy", "codec", "disk", "zsmalloc", "zram", "zswap", "region", "serve"]),
    ),
    ("ramfold", Arrows::AnyLibrary),
    ("lab", Arrows::AnyLibrary),
];

/// Nothing depends on these.
const TOP: [&str; 5] = ["capi", "python", "face", "ramfold", "lab"];

/// Crates built from the standard library alone; in models another one stands in for it.
const STD_ONLY: [&str; 1] = ["buddy"];
const MODELS: [&str; 2] = ["loom", "shuttle"];

/// Each crate with what it may use, as ARCHITECTURE.md writes it.
pub(crate) fn rows() -> impl Iterator<Item = (&'static str, String)> {
    let written = |arrows: &Arrows| match arrows {
        Arrows::To([]) => "-".to_string(),
        Arrows::To(names) => names.join(", "),
        Arrows::AnyLibrary => "all".to_string(),
    };
    TABLE.iter().map(move |(name, arrows)| (*name, written(arrows)))
}

/// What cargo says about the workspace's own packages.
pub(crate) fn cargo_metadata(root: &Path) -> Value {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let arguments = ["metadata", "--format-version", "1", "--no-deps", "--offline"];
    let output = Command::new(cargo).args(arguments).current_dir(root).output();
    let output = output.expect("cargo runs this test, so it can be started");
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

pub(crate) fn findings(metadata: &Value) -> Vec<Finding> {
    let packages = metadata["packages"].as_array().map_or(&[][..], Vec::as_slice);
    let mut findings: Vec<Finding> = packages.iter().flat_map(package).collect();
    let present = |name: &str| packages.iter().any(|package| folder(package) == name);
    let gone = TABLE.iter().filter(|row| !present(row.0));
    findings.extend(gone.map(|row| finding(row.0, "in the table of arrows, not in the workspace")));
    findings
}

fn package(package: &Value) -> Vec<Finding> {
    let name = folder(package);
    let Some((_, arrows)) = TABLE.iter().find(|row| row.0 == name) else {
        return vec![finding(name, "in the workspace, not in the table of arrows")];
    };
    let dependencies = package["dependencies"].as_array().map_or(&[][..], Vec::as_slice);
    let refused = dependencies.iter().filter(|dependency| !is_allowed(name, arrows, dependency));
    refused.map(|d| finding(name, &format!("must not depend on {}", d["name"]))).collect()
}

/// The folder of a package of this workspace.
fn folder(package: &Value) -> &str {
    last(package["manifest_path"].as_str().and_then(|path| path.strip_suffix("/Cargo.toml")))
}

/// The last part of a path.
fn last(path: Option<&str>) -> &str {
    path.and_then(|path| path.rsplit('/').next()).unwrap_or_default()
}

fn is_allowed(name: &str, arrows: &Arrows, dependency: &Value) -> bool {
    let foreign = dependency["name"].as_str().unwrap_or_default();
    let local = dependency["path"].as_str();
    let target = last(local);
    let for_tests = dependency["kind"] == "dev";
    match arrows {
        _ if local.is_none() => for_tests || MODELS.contains(&foreign) || !STD_ONLY.contains(&name),
        _ if TOP.contains(&target) => false,
        Arrows::AnyLibrary => true,
        Arrows::To(allowed) => for_tests || allowed.contains(&target),
    }
}

fn finding(package: &str, what: &str) -> Finding {
    let path = format!("{package}/Cargo.toml");
    Document { path, text: String::new() }.finding(1, what)
}

#[cfg(test)]
fn workspace(folder: &str, dependencies: Value) -> Value {
    let of = |folder: &str, dependencies: Value| {
        let manifest = format!("/x/{folder}/Cargo.toml");
        serde_json::json!({"manifest_path": manifest, "dependencies": dependencies})
    };
    let others = TABLE.iter().filter(|row| row.0 != folder);
    let others = others.map(|row| of(row.0, serde_json::json!([])));
    let packages: Vec<Value> = others.chain([of(folder, dependencies)]).collect();
    serde_json::json!({"packages": packages})
}

#[test]
fn an_arrow_upwards_is_refused() {
    let arrow = |to: &str, kind: Value| {
        let (name, path) = (format!("ramfold-{to}"), format!("/x/{to}"));
        serde_json::json!([{"name": name, "path": path, "kind": kind}])
    };
    let count = |name, dependencies| findings(&workspace(name, dependencies)).len();
    assert_eq!(count("zram", arrow("zsmalloc", Value::Null)), 0);
    assert_eq!(count("host", arrow("zram", Value::Null)), 1);
    assert_eq!(count("zsmalloc", arrow("codec", "dev".into())), 0, "tests may look sideways");
    assert_eq!(count("zsmalloc", arrow("lab", "dev".into())), 1, "nothing depends on a tool");
    assert_eq!(count("lab", arrow("ramfold", Value::Null)), 1, "nothing depends on a tool");
    assert_eq!(count("lab", arrow("face", Value::Null)), 1, "nothing depends on the face");
}

#[test]
fn a_foreign_dependency_of_a_bare_crate_is_refused() {
    let foreign = |name: &str| serde_json::json!([{"name": name, "path": null, "kind": null}]);
    assert_eq!(findings(&workspace("buddy", foreign("rand"))).len(), 1);
    assert_eq!(findings(&workspace("buddy", foreign("loom"))).len(), 0);
    assert_eq!(findings(&workspace("host", foreign("rustix"))).len(), 0);
}

#[test]
fn an_unknown_or_missing_crate_is_refused() {
    assert_eq!(findings(&workspace("stranger", serde_json::json!([]))).len(), 1);
    let empty = serde_json::json!({"packages": []});
    assert_eq!(findings(&empty).len(), TABLE.len());
}
