//! Claim: if a program with a region takes the handler of its faults away, the pager notices it
//! before a page is touched that could not come back.
//!
//! The program is this test in a child, which is ended.

#![cfg(not(any(loom, shuttle, miri)))]

use ramfold_host::PAGE_SIZE;
use region::{Memory, MemoryConfig, Pager, PagerConfig, Region, RegionConfig};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::Duration;

const CHILD: &str = "RAMFOLD_WATCHED_CHILD";
const BYTES: usize = 64 * PAGE_SIZE;
/// The look comes once a second, and may look twice; then a probe waits for a second.
const NOTICED: Duration = Duration::from_secs(20);

extern "C" fn returns(_: libc::c_int) {}

/// Makes `handler` that of SIGBUS, by whose signal pages come.
fn install(handler: libc::sighandler_t) {
    // SAFETY: the handler does nothing, or is the default; no page is touched from here on.
    unsafe { libc::signal(libc::SIGBUS, handler) };
}

/// Has a child replace the handler while pages are out: how it ended, and its last words; nothing
/// where the system has no userfaultfd for us.
fn replaced_by(handler: libc::sighandler_t, test: &str) -> Option<(Option<i32>, String)> {
    let memory = Memory::new(MemoryConfig::for_disk(BYTES as u64)).expect("a memory");
    let pager = match Pager::new(memory, &PagerConfig::default()) {
        Ok(pager) => pager,
        Err(error) => {
            eprintln!("skipped: needs {error}");
            return None;
        }
    };
    if std::env::var_os(CHILD).is_none() {
        let this = std::env::current_exe().expect("this test's path");
        let mut child = Command::new(this);
        let child = child.args([test, "--exact", "--nocapture"]).env(CHILD, "1").output();
        let child = child.expect("a child");
        return Some((child.status.signal(), String::from_utf8_lossy(&child.stderr).into_owned()));
    }
    let mut region = Region::map(&pager, BYTES, &RegionConfig::default()).expect("a region");
    region.as_mut_slice().fill(7);
    assert_eq!(region.control().page_out(0..BYTES).expect("registered").stored, 64);
    install(handler);
    std::thread::sleep(NOTICED);
    eprintln!("nobody noticed");
    std::process::exit(0)
}

/// The first touch went round and round at full speed.
#[test]
fn a_program_whose_handler_does_not_call_ours_is_ended_with_a_word() {
    let test = "a_program_whose_handler_does_not_call_ours_is_ended_with_a_word";
    let handler = returns as extern "C" fn(libc::c_int) as libc::sighandler_t;
    let Some((signal, words)) = replaced_by(handler, test) else { return };
    assert!(words.contains("does not call the one before it"), "{words}");
    assert_eq!(signal, Some(libc::SIGABRT), "{words}");
}

/// The first touch ended it without a word.
#[test]
fn a_program_that_removes_the_handler_is_ended_with_a_word() {
    let test = "a_program_that_removes_the_handler_is_ended_with_a_word";
    let Some((signal, words)) = replaced_by(libc::SIG_DFL, test) else { return };
    assert!(words.contains("has removed the SIGBUS handler"), "{words}");
    assert_eq!(signal, Some(libc::SIGABRT), "{words}");
}
