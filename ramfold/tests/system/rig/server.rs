//! A running `ramfold serve`, which is killed at the end of a test.
//!
//! Invariant: a Server that `with` returns is serving. Its sockets lie in its own scratch
//! directory, so tests do not disturb each other. A Process that was not waited for is killed.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use serde_json::Value;

use super::{BINARY, Nbd, Scratch, eventually, ramfold, succeed};

/// A server as a process.
pub(crate) struct Process {
    child: Child,
    said: Arc<Mutex<String>>,
    listeners: Vec<JoinHandle<()>>,
}

pub(crate) struct Server {
    process: Process,
    socket: PathBuf,
    pub(crate) scratch: Scratch,
}

impl Process {
    /// Starts a command and waits until it has said `ready`.
    pub(crate) fn start(command: &mut Command, ready: &str) -> Process {
        Process::start_with_input(command.stdin(Stdio::null()), ready)
    }

    /// The same for a command that was given its standard input.
    pub(crate) fn start_with_input(command: &mut Command, ready: &str) -> Process {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the built binary can be started");
        let said = Arc::new(Mutex::new(String::new()));
        let listeners =
            vec![listen(child.stdout.take(), &said), listen(child.stderr.take(), &said)];
        let mut process = Process { child, said, listeners };
        eventually(ready, || {
            let gone = process.child.try_wait().expect("a child can be waited for");
            assert!(gone.is_none(), "{command:?} ended: {}", process.said());
            process.said().contains(ready)
        });
        process
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Everything printed so far, on both streams.
    pub(crate) fn said(&self) -> String {
        self.said.lock().expect("no listener panics").clone()
    }

    pub(crate) fn signal(&self, name: &str) {
        signal(self.pid(), name);
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child can be waited for").is_some()
    }

    /// Waits for it to end by itself; what it said is complete then.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the server to end", || {
            status = self.child.try_wait().expect("a child can be waited for");
            status.is_some()
        });
        let listeners = std::mem::take(&mut self.listeners);
        listeners.into_iter().for_each(|listener| listener.join().expect("no listener panics"));
        status.expect("the wait ended with a status")
    }

    /// Ends it where it is.
    pub(crate) fn kill(&mut self) {
        // Both fail only when the child has ended and been waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Serves a disk of this size with default settings.
    pub(crate) fn of_size(size: &str) -> Server {
        Server::with(&["--size", size])
    }

    pub(crate) fn with(arguments: &[&str]) -> Server {
        Server::run_by(Command::new(BINARY), arguments)
    }

    /// Serves 1 MiB, with SIGHUP as `env` is told to leave it, whatever this process does with it.
    pub(crate) fn with_hangup(how: &str) -> Server {
        let mut env = Command::new("env");
        env.arg(how).arg(BINARY);
        Server::run_by(env, &["--size", "1M"])
    }

    /// Serves with no more than so many descriptors.
    pub(crate) fn with_descriptors(most: usize, arguments: &[&str]) -> Server {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("ulimit -n {most}; exec \"$0\" \"$@\"")).arg(BINARY);
        Server::run_by(shell, arguments)
    }

    /// In a process that may have so many KiB of addresses.
    pub(crate) fn with_addresses(kib: u64, arguments: &[&str]) -> Server {
        let mut sh = Command::new("sh");
        sh.arg("-c").arg(format!("ulimit -v {kib} && exec \"$0\" \"$@\"")).arg(BINARY);
        Server::run_by(sh, arguments)
    }

    fn run_by(mut command: Command, arguments: &[&str]) -> Server {
        let scratch = Scratch::new();
        let socket = scratch.path("disk.sock");
        command.arg("serve").args(arguments).arg("--unix").arg(&socket);
        command.env("XDG_RUNTIME_DIR", scratch.path("run"));
        let process = Process::start(&mut command, "nbd+unix://");
        Server { process, socket, scratch }
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    pub(crate) fn target(&self) -> &str {
        self.socket.to_str().expect("scratch paths are text")
    }

    pub(crate) fn uri(&self) -> String {
        format!("nbd+unix:///?socket={}", self.target())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Everything printed so far, on both streams.
    pub(crate) fn said(&self) -> String {
        self.process.said()
    }

    pub(crate) fn connect(&self) -> Nbd {
        Nbd::connect(&self.socket)
    }

    pub(crate) fn stat(&self) -> Value {
        let text = succeed(&mut ramfold(&["stat", self.target(), "--json"]));
        let stat: Value = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("stat --json is not JSON: {error}\n{text}"));
        assert!(stat.is_object(), "one device is one object, not an array: {text}");
        stat
    }

    /// One integer of `stat --json`.
    #[track_caller]
    pub(crate) fn figure(&self, name: &str) -> u64 {
        let stat = self.stat();
        stat[name].as_u64().unwrap_or_else(|| panic!("no integer {name} in {stat}"))
    }

    /// Sockets it has open.
    pub(crate) fn sockets(&self) -> usize {
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.process.pid()));
        let links = files.expect("it lives").flatten().flat_map(|file| file.path().read_link());
        links.filter(|link| link.to_string_lossy().starts_with("socket:")).count()
    }

    #[track_caller]
    pub(crate) fn check(&self) {
        succeed(&mut ramfold(&["check", self.target()]));
    }

    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Waits for the server to end by itself.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.process.wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("-- the server said\n{}", self.said());
        }
    }
}

pub(crate) fn signal(pid: u32, name: &str) {
    succeed(Command::new("sh").arg("-c").arg(format!("kill -{name} {pid}")));
}

fn listen(stream: Option<impl Read + Send + 'static>, said: &Arc<Mutex<String>>) -> JoinHandle<()> {
    let stream = BufReader::new(stream.expect("the stream is a pipe"));
    let said = Arc::clone(said);
    std::thread::spawn(move || {
        for line in stream.lines().map_while(Result::ok) {
            let mut said = said.lock().expect("no listener panics");
            said.push_str(&line);
            said.push('\n');
        }
    })
}
