//! Claim: in a program that locks its memory, an arena and a table cost little more than their
//! parts in use.
//!
//! Each test locks the memory of a process, so each runs itself in a child.
#![cfg(not(any(loom, shuttle, miri)))]

use ramfold_host::{Arena, PAGE_SIZE, Pfn, Table, smaps};
use rustix::mm::{MlockAllFlags, mlockall, munlockall};
use std::ops::Range;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

const CHILD: &str = "RAMFOLD_LOCKED_CHILD";
/// Small enough to be filled, should the arena be open: 256 MiB.
const FRAMES: u32 = 1 << 16;
/// Entries of 16 MiB.
const ENTRIES: usize = 1 << 21;

/// True in the child; elsewhere runs it, and wants its last words.
fn in_a_child(test: &str) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let this = std::env::current_exe().expect("this test's path");
    let child = Command::new(this).args([test, "--exact", "--nocapture"]).env(CHILD, "1").output();
    let child = child.expect("a child");
    let words = String::from_utf8_lossy(&child.stderr).into_owned();
    if words.contains("skipped: ") {
        assert!(std::env::var_os("CI").is_none(), "CI may lock memory");
        eprintln!("{words}");
    } else {
        assert!(child.status.success() && words.contains("as told"), "{child:?}");
    }
    false
}

/// False, with a word, where that is not allowed.
fn lock_all(flags: MlockAllFlags) -> bool {
    let locked = mlockall(flags);
    if let Err(error) = &locked {
        eprintln!("skipped: needs the right to lock memory: {error}");
    }
    locked.is_ok()
}

fn rss(range: Range<usize>) -> usize {
    smaps::rss_of(&[range]).expect("smaps") as usize
}

/// Mappings that lie in a range.
fn mappings(range: &Range<usize>) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let start = |line: &str| usize::from_str_radix(line.split('-').next()?, 16).ok();
    maps.lines().filter_map(start).filter(|start| range.contains(start)).count()
}

/// The story: `mlockall` in a program with an arena filled all that the arena might become, which
/// is more than the machine has.
#[test]
fn what_of_an_arena_is_not_open_costs_nothing_when_locked() {
    if !in_a_child("what_of_an_arena_is_not_open_costs_nothing_when_locked") {
        return;
    }
    let arena = Arena::reserve(FRAMES).expect("address space");
    let mut run = arena.claim(Pfn::new(0), 3000).expect("nobody has it");
    assert!(arena.write(&mut run, 0, b"content"));
    let opened = rss(arena.range());
    assert_eq!(opened, PAGE_SIZE, "opened is not touched");
    if !lock_all(MlockAllFlags::CURRENT) {
        return;
    }
    let locked = rss(arena.range());
    assert_eq!(locked, 3072 * PAGE_SIZE, "all steps of the run, and no more");
    let far = arena.claim(Pfn::new(FRAMES - 700), 700).expect("nobody has it");
    assert_eq!(rss(arena.range()), locked, "what is opened now is not locked");
    assert!(mappings(&arena.range()) <= 6, "{} mappings", mappings(&arena.range()));
    assert_eq!(arena.bytes(&run).expect("ours")[..7], *b"content");
    assert_eq!(arena.bytes(&far).expect("ours")[5], 0);
    eprintln!("as told");
}

#[test]
fn what_of_a_table_is_not_open_reads_as_zero_and_costs_nothing_when_locked() {
    let test = "what_of_a_table_is_not_open_reads_as_zero_and_costs_nothing_when_locked";
    if !in_a_child(test) {
        return;
    }
    let table: Table<AtomicU64> = Table::in_steps(ENTRIES, None).expect("address space");
    table.open(1000..1001).expect("opened");
    table.touch(1000..1001);
    table[1000].store(7, Ordering::Relaxed);
    if !lock_all(MlockAllFlags::CURRENT | MlockAllFlags::FUTURE) {
        return;
    }
    assert!(rss(table.range()) <= 64 << 10, "a step: {}", rss(table.range()));
    let zeros = (0..ENTRIES).filter(|&entry| table[entry].load(Ordering::Relaxed) == 0);
    assert_eq!(zeros.count(), ENTRIES - 1, "what is not open is there, and zero");
    assert!(rss(table.range()) <= 64 << 10, "also when it was read: {}", rss(table.range()));
    let later: Table<AtomicU64> = Table::in_steps(ENTRIES, None).expect("address space");
    later.open(0..ENTRIES).expect("opened");
    assert_eq!(rss(later.range()), 0, "what is reserved and opened now is not locked");
    eprintln!("as told");
}

/// Frames of an arena that was locked go back once it is not.
#[test]
fn frames_that_were_locked_go_back_when_they_are_no_more() {
    if !in_a_child("frames_that_were_locked_go_back_when_they_are_no_more") {
        return;
    }
    let arena = Arena::reserve(FRAMES).expect("address space");
    let touch = |number: u32| {
        let mut run = arena.claim(Pfn::new(number), 1).expect("nobody has it");
        assert!(arena.write(&mut run, 0, b"content"));
        run
    };
    let before: Vec<_> = (0..100).step_by(2).map(touch).collect();
    if !lock_all(MlockAllFlags::CURRENT) {
        return;
    }
    // Some that can be given back, before and behind some that cannot.
    let after: Vec<_> = (600..700).step_by(2).map(touch).collect();
    let mut runs: Vec<_> = after.into_iter().chain(before).collect();
    runs.push(touch(900));
    let refused = arena.purge_all(&mut runs);
    assert_eq!((refused.frames, refused.refused.is_some()), (51, true));
    assert_eq!(arena.resident_frames(), 50, "what went back is not counted");
    munlockall().expect("it was locked");
    let purged = arena.purge_all(&mut runs);
    assert_eq!((purged.frames, purged.refused.is_some()), (50, false));
    assert_eq!(arena.resident_frames(), 0);
    eprintln!("as told");
}
