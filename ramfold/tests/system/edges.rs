//! `ramfold run`: programs that do with their memory what few programs do, each way.
//!
//! ```text
//!   tests/programs/edges.c  --cc-->  a program for each claim; it prints "right"
//! ```
//!
//! Some of what they do is served by one of the two ways only. The other way says so, and the
//! program is right all the same.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::programs::{Rig, children, folds, rig_of, texts};
use crate::rig::{
    BINARY, Scratch, Space, Stopped, built, eventually, needs, needs_root, refusal, succeed, tool,
};

const EDGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/edges.c");
const MEMORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/memory.c");
const LIMIT: &str = "32M";
const FAULTS: &str = "userfaultfd";
const CLOSED: &str = "closed";
const SIGABRT: i32 = 6;
const NOBODY: u32 = 65534;

/// The ways that this machine has.
fn ways(rig: &Rig) -> Vec<&'static str> {
    let is_had = |way: &&str| {
        let mut command = rig.run(&["--quiet", "--", "true"]);
        command.env("RAMFOLD_PATH", way).output().expect("it starts").status.success()
    };
    let ways: Vec<&str> = [FAULTS, CLOSED].into_iter().filter(is_had).collect();
    assert!(!ways.is_empty(), "the rig has found one");
    ways
}

/// Does a claim in little memory, each way. Gives what was said on the way with userfaultfd, if
/// there is one, and on the other.
#[track_caller]
fn right(claim: &str) -> Option<[String; 2]> {
    right_in(EDGES, claim)
}

/// The same with a claim of another program.
#[track_caller]
pub(crate) fn right_in(source: &'static str, claim: &str) -> Option<[String; 2]> {
    let rig = rig_of(source, &["cc"])?;
    let mut said = [String::new(), String::new()];
    for way in ways(&rig) {
        let mut command = rig.run(&["--limit", LIMIT, "--"]);
        command.arg(&rig.program).arg(claim).env("RAMFOLD_PATH", way);
        let (output, place) = (command.output().expect("it starts"), usize::from(way == CLOSED));
        let (out, err) = texts(&output);
        assert!(output.status.success() && out == "right\n", "{way}: {output:?}");
        assert!(err.contains("pages left"), "{way}: {err}");
        said[place] = err;
    }
    Some(said)
}

/// Constructors of other libraries run before ours. A program that lies above the arena was ended
/// by its C library, because its break went down.
#[test]
fn a_heap_that_a_library_began_goes_on() {
    const HEAP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/heap.c");
    let scratch = Scratch::new();
    if !needs(&["cc"]) || !folds(&scratch) {
        return;
    }
    let library = scratch.path("libkept.so");
    succeed(tool("cc").args(["-shared", "-fPIC", "-DLIBRARY", "-o"]).arg(&library).arg(HEAP));
    let library = library.to_str().expect("text");
    for [place, code] in [["-pie", "-fPIE"], ["-no-pie", "-fno-pie"]] {
        let compiler = ["cc", place, code, "-Wl,--no-as-needed", library];
        let rig = rig_of(HEAP, &compiler).expect("there is a compiler");
        for way in ways(&rig) {
            let mut command = rig.run(&["--limit", LIMIT, "--"]);
            let output = command.arg(&rig.program).env("RAMFOLD_PATH", way).output();
            let output = output.expect("it starts");
            let (out, err) = texts(&output);
            assert!(output.status.success() && out == "right\n", "{place}, {way}: {output:?}");
            assert!(err.contains("pages left"), "{place}, {way}: {err}");
        }
    }
}

/// The library that folds must not call them: they wait for the thread that they run in.
#[test]
fn a_program_may_have_functions_by_names_of_the_c_library() {
    const OWN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/own.c");
    let Some(rig) = rig_of(OWN, &["cc", "-fno-builtin", "-rdynamic"]) else { return };
    for way in ways(&rig) {
        let mut command = rig.run(&["--limit", LIMIT, "--"]);
        let output = command.arg(&rig.program).env("RAMFOLD_PATH", way).output();
        let (out, err) = texts(&output.expect("it starts"));
        assert!(out == "right\n" && err.contains("pages left"), "{way}: {out}{err}");
    }
}

/// It lets one thread run at a time. One that waited for a page kept the one from running that
/// brings pages in.
#[test]
fn what_valgrind_runs_does_not_fold_and_ends() {
    if !needs(&["valgrind"]) {
        return;
    }
    let Some(rig) = rig_of(MEMORY, &["cc"]) else { return };
    for way in ways(&rig) {
        let mut command = rig.run(&["--limit", LIMIT, "--", "valgrind", "--tool=none", "-q"]);
        command.arg(&rig.program).arg("walk").env("RAMFOLD_PATH", way);
        let (out, err) = texts(&command.output().expect("it starts"));
        assert!(out == "right\n" && err.contains("valgrind runs it"), "{way}: {out}{err}");
    }
}

/// The addresses that the library reserves are gigabytes of tables in an emulator.
#[test]
fn where_no_way_can_be_the_library_takes_no_addresses() {
    let Some(rig) = rig_of(EDGES, &["cc"]) else { return };
    for way in ways(&rig) {
        let mut command = rig.run(&["--quiet", "--limit", LIMIT, "--"]);
        command.arg(&rig.program).arg("lacks").env("RAMFOLD_PATH", way);
        let (out, err) = texts(&command.output().expect("it starts"));
        assert!(out.contains("libramfold_inside.so"), "{way}: it has the library: {out}{err}");
        let bytes = |line: &str| {
            let (start, end) = line.split_once(' ')?.0.split_once('-')?;
            let number = |text| usize::from_str_radix(text, 16).ok();
            Some(number(end)? - number(start)?)
        };
        let most = out.lines().filter_map(bytes).max().expect("mappings");
        assert!(most < 1 << 30, "{way}: {most} bytes in one mapping: {out}");
    }
}

/// Two libraries in one process once waited for each other.
#[test]
fn a_run_in_a_run_folds_within_its_own_limit() {
    let Some(rig) = rig_of(MEMORY, &["cc"]) else { return };
    for way in ways(&rig) {
        let mut command = rig.run(&["--limit", "200M", "--", BINARY, "run", "--limit", LIMIT]);
        command.arg("--").arg(&rig.program).arg("walk").env("RAMFOLD_PATH", way);
        let (out, err) = texts(&command.output().expect("it starts"));
        assert_eq!(out, "right\n", "{way}: {err}");
        let (inner, outer) = err.split_once("with a limit of 32.0 MiB").expect(&err);
        assert!(inner.contains("at most") && outer.contains("pages left"), "{way}: {err}");
        assert!(outer.contains("the limit of 200.0 MiB; nothing was folded"), "{way}: {err}");
        let line = outer.lines().find(|line| line.contains("200.0 MiB")).expect(&err);
        let taken = line.split_once(" MiB at most").and_then(|(words, _)| words.rsplit(' ').next());
        let taken = taken.and_then(|mib| mib.parse::<f64>().ok());
        assert!(taken > Some(20.0), "{way}: what the inner run takes counts: {err}");
    }
}

macro_rules! claims {
    ($($name:ident: $claim:literal;)*) => {$(
        #[test]
        fn $name() {
            right($claim);
        }
    )*};
}

claims! {
    what_is_locked_stays: "locks";
    what_the_system_may_free_is_old_or_zeros: "frees";
    thread_local_storage_folds: "locals";
    memory_is_written_and_executed_in_turn: "jits";
    huge_pages_fold: "huge";
    a_child_by_vfork_writes_to_its_parents_memory: "vforks";
    a_debugger_starts_a_program: "debugs";
    a_process_that_nobody_may_look_at_folds: "private";
}

/// Root may look at any process, so as root nothing is proved by that.
#[test]
fn a_process_without_rights_that_nobody_may_look_at_folds() {
    if !needs_root() || !needs(&["setpriv"]) {
        return;
    }
    let Some(rig) = rig_of(EDGES, &["cc"]) else { return };
    let own = rig.scratch.path("nobody");
    std::fs::create_dir(&own).expect("room");
    let mut everybody = vec![rig.scratch.path("")];
    everybody.push(rig.program.clone());
    for path in everybody {
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("ours");
    }
    chown(&own, Some(NOBODY), Some(NOBODY)).expect("we are root");
    let mut command = tool("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all"]);
    command.args(["--inh-caps=-all", "--no-new-privs", BINARY, "run", "--limit", LIMIT, "--"]);
    command.arg(&rig.program).arg("private").env("XDG_RUNTIME_DIR", &own);
    command.env("RAMFOLD_PATH", CLOSED);
    let (out, err) = texts(&command.env("TMPDIR", &own).output().expect("it starts"));
    if err.contains("Permission denied") && err.contains("setpriv") {
        return println!("skipped: needs a build that others may read");
    }
    assert!(out == "right\n" && err.contains("pages left"), "{out}{err}");
}

/// With userfaultfd the kernel waits for pages that `process_vm_readv` reads. For `ptrace`, and
/// without userfaultfd, those that are out are errors or zeros.
#[test]
fn another_process_may_look_and_does_no_harm() {
    let Some([faults, _]) = right("watched") else { return };
    // All of 48 MiB but the first page, whose first word is zero.
    assert!(faults.is_empty() || faults.contains(" 12287 copied\n"), "{faults}");
}

const NOT_SERVED: &str = "does not fold: it did what is not served without userfaultfd";

#[test]
fn io_uring_reads_and_writes_folded_memory() {
    let path = Path::new("/proc/sys/kernel/io_uring_disabled");
    if std::fs::read_to_string(path).unwrap_or_default().trim() != "0" {
        return println!("skipped: needs io_uring");
    }
    let Some([_, closed]) = right("rings") else { return };
    assert!(closed.is_empty() || closed.contains(NOT_SERVED), "{closed}");
}

#[test]
fn a_process_may_lock_all_of_its_memory() {
    let Some([_, closed]) = right("lockall") else { return };
    assert!(closed.is_empty() || closed.contains(NOT_SERVED), "{closed}");
}

#[test]
fn a_program_may_have_a_userfaultfd_of_its_own() {
    let Some(said) = right("owners") else { return };
    if said.iter().any(|said| said.contains("a userfaultfd is refused")) {
        return println!("skipped: needs a userfaultfd");
    }
    let [faults, closed] = said;
    assert!(!faults.contains("ours was first"), "new memory is the program's: {faults}");
    assert!(closed.is_empty() || closed.contains(NOT_SERVED), "{closed}");
}

/// The kernel tells nobody of such guards. What was out would be there again behind them.
#[test]
fn guards_are_refused_where_nobody_is_told_of_them() {
    if !needs_root() {
        return;
    }
    let Some(rig) = rig_of(EDGES, &["cc"]) else { return };
    let (_, plain) = texts(&tool(path(&rig)).arg("fences").output().expect("it starts"));
    let Some([faults, closed]) = right("fences") else { return };
    let has_guards = !plain.contains("guards are refused");
    if !has_guards {
        return println!("skipped: needs Linux 6.13");
    }
    assert!(faults.is_empty() || faults.contains("guards are refused"), "{faults}");
    assert!(!closed.contains("guards are refused"), "they are served: {closed}");
}

fn path(rig: &Rig) -> &str {
    rig.program.to_str().expect("scratch paths are text")
}

/// A page of a core file is right, or it is a hole where the page was out.
#[test]
fn a_core_file_has_what_was_in_memory() {
    let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    let Some(rig) = rig_of(EDGES, &["cc"]) else { return };
    if pattern.trim() != "core" {
        return println!("skipped: needs core files in the working directory");
    }
    for way in ways(&rig) {
        let directory = rig.scratch.path(way);
        std::fs::create_dir(&directory).expect("it can be made");
        // A command that is killed after a deadline would have its own core.
        let mut command = Command::new(BINARY);
        command.args(["run", "--limit", LIMIT, "--"]).arg(&rig.program).arg("dumps");
        command.env("XDG_RUNTIME_DIR", rig.scratch.path("run")).env("RAMFOLD_PATH", way);
        let output = command.current_dir(&directory).output().expect("it starts");
        let (_, err) = texts(&output);
        let status = output.status;
        assert_eq!((status.signal(), status.code()), (Some(SIGABRT), None), "{way}: {err}");
        let core = std::fs::read_dir(&directory).expect("it is there").flatten();
        let core = core.map(|it| it.path()).find(|it| !it.ends_with("where"));
        let core = core.expect("a core");
        // Of what is reserved and was never given it has nothing. That is a TiB.
        let len = std::fs::metadata(&core).expect("it is there").len();
        assert!(len < 1 << 30, "{way}: {len} bytes");
        let core = std::fs::read(core).expect("it is ours");
        let place = std::fs::read_to_string(directory.join("where")).expect("it was written");
        let numbers = place.split_ascii_whitespace().map(|word| word.parse().expect("a number"));
        let [at, pages, opened, few] = numbers.collect::<Vec<u64>>()[..] else { panic!("{place}") };
        let segments = segments(&core);
        let right = right_pages(&core, &segments, at, pages);
        assert!(right > 100 && right < pages - 100, "{way}: {right} of {pages} pages");
        let right = right_pages(&core, &segments, opened, few);
        assert!(
            right > few - 64,
            "{way}: {right} of {few} pages that were opened and written last"
        );
    }
}

/// How many pages are there. The others are holes.
fn right_pages(core: &[u8], segments: &[Segment], at: u64, pages: u64) -> u64 {
    let mut right = 0;
    for page in 1..pages {
        let Some(bytes) = in_core(core, segments, at + page * 4096) else { continue };
        let first = u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes"));
        let last = u64::from_le_bytes(bytes[4088..].try_into().expect("8 bytes"));
        let is_right = [first, last] == [page * 1_000_003, page * 1_000_003 + 511 / 16];
        right += u64::from(is_right);
        assert!(is_right || bytes.iter().all(|it| *it == 0), "page {page}");
    }
    right
}

/// A part of a process's memory in its core file: where it is there, its address and its length.
type Segment = [u64; 3];

fn segments(core: &[u8]) -> Vec<Segment> {
    let number = |at: usize, bytes: usize| {
        core[at..at + bytes].iter().rev().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let (table, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    let headers = (0..count).map(|at| (table + at * size) as usize);
    let loaded = headers.filter(|&header| number(header, 4) == 1);
    loaded.map(|header| [8, 16, 32].map(|field| number(header + field, 8))).collect()
}

/// The page of a process at an address.
fn in_core<'a>(core: &'a [u8], segments: &[Segment], address: u64) -> Option<&'a [u8]> {
    let [offset, start, _] =
        segments.iter().find(|[_, start, len]| (*start..start + len).contains(&address))?;
    let from = (offset + address - start) as usize;
    core.get(from..from + 4096)
}

/// Streams are terminals as without `ramfold`, and the program is in front.
#[test]
fn a_program_has_its_terminal() {
    let Some(rig) = rig_of(EDGES, &["cc"]).filter(|_| needs(&["script"])) else { return };
    let on_a_terminal = |line: &str| {
        let mut command = tool("script");
        command.args(["--quiet", "--return", "--command", line, "/dev/null"]);
        command.env("XDG_RUNTIME_DIR", rig.scratch.path("run")).stdin(Stdio::null());
        succeed(&mut command)
    };
    let plain = on_a_terminal(&format!("{} tells", path(&rig)));
    assert!(plain.contains("in front 1, terminals 111"), "{plain}");
    for way in ways(&rig) {
        let line =
            format!("RAMFOLD_PATH={way} {BINARY} run --quiet --limit 64M -- {} tells", path(&rig));
        assert_eq!(on_a_terminal(&line), plain, "{way}");
    }
}

/// A program that stands still, and goes on, has what it had.
#[test]
fn a_program_may_be_stopped_and_go_on() {
    let Some(rig) = rig_of(MEMORY, &["cc"]) else { return };
    for way in ways(&rig) {
        let mut command = Command::new(BINARY);
        command.args(["run", "--quiet", "--limit", LIMIT, "--"]).arg(&rig.program).arg("rests");
        command.env("XDG_RUNTIME_DIR", rig.scratch.path("run")).env("RAMFOLD_PATH", way);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut run = command.spawn().expect("it starts");
        let mut line = run.stdin.take().expect("piped");
        let mut lines = BufReader::new(run.stdout.take().expect("piped")).lines();
        let mut next = || lines.next().expect("a line").expect("text");
        assert_eq!(next(), "rests");
        eventually("the program", || !children(run.id()).is_empty());
        let stopped = Stopped::new(children(run.id())[0]);
        line.write_all(b"\n").expect("it waits");
        std::thread::sleep(std::time::Duration::from_millis(300));
        assert!(run.try_wait().expect("ours").is_none(), "a program that is stopped has not ended");
        drop(stopped);
        assert_eq!(next(), "right", "{way}");
        assert!(run.wait().expect("it ends").success());
    }
}

/// One process rests with 48 MiB, and one uses 40 MiB, in 64 MiB. If each had its half, or what it
/// had first, a fifth of the memory in use would be out at any time.
#[test]
fn memory_goes_to_the_process_that_uses_it() {
    let Some(rig) = rig_of(EDGES, &["cc"]) else { return };
    let rests = built(MEMORY, &["cc"], rig.scratch.path("rests"));
    let script = "mkfifo line; exec 3<>line; \"$0\" rests <&3 >said & \
                  until grep -q rests said; do sleep 0.1; done; \"$1\" loops; \
                  echo >&3; wait; cat said";
    for way in ways(&rig) {
        let directory = rig.scratch.path(way);
        std::fs::create_dir(&directory).expect("it can be made");
        let mut command = rig.run(&["--limit", "64M", "--", "sh", "-c", script]);
        command.arg(&rests).arg(&rig.program).env("RAMFOLD_PATH", way).current_dir(directory);
        let (out, err) = texts(&command.output().expect("it starts"));
        let (there, rest) = out.split_once(" of 10240\n").expect(&err);
        assert_eq!(rest, "right\nrests\nright\n", "{way}: {err}");
        let there = there.parse::<u64>().expect("a count");
        assert!(there > 9000, "{way}: {there} of 10240 pages: {err}");
    }
}

/// Directories of a run are tried one after the other.
#[test]
fn a_library_that_cannot_be_executed_from_anywhere_is_told() {
    if !needs_root() || !needs(&["unshare", "mount"]) {
        return;
    }
    let _space = Space::Names.enter();
    let scratch = Scratch::new();
    for name in ["run", "tmp"] {
        std::fs::create_dir(scratch.path(name)).expect("it can be made");
    }
    let script = "set -e
for place in \"$0/run\" \"$0/tmp\" /dev/shm /var/tmp; do mount -t tmpfs -o noexec none $place; done
export XDG_RUNTIME_DIR=\"$0/run\" TMPDIR=\"$0/tmp\"
exec \"$1\" run -- true";
    let mut command = tool("unshare");
    command.args(["--mount", "bash", "-c", script]).arg(scratch.path("")).arg(BINARY);
    let line = refusal(&mut command);
    assert!(line.contains("no place for the library: "), "{line}");
    assert_eq!(line.matches("nothing can be executed from there").count(), 4, "{line}");
}
