//! `ramfold run --backing`: memory that does not compress, in less memory than it takes.
//!
//! ```text
//!   memory CLAIM noise  --little memory-->  a disk: one that works, is full, is small, or lies
//! ```
//!
//! What can leave only for the disk does. A program gets right bytes, or ends with a message.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use serde_json::Value;

use crate::programs::{Rig, rig, rig_of, texts};
use crate::rig::{
    BINARY, Space, eventually, from_env, needs, needs_root, refusal, signal, succeed, tool, within,
};

/// Half of what the programs fill.
const LIMIT: &str = "24M";
/// The bound of a limit: a sixteenth, and 16 MiB.
const BOUND: u64 = (24 << 20) + (24 << 20) / 16 + (16 << 20);
const SIGABRT: i32 = 6;
const TORTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/torture.c");

/// A command that folds this way, with a disk behind it, and the directory of the disk.
fn backed(rig: &Rig, way: &str, options: &[&str]) -> (Command, PathBuf) {
    let directory = rig.scratch.path("disk");
    std::fs::create_dir_all(&directory).expect("it can be made");
    let mut command = rig.run(&["--limit", LIMIT, "--backing"]);
    command.arg(&directory).args(options).arg("--").env("RAMFOLD_PATH", way);
    (command, directory)
}

fn names(directory: &Path) -> usize {
    std::fs::read_dir(directory).map_or(0, Iterator::count)
}

/// Does a claim, and gives what `ramfold` said.
#[track_caller]
fn right(rig: &Rig, way: &str, claim: &str) -> String {
    let (mut command, directory) = backed(rig, way, &[]);
    let output = command.arg(&rig.program).args([claim, "noise"]).output().expect("it starts");
    let (out, err) = texts(&output);
    let ended_well = output.status.success() && out == "right\n";
    assert!(ended_well, "{way}, {claim}: {:?}\n{out}{err}", output.status);
    assert!(err.contains(" went to the disk"), "{way}, {claim}: {err}");
    assert_eq!(names(&directory), 0, "nothing is left");
    err
}

fn has_userfaultfd() -> bool {
    needs_root()
}

macro_rules! claims {
    ($compiler:literal, $way:literal: $($name:ident: $claims:expr;)*) => {$(
        #[test]
        fn $name() {
            let Some(rig) = rig(&[$compiler]) else { return };
            if $way == "closed" || has_userfaultfd() {
                $claims.iter().for_each(|claim| drop(right(&rig, $way, claim)));
            }
        }
    )*};
}

claims! { "cc", "userfaultfd":
    what_went_to_the_disk_comes_back: ["walk", "moves", "drops", "threads", "calls"];
    children_read_what_their_parents_wrote: ["forks", "shares", "heirs", "crowds"];
    a_parent_writes_while_children_read: ["storms"];
    children_of_all_kinds_read_what_was_written: ["clones", "humble", "wipes", "leaves"];
    handlers_fork_while_pages_are_on_the_disk: ["handlers"];
    a_program_cannot_lose_its_disk: ["closes", "jails"];
}

claims! { "cc", "closed":
    closed_pages_that_went_to_the_disk_come_back: ["walk", "moves", "drops", "threads", "calls"];
    children_read_closed_pages_that_their_parents_wrote: ["forks", "shares", "heirs", "crowds"];
    a_parent_writes_while_children_read_closed_pages: ["storms"];
    children_of_all_kinds_read_closed_pages: ["clones", "wipes", "leaves"];
    handlers_fork_while_closed_pages_are_on_the_disk: ["handlers"];
    a_program_cannot_lose_the_disk_of_closed_pages: ["closes", "guards", "jails"];
}

claims! { "musl-gcc", "closed":
    with_musl_closed_pages_that_went_to_the_disk_come_back: ["walk", "moves", "calls"];
    with_musl_children_read_closed_pages_on_the_disk: ["forks", "shares", "clones", "handlers"];
}

claims! { "musl-gcc", "userfaultfd":
    with_musl_what_went_to_the_disk_comes_back: ["walk", "forks", "shares"];
}

#[test]
fn what_does_not_compress_stays_within_the_limit() {
    let Some(rig) = rig(&["cc"]) else { return };
    let ways: &[&str] = if has_userfaultfd() { &["userfaultfd", "closed"] } else { &["closed"] };
    for way in ways {
        let report = rig.scratch.path("report.json");
        let options = ["--report", report.to_str().expect("a name")];
        let (mut command, _) = backed(&rig, way, &options);
        let output = command.arg(&rig.program).args(["walk", "noise"]).output();
        let (out, err) = texts(&output.expect("it starts"));
        assert_eq!(out, "right\n", "{way}: {err}");
        let text = std::fs::read_to_string(&report).expect("a report");
        let value: Value = serde_json::from_str(&text).expect("JSON");
        let peak = value["peak"].as_u64().expect("bytes");
        assert!(peak < BOUND, "{way}: {peak} bytes\n{err}");
        let samples = value["samples"].as_array().expect("samples");
        let most = samples.iter().filter_map(|it| it["disk"].as_u64()).max();
        assert!(most > Some(8 << 20), "{way}: {most:?} bytes on the disk");
    }
}

#[test]
fn threads_do_what_they_like_to_memory_on_a_disk() {
    let Some(rig) = rig_of(TORTURE, &["cc"]) else { return };
    // A third for each way: the torture without a disk, which is the same program, has the whole.
    let seconds = from_env("RAMFOLD_TORTURE_SECONDS", 5).div_ceil(3);
    let ways: &[&str] = if has_userfaultfd() { &["userfaultfd", "closed"] } else { &["closed"] };
    for way in ways {
        let mut command = within(seconds + 120, BINARY);
        command.env("XDG_RUNTIME_DIR", rig.scratch.path("run")).env("RAMFOLD_PATH", way);
        command.args(["run", "--limit", "16M", "--backing"]).arg(rig.scratch.path("")).arg("--");
        let output = command.arg(&rig.program).args([&seconds.to_string(), "1"]).output();
        let output = output.expect("it starts");
        let (out, err) = texts(&output);
        let ended_well = output.status.success() && out.ends_with("right\n");
        assert!(ended_well, "{way}: {:?}\n{out}{err}", output.status);
        assert!(err.contains(" went to the disk"), "{way}: {err}");
    }
}

/// A tmpfs of `4 MiB` is full soon. It is seen in a mount space of its own alone.
#[test]
fn what_a_full_disk_refuses_stays_in_memory() {
    let Some(rig) = rig(&["cc"]) else { return };
    if !needs_root() || !needs(&["unshare", "mount"]) {
        return;
    }
    let _space = Space::Names.enter();
    for way in ["userfaultfd", "closed"] {
        let disk = rig.scratch.path("small");
        std::fs::create_dir_all(&disk).expect("it can be made");
        let script = "mount -t tmpfs -o size=4M none \"$2\" && \
                      exec \"$0\" run --limit 24M --backing \"$2\" -- \"$1\" forks noise";
        let mut command = tool("unshare");
        command.args(["--mount", "sh", "-c", script, BINARY]).arg(&rig.program).arg(&disk);
        command.env("XDG_RUNTIME_DIR", rig.scratch.path("run")).env("RAMFOLD_PATH", way);
        let (out, err) = texts(&command.output().expect("it starts"));
        assert_eq!(out, "right\n", "{way}: {err}");
        assert!(err.contains("is in memory (tmpfs)"), "{way}: {err}");
        let refused = err.lines().find(|line| line.contains("refused")).unwrap_or_default();
        let is_told = refused.contains("stayed in memory: No space left on device");
        assert!(is_told, "{way}: {err}");
    }
}

#[test]
fn a_programs_limit_of_files_ends_nothing() {
    let Some(rig) = rig(&["cc"]) else { return };
    let ways: &[&str] = if has_userfaultfd() { &["userfaultfd", "closed"] } else { &["closed"] };
    for way in ways {
        let (mut command, _) = backed(&rig, way, &[]);
        command.args(["sh", "-c", "ulimit -f 4096; exec \"$0\" walk noise"]).arg(&rig.program);
        let output = command.output().expect("it starts");
        let (out, err) = texts(&output);
        assert!(output.status.success() && out == "right\n", "{:?}\n{err}", output.status);
        assert!(err.contains("stayed in memory: File too large"), "{way}: {err}");
    }
}

/// A program whose memory is on the disk, and which waits for a line.
struct Resting {
    run: Child,
    line: ChildStdin,
    program: u32,
}

fn resting(rig: &Rig, way: &str) -> Resting {
    let directory = rig.scratch.path("disk");
    std::fs::create_dir_all(&directory).expect("it can be made");
    // The program is this command's child.
    let mut command = Command::new(BINARY);
    command.args(["run", "--limit", LIMIT, "--backing"]).arg(directory).arg("--");
    command.arg(&rig.program).args(["rests", "noise"]).env("RAMFOLD_PATH", way);
    command.env("XDG_RUNTIME_DIR", rig.scratch.path("run"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut run = command.spawn().expect("it starts");
    let (line, mut first) = (run.stdin.take().expect("piped"), String::new());
    let out = run.stdout.take().expect("piped");
    BufReader::new(out).read_line(&mut first).expect("it says so");
    assert_eq!(first, "rests\n");
    let children = crate::programs::children;
    eventually("the program", || !children(run.id()).is_empty());
    Resting { program: children(run.id())[0], run, line }
}

/// The file that a thread of ours writes to.
fn file_of(process: u32, directory: &Path) -> Option<PathBuf> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task")).ok()?;
    let tables = threads.flatten().filter_map(|it| std::fs::read_dir(it.path().join("fd")).ok());
    let mut links = tables.flat_map(|table| table.flatten()).map(|it| it.path());
    links.find(|link| std::fs::read_link(link).is_ok_and(|to| to.starts_with(directory)))
}

#[test]
fn a_disk_that_loses_or_changes_bytes_ends_the_program_with_a_message() {
    let Some(rig) = rig(&["cc"]) else { return };
    let ways: &[&str] = if has_userfaultfd() { &["userfaultfd", "closed"] } else { &["closed"] };
    for way in ways {
        for loses in [true, false] {
            let mut resting = resting(&rig, way);
            let found = file_of(resting.program, &rig.scratch.path("disk"));
            let link = found.expect("the pager has a file");
            let file = std::fs::OpenOptions::new().write(true).open(link).expect("it is ours");
            let len = file.metadata().expect("a file").len();
            file.set_len(if loses { 0 } else { len }).expect("it can be cut");
            for at in (0..len).step_by(4096).filter(|_| !loses) {
                let changed = std::os::unix::fs::FileExt::write_all_at(&file, b"x", at);
                changed.expect("it is written");
            }
            resting.line.write_all(b"\n").expect("it waits");
            let output = resting.run.wait_with_output().expect("it ends");
            let (out, err) = texts(&output);
            assert_eq!((output.status.signal(), out.as_str()), (Some(SIGABRT), ""), "{err}");
            // What is written after the file was cut makes a hole before it.
            let why = ["cannot be read from", "is damaged on"];
            let told = |why| err.contains(&format!("its memory {why} the disk of --backing"));
            assert!(told(why[1]) || loses && told(why[0]), "{way}: {err}");
        }
    }
}

#[test]
fn a_run_that_is_killed_leaves_nothing_on_the_disk() {
    let Some(rig) = rig(&["cc"]) else { return };
    let ways: &[&str] = if has_userfaultfd() { &["userfaultfd", "closed"] } else { &["closed"] };
    for way in ways {
        let mut resting = resting(&rig, way);
        let directory = rig.scratch.path("disk");
        assert!(file_of(resting.program, &directory).is_some(), "it has a file");
        let mut stat = tool(BINARY);
        stat.args(["stat", &resting.program.to_string(), "--json"]);
        let said = succeed(stat.env("XDG_RUNTIME_DIR", rig.scratch.path("run")));
        let value: Value = serde_json::from_str(&said).expect("JSON");
        let figure = |name: &str| value[name].as_u64();
        let is_there = figure("disk") > Some(8 << 20) && figure("disk_out") > Some(2048);
        assert!(is_there && figure("disk_refused") == Some(0), "{said}");
        signal(resting.run.id(), "KILL");
        signal(resting.program, "KILL");
        resting.run.wait().expect("it ends");
        assert_eq!(names(&directory), 0, "{way}");
        eventually("the file", || file_of(resting.program, &directory).is_none());
    }
}

#[test]
fn a_directory_where_no_page_can_be_kept_is_refused() {
    let Some(rig) = rig(&["cc"]) else { return };
    let file = rig.scratch.path("file");
    std::fs::write(&file, "").expect("it is written");
    let long = format!("{}/", rig.scratch.path("").display()) + &"./".repeat(600);
    let rows = [
        (file.to_str().expect("a name"), "not a directory"),
        ("/nonexistent", "No such file"),
        ("/proc", "--backing /proc: "),
    ];
    for (given, why) in rows {
        let said = refusal(&mut rig.run(&["--backing", given, "--", "true"]));
        assert!(said.contains(why) && said.lines().count() == 1, "{given}: {said}");
    }
    succeed(&mut rig.run(&["--backing", &long, "--", "true"]));
    let said = rig.run(&["--explain", "--backing", &long, "--", "true"]).output();
    let (_, err) = texts(&said.expect("it starts"));
    assert!(err.contains("pages that do not fit go to files without a name in /"), "{err}");
}

/// The program may go elsewhere: the path is kept as a whole.
#[test]
fn a_relative_directory_is_that_of_the_command() {
    let Some(rig) = rig(&["cc"]) else { return };
    let mut command = rig.run(&["--limit", LIMIT, "--backing", "."]);
    command.env("RAMFOLD_PATH", "closed").current_dir(rig.scratch.path(""));
    command.args(["--", "sh", "-c", "cd /proc; exec \"$0\" walk noise"]).arg(&rig.program);
    let (out, err) = texts(&command.output().expect("it starts"));
    assert_eq!(out, "right\n", "{err}");
    assert!(err.contains(" went to the disk"), "{err}");
}
