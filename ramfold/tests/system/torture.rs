//! `ramfold run`: threads that do to their memory whatever a program may, each way.
//!
//! `RAMFOLD_TORTURE_SECONDS` says how long. Half an hour each way is the long form, 1800.
//! With musl it is a third of that.
//! `RAMFOLD_TORTURE_SEED` repeats what the threads do, though not when.

use crate::programs::{rig_of, texts};
use crate::rig::{BINARY, from_env, needs_root, succeed, tool, within};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/torture.c");

fn seconds() -> u64 {
    from_env("RAMFOLD_TORTURE_SECONDS", 5)
}

#[track_caller]
fn ends_right(path: &str, compiler: &str, seconds: u64) {
    let Some(rig) = rig_of(SOURCE, &[compiler]) else { return };
    let seed = from_env("RAMFOLD_TORTURE_SEED", 1);
    let mut command = within(seconds + 120, BINARY);
    command.env("XDG_RUNTIME_DIR", rig.scratch.path("run")).env("RAMFOLD_PATH", path);
    command.args(["run", "--limit", "16M", "--"]).arg(&rig.program);
    let output = command.args([seconds.to_string(), seed.to_string()]).output();
    let output = output.expect("it starts");
    let (out, err) = texts(&output);
    println!("{out}{err}");
    let ended_well = output.status.success() && out.ends_with("right\n");
    assert!(ended_well, "seed {seed}, {path}: {:?}", output.status);
    assert!(err.contains("pages left"), "{err}");
}

#[test]
fn what_the_threads_do_is_right_by_itself() {
    let Some(rig) = rig_of(SOURCE, &["cc"]) else { return };
    let said = succeed(tool("env").arg(&rig.program).args(["2", "1"]));
    assert!(said.ends_with("right\n"), "{said}");
}

#[test]
fn nothing_is_lost_by_what_threads_do_with_userfaultfd() {
    if !needs_root() {
        return;
    }
    ends_right("userfaultfd", "cc", seconds());
}

#[test]
fn nothing_is_lost_by_what_threads_do_with_closed_pages() {
    ends_right("closed", "cc", seconds());
}

#[test]
fn nothing_is_lost_by_what_threads_do_with_closed_pages_and_musl() {
    // The same library is in the program, and only its C library is another: a third is enough.
    ends_right("closed", "musl-gcc", seconds().div_ceil(3));
}
