//! What is told of the programs under `ramfold run`: by `stat`, by a report, and of each that does
//! not fold.
//!
//! Claims: a run is shown while it goes on, and leaves nothing. Pages that stay out become denser
//! if that is asked for, and read as before. A report is whole, and there even if the run is
//! killed. A process that cannot fold is named with its reason.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::programs::{Rig, children, leftovers, rig, texts};
use crate::rig::{BINARY, eventually, needs, needs_root, ramfold, refusal, signal, succeed, tool};

/// A program under `ramfold run` that waits. It is ended with the value.
struct Waiting {
    child: Child,
    program: Vec<u32>,
}

impl Waiting {
    /// Starts it, and returns when it has begun and has a place on the board.
    fn start(rig: &Rig, options: &[&str]) -> Waiting {
        Waiting::start_in(rig, options, "")
    }

    /// The same in a way that is asked for.
    fn start_in(rig: &Rig, options: &[&str], way: &str) -> Waiting {
        let mut command = Command::new(BINARY);
        command.env("RAMFOLD_PATH", way);
        command.arg("run").arg("--quiet").args(options).arg("--").arg(&rig.program).arg("waits");
        command.env("XDG_RUNTIME_DIR", rig.scratch.path("run")).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut first = [0; 6];
        child.stdout.as_mut().expect("piped").read_exact(&mut first).expect("it says so");
        let pid = child.id();
        let waiting = Waiting { child, program: children(pid) };
        eventually("its place on the board", || {
            let runs = json(rig, &["stat", "--json"]);
            let runs = runs.as_array().expect("an array");
            runs.iter().any(|run| run["pid"] == pid && run["tree"][0]["state"] == "watching")
        });
        waiting
    }

    fn kill_command(&mut self) {
        signal(self.child.id(), "KILL");
        self.child.wait().expect("it ends");
    }

    fn kill_program(&self) {
        self.program.iter().for_each(|&pid| signal(pid, "KILL"));
        let gone = |pid: &u32| !Path::new(&format!("/proc/{pid}/exe")).exists();
        eventually("the program's end", || self.program.iter().all(gone));
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        for pid in &self.program {
            let _ = Command::new("kill").args(["-KILL", &pid.to_string()]).output();
        }
    }
}

fn at(rig: &Rig, words: &[&str]) -> Command {
    let mut command = ramfold(words);
    command.env("XDG_RUNTIME_DIR", rig.scratch.path("run"));
    command
}

#[track_caller]
fn json(rig: &Rig, words: &[&str]) -> Value {
    serde_json::from_str(&succeed(&mut at(rig, words))).expect("JSON")
}

/// What a command prints, and what it complains of.
#[track_caller]
fn said(command: &mut Command) -> (String, String) {
    texts(&command.output().expect("it starts"))
}

#[test]
fn a_run_is_listed_and_found_by_number_process_and_name() {
    let Some(rig) = rig(&["cc"]) else { return };
    let waiting = Waiting::start(&rig, &["--limit", "256M"]);
    let (pid, program) = (waiting.child.id().to_string(), waiting.program[0].to_string());
    let list = succeed(&mut at(&rig, &["stat"]));
    assert!(list.contains(&format!(" {pid} ")) && list.contains("256M"), "{list}");
    assert!(list.lines().all(|line| line.chars().count() <= 80), "{list}");
    assert!(!list.contains("No server"), "{list}");
    for target in [&*pid, &program, "memory"] {
        let one = succeed(&mut at(&rig, &["stat", target]));
        assert!(one.starts_with(&format!("run {pid}: ")), "{target}: {one}");
        assert!(one.contains("watching  memory"), "{target}: {one}");
        assert!(one.lines().all(|line| line.chars().count() <= 80), "{one}");
    }
    let run = json(&rig, &["stat", &pid, "--json"]);
    assert_eq!((&run["kind"], &run["name"]), (&"run".into(), &"memory".into()));
    assert_eq!((&run["limit"], &run["processes"]), (&(256 << 20).into(), &1.into()));
    assert!(run["resident"].as_u64() > Some(0) && run["stall_ns"] == 0, "{run}");
    assert_eq!(run["tree"][0]["pid"].to_string(), program, "{run}");
    assert_eq!(run["tree"][0]["way"], "userfaultfd", "{run}");
    let line = refusal(&mut at(&rig, &["stat", "memory", "--classes"]));
    assert!(line.contains("--classes is of servers"), "{line}");
    let line = refusal(&mut at(&rig, &["stat", "nothing"]));
    assert!(line.contains("no server of this name"), "{line}");
    let _second = Waiting::start(&rig, &["--limit", "256M"]);
    let line = refusal(&mut at(&rig, &["stat", "memory"]));
    assert!(line.contains("several runs") && line.contains(&pid), "{line}");
}

#[test]
fn a_process_is_shown_with_the_way_in_which_it_folds() {
    let Some(rig) = rig(&["cc"]) else { return };
    let waiting = Waiting::start_in(&rig, &["--limit", "256M"], "closed");
    let pid = waiting.child.id().to_string();
    assert_eq!(json(&rig, &["stat", &pid, "--json"])["tree"][0]["way"], "closed");
    let one = succeed(&mut at(&rig, &["stat", &pid]));
    assert!(one.contains(" WAY ") && one.contains("      closed "), "{one}");
}

#[test]
fn a_run_that_was_killed_is_told_of_once_and_removed() {
    let Some(rig) = rig(&["cc"]) else { return };
    let mut waiting = Waiting::start(&rig, &["--limit", "256M"]);
    waiting.kill_command();
    let (list, err) = said(&mut at(&rig, &["stat"]));
    assert!(list.contains("was killed; its processes go on"), "{list}{err}");
    assert_eq!((err, leftovers(&rig.scratch)), (String::new(), 1));
    waiting.kill_program();
    let (list, err) = said(&mut at(&rig, &["stat"]));
    assert!(err.contains("of memory was killed; what it left is removed"), "{list}{err}");
    assert_eq!(leftovers(&rig.scratch), 0);
    assert_eq!(said(&mut at(&rig, &["stat"])).1, "", "once");
}

#[test]
fn a_run_that_ends_before_its_processes_is_shown_until_they_end() {
    let Some(rig) = rig(&["cc"]) else { return };
    let script = "\"$0\" waits & echo $!; read line; true";
    let mut command = rig.run(&["--quiet", "--", "sh", "-c", script]);
    command.arg(&rig.program).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut lines =
        BufReader::new(child.stdout.take().expect("piped")).lines().map_while(Result::ok);
    let both: Vec<String> = lines.by_ref().take(2).collect();
    let pid = both.iter().find_map(|line| line.parse::<u32>().ok()).expect("a number");
    // A process that has no place on the board yet is none of the run.
    eventually("its place", || said(&mut at(&rig, &["stat", &pid.to_string()])).1.is_empty());
    drop(child.stdin.take());
    assert!(child.wait().expect("it ends").success());
    let list = succeed(&mut at(&rig, &["stat"]));
    assert!(list.contains("has ended; its processes go on"), "{list}");
    signal(pid, "KILL");
    eventually("its end", || {
        leftovers(&rig.scratch) == 0 || {
            assert_eq!(said(&mut at(&rig, &["stat"])).1, "", "nothing was killed that matters");
            false
        }
    });
}

#[test]
fn a_report_has_what_the_last_line_has() {
    let Some(rig) = rig(&["cc"]) else { return };
    let file = rig.scratch.path("run.json");
    let path = file.to_str().expect("a name");
    let line = rig.right("walk", &["--limit", "32M", "--report", path]);
    let text = std::fs::read_to_string(&file).expect("it is there");
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&report["end"], &report["limit"]), (&"exit 0".into(), &(32 << 20).into()));
    let samples = report["samples"].as_array().expect("samples");
    let last = samples.last().expect("one at least");
    let number = |name: &str| last[name].as_u64().expect("a number");
    for (name, words) in [("pages_out", "pages left"), ("stored_faults", "faults;")] {
        let expected = format!("{} {words}", number(name));
        assert!(line.contains(&expected), "{expected}: {line}");
    }
    assert!(line.contains(&format!("and {} came back", number("pages_in"))), "{line}");
    let most = samples.iter().filter_map(|sample| sample["resident"].as_u64()).max();
    assert!(most <= report["peak"].as_u64(), "{report}");
    let picture = std::fs::read_to_string(rig.scratch.path("run.svg")).expect("beside it");
    assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"));
    if needs(&["python3"]) {
        let parse = "import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])";
        succeed(tool("python3").args(["-c", parse]).arg(rig.scratch.path("run.svg")));
    }
}

#[test]
fn a_report_is_refused_before_the_program_starts() {
    let Some(rig) = rig(&["cc"]) else { return };
    let mark = rig.scratch.path("started");
    for nowhere in ["/nonexistent/run.json", "/proc/run.html", "/usr"] {
        let mut command = rig.run(&["--report", nowhere, "--", "touch"]);
        let line = refusal(command.arg(&mark));
        assert!(line.contains(nowhere), "{line}");
    }
    assert!(!mark.exists(), "nothing has run");
    assert_eq!(leftovers(&rig.scratch), 0);
}

#[test]
fn a_run_that_is_killed_has_a_report() {
    let Some(rig) = rig(&["cc"]) else { return };
    let file = rig.scratch.path("run.html");
    let mut waiting = Waiting::start(&rig, &["--report", file.to_str().expect("a name")]);
    eventually("a report", || file.exists());
    waiting.kill_command();
    let page = std::fs::read_to_string(&file).expect("it is there");
    let figures = page.split("id=\"figures\">").nth(1).expect("figures");
    let figures = figures.split("</script>").next().expect("their end");
    let report: Value = serde_json::from_str(figures).expect("JSON");
    assert!(report["end"].is_null() && !report["samples"][0].is_null(), "{report}");
    assert!(page.contains("</svg>"), "{page}");
}

/// What is said of a program that does not fold, run by these words. It is ended then.
#[track_caller]
fn named(rig: &Rig, words: &[&str]) -> String {
    named_by(rig.run(&["--limit", "64M", "--"]).args(words))
}

/// The same, run by a command.
#[track_caller]
pub(crate) fn named_by(command: &mut Command) -> String {
    let child = command.stderr(Stdio::piped()).stdout(Stdio::null());
    let mut child = child.spawn().expect("it starts");
    let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let line = lines.map_while(Result::ok).find(|line| line.contains("does not fold"));
    signal(child.id(), "TERM");
    child.wait().expect("it ends");
    line.expect("it is named")
}

#[test]
fn a_program_that_is_started_without_the_library_is_named_with_what_helps() {
    let Some(rig) = rig(&["cc"]) else { return };
    let program = rig.program.to_str().expect("a name");
    let line = named(&rig, &["env", "-i", program, "waits"]);
    assert!(line.contains("env -i ramfold run --") && line.contains("off the limit"), "{line}");
    // A shell could not go on itself: the addresses of its own library count too.
    let line = named(&rig, &["prlimit", "--as=4000000000", program, "waits"]);
    assert!(line.contains("(ulimit -v)"), "{line}");
}

#[test]
fn a_program_whose_number_is_another_elsewhere_is_named_with_what_helps() {
    let Some(rig) = rig(&["cc"]) else { return };
    if !needs_root() {
        return;
    }
    let program = rig.program.to_str().expect("a name");
    let line = named(&rig, &["unshare", "--pid", "--fork", "--kill-child", program, "waits"]);
    assert!(line.contains("PID namespace") && line.contains("put ramfold run after"), "{line}");
}

#[test]
fn a_static_program_is_named_with_what_helps() {
    let Some(rig) = rig(&["cc", "-static"]) else { return };
    let line = named(&rig, &[rig.program.to_str().expect("a name"), "waits"]);
    assert!(line.contains("statically linked") && line.contains("dynamically linked"), "{line}");
}

#[test]
fn a_program_with_rights_of_its_own_is_named_with_what_helps() {
    let Some(rig) = rig(&["cc"]) else { return };
    if !needs_root() {
        return;
    }
    let copy = rig.scratch.path("rights");
    std::fs::copy(&rig.program, &copy).expect("room");
    std::os::unix::fs::chown(&copy, Some(65534), None).expect("root may");
    succeed(tool("chmod").arg("4755").arg(&copy));
    let line = named(&rig, &[copy.to_str().expect("a name"), "waits"]);
    assert!(line.contains("set-user-id") && line.contains("a copy without"), "{line}");
}

/// A program whose memory nobody touches, with pages out and then denser, in one way.
fn lingers_in(way: &str) {
    let Some(rig) = rig(&["cc"]) else { return };
    let mut command = rig.run(&["--limit", "40M", "--density", "balanced"]);
    command.env("RAMFOLD_PATH", way).arg("--").arg(&rig.program).arg("lingers");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    let mut line = String::new();
    out.read_line(&mut line).expect("it says so");
    let bytes = || {
        let run = &json(&rig, &["stat", "--json"])[0];
        ["stored", "held"].map(|name| run[name].as_f64().unwrap_or(0.0))
    };
    let mut before = [0.0; 2];
    eventually("pages that are out", || {
        before = bytes();
        before[0] > 8e6
    });
    // As a share of what is out, which changes little.
    eventually("denser pages", || {
        let after = bytes();
        after[1] / after[0] < before[1] / before[0] * 0.85
    });
    drop(child.stdin.take());
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("it ends");
    assert_eq!((line.as_str(), rest.as_str()), ("lingers\n", "right\n"));
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn pages_that_stay_out_become_denser() {
    lingers_in("userfaultfd");
}

#[test]
fn pages_that_stay_closed_become_denser() {
    lingers_in("closed");
}
