//! `ramfold serve --run`, `--pidfile` and `--exit-with-parent`: servers that scripts start.
//!
//! Claims: a server that runs for a command ends with it and with its status, a command ends with
//! its server, and neither leaves anything behind.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::rig::{
    BINARY, Nbd, Process, Scratch, Space, eventually, needs, noise, ramfold, refusal, succeed, tool,
};

/// A server for a command, whose directory for temporary files is a test's own.
struct Captive {
    scratch: Scratch,
}

impl Captive {
    fn new() -> Captive {
        let scratch = Scratch::new();
        std::fs::create_dir(scratch.path("t")).expect("a scratch directory can be written");
        Captive { scratch }
    }

    fn run(&self, command: &str, arguments: &[&str]) -> Command {
        let mut serve = ramfold(&["serve", "--size", "16M", "--run", command]);
        serve.args(arguments);
        self.at(&mut serve);
        serve
    }

    fn at(&self, command: &mut Command) {
        command.env("TMPDIR", self.scratch.path("t"));
        command.env("XDG_RUNTIME_DIR", self.scratch.path("run"));
    }

    /// What is in the directories for temporary files and for sockets.
    fn left(&self) -> Vec<PathBuf> {
        let directories = [self.scratch.path("t"), self.scratch.path("run/ramfold")];
        let entries = directories.iter().flat_map(std::fs::read_dir).flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }
}

#[test]
fn a_command_has_a_disk_of_its_own() {
    let captive = Captive::new();
    let line = r#"test "$uri" = "$nbd" && test -S "$unixsocket" && echo "$exportname $uri"
        stat -c %a "$(dirname "$unixsocket")""#;
    let said = succeed(&mut captive.run(line, &["--name", "mine"]));
    let (first, mode) = said.trim().split_once('\n').unwrap_or_default();
    assert!(first.starts_with("mine nbd+unix:///mine?socket="), "{said}");
    assert_eq!(mode, "700", "closed to others, and nothing else is said: {said}");
    assert_eq!(captive.left(), [""; 0].map(PathBuf::from));
}

/// Sockets that were passed are the server's, or another's.
#[test]
fn a_command_is_not_told_of_sockets_that_were_passed() {
    let captive = Captive::new();
    let mut serve = captive.run("env", &[]);
    serve.env("LISTEN_PID", "1").env("LISTEN_FDS", "1").env("LISTEN_FDNAMES", "nbd");
    let said = succeed(&mut serve);
    assert!(said.contains("unixsocket=") && !said.contains("LISTEN_"), "{said}");
}

#[test]
fn clients_and_stat_reach_the_server_of_their_command() {
    if !needs(&["qemu-img", "nbdcopy"]) {
        return;
    }
    let captive = Captive::new();
    let (image, back) = (captive.scratch.large("image"), captive.scratch.large("back"));
    std::fs::write(&image, noise(1, 16 << 20)).unwrap();
    let line = format!(
        "set -e; nbdcopy {0} \"$uri\"; qemu-img compare -f raw -F raw {0} \"$nbd\"; \
         nbdcopy \"$uri\" {1}; {BINARY} check \"$unixsocket\"; \
         {BINARY} stat \"$uri\" --json | grep orig_data_size",
        image.display(),
        back.display()
    );
    let said = succeed(&mut captive.run(&line, &[]));
    assert!(said.contains("Images are identical") && said.contains("16777216"), "{said}");
    assert!(std::fs::read(&image).unwrap() == std::fs::read(&back).unwrap(), "it came back");
    assert_eq!(captive.left(), [""; 0].map(PathBuf::from));
}

#[test]
fn the_exit_status_is_the_commands() {
    let captive = Captive::new();
    for (line, expected) in [("true", 0), ("exit 7", 7), ("kill -9 $$", 137), ("no-such-1", 127)] {
        let status = captive.run(line, &[]).stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(expected), "{line}");
        assert_eq!(captive.left(), [""; 0].map(PathBuf::from), "{line}");
    }
}

/// Also what the command has started, whose parent may have ended.
#[test]
fn a_command_ends_with_its_server() {
    let captive = Captive::new();
    let marks = ["orphan", "child"].map(|name| captive.scratch.path(name));
    let line = format!(
        "(sh -c 'echo $$ > {}; exec sleep 1000' &) ; sh -c 'echo $$ > {}; trap : TERM; \
         echo started; sleep 1000; sleep 1000' ; echo never",
        marks[0].display(),
        marks[1].display()
    );
    for signal in ["TERM", "INT"] {
        let mut serve = Command::new(BINARY);
        serve.args(["serve", "--size", "1M", "--run", &line]);
        captive.at(&mut serve);
        let mut server = Process::start(&mut serve, "started");
        eventually("both", || marks.iter().all(|mark| mark.exists()));
        server.signal(signal);
        let status = server.wait();
        assert_eq!(status.code(), Some(128 + 15), "{signal}: {}", server.said());
        assert!(!server.said().contains("never"), "{}", server.said());
        assert_eq!(captive.left(), [""; 0].map(PathBuf::from), "{signal}");
        for mark in &marks {
            let pid = std::fs::read_to_string(mark).unwrap();
            assert!(has_ended(pid.trim()), "{signal}: {} lives", mark.display());
            std::fs::remove_file(mark).unwrap();
        }
    }
}

/// Ctrl-C goes to the command as well. Its shell may be gone before the server looks, and what it
/// has started in the background does not hear of Ctrl-C.
#[test]
fn a_command_ends_with_its_server_by_the_key_of_a_terminal() {
    let captive = Captive::new();
    let mark = captive.scratch.path("mark");
    let line =
        format!("sh -c 'echo $$ > {}; exec sleep 1000' & echo started; wait", mark.display());
    let mut serve = Command::new(BINARY);
    serve.args(["serve", "--size", "1M", "--run", &line]).process_group(0);
    captive.at(&mut serve);
    let mut server = Process::start(&mut serve, "started");
    eventually("its number", || std::fs::read_to_string(&mark).is_ok_and(|pid| !pid.is_empty()));
    succeed(tool("kill").args(["-INT", "--", &format!("-{}", server.pid())]));
    let status = server.wait();
    // The key reaches one process after the other. If the server is first, its SIGTERM may end the
    // command before the key does.
    let ends = [Some(128 + 2), Some(128 + 15)];
    assert!(ends.contains(&status.code()), "{status}: {}", server.said());
    let pid = std::fs::read_to_string(&mark).unwrap();
    assert!(has_ended(pid.trim()), "what it started lives");
    assert_eq!(captive.left(), [""; 0].map(PathBuf::from));
}

/// The server takes the orphans of its command. They stayed as dead processes until it ended.
#[test]
fn orphans_of_a_command_are_waited_for() {
    let captive = Captive::new();
    let line = "for i in 1 2 3 4 5 6 7 8; do (sh -c \"exit $i\" &); done; echo started; \
                read wait; (sh -c 'exit 9' &); exit 7";
    let mut serve = Command::new(BINARY);
    serve.args(["serve", "--size", "1M", "--run", line]);
    captive.at(&mut serve);
    let (input, mut hold) = std::io::pipe().expect("there are descriptors");
    let mut server = Process::start_with_input(serve.stdin(input), "started");
    drop(serve);
    let children = format!("/proc/{0}/task/{0}/children", server.pid());
    let count = || std::fs::read_to_string(&children).map(|list| list.split(' ').count() - 1);
    eventually("the shell to be the only child", || count().is_ok_and(|count| count == 1));
    std::io::Write::write_all(&mut hold, b"\n").expect("the shell reads");
    assert_eq!(server.wait().code(), Some(7), "{}", server.said());
}

/// Nobody has asked for the end of what a command leaves when it ends by itself.
#[test]
fn what_a_command_leaves_goes_on() {
    let captive = Captive::new();
    let mark = captive.scratch.path("mark");
    let line = format!("sleep 1000 > {0}.out 2>&1 < {0}.out & echo $! > {0}", mark.display());
    std::fs::write(mark.with_extension("out"), "").unwrap();
    assert!(captive.run(&line, &[]).status().unwrap().success());
    let pid = std::fs::read_to_string(&mark).unwrap();
    assert!(!has_ended(pid.trim()));
    succeed(tool("kill").arg(pid.trim()));
}

/// A process that is gone, or that nobody has waited for yet.
fn has_ended(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

#[test]
fn a_command_ends_with_a_server_that_is_killed() {
    let captive = Captive::new();
    let mut serve = Command::new(BINARY);
    serve.args(["serve", "--size", "1M", "--run", "echo $$; exec sleep 1000"]);
    captive.at(&mut serve);
    let mut server = Process::start(&mut serve, "\n");
    let pid = server.said().trim().to_owned();
    server.kill();
    eventually("the command to end", || has_ended(&pid));
}

#[test]
fn a_command_is_not_started_for_a_server_that_does_not_start() {
    let captive = Captive::new();
    let mark = captive.scratch.path("mark");
    let line = format!("touch {}", mark.display());
    let missing = ["--pidfile", "/nonexistent/pid"];
    for arguments in [&missing[..], &["--control", "/nonexistent/x.ctl"], &["--unix", "/tmp/x"]] {
        refusal(&mut captive.run(&line, arguments));
        assert!(!mark.exists(), "{arguments:?}");
        assert_eq!(captive.left(), [""; 0].map(PathBuf::from), "{arguments:?}");
    }
    // It cannot be both: a client's own server, and the server of a command.
    let line = format!("LISTEN_PID=$$ LISTEN_FDS=1 exec {BINARY} serve --size 1M --run true 3<&0");
    let mut passed = tool("sh");
    let listener = std::os::unix::net::UnixListener::bind(captive.scratch.path("s")).unwrap();
    passed.args(["-c", &line]).stdin(Stdio::from(std::os::fd::OwnedFd::from(listener)));
    let refused = refusal(&mut passed);
    assert!(refused.contains("--run") && refused.contains("passed"), "{refused}");
}

/// A server used to leave its socket if something failed after it was made.
#[test]
fn a_server_that_does_not_start_leaves_no_socket() {
    let scratch = Scratch::new();
    let socket = scratch.path("disk.sock");
    let path = socket.to_str().unwrap();
    let mut serve = ramfold(&["serve", "--size", "1M", "--unix", path]);
    refusal(serve.args(["--pidfile", "/nonexistent/pid"]));
    assert!(!socket.exists() && !scratch.path("disk.sock.ctl").exists());
}

#[test]
fn a_pidfile_is_there_while_clients_can_connect() {
    let scratch = Scratch::new();
    let (pidfile, socket) = (scratch.path("pid"), scratch.path("disk.sock"));
    // One that a killed server has left.
    std::fs::write(&pidfile, "1\n").unwrap();
    let serve = |pidfile: &Path| {
        let mut serve = Command::new(BINARY);
        serve.args(["serve", "--size", "1M", "--quiet", "--unix"]).arg(&socket);
        serve.arg("--pidfile").arg(pidfile).env("XDG_RUNTIME_DIR", scratch.path("run"));
        serve.stdout(Stdio::null()).stderr(Stdio::null()).stdin(Stdio::null());
        serve
    };
    for signal in ["TERM", "INT"] {
        let mut server = serve(&pidfile).spawn().unwrap();
        let own = format!("{}\n", server.id());
        eventually("the file", || std::fs::read_to_string(&pidfile).is_ok_and(|text| text == own));
        Nbd::connect(&socket).write(0, b"at once").unwrap();
        let mut second = ramfold(&["serve", "--size", "1M", "--name", "second", "--pidfile"]);
        second.arg(&pidfile).env("XDG_RUNTIME_DIR", scratch.path("run"));
        let refused = refusal(&mut second);
        assert!(refused.contains("another server that runs has it"), "{refused}");
        crate::rig::signal(server.id(), signal);
        assert!(server.wait().unwrap().success());
        assert!(!pidfile.exists(), "{signal}");
    }
    // Another server's file is left alone, and so is what is no file.
    let mut server = serve(&pidfile).spawn().unwrap();
    eventually("the file", || pidfile.exists());
    std::fs::remove_file(&pidfile).unwrap();
    std::fs::write(&pidfile, "another\n").unwrap();
    crate::rig::signal(server.id(), "TERM");
    assert!(server.wait().unwrap().success());
    assert_eq!(std::fs::read_to_string(&pidfile).unwrap(), "another\n");
    let refused = refusal(&mut ramfold(&["serve", "--size", "1M", "--pidfile", "/dev/null"]));
    assert!(refused.contains("--pidfile /dev/null") && refused.contains("not a file"), "{refused}");
}

#[test]
fn a_server_may_end_with_the_process_that_started_it() {
    let scratch = Scratch::new();
    let socket = scratch.path("disk.sock");
    let pid = scratch.path("pid");
    let serve = format!("{BINARY} serve --size 1M --quiet --exit-with-parent");
    let line =
        format!("{serve} --unix {} --pidfile {} & read wait", socket.display(), pid.display());
    let mut parent = tool("sh");
    parent.args(["-c", &line]).stdin(Stdio::piped()).env("XDG_RUNTIME_DIR", scratch.path("run"));
    let mut parent = parent.spawn().unwrap();
    eventually("the server", || pid.exists());
    let server = std::fs::read_to_string(&pid).unwrap();
    Nbd::connect(&socket).write(0, b"while the parent lives").unwrap();
    drop(parent.stdin.take());
    parent.wait().unwrap();
    eventually("the server to end", || has_ended(server.trim()));
    assert!(!socket.exists() && !pid.exists(), "it ended as at SIGTERM");
}

/// The parent ends before the server can ask to be told. A shell waits until that is so, in a
/// namespace of its own, where no process besides the first takes orphans.
#[test]
fn a_parent_that_is_gone_already_is_noticed() {
    let mut space = tool("unshare");
    space.args(["--map-root-user", "--pid", "--fork", "--mount-proc"]);
    if !needs(&["unshare", "setsid"]) || !space.arg("true").status().unwrap().success() {
        println!("skipped: needs a PID namespace");
        return;
    }
    let _space = Space::Names.enter();
    let scratch = Scratch::new();
    let said = scratch.path("said");
    let orphan = format!(
        "while ! grep -q \"^PPid:.1$\" /proc/$$/status; do sleep 0.01; done; \
         exec {BINARY} serve --size 1M --exit-with-parent"
    );
    let said = said.display();
    let line = format!(
        "(setsid sh -c '{orphan}' > {said} 2>&1 &); while ! [ -s {said} ]; do sleep 0.01; done; \
         cat {said}"
    );
    let mut space = tool("unshare");
    space.args(["--map-root-user", "--pid", "--fork", "--mount-proc", "sh", "-c", &line]);
    let text = succeed(space.env("XDG_RUNTIME_DIR", scratch.path("run")));
    assert!(text.starts_with("ramfold: --exit-with-parent: the parent is gone already"), "{text}");
}
