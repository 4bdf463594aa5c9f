//! Runs programs, each under a deadline, and keeps their output.
//!
//! Invariant: every child runs under a deadline. The message of a failure has the command line and
//! both outputs.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::rig::Scratch;

/// The program under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_ramfold");

const DEADLINE_SECONDS: u64 = 300;

/// A command that is killed after a deadline.
pub(crate) fn tool(program: &str) -> Command {
    within(DEADLINE_SECONDS, program)
}

/// The same with another deadline.
pub(crate) fn within(seconds: u64, program: &str) -> Command {
    let mut command = Command::new("timeout");
    command.arg("--kill-after=5").arg(seconds.to_string()).arg(program);
    command
}

pub(crate) fn ramfold(arguments: &[&str]) -> Command {
    let mut command = tool(BINARY);
    command.args(arguments);
    command
}

/// Runs a command that must succeed; returns what it printed.
#[track_caller]
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{}", describe(command, &output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a command that must be refused with exit code 1 or 2; returns its one line of explanation.
///
/// The command has a runtime directory of its own unless it was given one, because a killed server
/// in the user's directory would be told of in a second line.
#[track_caller]
pub(crate) fn refusal(command: &mut Command) -> String {
    let scratch = Scratch::new();
    if command.get_envs().all(|(name, _)| name != "XDG_RUNTIME_DIR") {
        command.env("XDG_RUNTIME_DIR", scratch.path("run"));
    }
    let output = output(command);
    let code = output.status.code();
    assert!(matches!(code, Some(1 | 2)), "exit code 1 or 2: {}", describe(command, &output));
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(text.lines().count(), 1, "one line on stderr: {}", describe(command, &output));
    text.trim().to_string()
}

#[track_caller]
fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"))
}

fn describe(command: &Command, output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    let (out, err) = (String::from_utf8_lossy(out), String::from_utf8_lossy(err));
    format!("{command:?}: {}\n-- stdout\n{out}-- stderr\n{err}", output.status)
}

/// Are these programs installed? If not, the test is skipped, which CI refuses.
#[track_caller]
pub(crate) fn needs(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| !is_installed(program));
    missing.is_none_or(|program| is_there(false, program))
}

/// The same of an option of `env`, which old ones do not know.
#[track_caller]
pub(crate) fn needs_env(option: &str) -> bool {
    let output = tool("env").args([option, "true"]).output();
    is_there(output.is_ok_and(|output| output.status.success()), &format!("env {option}"))
}

#[track_caller]
fn is_there(there: bool, what: &str) -> bool {
    if !there {
        println!("skipped: needs {what}");
        assert!(std::env::var("CI").as_deref() != Ok("true"), "needs {what}, and this is CI");
    }
    there
}

fn is_installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let mut paths = std::env::split_paths(&paths).chain(["/usr/sbin".into(), "/sbin".into()]);
    paths.any(|directory| directory.join(program).is_file())
}

/// Does the machine have this device? A container may not, in CI too.
pub(crate) fn needs_device(path: &str) -> bool {
    let present = std::fs::OpenOptions::new().read(true).write(true).open(path).is_ok();
    if !present {
        println!("skipped: needs {path}");
    }
    present
}

/// Mounting takes root.
pub(crate) fn needs_root() -> bool {
    let root = succeed(tool("id").arg("-u")).trim() == "0";
    if !root {
        println!("skipped: needs root");
    }
    root
}

/// A size or a duration that the caller of the tests may set.
pub(crate) fn from_env(name: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(name) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number"))
}

/// Waits for something that has to happen.
#[track_caller]
pub(crate) fn eventually(what: &str, mut happened: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !happened() {
        assert!(Instant::now() < deadline, "still waiting: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
