//! Threads start in `host::thread`, which blocks the program's signals in them.
//!
//! Invariant: an exception is a whole place, and has its reason here. Tests and examples stand for
//! the program that embeds the libraries, whose threads are its own; the lab is such a program.

use crate::items::word_offsets;
use crate::tree::{Finding, Source};

/// The one place; its own call of the standard library is what all others are for.
const HOME: &str = "host/src/machine/thread.rs";
/// A program of its own, whose threads are the load.
const PROGRAM: &str = "lab/";
/// Threads that no C library knows, inside programs.
const STRANDS: &str = "inside/src/";

const STARTS: [&str; 3] = ["spawn", "spawn_scoped", "spawn_unchecked"];
/// Paths of the one place, as the crates call it.
const HOMES: [&str; 2] = ["host::thread::", "crate::machine::thread::"];

pub(crate) fn starts(source: &Source) -> Vec<Finding> {
    let exempt = source.path == HOME
        || source.path.starts_with(PROGRAM)
        || source.path.starts_with(STRANDS)
        || source.path.contains("/examples/");
    if exempt {
        return Vec::new();
    }
    let code = &source.code;
    let starts = STARTS
        .iter()
        .flat_map(|word| word_offsets(code, word).filter(|&at| is_call(&code[at + word.len()..])));
    let builders = word_offsets(code, "Builder").filter(|&at| code[..at].ends_with("thread::"));
    let strays = starts.filter(|&at| !is_home(source, &code[..at])).chain(builders);
    let strays = strays.filter(|&at| !source.is_test(at));
    strays.map(|at| source.finding_at(at, "a thread that host::thread does not start")).collect()
}

/// A thread is started with its work; a process (`Command::spawn`) with nothing.
fn is_call(after: &str) -> bool {
    let argument = after.strip_prefix('(').map(str::trim_start);
    argument.is_some_and(|argument| !argument.starts_with(')'))
}

fn is_home(source: &Source, before: &str) -> bool {
    let is_own = |path: &str| !path.starts_with("crate") || source.crate_name() == "host";
    HOMES.iter().any(|path| is_own(path) && before.ends_with(path))
}

#[test]
fn a_thread_that_starts_elsewhere_is_refused() {
    let findings = |path, code| starts(&Source::new(path, code)).len();
    let elsewhere = [
        "fn f() { std::thread::spawn(move || g()); }",
        "use std::thread::spawn;\nfn f() { spawn(g); }",
        "fn f() { thread::scope(|scope| { scope.spawn(|| g()); }) }",
        "fn f() { scope.spawn_scoped(g) }",
        "fn f() -> std::thread::Builder { g() }",
        "fn f() { crate::thread::spawn(\"x\", g) }",
    ];
    for code in elsewhere {
        assert_eq!(findings("zram/src/x.rs", code), 1, "{code}");
    }
    assert_eq!(findings("zram/src/x.rs", "fn f() { host::thread::spawn(\"x\", g) }"), 0);
    assert_eq!(findings("host/src/x.rs", "fn f() { crate::machine::thread::spawn(\"x\", g) }"), 0);
    assert_eq!(findings("zram/src/x.rs", "fn f() { command.spawn() }"), 0, "a process");
    assert_eq!(findings("zram/tests/x.rs", elsewhere[0]), 0, "a test");
    assert_eq!(findings("lab/src/x.rs", elsewhere[0]), 0, "a program");
    let inside = format!("#[cfg(test)]\nmod tests {{ {} }}", elsewhere[0]);
    assert_eq!(findings("zram/src/x.rs", &inside), 0, "a test beside the code");
}
