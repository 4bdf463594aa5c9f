//! How `stat`, `set` and `check` find a server, whatever doors it has.
//!
//! Claims: every server of a user is listed, and is found by the name in the list. A server that is
//! stopped or was killed is reported as such.

use std::path::PathBuf;
use std::process::Command;

use crate::rig::{BINARY, Process, Scratch, Stopped, eventually, ramfold, refusal, succeed};

/// A runtime directory of a test's own.
struct Runtime {
    scratch: Scratch,
    directory: PathBuf,
}

impl Runtime {
    fn new() -> Runtime {
        let scratch = Scratch::new();
        let directory = scratch.path("run");
        Runtime { scratch, directory }
    }

    fn serve(&self, arguments: &[&str]) -> Process {
        let mut command = Command::new(BINARY);
        command.args(["serve", "--size", "1M"]).args(arguments);
        Process::start(command.env("XDG_RUNTIME_DIR", &self.directory), "of memory")
    }

    fn ramfold(&self, arguments: &[&str]) -> Command {
        let mut command = ramfold(arguments);
        command.env("XDG_RUNTIME_DIR", &self.directory);
        command
    }
}

/// A server on TCP alone had no control socket, and one with `--unix` was in no list: neither was
/// seen by `ramfold stat`, and the first could not be asked at all.
#[test]
fn every_server_is_listed_and_answers_to_its_name() {
    let runtime = Runtime::new();
    let path = runtime.scratch.path("b.sock");
    let path = path.to_str().unwrap();
    let _tcp = runtime.serve(&["--name", "tcp0", "--tcp", "127.0.0.1:0"]);
    let _unix = runtime.serve(&["--name", "unix0", "--unix", path]);
    let list = succeed(&mut runtime.ramfold(&["stat"]));
    for name in ["tcp0", "unix0"] {
        assert!(list.contains(name), "{name} is not in {list}");
        let stat = succeed(&mut runtime.ramfold(&["stat", name, "--json"]));
        assert!(stat.contains(&format!("\"name\": \"{name}\"")), "{name}: {stat}");
        succeed(&mut runtime.ramfold(&["set", name, "mem_limit", "8M"]));
        succeed(&mut runtime.ramfold(&["check", name]));
    }
    succeed(&mut runtime.ramfold(&["check", path]));
}

/// Two servers with their own places do not disturb each other, although both are `zram0`.
#[test]
fn servers_of_one_name_are_told_apart() {
    let runtime = Runtime::new();
    let _first = runtime.serve(&["--tcp", "127.0.0.1:0"]);
    let second = runtime.serve(&["--tcp", "127.0.0.1:0"]);
    let other = format!("zram0-{}", second.pid());
    assert!(second.said().contains(&other), "it says where it is: {}", second.said());
    let list = succeed(&mut runtime.ramfold(&["stat"]));
    assert!(list.contains(&other), "{other} is not in {list}");
    succeed(&mut runtime.ramfold(&["check", &other]));
    succeed(&mut runtime.ramfold(&["check", "zram0"]));
}

/// "zram0.ctl is in use by a running server" did not say what to do.
#[test]
fn a_name_that_is_taken_says_how_to_choose_another() {
    let runtime = Runtime::new();
    let _first = runtime.serve(&[]);
    let line = refusal(&mut runtime.ramfold(&["serve", "--size", "1M"]));
    assert!(line.contains("in use by a running server") && line.contains("--name"), "{line}");
}

/// `stat NAME` waited for twenty seconds, where the list waited for two, and neither said why.
#[test]
fn a_stopped_server_is_told_with_what_lets_it_go_on() {
    let runtime = Runtime::new();
    let server = runtime.serve(&[]);
    let _stopped = Stopped::new(server.pid());
    let remedy = format!("kill -CONT {}", server.pid());
    for arguments in [&["stat", "zram0"][..], &["stat"]] {
        let line = refusal(&mut runtime.ramfold(arguments));
        assert!(line.contains(&remedy), "{arguments:?}: {line}");
    }
}

#[test]
fn a_killed_server_is_told_once_and_its_sockets_are_removed() {
    let runtime = Runtime::new();
    let mut server = runtime.serve(&[]);
    let kill = |server: &mut Process| {
        server.signal("KILL");
        server.wait();
    };
    kill(&mut server);
    let line = refusal(&mut runtime.ramfold(&["stat", "zram0"]));
    assert!(line.contains("was killed"), "{line}");
    let list = runtime.ramfold(&["stat"]).output().unwrap();
    let told = String::from_utf8_lossy(&list.stderr).into_owned();
    assert!(list.status.success() && told.contains("zram0 was killed"), "{told}");
    let left = runtime.directory.join("ramfold").read_dir().unwrap().count();
    assert_eq!(left, 0, "both sockets are removed");
    assert!(!told.is_empty() && runtime.ramfold(&["stat"]).output().unwrap().stderr.is_empty());
    kill(&mut runtime.serve(&[]));
    let next = runtime.serve(&[]);
    eventually("a word on the one before", || next.said().contains("was killed"));
}
