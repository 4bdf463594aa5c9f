//! `ramfold run`: traps that others have fallen into who folded the memory of programs, each way.
//!
//! ```text
//!   tests/programs/traps.c  --cc-->  a program for each claim; it prints "right"
//! ```
//!
//! docs/testing.md has a table of all traps, and which test would fall into each.

use crate::edges::right_in;
use crate::programs::{rig_of, texts};

const TRAPS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/traps.c");
const LIMIT: &str = "32M";

macro_rules! claims {
    ($($name:ident: $claim:literal;)*) => {$(
        #[test]
        fn $name() {
            right_in(TRAPS, $claim);
        }
    )*};
}

claims! {
    memory_that_moves_may_leave_its_place_behind: "stays";
    locked_memory_may_move_and_grow: "grows";
    children_by_calls_without_handlers_have_their_parents_memory: "born";
    what_a_call_takes_arrives_in_memory_that_is_out: "losses";
    memory_that_goes_cold_under_a_waiting_call_gets_what_comes: "blocked";
    memory_is_touched_while_all_signals_are_blocked: "masks";
    faults_of_a_program_reach_its_handler_as_they_are: "faults";
    a_program_with_one_thread_stays_one_for_its_c_library: "single";
}

#[test]
fn memory_comes_back_when_the_system_gives_no_more_mappings() {
    let Some(said) = right_in(TRAPS, "mappings") else { return };
    if said.iter().any(|said| said.contains("there are too many mappings")) {
        println!("skipped: needs a vm.max_map_count of at most 262144");
    }
}

/// The other C library makes other calls.
#[test]
fn with_musl_the_same_traps_are_closed() {
    let Some(rig) = rig_of(TRAPS, &["musl-gcc"]) else { return };
    for claim in ["stays", "grows", "born", "losses", "blocked", "masks", "faults"] {
        let mut command = rig.run(&["--limit", LIMIT, "--"]);
        command.arg(&rig.program).arg(claim).env("RAMFOLD_PATH", "closed");
        let (out, err) = texts(&command.output().expect("it starts"));
        assert!(out == "right\n" && err.contains("pages left"), "{claim}: {out}{err}");
    }
}
