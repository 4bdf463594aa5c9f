//! Rooms: folders of a crate in a written order, each of which may use only those below it.
//!
//! ```text
//!   ARCHITECTURE.md, "Rooms"      | `zsmalloc` | `names` | ... |      the highest first
//!                                 | `zsmalloc` | `pool`  | ... |
//!                                 | `lab`      | `study/*` | ... |   each module below `study`
//!   a module                      belongs to the longest of its crate's rooms that it is in
//!   an arrow                      from a room to itself or to one further down
//! ```
//!
//! Rooms of one row, as `study/*` has them, do not use each other.
//!
//! Invariant: every module but a crate's root is in a room; a room has at most `FILES_MAX` files;
//! a crate of more than `FLAT_MAX` files has at least `ROOMS_MIN` rooms.
//!
//! Arrows of a crate's root do not count: it hands names on. Circles between files of one room are
//! listed here, at most `CIRCLES_MAX` of them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use crate::paths::{Arrow, Crate, Module, circles};
use crate::tree::{Document, Finding, Source};

/// Files of a room at most, its root's included.
const FILES_MAX: usize = 15;
/// Files of a crate that needs no rooms, at most.
const FLAT_MAX: usize = 12;
const ROOMS_MIN: usize = 3;
const CIRCLES_MAX: usize = 10;

/// In a row of the table, any module.
const ANY: &str = "*";

/// Circles that are there: crate, and the modules.
const CIRCLES: [(&str, &[&str]); 0] = [];
const _: () = assert!(CIRCLES.len() <= CIRCLES_MAX, "circles are exceptions");

/// The rooms of a crate, the highest first.
fn rooms(architecture: &Document, krate: &str) -> Vec<Module> {
    let lines = architecture.text.lines();
    let section = lines.skip_while(|line| *line != "## Rooms").skip(1);
    let rows = section.take_while(|line| !line.starts_with("## "));
    let cells = rows.filter_map(|row| {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        Some((cells.next()?.trim_matches('`'), cells.next()?.trim_matches('`')))
    });
    let own = cells.filter(|(name, _)| *name == krate);
    own.map(|(_, room)| room.split('/').map(str::to_owned).collect()).collect()
}

/// A room: its place in the order, and the module that it is.
type Room = (usize, Module);

/// The room of a module.
fn room_of(rooms: &[Module], module: &Module) -> Option<Room> {
    let is_in = |room: &Module| {
        let mut parts = room.iter().zip(module);
        module.len() >= room.len() && parts.all(|(part, name)| part == ANY || part == name)
    };
    let around = rooms.iter().enumerate().filter(|(_, room)| is_in(room));
    let (place, room) = around.max_by_key(|(_, room)| room.len())?;
    Some((place, module[..room.len()].to_vec()))
}

pub(crate) fn findings(
    architecture: &Document,
    folder: &str,
    sources: &[Source],
    is_listed: impl Fn(&BTreeSet<Module>) -> bool,
) -> Vec<Finding> {
    let (krate, rooms) = (Crate::new(folder, sources), rooms(architecture, folder));
    let (arrows, mut findings) = (krate.arrows(), Vec::new());
    let mut files: BTreeMap<Room, usize> = BTreeMap::new();
    for (module, source) in krate.modules().filter(|(module, _)| !module.is_empty()) {
        match room_of(&rooms, module) {
            Some(room) => *files.entry(room).or_default() += 1,
            None if krate.modules().count() > FLAT_MAX || !rooms.is_empty() => {
                findings.push(source.finding(1, "is in no room of ARCHITECTURE.md's table"));
            }
            None => {}
        }
        let own = arrows.iter().filter(|arrow| arrow.from == *module);
        findings.extend(own.filter_map(|arrow| refusal(&rooms, arrow, source)));
    }
    let of_crate = |what: String| architecture.finding(1, format!("{folder}: {what}"));
    let empty = (0..rooms.len()).filter(|place| !files.keys().any(|(at, _)| at == place));
    let empty = empty.map(|place| (&rooms[place], 0));
    let full = files.iter().map(|((_, room), &count)| (room, count));
    for (room, count) in empty.chain(full.filter(|&(_, count)| count > FILES_MAX)) {
        let room = room.join("/");
        findings.push(of_crate(format!("room {room} has {count} files, not 1 to {FILES_MAX}")));
    }
    if krate.modules().count() > FLAT_MAX && rooms.len() < ROOMS_MIN {
        findings.push(of_crate(format!("{} rooms, not {ROOMS_MIN} at least", rooms.len())));
    }
    let inner: Vec<Arrow> =
        arrows.into_iter().filter(|arrow| !arrow.from.is_empty() && !arrow.to.is_empty()).collect();
    let found = circles(&inner).into_iter().filter(|circle| !is_listed(circle));
    findings.extend(found.map(|circle| {
        let names: Vec<String> = circle.iter().map(|module| module.join("::")).collect();
        of_crate(format!("a circle that is not listed: {}", names.join(", ")))
    }));
    findings
}

fn refusal(rooms: &[Module], arrow: &Arrow, source: &Source) -> Option<Finding> {
    if arrow.to.is_empty() {
        let what = "uses an item that the crate's root defines, which is above every room";
        return Some(source.finding_at(arrow.at, what));
    }
    let (from, to) = (room_of(rooms, &arrow.from)?, room_of(rooms, &arrow.to)?);
    let refused = match from.0.cmp(&to.0) {
        Ordering::Less => None,
        Ordering::Equal => (from.1 != to.1).then_some("beside"),
        Ordering::Greater => Some("above"),
    };
    let (from, to) = (from.1.join("/"), to.1.join("/"));
    refused.map(|side| {
        source.finding_at(arrow.at, format!("room {from} uses {to}, which is {side} it"))
    })
}

/// Whether a circle of a crate is one of `CIRCLES`.
fn is_listed(folder: &str, circle: &BTreeSet<Module>) -> bool {
    let names: BTreeSet<String> = circle.iter().map(|module| module.join("::")).collect();
    let same = |listed: &[&str]| listed.iter().copied().eq(names.iter().map(String::as_str));
    CIRCLES.iter().any(|(krate, listed)| *krate == folder && same(listed))
}

pub(crate) fn of_workspace(
    architecture: &Document,
    members: &[String],
    sources: &[Source],
) -> Vec<Finding> {
    let findings = members.iter().flat_map(|folder| {
        findings(architecture, folder, sources, |circle| is_listed(folder, circle))
    });
    findings.collect()
}

#[cfg(test)]
fn found(table: &[&str], files: &[(&str, &str)]) -> usize {
    let rows = table.iter().map(|room| format!("| `x` | `{room}` | |\n"));
    let text =
        format!("## Rooms\n\n| crate | room | |\n|---|---|---|\n{}", rows.collect::<String>());
    let architecture = Document { path: "ARCHITECTURE.md".into(), text };
    let file = |(path, text): &(&str, &str)| Source::new(&format!("x/src/{path}"), text);
    let sources: Vec<Source> = files.iter().map(file).collect();
    findings(&architecture, "x", &sources, |_| false).len()
}

#[test]
fn an_arrow_up_is_refused() {
    let root = ("lib.rs", "mod high; mod low; pub use high::Top;");
    let high = ("high.rs", "use crate::low::Base; pub struct Top;");
    let low = |text: &str, table: &[&str]| found(table, &[root, high, ("low.rs", text)]);
    let table = ["high", "low"];
    assert_eq!(low("pub struct Base;", &table), 0);
    assert_eq!(low("pub struct Base;", &["low", "high"]), 1, "the other order");
    for upward in ["use crate::high::Top;", "use crate::Top;", "fn f(_: super::high::Top) {}"] {
        let text = format!("pub struct Base; {upward}");
        // The arrow, and the circle that it closes.
        assert_eq!(low(&text, &table), 2, "{upward}");
    }
    let test = "pub struct Base; #[cfg(test)] mod tests { use crate::high::Top; }";
    assert_eq!(low(test, &table), 0, "tests may look up");
}

#[test]
fn rooms_of_one_row_do_not_use_each_other() {
    let root = ("main.rs", "mod study; mod low;");
    let list = ("study.rs", "mod a; mod b; use a::A;");
    let with = |b: &str| {
        let part = ("study/b/part.rs", "pub struct B; use crate::low::Base;");
        let files = [root, list, ("study/a.rs", "pub struct A;"), ("study/b.rs", b), part];
        let low = ("low.rs", "pub struct Base;");
        found(&["study", "study/*", "low"], &[&files[..], &[low]].concat())
    };
    assert_eq!(with("mod part; use part::B;"), 0);
    for beside in ["use super::a::A;", "fn f(_: crate::study::a::A) {}", "use super::A;"] {
        assert_eq!(with(&format!("mod part; {beside}")), 1, "{beside}");
    }
    assert_eq!(found(&["study", "study/*"], &[root, ("study.rs", "")]), 1, "none in the row");
    let names: Vec<String> = (0..FILES_MAX + 1).map(|n| format!("study/a/{n}.rs")).collect();
    let full = names.iter().map(|name| (name.as_str(), "")).chain([root, list]);
    assert_eq!(found(&["study", "study/*", "low"], &full.collect::<Vec<_>>()), 2, "a, and low");
}

#[test]
fn a_file_without_a_room_and_a_room_without_files_are_refused() {
    let files = [("lib.rs", ""), ("a.rs", ""), ("b.rs", "")];
    assert_eq!(found(&["a", "b"], &files), 0);
    assert_eq!(found(&["a"], &files), 1, "b is in none");
    assert_eq!(found(&["a", "b", "c"], &files), 1, "c has none");
    assert_eq!(found(&[], &files), 0, "so few need no rooms");
    let names: Vec<String> = (0..FILES_MAX + 1).map(|n| format!("a/{n}.rs")).collect();
    let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    assert_eq!(found(&["a", "a/0", "a/1"], &many), 0);
    assert_eq!(found(&["a"], &many), 2, "too many in one, and too few rooms");
}
