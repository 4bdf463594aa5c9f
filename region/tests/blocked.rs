//! Threads that have SIGBUS blocked, the signal by which signal mode brings pages in.
//!
//! `env --block-signal=BUS` runs the child, whose threads inherit it. The library's own threads do
//! not.

mod setting;

use ramfold_region::{
    FaultMode, Memory, MemoryConfig, PagerConfig, Region, RegionConfig, RegionError,
};
use std::process::Command;
use std::time::Duration;

const PAGE: usize = 4096;
const CHILD: &str = "RAMFOLD_BLOCKED_CHILD";

/// Runs a test of this file in a child that has SIGBUS blocked. Returns what the child says, or
/// nothing if the system has no such `env`.
fn in_a_child(test: &str) -> Option<String> {
    if !Command::new("env")
        .args(["--block-signal=BUS,SEGV", "true"])
        .status()
        .is_ok_and(|s| s.success())
    {
        let ci = std::env::var_os("CI").is_some_and(|ci| ci == "true");
        assert!(!ci, "needs an env that has --block-signal");
        eprintln!("skipped: needs an env that has --block-signal");
        return None;
    }
    let this = std::env::current_exe().expect("this test's path");
    let child = Command::new("env")
        .arg("--block-signal=BUS,SEGV")
        .arg(this)
        .args([test, "--exact", "--nocapture"])
        .env(CHILD, "1")
        .output()
        .expect("a child");
    let words = String::from_utf8_lossy(&child.stderr).into_owned();
    assert!(child.status.success(), "{:?}: {words}", child.status);
    Some(words)
}

fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// The first fault once ended the process without a message.
#[test]
fn a_thread_that_blocks_the_signal_is_refused_a_region() {
    if !is_child() {
        drop(in_a_child("a_thread_that_blocks_the_signal_is_refused_a_region"));
        return;
    }
    let Some(pager) = setting::pager(&PagerConfig::default()) else { return };
    let refused = Region::map(&pager, PAGE, &RegionConfig::default());
    assert!(matches!(refused, Err(RegionError::SignalBlocked { .. })), "{refused:?}");
    let served = PagerConfig { fault_mode: Some(FaultMode::Thread), ..PagerConfig::default() };
    let Some(pager) = setting::pager(&served) else { return };
    Region::map(&pager, PAGE, &RegionConfig::default()).expect("no signal serves it");
}

/// Threads that block every signal are common. One is found only when it touches a page.
#[test]
fn a_thread_that_blocks_the_signal_is_named_while_something_is_folded() {
    let test = "a_thread_that_blocks_the_signal_is_named_while_something_is_folded";
    if !is_child() {
        let Some(words) = in_a_child(test) else { return };
        let told: Vec<_> = words.lines().filter(|line| line.contains(" blocked")).collect();
        let of = |name: &str| told.iter().filter(|line| line.contains(name)).count();
        assert!(words.contains("skipped: ") || of("(sleeper) has") == 1, "{words}");
        return assert_eq!(of("(ramfold-"), 0, "threads of ours take it: {words}");
    }
    let Some(pager) = setting::pager(&PagerConfig::default()) else { return };
    let sleeper = std::thread::Builder::new().name("sleeper".into());
    let sleeper = sleeper.spawn(|| std::thread::sleep(Duration::from_secs(4))).expect("a thread");
    // This thread takes faults, whichever thread starts it.
    let folding = host::thread::spawn("folding", move || {
        let mut region = Region::map(&pager, 64 * PAGE, &RegionConfig::default()).expect("one");
        region.as_mut_slice().fill(7);
        region.control().page_out(0..64 * PAGE).expect("out");
        std::thread::sleep(Duration::from_secs(4));
        assert_eq!(region.as_slice()[9], 7);
    });
    folding.expect("a thread").join().expect("it folds");
    sleeper.join().expect("it sleeps");
}

/// If a program blocks the signal everywhere and no page is out, a pager says nothing.
#[test]
fn nobody_is_named_where_nothing_is_folded() {
    if !is_child() {
        let Some(words) = in_a_child("nobody_is_named_where_nothing_is_folded") else { return };
        return assert!(!words.contains(" blocked"), "{words}");
    }
    let memory = Memory::new(MemoryConfig::for_disk(1 << 20)).expect("a memory");
    let pager = ramfold_region::Pager::new(memory, &PagerConfig::default());
    std::thread::sleep(Duration::from_secs(3));
    drop(pager);
}
