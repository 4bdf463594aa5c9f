//! The command of `serve --run`, and its server's private socket.
//!
//! ```text
//!   TMPDIR/ramfold-run-PID-0/nbd.sock, nbd.sock.ctl   made first, removed last
//!   sh -c COMMAND     $uri $nbd $unixsocket $exportname
//!     |  ends               --> the server ends, with its status
//!     '- server is to end   --> SIGTERM, after GRACE SIGKILL, to the shell and all that it started
//! ```
//!
//! Invariants
//! - The shell is waited for by `Captive::end` alone. So its number means nothing else before.
//! - Orphans among its descendants become children of this process, and are found. Those that end
//!   before the shell are waited for, so a command of days leaves no dead processes. This process
//!   has no other children than these and the shell.
//! - If this process is killed, the shell gets SIGTERM from the kernel. What the shell has started
//!   does not.
//!
//! Locks: none.

use std::ffi::OsString;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, io, thread};

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, set_child_subreaper, waitid,
};

use super::ending::Ending;
use crate::line::Failure;

/// The name of the socket in its directory.
const SOCKET: &str = "nbd.sock";
/// How often another name is tried for the directory.
const NAMES_MAX: u32 = 100;
/// How long the command may take to end when it is asked to.
const GRACE: Duration = Duration::from_secs(2);
/// Signals by which a terminal or a service manager ends a whole group of processes.
const INTERRUPTS: [i32; 3] = [1, 2, 15]; // SIGHUP, SIGINT, SIGTERM
/// How often new descendants are looked for. A process that may not be killed is one for ever.
const ROUNDS_MAX: usize = 100;
/// The pause between two looks whether it has.
const PAUSE: Duration = Duration::from_millis(10);

/// Makes a directory that only its owner can enter, and gives the path of a socket in it. The
/// directory is removed when the server ends, after the sockets.
pub(super) fn private_socket(ending: &Ending) -> Result<PathBuf, Failure> {
    let base = env::temp_dir();
    for number in 0..NAMES_MAX {
        let path = base.join(format!("ramfold-run-{}-{number}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => {
                let socket = path.join(SOCKET);
                ending.at_last(move || {
                    // Somebody may have put a file there, which stays then.
                    let _ = fs::remove_dir(&path);
                });
                return Ok(socket);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(Failure::about(path.display(), error)),
        }
    }
    Err(Failure::about(base.display(), "there are too many directories of this process's number"))
}

/// A command that the server runs for.
pub(super) struct Captive {
    shell: Child,
    /// What the command has started ends too.
    is_ending: Arc<AtomicBool>,
}

impl Captive {
    /// Starts the command with these variables. It is to be called on the main thread, because the
    /// command ends with the thread that starts it.
    pub(super) fn start(
        command: &str,
        variables: &[(&str, OsString)],
        ending: &Ending,
    ) -> Result<Captive, Failure> {
        let failed = |error: io::Error| Failure::about("--run", error);
        set_child_subreaper(Some(rustix::process::getpid()))
            .map_err(|error| failed(error.into()))?;
        let mut shell = Command::new("/bin/sh");
        shell.arg("-c").arg(command).envs(variables.iter().cloned());
        host::end_with_parent(&mut shell);
        let shell = shell.spawn().map_err(failed)?;
        let pid = Pid::from_child(&shell);
        let is_ending = Arc::new(AtomicBool::new(false));
        let is_told = Arc::clone(&is_ending);
        // Registered before anything can fail. A second signal ends what ignores SIGTERM.
        ending.at_last(move || {
            // relaxed: a flag that stands alone.
            if is_running(pid) || is_told.load(Ordering::Relaxed) {
                kill_all();
            }
        });
        ending.watch_command(move || reap_until(pid))?;
        Ok(Captive { shell, is_ending })
    }

    /// Gives the exit code of the command, as a shell does. If the server was `told` to end, the
    /// command ends and all that it has started. If the command has ended by itself, what it left
    /// goes on.
    pub(super) fn end(mut self, told: bool) -> Result<i32, Failure> {
        let failed = |error: io::Error| Failure::about("--run", error);
        if let Some(status) = self.shell.try_wait().map_err(failed)? {
            // Ctrl-C goes to the command too, which may have ended before this process knows of it.
            let interrupted = status.signal().is_some_and(|signal| INTERRUPTS.contains(&signal));
            if !told && !interrupted {
                return Ok(code(status));
            }
        }
        // relaxed: a flag that stands alone.
        self.is_ending.store(true, Ordering::Relaxed);
        send_all(Signal::TERM);
        let deadline = Instant::now() + GRACE;
        while !descendants().is_empty() && Instant::now() < deadline {
            thread::sleep(PAUSE);
        }
        kill_all();
        // A process of another user gets no signal of ours.
        let deadline = Instant::now() + GRACE;
        loop {
            match self.shell.try_wait().map_err(failed)? {
                Some(status) => return Ok(code(status)),
                None if Instant::now() < deadline => thread::sleep(PAUSE),
                None => {
                    let why = format!("process {} cannot be ended", self.shell.id());
                    return Err(Failure::about("--run", why));
                }
            }
        }
    }
}

/// Kills all descendants, and those that they start meanwhile.
fn kill_all() {
    for _ in 0..ROUNDS_MAX {
        if descendants().is_empty() {
            return;
        }
        send_all(Signal::KILL);
    }
}

/// The exit code, or 128 and the signal that ended the process.
fn code(status: ExitStatus) -> i32 {
    status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1)
}

/// Waits until the shell has ended, and leaves its status there. Every other child that ends is
/// waited for.
fn reap_until(shell: Pid) {
    let any = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while is_running(shell) {
        match waitid(WaitId::All, any) {
            Ok(_) if !is_running(shell) => return,
            // The system lists them a moment later, or never, as without /proc.
            Ok(_) if reap_others(shell) == 0 => thread::sleep(PAUSE),
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Waits for the children that have ended, except the shell, and gives how many there were.
fn reap_others(shell: Pid) -> usize {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
    let children = children(std::process::id()).into_iter().filter_map(numbered);
    let others = children.filter(|&child| child != shell);
    others.filter(|&child| matches!(waitid(WaitId::Pid(child), options), Ok(Some(_)))).count()
}

fn is_running(pid: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    matches!(waitid(WaitId::Pid(pid), options), Ok(None))
}

fn send_all(signal: Signal) {
    for pid in descendants() {
        // It may have ended meanwhile.
        let _ = kill_process(pid, signal);
    }
}

/// The living processes that this one has started, and those that they have.
fn descendants() -> Vec<Pid> {
    let mut found = children(std::process::id());
    let mut at = 0;
    while let Some(&pid) = found.get(at) {
        found.extend(children(pid));
        at += 1;
    }
    found.retain(|&pid| is_alive(pid));
    found.into_iter().filter_map(numbered).collect()
}

fn numbered(pid: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(pid).ok()?)
}

fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists.flat_map(|list| numbers(&list)).collect()
}

fn numbers(list: &str) -> Vec<u32> {
    list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// Whether a process has not ended. One that nobody has waited for is still listed.
fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_a_shells() {
        let ended = |line: &str| code(Command::new("sh").args(["-c", line]).status().unwrap());
        assert_eq!(ended("exit 0"), 0);
        assert_eq!(ended("exit 7"), 7);
        assert_eq!(ended("kill -9 $$"), 137);
    }

    #[test]
    fn children_are_found_and_the_dead_are_not() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "cat; :"]).stdin(std::process::Stdio::piped());
        let mut child = shell.spawn().unwrap();
        let grandchild = || children(child.id()).len() == 1;
        while !grandchild() {
            thread::yield_now();
        }
        let found = descendants();
        assert!(found.contains(&Pid::from_child(&child)), "{found:?}");
        drop(child.stdin.take());
        while is_running(Pid::from_child(&child)) {
            thread::yield_now();
        }
        assert!(!is_alive(child.id()) && !is_running(Pid::from_child(&child)));
        assert!(child.wait().unwrap().success(), "its status was left there");
    }
}
