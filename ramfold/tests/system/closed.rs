//! `ramfold run` without userfaultfd: the same programs, without any right.
//!
//! ```text
//!   by wish        RAMFOLD_PATH=closed
//!   without rights setpriv: no capability, no new privileges; then it comes by itself, for all
//!                  programs or for one that gave the rights up
//! ```

use crate::programs::{Rig, assert_within, rig, texts};
use crate::rig::{BINARY, needs, needs_root, succeed, tool};
use crate::runs::named_by;

const LIMIT: &str = "32M";

/// Does a claim while most of the memory is out. Returns what `ramfold` said.
#[track_caller]
fn folds_and_is_right(rig: &Rig, claim: &str) -> String {
    is_right(rig, claim, LIMIT)
}

#[track_caller]
fn is_right(rig: &Rig, claim: &str, limit: &str) -> String {
    // On a machine with much to do, a program of a tenth of a second may end before its pager runs.
    const RUNS: usize = 3;
    for run in 1.. {
        let mut command = rig.run(&["--limit", limit]);
        command.env("RAMFOLD_PATH", "closed").arg("--").arg(&rig.program).arg(claim);
        let output = command.output().expect("it starts");
        let (out, err) = texts(&output);
        assert!(output.status.success() && out == "right\n", "{:?}\n{out}{err}", output.status);
        if err.contains("pages left") {
            return err;
        }
        let was_short = err.contains("it ended before its memory was looked at");
        assert!(was_short && run < RUNS, "run {run}: {err}");
    }
    unreachable!("the last run returns or fails")
}

macro_rules! claims {
    ($compiler:literal: $($name:ident: $claim:literal;)*) => {$(
        #[test]
        fn $name() {
            let Some(rig) = rig(&[$compiler]) else { return };
            folds_and_is_right(&rig, $claim);
        }
    )*};
}

claims! { "cc":
    closed_pages_come_back_as_they_were: "walk";
    closed_memory_moves_and_goes: "moves";
    values_on_two_pages_are_written_while_nothing_more_can_leave: "tight";
    what_was_closed_in_parts_moves_as_a_whole: "parts";
    signals_find_their_stack_open: "stacks";
    fibers_have_stacks_that_close: "fibers";
    threads_have_stacks_that_close: "ownstacks";
    what_is_left_over_in_registers_is_no_address: "leftovers";
    what_may_still_be_read_is_not_refused: "readers";
    forked_children_have_closed_pages: "forks";
    system_calls_meet_no_closed_page: "calls";
    threads_touch_closed_pages: "threads";
    closing_descriptors_does_not_matter: "closes";
    places_of_closed_pages_are_used_again: "reuse";
    closed_pages_that_are_given_up_are_zeros: "drops";
    a_child_gets_closed_pages_and_not_what_is_wiped: "wipes";
    memory_that_children_do_not_get_folds: "leaves";
    memory_that_children_do_not_get_moves: "leftout";
    handlers_fork_over_closed_pages: "handlers";
    programs_are_executed_over_closed_pages: "spawns";
    children_share_closed_pages: "shares";
    children_write_to_all_closed_pages_that_they_share: "copies";
    children_by_clone_have_closed_pages: "clones";
    a_program_cannot_close_what_its_pages_come_by: "guards";
    threads_are_cancelled_over_closed_pages: "cancels";
    threads_with_the_smallest_stacks_meet_closed_pages: "narrow";
    calls_of_younger_kernels_meet_no_closed_page: "young";
}

claims! { "musl-gcc":
    with_musl_pages_come_back_as_they_were: "walk";
    with_musl_memory_moves_and_goes: "moves";
    with_musl_values_on_two_pages_are_written: "tight";
    with_musl_what_was_closed_in_parts_moves_as_a_whole: "parts";
    with_musl_signals_find_their_stack_open: "stacks";
    with_musl_fibers_have_stacks_that_close: "fibers";
    with_musl_threads_have_stacks_that_close: "ownstacks";
    with_musl_what_is_left_over_in_registers_is_no_address: "leftovers";
    with_musl_what_may_still_be_read_is_not_refused: "readers";
    with_musl_forked_children_have_closed_pages: "forks";
    with_musl_threads_fork_over_closed_pages: "crowds";
    with_musl_system_calls_meet_no_closed_page: "calls";
    with_musl_threads_touch_closed_pages: "threads";
    with_musl_closing_descriptors_does_not_matter: "closes";
    with_musl_places_of_closed_pages_are_used_again: "reuse";
    with_musl_closed_pages_that_are_given_up_are_zeros: "drops";
    with_musl_a_child_gets_closed_pages_and_not_what_is_wiped: "wipes";
    with_musl_handlers_fork_over_closed_pages: "handlers";
    with_musl_programs_are_executed_over_closed_pages: "spawns";
    with_musl_children_share_closed_pages: "shares";
    with_musl_children_write_to_all_that_they_share: "copies";
    with_musl_children_by_clone_have_closed_pages: "clones";
    with_musl_a_program_cannot_close_what_its_pages_come_by: "guards";
    with_musl_threads_are_cancelled_over_closed_pages: "cancels";
    with_musl_threads_with_the_smallest_stacks_meet_closed_pages: "narrow";
}

/// Forks that read what they share. Each has some memory that cannot leave, and it was `58 MiB`
/// together when each had 16 groups of it, and when threads looked for room among what is shared.
#[test]
fn forks_stay_near_the_limit() {
    let Some(rig) = rig(&["cc"]) else { return };
    // The limit, a sixteenth of it, and 20 MiB.
    assert_within(&folds_and_is_right(&rig, "forks"), 54.0);
}

/// The heap has more than `80 MiB`. Some of it may come before it folds.
#[test]
fn small_blocks_of_either_c_library_fold() {
    const BOUND: f64 = 64.0;
    for compiler in ["cc", "musl-gcc"] {
        let Some(rig) = rig(&[compiler]) else { continue };
        assert_within(&folds_and_is_right(&rig, "blocks"), BOUND);
    }
}

/// `192 MiB` are given back twice, and nearly all of them are out. They need not come in for that.
#[test]
fn memory_is_given_back_without_coming_in() {
    // All of it comes back once, when it is read at the end.
    const ALL: u64 = 2 * 4 * 12288;
    for compiler in ["cc", "musl-gcc"] {
        let Some(rig) = rig(&[compiler]) else { continue };
        let said = folds_and_is_right(&rig, "returns");
        let words: Vec<&str> = said.split_whitespace().collect();
        let at = words.windows(2).position(|pair| pair == ["came", "back,"]).expect("it is told");
        let back: u64 = words[at - 1].parse().expect("a number");
        assert!(back < ALL, "{said}");
    }
}

/// The note that Go's linker writes into a program.
#[test]
fn a_program_of_go_is_left_alone() {
    let note = r#".pushsection .note.go.buildid, "a", @note; .long 4, 4, 4; .ascii "Go\0\0";
        .long 0; .popsection"#;
    let source = format!("__asm__({note:?});");
    let Some(rig) = rig(&["cc"]) else { return };
    let path = rig.scratch.path("go.h");
    std::fs::write(&path, source).expect("it is written");
    let program = rig.scratch.path("go");
    let mut compiler = tool("cc");
    compiler.args(["-O1", "-pthread", "-include"]).arg(&path).arg("-o").arg(&program);
    succeed(compiler.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/memory.c")));
    let mut command = rig.run(&["--limit", LIMIT, "--"]);
    let said = named_by(command.env("RAMFOLD_PATH", "closed").arg(&program).arg("waits"));
    assert!(said.contains("does not fold: it is a Go program"), "{said}");
}

/// `1.5 GiB` are mapped before it folds, and most of it is filled as fast as a thread can. The
/// bound leaves much to a machine with other work; without back-pressure `1.1 GiB` come. Then much
/// is read that was never written. If such pages made room as they leave, `300 MiB` would come.
#[test]
fn memory_that_is_filled_at_once_stays_near_the_limit() {
    const BOUND: f64 = 256.0;
    for compiler in ["cc", "musl-gcc"] {
        let Some(rig) = rig(&[compiler]) else { continue };
        assert_within(&is_right(&rig, "fills", "128M"), BOUND);
    }
}

/// `24 MiB`, and as much for each of four children, which write it all at once. If open pages that
/// forks share stayed open, nobody would be told of the copies. Half of the runs take `90 MiB` and
/// more then, so it runs four times.
#[test]
fn children_that_write_what_they_share_stay_near_the_limit() {
    const BOUND: f64 = 64.0 + 64.0 / 16.0 + 16.0;
    let Some(rig) = rig(&["cc"]) else { return };
    for _ in 0..4 {
        assert_within(&is_right(&rig, "copies", "64M"), BOUND);
    }
}

/// The instruction before a call that may be cancelled, and another one that does as well there.
#[test]
fn a_musl_whose_code_is_not_as_expected_is_left_alone() {
    let Some(rig) = rig(&["musl-gcc"]) else { return };
    let (known, other) = (*b"\x4c\x89\x5c\x24\x08\x0f\x05", *b"\x4c\x89\x5c\x24\x10\x0f\x05");
    let mut library = std::fs::read("/lib/ld-musl-x86_64.so.1").expect("musl is its own loader");
    let at = library.windows(known.len()).position(|it| it == known).expect("as it is known");
    library[at..at + other.len()].copy_from_slice(&other);
    let path = rig.scratch.path("ld.so");
    std::fs::write(&path, library).expect("it is written");
    succeed(tool("chmod").arg("+x").arg(&path));
    let mut command = rig.run(&["--limit", LIMIT]);
    let output = command.env("RAMFOLD_PATH", "closed").arg("--").arg(&path).arg(&rig.program);
    let (out, err) = texts(&output.arg("calls").output().expect("it starts"));
    assert_eq!(out, "right\n", "{err}");
    assert!(err.contains("does not fold: without userfaultfd only programs with musl"), "{err}");
}

/// Each finds the filter of the one before it, whose C library is another.
#[test]
fn programs_with_both_c_libraries_execute_each_other() {
    let (Some(glibc), Some(musl)) = (rig(&["cc"]), rig(&["musl-gcc"])) else { return };
    let mut command = glibc.run(&["--limit", LIMIT]);
    command.env("RAMFOLD_PATH", "closed").args(["--", "sh", "-c"]);
    command.arg("for turn in 1 2 3; do for it; do \"$it\" spawns && \"$it\" forks; done; done");
    command.arg("sh").args([&musl.program, &glibc.program, &musl.program]);
    let (out, err) = texts(&command.output().expect("it starts"));
    assert_eq!(out, "right\n".repeat(18), "{err}");
    assert!(err.contains("pages left") && !err.contains("does not fold"), "{err}");
}

#[test]
fn without_any_right_pages_are_closed() {
    let Some(rig) = rig(&["cc"]) else { return };
    if !needs_root() || !needs(&["setpriv"]) {
        return;
    }
    let mut command = tool("setpriv");
    command.args(["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", BINARY, "run"]);
    command.args(["--limit", LIMIT, "--explain", "--"]).arg(&rig.program).arg("walk");
    let output = command.env("XDG_RUNTIME_DIR", rig.scratch.path("run")).output();
    let (out, err) = texts(&output.expect("it starts"));
    assert_eq!(out, "right\n", "{err}");
    let told = "touches are signals, because the system refuses a userfaultfd";
    assert!(err.contains(told) && err.contains("pages left"), "{err}");
}

#[test]
fn a_program_that_gives_the_rights_up_folds_by_itself() {
    let Some(rig) = rig(&["cc"]) else { return };
    if !needs_root() || !needs(&["setpriv"]) {
        return;
    }
    let mut command = rig.run(&["--limit", LIMIT, "--", "setpriv", "--bounding-set=-sys_ptrace"]);
    let output = command.arg(&rig.program).arg("forks").output().expect("it starts");
    let (out, err) = texts(&output);
    assert_eq!(out, "right\n", "{err}");
    assert!(err.contains("pages left") && !err.contains("does not fold"), "{err}");
}

#[test]
fn where_addresses_are_not_by_chance_a_program_is_left_alone() {
    let Some(rig) = rig(&["cc"]) else { return };
    if !needs_root() || !needs(&["setpriv", "setarch"]) {
        return;
    }
    let mut command = rig.run(&["--limit", LIMIT]);
    command.env("RAMFOLD_PATH", "closed");
    command.args(["--", "setpriv", "--bounding-set=-sys_ptrace", "setarch", "-R"]);
    let output = command.args(["sh", "-c", "sleep 1; echo done"]).output().expect("it starts");
    let (out, err) = texts(&output);
    assert_eq!(out, "done\n", "{err}");
    assert!(err.contains("does not fold: without userfaultfd"), "{err}");
}
