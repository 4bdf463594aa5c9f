//! `ramfold run`: programs that know what their memory must hold, in less of it.
//!
//! ```text
//!   tests/programs/memory.c  --cc-->  a program for each claim; it prints "right"
//! ```
//!
//! The limit is far below what the programs touch, so nearly all of it leaves and comes back.

use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use crate::rig::{
    BINARY, Scratch, Terminal, built, eventually, needs, needs_root, signal, succeed, tool,
};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/memory.c");
const LIMIT: &str = "32M";
const SIGUSR1: i32 = 10;

/// A runtime directory, and the program in it.
pub(crate) struct Rig {
    pub(crate) scratch: Scratch,
    pub(crate) program: PathBuf,
}

/// `None` if this machine cannot fold programs, or has no compiler.
pub(crate) fn rig(compiler: &[&str]) -> Option<Rig> {
    rig_of(SOURCE, compiler)
}

/// The same with another program.
pub(crate) fn rig_of(source: &'static str, compiler: &[&str]) -> Option<Rig> {
    let scratch = Scratch::new();
    if !needs(&compiler[..1]) || !folds(&scratch) {
        return None;
    }
    let program = built(source, compiler, scratch.path("memory"));
    Some(Rig { scratch, program })
}

/// Whether this machine can fold programs.
pub(crate) fn folds(scratch: &Scratch) -> bool {
    let output = run(scratch, &[]).args(["--", "true"]).output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return true;
    }
    assert!(text.contains("programs cannot fold here"), "{text}");
    println!("skipped: needs a userfaultfd for system calls");
    false
}

fn run(scratch: &Scratch, options: &[&str]) -> Command {
    let mut command = tool(BINARY);
    command.arg("run").args(options).env("XDG_RUNTIME_DIR", scratch.path("run"));
    command
}

impl Rig {
    pub(crate) fn run(&self, options: &[&str]) -> Command {
        run(&self.scratch, options)
    }

    /// Runs one claim of the program, and gives what `ramfold` said.
    #[track_caller]
    pub(crate) fn right(&self, claim: &str, options: &[&str]) -> String {
        let output = self.run(options).arg("--").arg(&self.program).arg(claim).output();
        let output = output.expect("it starts");
        let (out, err) = texts(&output);
        assert!(output.status.success(), "{:?}\n{out}{err}", output.status);
        assert_eq!(out, "right\n", "{err}");
        err
    }

    /// Does the claim while most of the memory is out.
    #[track_caller]
    fn folds_and_is_right(&self, claim: &str) {
        let said = self.right(claim, &["--limit", LIMIT]);
        assert!(said.contains("pages left"), "{said}");
    }
}

pub(crate) fn texts(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

macro_rules! claims {
    ($($name:ident: $claim:literal;)*) => {$(
        #[test]
        fn $name() {
            let Some(rig) = rig(&["cc"]) else { return };
            rig.folds_and_is_right($claim);
        }
    )*};
}

claims! {
    what_is_touched_again_is_what_it_was: "walk";
    memory_that_moves_and_goes_is_right: "moves";
    mappings_that_move_together_are_right: "parts";
    signals_find_their_stack: "stacks";
    fibers_have_stacks_that_fold: "fibers";
    threads_have_stacks_that_fold: "ownstacks";
    what_may_be_read_meanwhile_is_read: "readers";
    values_on_two_pages_are_right: "tight";
    forked_children_have_their_parents_memory: "forks";
    children_share_what_is_out: "shares";
    children_write_to_all_that_they_share: "copies";
    children_of_children_have_what_their_parents_had: "heirs";
    a_parent_may_write_while_its_children_read: "storms";
    threads_may_fork_while_others_touch: "crowds";
    a_child_without_fork_has_its_parents_memory: "clones";
    a_child_that_may_not_fold_has_its_parents_memory: "humble";
    system_calls_see_memory_that_has_left: "calls";
    threads_come_and_go_over_folded_memory: "threads";
    a_program_cannot_close_what_folds_its_memory: "closes";
    memory_that_takes_the_place_of_other_memory_is_right: "reuse";
    what_is_given_up_reads_as_zeros: "drops";
    a_child_does_not_get_what_is_wiped: "wipes";
    a_child_does_not_have_what_is_left_out: "leaves";
    programs_are_executed_over_folded_memory: "spawns";
    a_handler_may_fork_in_the_middle_of_a_fork: "handlers";
    threads_are_cancelled_while_their_memory_is_out: "cancels";
    threads_with_the_smallest_stacks_find_their_memory: "narrow";
}

#[test]
fn every_algorithm_gives_back_what_it_was_given() {
    let Some(rig) = rig(&["cc"]) else { return };
    for algorithm in ["lzo-rle", "lzo", "lz4", "lz4hc", "zstd", "deflate", "pagelz", "zstd:7"] {
        let said = rig.right("walk", &["--limit", LIMIT, "--algorithm", algorithm]);
        assert!(said.contains("pages left"), "{algorithm}: {said}");
    }
    rig.right("walk", &["--limit", LIMIT, "--density", "dense"]);
}

#[test]
fn what_is_filled_at_once_is_right_in_little_memory() {
    let Some(rig) = rig(&["cc"]) else { return };
    assert_within(&rig.right("fills", &["--limit", "128M"]), 256.0);
}

/// On one CPU a program writes over its environment before our thread has begun. On two CPUs this
/// happened to one Redis in fourteen, which did not fold then.
#[test]
fn a_program_that_writes_over_its_environment_at_once_folds() {
    let Some(rig) = rig(&["cc"]).filter(|_| needs(&["taskset"])) else { return };
    let status = std::fs::read_to_string("/proc/self/status").expect("the process has one");
    let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let cpu = cpus.and_then(|cpus| cpus.trim().split([',', '-']).next()).expect("a CPU");
    for way in ["", "closed"] {
        let mut command = rig.run(&["--limit", LIMIT, "--", "taskset", "-c", cpu]);
        command.arg(&rig.program).arg("titles").env("RAMFOLD_PATH", way);
        let (out, err) = texts(&command.output().expect("it starts"));
        assert!(out == "right\n" && err.contains("pages left"), "{way}: {out}{err}");
    }
}

/// At most so many MiB were taken, by what `ramfold` said.
#[track_caller]
pub(crate) fn assert_within(said: &str, bound: f64) {
    let most = said.strip_prefix("ramfold: ").and_then(|said| said.split(' ').next());
    let most: f64 = most.and_then(|most| most.parse().ok()).expect("a figure");
    assert!(most < bound && said.contains(" MiB at most"), "{said}");
}

/// The heap has more than `80 MiB`, and grows as it likes. Some of it may come before it is
/// registered.
#[test]
fn small_blocks_fold() {
    let Some(rig) = rig(&["cc"]) else { return };
    assert_within(&rig.right("blocks", &["--limit", LIMIT]), 64.0);
}

#[test]
fn under_its_limit_a_program_is_left_alone() {
    let Some(rig) = rig(&["cc"]) else { return };
    let said = rig.right("walk", &["--limit", "1G"]);
    assert!(said.contains("nothing was folded"), "{said}");
    assert_eq!(rig.right("walk", &["--limit", LIMIT, "--quiet"]), "");
}

#[test]
fn a_program_with_another_c_library_folds_too() {
    let Some(rig) = rig(&["musl-gcc"]) else { return };
    for claim in ["walk", "moves", "forks", "shares", "crowds", "calls", "threads"] {
        rig.folds_and_is_right(claim);
    }
}

#[test]
fn a_program_that_cannot_fold_is_named_and_runs() {
    let Some(rig) = rig(&["cc", "-static"]) else { return };
    let script = "\"$0\" waits & one=$!; \"$0\" waits & sleep 1; kill $one $!; wait";
    let mut command = rig.run(&["--limit", LIMIT]);
    let output = command.args(["--", "sh", "-c", script]).arg(&rig.program).output();
    let (out, err) = texts(&output.expect("it starts"));
    assert_eq!(out, "waits\nwaits\n", "{err}");
    let named = err.lines().filter(|line| line.contains("does not fold")).count();
    assert_eq!(named, 1, "{err}");
    assert!(err.contains("memory (process"), "{err}");
}

#[test]
fn the_end_of_a_program_is_its_own() {
    let Some(rig) = rig(&["cc"]) else { return };
    let code = |words: &[&str]| {
        let output = rig.run(&["--quiet"]).arg("--").args(words).output().expect("it starts");
        (output.status.code(), texts(&output).1)
    };
    assert_eq!(code(&["sh", "-c", "exit 37"]), (Some(37), String::new()));
    assert_eq!(code(&["/nonexistent"]).0, Some(127));
    let (status, said) = code(&["/etc/passwd"]);
    assert_eq!(status, Some(126));
    assert!(said.starts_with("ramfold: /etc/passwd: "), "{said}");
}

/// As by execvp(3). A program for another machine is no script.
#[test]
fn a_script_that_names_no_interpreter_is_the_shells() {
    let Some(rig) = rig(&["cc"]) else { return };
    let make = |name: &str, text: &[u8]| {
        let path = rig.scratch.path(name);
        std::fs::write(&path, text).expect("room");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&path, mode).expect("ours");
        path
    };
    let script = make("nameless", b"echo \"$1\"; exit 7\n");
    let foreign = make("foreign", b"\x7fELF\x01\x01\0\0");
    let run = |word: &std::ffi::OsStr| {
        let mut command = rig.run(&["--quiet", "--"]);
        let paths = format!("{}:/usr/bin:/bin", rig.scratch.path("").display());
        command.arg(word).arg("a word").env("PATH", paths);
        let output = command.output().expect("it starts");
        (output.status.code(), texts(&output).0)
    };
    for word in [script.as_os_str(), "nameless".as_ref()] {
        assert_eq!(run(word), (Some(7), "a word\n".to_owned()), "{word:?}");
    }
    assert_eq!(run(foreign.as_os_str()).0, Some(126));
}

#[test]
fn a_signal_that_ends_the_program_ends_the_command() {
    let Some(rig) = rig(&["cc"]) else { return };
    let mut command = Command::new(BINARY);
    command.args(["run", "--quiet", "--", "sh", "-c", "kill -USR1 $$"]);
    command.env("XDG_RUNTIME_DIR", rig.scratch.path("run"));
    assert_eq!(command.status().expect("it starts").signal(), Some(SIGUSR1));
    assert_eq!(leftovers(&rig.scratch), 0);
}

#[test]
fn a_signal_that_is_sent_to_the_command_is_the_programs() {
    let Some(rig) = rig(&["cc"]) else { return };
    let mut command = Command::new(BINARY);
    command.args(["run", "--quiet", "--"]).arg(&rig.program).arg("waits");
    command.env("XDG_RUNTIME_DIR", rig.scratch.path("run")).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut out = child.stdout.take().expect("piped");
    let mut first = [0; 6];
    std::io::Read::read_exact(&mut out, &mut first).expect("it says so");
    assert_eq!(&first, b"waits\n");
    signal(child.id(), "TERM");
    assert_eq!(child.wait().expect("it ends").code(), Some(5), "its handler says so");
}

/// Directories of runs.
pub(crate) fn leftovers(scratch: &Scratch) -> usize {
    let path = scratch.path("run").join("ramfold");
    std::fs::read_dir(path).map_or(0, |entries| {
        entries.flatten().filter(|it| it.file_name().to_string_lossy().starts_with("run-")).count()
    })
}

#[test]
fn a_run_that_was_killed_leaves_nothing_for_long() {
    let Some(rig) = rig(&["cc"]) else { return };
    let mut command = Command::new(BINARY);
    command.args(["run", "--quiet", "--", "sleep", "300"]);
    command.env("XDG_RUNTIME_DIR", rig.scratch.path("run"));
    let mut child = command.spawn().expect("it starts");
    eventually("the directory", || leftovers(&rig.scratch) == 1);
    let program = || children(child.id());
    eventually("the program", || !program().is_empty());
    let program = program();
    signal(child.id(), "KILL");
    child.wait().expect("it ends");
    program.iter().for_each(|&pid| signal(pid, "KILL"));
    assert_eq!(leftovers(&rig.scratch), 1, "it could not remove it");
    // A program that is killed takes a moment to end, and its run is there until then.
    eventually("the next run removes it", || {
        succeed(rig.run(&["--quiet", "--", "true"]).stdout(Stdio::null()));
        leftovers(&rig.scratch) == 0
    });
}

pub(crate) fn children(pid: u32) -> Vec<u32> {
    // A run has witnesses of signals, which end with it.
    children_of(pid).into_iter().filter(|pid| name_of(*pid) != "run-witness\n").collect()
}

fn children_of(pid: u32) -> Vec<u32> {
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(Path::new(&path)).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn name_of(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default()
}

/// A signal to the process group reaches the program by itself. timeout(1) sends one to the command
/// and then one to the group.
#[test]
fn a_signal_to_the_process_group_comes_once() {
    let Some(rig) = rig(&["cc"]) else { return };
    let script = "trap '' USR1; sleep 60 & trap 'echo got' USR1; echo ready; \
                  for turn in 1 2 3 4 5 6 7 8 9 10; do wait; done";
    let mut command = Command::new(BINARY);
    command.args(["run", "--quiet", "--", "sh", "-c", script]);
    command.env("XDG_RUNTIME_DIR", rig.scratch.path("run"));
    command.process_group(0).stdout(Stdio::piped()).stdin(Stdio::null());
    let mut child = command.spawn().expect("it starts");
    let (pid, group) = (child.id(), format!("-{}", child.id()));
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || lines.map_while(Result::ok).try_for_each(|it| sender.send(it)));
    let next = || receiver.recv().expect("a line");
    assert_eq!(next(), "ready");
    let comes_once = |to: &str| {
        succeed(Command::new("sh").args(["-c", to]));
        assert_eq!(next(), "got", "{to}");
        // A second one would come after less.
        let second = receiver.recv_timeout(Duration::from_millis(500));
        assert!(second.is_err(), "twice, by {to}");
    };
    comes_once(&format!("kill -USR1 {group}"));
    comes_once(&format!("kill -USR1 {pid}; kill -USR1 {group}"));
    comes_once(&format!("kill -USR1 {pid}"));
    let mut others = children_of(pid);
    others.retain(|&other| name_of(other) == "run-witness\n");
    assert_eq!(others.len(), 2, "one in the group, and one apart");
    // By name or by file, which does not reach the program.
    comes_once(&format!("kill -USR1 {pid} {} {}", others[0], others[1]));
    // As a manager does that ends each process of a service. Its name is looked at.
    let manager = rig.scratch.path("systemd");
    std::fs::copy("/bin/sh", &manager).expect("there is room");
    let all = format!("{pid} {} {} {}", children(pid)[0], others[0], others[1]);
    comes_once(&format!("{} -c 'kill -USR1 {all}; sleep 0.3'", manager.display()));
    others.iter().for_each(|&other| signal(other, "KILL"));
    comes_once(&format!("kill -USR1 {pid}"));
    succeed(Command::new("sh").args(["-c", &format!("kill -KILL {group}")]));
    child.wait().expect("it ends");
}

#[test]
fn a_key_that_interrupts_comes_once() {
    let Some(rig) = rig(&["cc"]).filter(|_| needs(&["setsid"])) else { return };
    let script = "trap '' INT; sleep 60 & trap 'echo got' INT; echo ready; \
                  for turn in 1 2 3 4 5 6 7 8; do wait; done";
    // A shell cannot trap what was ignored when it began, as of a test in the background.
    let mut command = Command::new("env");
    command.args(["--default-signal=INT,QUIT", "setsid", "--ctty", BINARY, "run", "--quiet", "--"]);
    command.args(["sh", "-c", script]);
    command.env("XDG_RUNTIME_DIR", rig.scratch.path("run"));
    let mut terminal = Terminal::start(&mut command, (80, 24));
    let is_there = |word: &'static str| move |lines: &[String]| lines.join("\n").contains(word);
    terminal.until("the program", is_there("ready"));
    // A second one that comes at once may become one with the first, but not each time.
    for presses in 1..=4 {
        terminal.press(b"\x03");
        let came = || terminal.bytes().matches("got").count();
        eventually("its handler", || came() >= presses);
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(came(), presses, "{:?}", terminal.lines());
    }
    terminal.press(b"\x1c");
    terminal.wait();
}

/// A pipe ends when the program closes it, although our threads are in the process.
#[test]
fn a_pipe_ends_when_the_program_closes_it() {
    let Some(rig) = rig(&["cc"]) else { return };
    let script = "exec 3>&1; (sleep 0.3; echo late) & exec >&-; exec 3>&-; wait; sleep 0.2";
    let mut command = rig.run(&["--quiet", "--", "sh", "-c", script]);
    let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut text = String::new();
    let mut out = child.stdout.take().expect("piped");
    std::io::Read::read_to_string(&mut out, &mut text).expect("it ends");
    assert_eq!(text, "late\n");
    assert!(child.wait().expect("it ends").success());
}

/// The library takes nothing of a C library but a word about forks.
#[test]
fn the_library_stands_on_no_c_library() {
    let Some(rig) = rig(&["cc"]) else { return };
    if !needs(&["nm", "readelf"]) {
        return;
    }
    let script = "nm -D --undefined-only $LD_PRELOAD; readelf -d $LD_PRELOAD; \
                  readelf --dyn-syms -W $LD_PRELOAD | awk '$7 ~ /^[0-9]/ { print \"gives\", $8 }'";
    let text = succeed(&mut rig.run(&["--quiet", "--", "sh", "-c", script]));
    let undefined = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        matches!(words.next(), Some("U" | "w")).then(|| words.next().unwrap_or_default())
    });
    let mut undefined: Vec<&str> = undefined.collect();
    undefined.sort_unstable();
    // The program's threads call one of these, once.
    let forks = ["__register_atfork", "pthread_atfork"];
    // What is without userfaultfd done with the library, by address alone.
    let addresses = ["__curbrk", "__dls3", "environ", "gnu_get_libc_version", "thrd_create"];
    let known = |name: &&str| forks.contains(name) || addresses.contains(name);
    let others: Vec<&&str> = undefined.iter().filter(|name| !known(name)).collect();
    assert!(others.is_empty(), "{others:?}");
    assert!(undefined.contains(&"environ"), "the list was read: {text}");
    assert!(!text.contains("(NEEDED)"), "{text}");
    assert!(!text.contains("gives"), "{text}");
}

#[test]
fn without_the_right_to_the_way_that_is_asked_for_the_reason_is_given() {
    let Some(rig) = rig(&["cc"]) else { return };
    if !needs_root() || !needs(&["setpriv"]) {
        return;
    }
    let mut command = tool("setpriv");
    command.args(["--reuid", "65534", "--clear-groups", "--inh-caps=-all", BINARY, "run", "--"]);
    command.arg("true").env("XDG_RUNTIME_DIR", rig.scratch.path("none"));
    command.env("RAMFOLD_PATH", "userfaultfd");
    let output = command.output().expect("it starts");
    let (_, err) = texts(&output);
    if err.contains("Permission denied") && err.contains("setpriv") {
        return println!("skipped: needs a build that others may read");
    }
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(err.contains("CAP_SYS_PTRACE"), "{err}");
}

#[test]
fn a_program_that_gives_the_right_up_is_named_and_runs() {
    let Some(rig) = rig(&["cc"]) else { return };
    if !needs_root() || !needs(&["setpriv"]) {
        return;
    }
    let mut command = rig.run(&["--", "setpriv", "--bounding-set", "-sys_ptrace"]);
    command.env("RAMFOLD_PATH", "userfaultfd");
    let output = command.args(["sh", "-c", "sleep 1; echo done"]).output().expect("it starts");
    let (out, err) = texts(&output);
    assert_eq!(out, "done\n", "{err}");
    assert!(err.contains("does not fold: the system refuses what that needs: Operation"), "{err}");
}

#[test]
fn a_way_that_there_is_not_is_refused() {
    let scratch = Scratch::new();
    let mut command = run(&scratch, &["--", "true"]);
    let output = command.env("RAMFOLD_PATH", "protection").output().expect("it starts");
    let (_, err) = texts(&output);
    assert_eq!(output.status.code(), Some(1), "{err}");
    assert!(err.contains("RAMFOLD_PATH is neither userfaultfd nor closed"), "{err}");
}

#[test]
fn what_cannot_be_a_limit_is_refused() {
    let scratch = Scratch::new();
    for (limit, why) in [
        ("0", "too small"),
        ("1M", "at least 16.0 MiB"),
        ("0%", "1% to 100%"),
        ("200%", "1% to 100%"),
        ("8388607T", "more than the machine has"),
        ("x", "not a size"),
    ] {
        let said =
            crate::rig::refusal(run(&scratch, &["--limit", limit, "--", "true"]).env("A", "b"));
        assert!(said.contains(why), "{limit}: {said}");
    }
}
