//! Which module of a crate uses which: every path to another module, resolved through re-exports to
//! where the item is defined.
//!
//! ```text
//!   use super::{Place, class::Class};      two leaves: super::Place, super::class::Class
//!   crate::numbers::SIZE_MAX               a path in code counts like a `use`
//!   pub use geometry::Shape;               a name on the way: `crate::numbers::Shape` leads to
//!                                          `numbers::geometry`
//! ```
//!
//! Paths of tests do not count. A method call names no module, so it is not seen.

use std::collections::{BTreeMap, BTreeSet};

use crate::items::word_offsets;
use crate::scan::is_word;
use crate::tree::Source;

/// Re-exports that are followed one after the other.
const STEPS_MAX: usize = 8;

/// A module by its path in the crate: `["class", "fullness"]`; empty for the crate's root.
pub(crate) type Module = Vec<String>;

/// Modules of one crate, and what each uses.
pub(crate) struct Crate<'s> {
    sources: BTreeMap<Module, &'s Source>,
    /// By module: names that `use` brings in, and what they stand for.
    names: BTreeMap<Module, BTreeMap<String, Module>>,
}

/// One module uses an item of another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Arrow {
    pub(crate) from: Module,
    pub(crate) to: Module,
    /// The byte at which it is written.
    pub(crate) at: usize,
}

impl<'s> Crate<'s> {
    /// The crate of a folder.
    pub(crate) fn new(folder: &str, sources: &'s [Source]) -> Crate<'s> {
        let prefix = format!("{folder}/src/");
        let own = sources.iter().filter(|source| !source.is_test_file());
        let sources: BTreeMap<Module, &Source> = own
            .filter_map(|source| Some((module_of(source.path.strip_prefix(&prefix)?), source)))
            .collect();
        let mut all = Crate { sources, names: BTreeMap::new() };
        let names = all.sources.iter().map(|(module, source)| {
            let leaves = uses(source).into_iter().flat_map(|(_, tree)| leaves(tree));
            let named =
                leaves.filter_map(|(path, name)| Some((name, all.absolute(module, &path)?)));
            (module.clone(), named.collect())
        });
        let names = names.collect();
        all.names = names;
        all
    }

    /// Every module with its file.
    pub(crate) fn modules(&self) -> impl Iterator<Item = (&Module, &'s Source)> {
        self.sources.iter().map(|(module, source)| (module, *source))
    }

    /// Every use of another module's item.
    pub(crate) fn arrows(&self) -> Vec<Arrow> {
        let mut arrows = Vec::new();
        for (module, source) in &self.sources {
            let mut add = |at: usize, path: &[String]| {
                let Some(absolute) = self.absolute(module, path) else { return };
                let to = self.defined_in(&absolute);
                if to != *module && !source.is_test(at) {
                    arrows.push(Arrow { from: module.clone(), to, at });
                }
            };
            for (at, tree) in uses(source) {
                let is_handed_on = source.code[..at].trim_end().ends_with([')', 'b']);
                for (path, _) in leaves(tree) {
                    // What a module hands on of its own parts, it does not use.
                    if !(is_handed_on && self.is_part(module, &path)) {
                        add(at, &path);
                    }
                }
            }
            let children = self.children(module);
            let starts = ["crate", "super"].into_iter().chain(children);
            for (at, path) in paths_in_code(source, starts) {
                add(at, &path);
            }
        }
        arrows
    }

    /// The names of the modules right below a module.
    fn children<'a>(&'a self, module: &'a Module) -> impl Iterator<Item = &'a str> {
        let below = self
            .sources
            .keys()
            .filter(move |other| other.len() == module.len() + 1 && other.starts_with(module));
        below.filter_map(|child| child.last().map(String::as_str))
    }

    fn is_part(&self, module: &Module, path: &[String]) -> bool {
        self.absolute(module, path).is_some_and(|path| path.starts_with(module))
    }

    /// A path of `module` from the crate's root on; `None` for another crate's.
    fn absolute(&self, module: &Module, path: &[String]) -> Option<Module> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some(rest.to_vec()),
            "self" => Some([module, rest].concat()),
            "super" => {
                let up = path.iter().take_while(|part| *part == "super").count();
                let around = &module[..module.len().checked_sub(up)?];
                Some([around, &path[up..]].concat())
            }
            _ => {
                let child = [module.as_slice(), &path[..1]].concat();
                let own = self.sources.contains_key(&child);
                own.then(|| [module.as_slice(), path].concat())
            }
        }
    }

    /// The module in which the item at an absolute path is defined.
    fn defined_in(&self, path: &[String]) -> Module {
        let mut path = path.to_vec();
        for _ in 0..STEPS_MAX {
            let len = (0..=path.len()).rev().find(|&len| self.sources.contains_key(&path[..len]));
            let (module, rest) = path.split_at(len.unwrap_or(0));
            let named = rest.first().and_then(|name| self.names.get(module)?.get(name));
            match named {
                Some(meant) if *meant != path => path = meant.clone(),
                _ => return module.to_vec(),
            }
        }
        path
    }
}

/// Groups of modules that use each other in a circle.
pub(crate) fn circles(arrows: &[Arrow]) -> Vec<BTreeSet<Module>> {
    let mut reached: BTreeMap<&Module, BTreeSet<&Module>> = BTreeMap::new();
    for arrow in arrows {
        reached.entry(&arrow.from).or_default().insert(&arrow.to);
    }
    // Until nothing is added: a module reaches what those reach that it reaches.
    loop {
        let before: usize = reached.values().map(BTreeSet::len).sum();
        for module in reached.keys().copied().collect::<Vec<_>>() {
            let further: BTreeSet<&Module> = reached[module]
                .iter()
                .filter_map(|to| reached.get(to))
                .flatten()
                .copied()
                .collect();
            reached.entry(module).or_default().extend(further);
        }
        if reached.values().map(BTreeSet::len).sum::<usize>() == before {
            break;
        }
    }
    let reaches = |a: &Module, b: &Module| reached.get(a).is_some_and(|to| to.contains(b));
    let circles: BTreeSet<BTreeSet<Module>> = reached
        .keys()
        .filter(|module| reaches(module, module))
        .map(|module| {
            let both = |other: &&&Module| reaches(module, other) && reaches(other, module);
            reached.keys().filter(both).map(|&other| other.clone()).collect()
        })
        .collect();
    circles.into_iter().collect()
}

/// `class::fullness` of `class/fullness.rs`.
fn module_of(file: &str) -> Module {
    let stem = file.trim_end_matches(".rs").trim_end_matches("/mod");
    match stem {
        "lib" | "main" => Module::new(),
        _ => stem.split('/').map(str::to_owned).collect(),
    }
}

/// Each `use`: where it is, and the tree after it.
fn uses(source: &Source) -> Vec<(usize, &str)> {
    let code = &source.code;
    let found = word_offsets(code, "use").filter_map(|at| {
        let tree = &code[at + "use".len()..];
        Some((at, &tree[..tree.find(';')?]))
    });
    found.filter(|(at, _)| !source.is_test(*at)).collect()
}

/// The paths of a tree, and the name that each is known by.
fn leaves(tree: &str) -> Vec<(Module, String)> {
    let tree = tree.trim();
    let Some((before, inside)) = tree.split_once('{') else {
        let (path, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
        let path: Module = path.split("::").map(|part| part.trim().to_owned()).collect();
        let name = if alias.is_empty() { path.last().cloned() } else { Some(alias.trim().into()) };
        return vec![(path, name.unwrap_or_default())];
    };
    let prefix: Module =
        before.split("::").map(|part| part.trim().to_owned()).filter(|p| !p.is_empty()).collect();
    let inside = inside.rsplit_once('}').map_or(inside, |(inside, _)| inside);
    let mut all = Vec::new();
    for branch in branches(inside) {
        for (mut rest, mut name) in leaves(branch) {
            if rest == ["self"] {
                rest.clear();
                name = prefix.last().cloned().unwrap_or_default();
            }
            all.push(([prefix.as_slice(), &rest].concat(), name));
        }
    }
    all
}

/// What stands between the commas of a group.
fn branches(group: &str) -> Vec<&str> {
    let (mut depth, mut from, mut found) = (0_usize, 0, Vec::new());
    for (at, byte) in group.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => {
                found.push(&group[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    found.push(&group[from..]);
    found.retain(|branch| !branch.trim().is_empty());
    found
}

/// Paths that begin with one of these words, outside of `use` and of visibilities.
fn paths_in_code<'a>(
    source: &Source,
    words: impl Iterator<Item = &'a str>,
) -> Vec<(usize, Module)> {
    let code = &source.code;
    let used: Vec<_> = uses(source).iter().map(|(at, tree)| *at..at + tree.len() + 4).collect();
    let starts = words.flat_map(|word| {
        word_offsets(code, word).filter(move |at| code[at + word.len()..].starts_with("::"))
    });
    // The second word of `super::super` is a part of the path that begins with the first.
    let starts = starts.filter(|&at| !code[..at].ends_with("::"));
    let outside = starts.filter(|at| !used.iter().any(|range| range.contains(at)));
    let path = |at: usize| {
        let end = code[at..].find(|c: char| !is_word(c as u8) && c != ':');
        let path = &code[at..end.map_or(code.len(), |end| at + end)];
        let parts = path.trim_end_matches(':').split("::");
        (at, parts.map(str::to_owned).collect::<Module>())
    };
    outside.map(path).collect()
}

#[cfg(test)]
fn module(path: &str) -> Module {
    path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

#[test]
fn trees_of_use_are_taken_apart() {
    let all = leaves(" super::{self, a::{B, c as D}, E}");
    let expected =
        [("super", "super"), ("super::a::B", "B"), ("super::a::c", "D"), ("super::E", "E")];
    assert_eq!(all, expected.map(|(path, name)| (module(path), name.to_owned())));
}

#[test]
fn arrows_lead_to_where_an_item_is_defined() {
    let file = |path: &str, text: &str| Source::new(&format!("x/src/{path}"), text);
    let sources = [
        file("lib.rs", "mod low; mod high; pub use low::Shape;"),
        file("low.rs", "mod deep; pub use deep::Shape; pub(crate) fn f() {}"),
        file("low/wide.rs", "pub(crate) fn g() { deep::h(); }"),
        file("top.rs", "mod part; fn k() { part::k(); other::part::k(); }"),
        file("top/part.rs", "pub(crate) fn k() {}"),
        file("low/deep.rs", "pub struct Shape; use std::fmt;"),
        file("high.rs", "use crate::low::{Shape, f}; fn g() -> crate::Shape { super::low::f() }"),
    ];
    let found = Crate::new("x", &sources).arrows();
    let to = |from: &str| -> Vec<String> {
        found.iter().filter(|it| it.from == module(from)).map(|it| it.to.join("::")).collect()
    };
    assert_eq!(to("high"), ["low::deep", "low", "low::deep", "low"]);
    assert_eq!((to("low"), to("low::deep"), to("")), (vec![], vec![], vec![]));
    assert_eq!((to("top"), to("low::wide")), (vec!["top::part".to_owned()], vec![]));
}

#[test]
fn circles_are_found() {
    let arrow = |from: &str, to: &str| Arrow { from: module(from), to: module(to), at: 0 };
    assert!(circles(&[arrow("a", "b"), arrow("b", "c"), arrow("a", "c")]).is_empty());
    let round = circles(&[arrow("a", "b"), arrow("b", "c"), arrow("c", "b"), arrow("c", "d")]);
    assert_eq!(round, [BTreeSet::from([module("b"), module("c")])]);
}
