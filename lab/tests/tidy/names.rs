//! A public type has a name that no other crate's public type has.
//!
//! Programs use several crates through one face. Two types of one name there are told apart only by
//! their paths, which an import hides.

use std::collections::BTreeMap;

use crate::tree::{Finding, Source};

/// Names that two crates share, and why that misleads nobody.
const SHARED: [(&str, &str); 4] = [
    (
        "AllocError",
        "a zone's refusal of a run, and a pool's of an object, are one thing at two levels",
    ),
    (
        "Pfn",
        "the number of a frame, in the arena and in a zone; one is never accepted for the other",
    ),
    ("Study", "each crate's has the settings that only its studies compare, behind a feature"),
    (
        "Event",
        "host's is a primitive and not in the face; serve's is what a server tells its owner",
    ),
];

/// Crates that no program uses as libraries.
const APART: [&str; 2] = ["lab", "ramfold"];

const KINDS: [&str; 4] = ["pub struct ", "pub enum ", "pub trait ", "pub union "];

pub(crate) fn shared(sources: &[Source]) -> Vec<Finding> {
    let types = public_types(sources);
    let excepted = |name: &str| SHARED.iter().any(|(shared, _)| *shared == name);
    let mut findings = Vec::new();
    for (name, places) in &types {
        let (first, at) = places[0];
        let other = places.iter().find(|(source, _)| source.crate_name() != first.crate_name());
        match other {
            Some((other, _)) if !excepted(name) => {
                let what = format!("{} has a public {name}, too", other.path);
                findings.push(first.finding_at(at, what));
            }
            None if excepted(name) => {
                findings.push(first.finding_at(at, format!("{name} is an idle exception")));
            }
            _ => {}
        }
    }
    findings
}

/// The public types by their names, and where each is.
fn public_types(sources: &[Source]) -> BTreeMap<&str, Vec<(&Source, usize)>> {
    let mut types: BTreeMap<&str, Vec<(&Source, usize)>> = BTreeMap::new();
    let libraries = sources.iter().filter(|source| !APART.contains(&source.crate_name()));
    for source in libraries {
        let found = KINDS.iter().flat_map(|kind| source.code.match_indices(kind));
        for (at, kind) in found.filter(|(at, _)| !source.is_test(*at)) {
            let name = source.code[at + kind.len()..].split(|c: char| !c.is_alphanumeric());
            types
                .entry(name.into_iter().next().unwrap_or_default())
                .or_default()
                .push((source, at));
        }
    }
    types
}

#[test]
fn a_name_of_two_crates_is_refused() {
    let findings = |first: &str, second: &str| {
        let sources = [Source::new("a/src/x.rs", first), Source::new("b/src/x.rs", second)];
        shared(&sources).len()
    };
    assert_eq!(findings("pub struct Same;", "pub enum Same { A }"), 1);
    assert_eq!(findings("pub struct Same;", "pub(crate) struct Same;"), 0, "not public");
    assert_eq!(findings("pub struct Same;", "#[cfg(test)]\npub struct Same;"), 0, "a test's");
    assert_eq!(findings("pub struct Study;", "pub struct Study;"), 0, "excepted");
    assert_eq!(findings("pub struct Study;", ""), 1, "nothing to except");
    let twice =
        [Source::new("a/src/x.rs", "pub struct A;"), Source::new("a/src/y.rs", "pub enum A {}")];
    assert_eq!(shared(&twice).len(), 0, "two rooms of a crate");
    let lab =
        [Source::new("a/src/x.rs", "pub struct A;"), Source::new("lab/src/y.rs", "pub enum A {}")];
    assert_eq!(shared(&lab).len(), 0, "no library");
}
