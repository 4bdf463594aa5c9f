//! Mutexes and readers-writer locks have a rank, so that debug builds assert their order.
//!
//! Invariant: an exception is a whole file or a whole crate, and has its reason here. Tests and
//! examples stand for the program that embeds the libraries, whose locks are its own.

use crate::items::word_offsets;
use crate::tree::{Finding, Source};

/// What has no rank, by the beginning of its path, and why.
const UNRANKED: [(&str, &str); 7] = [
    ("buddy/src/", "it has no arrow to host; zsmalloc enters the rank of a zone around each call"),
    (
        "codec/src/",
        "it has no arrow to host; stores enter the rank of a stream, the others are last",
    ),
    ("host/src/sync", "these are the locks themselves"),
    ("host/src/locks/futex.rs", "in a model it stands for the kernel's lock of a futex"),
    ("host/src/locks/ranked.rs", "it has the ranks"),
    ("inside/src/floor/heap.rs", "it stands for malloc, which is called under every lock"),
    ("lab/", "it is a program of its own, and no library calls it"),
];

const LOCKS: [&str; 2] = ["Mutex", "RwLock"];

/// Locks of the standard library, of a model or of `host::sync` where one with a rank should be.
pub(crate) fn unranked(source: &Source) -> Vec<Finding> {
    let excepted = UNRANKED.iter().any(|(path, _)| source.path.starts_with(path));
    if excepted || source.path.contains("/examples/") {
        return Vec::new();
    }
    let uses = LOCKS.iter().flat_map(|lock| word_offsets(&source.code, lock));
    let uses = uses.filter(|&at| !source.is_test(at));
    let what = "a lock without a rank: take host's RankedMutex or RankedRwLock";
    uses.map(|at| source.finding_at(at, what)).collect()
}

/// Exceptions that nothing needs any more.
pub(crate) fn idle_exceptions(sources: &[Source]) -> Vec<Finding> {
    let has_lock =
        |s: &Source| LOCKS.iter().any(|lock| word_offsets(&s.code, lock).any(|at| !s.is_test(at)));
    let used = |path: &str| sources.iter().any(|s| s.path.starts_with(path) && has_lock(s));
    let own = Source::new("lab/tests/tidy/ranks.rs", "");
    let idle = UNRANKED.iter().filter(|(path, _)| !used(path));
    idle.map(|(path, _)| own.finding(1, format!("{path} has no lock that needs an exception")))
        .collect()
}

#[test]
fn a_lock_without_a_rank_is_refused() {
    let findings = |path, code: &str| unranked(&Source::new(path, code)).len();
    let refused = [
        "struct S { list: Mutex<Vec<u8>> }",
        "fn f() -> S { S { list: std::sync::Mutex::new(1) } }",
        "fn f() -> S { S(host::sync::RwLock::default()) }",
        "use host::sync::unmodelled::{Condvar, Mutex};",
    ];
    for code in refused {
        assert_eq!(findings("zram/src/x.rs", code), 1, "{code}");
    }
    assert_eq!(findings("zram/src/x.rs", "struct S { list: RankedMutex<u8> }"), 0);
    assert_eq!(findings("zram/src/x.rs", "// A Mutex.\nfn f() { g(\"Mutex\") }"), 0, "words");
    assert_eq!(findings("zram/tests/x.rs", refused[0]), 0, "a test");
    let inside = format!("#[cfg(test)]\nmod tests {{ {} }}", refused[0]);
    assert_eq!(findings("zram/src/x.rs", &inside), 0, "a test beside the code");
    assert_eq!(findings("buddy/src/x.rs", refused[0]), 0, "an exception");
}

#[test]
fn an_exception_that_nothing_needs_is_refused() {
    let code = "struct S { list: Mutex<u8> }";
    let sources: Vec<Source> =
        UNRANKED.iter().map(|(path, _)| Source::new(&format!("{path}x.rs"), code)).collect();
    assert_eq!(idle_exceptions(&sources), []);
    assert_eq!(idle_exceptions(&sources[1..]).len(), 1);
}
