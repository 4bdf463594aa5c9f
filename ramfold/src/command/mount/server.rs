//! The server of a mounted disk: this process, or one in the background.
//!
//! ```text
//!   ramfold mount DIR                  starts itself again, in a session of its own:
//!     '- ramfold mount DIR               prints its line, lets go of the streams, serves
//!   ramfold mount DIR -- COMMAND       the same, and holds a pipe to it: at its end, by whatever
//!                                      reason, the server unmounts
//!
//!   server    line ------------> | mounted             if the caller has ended before it could
//!   caller           go on ----> |         '-> done    say "go on", the server unmounts
//! ```
//!
//! Invariant: a server in the background has none of its caller's descriptors, terminal or
//! directories. Locks: none.

use std::fs::OpenOptions;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use serve::fuse::mounted_at;

use super::place::Place;
use crate::line::Failure;
use crate::line::output::mention;

/// Says to the started command that it is the server, and how it stands.
pub(super) const ROLE: &str = "RAMFOLD_MOUNT_SERVER";
/// Says to the command that it is in a namespace, and where its runtime directory is.
pub(super) const SPACE: &str = "RAMFOLD_MOUNT_SPACE";

/// How a server stands to the command that was typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is that command.
    Foreground,
    /// It goes on after that command.
    Background,
    /// It ends with that command.
    Tied,
}

impl Standing {
    /// What the environment says.
    pub(super) fn told() -> Option<Standing> {
        match std::env::var(ROLE).ok()?.as_str() {
            "background" => Some(Standing::Background),
            "tied" => Some(Standing::Tied),
            _ => None,
        }
    }

    fn word(self) -> &'static str {
        match self {
            Standing::Foreground => "foreground",
            Standing::Background => "background",
            Standing::Tied => "tied",
        }
    }
}

/// A server that was started from here.
pub(super) struct Server(Child);

impl Server {
    /// Starts the command once more as a server, and waits until the disk is mounted. What the
    /// server says until then goes where this command's words go.
    pub(super) fn start(standing: Standing) -> Result<Server, Failure> {
        host::inherit_only_streams();
        let program = std::env::current_exe().map_err(|error| Failure::about("ramfold", error))?;
        let mut command = Command::new(program);
        command.args(std::env::args_os().skip(1)).env(ROLE, standing.word());
        command.stdout(Stdio::piped()).stdin(Stdio::piped());
        if standing == Standing::Tied {
            // A manager is told by the command, if by anything.
            command.env_remove("NOTIFY_SOCKET").env_remove("WATCHDOG_USEC");
        }
        if let Some(directory) = std::env::var_os(SPACE) {
            command.env("XDG_RUNTIME_DIR", directory);
        }
        let mut child = command.spawn().map_err(|error| Failure::about("ramfold", error))?;
        let failed = |error| Failure::about("the server", error);
        let said = agree(&mut child).map_err(failed)?;
        let Some(line) = said else {
            let status = child.wait().map_err(failed)?;
            return Err(match status.code() {
                // It has said why.
                Some(code) => Failure::Ended(code),
                None => Failure::about("the server", format!("it was killed ({status})")),
            });
        };
        if standing == Standing::Background {
            drop(child.stdin.take());
            if line != MOUNTED {
                mention(&line);
            }
        }
        Ok(Server(child))
    }

    /// Lets a tied server end, and waits until it has.
    pub(super) fn end(mut self) {
        drop(self.0.stdin.take());
        // If it cannot be waited for, it has ended.
        let _ = self.0.wait();
    }
}

/// The last word of a server that goes on. A quiet one says it instead of its line too.
pub(super) const MOUNTED: &str = "mounted";
/// What a caller answers to a server's line.
const GO_ON: &[u8] = b"\n";

/// Waits for a server's line, tells it to go on, and waits until it does. Gives the line; `None` if
/// the server does not go on.
fn agree(child: &mut Child) -> io::Result<Option<String>> {
    let mut stdout = BufReader::new(child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?);
    let (mut line, mut rest) = (String::new(), String::new());
    stdout.read_line(&mut line)?;
    if let Some(stdin) = &mut child.stdin {
        // If this fails, the server has ended, and says no last word.
        let _ = stdin.write_all(GO_ON);
    }
    stdout.read_to_string(&mut rest)?;
    let goes_on = rest.lines().next_back() == Some(MOUNTED);
    Ok(goes_on.then(|| line.trim_end().to_owned()))
}

/// Begins the life of a server in the background: it leaves its caller's session.
pub(super) fn leave_session() {
    // A process that leads a group cannot, and then it has a session of its own already.
    let _ = rustix::process::setsid();
}

/// Lets go of the caller's streams and directory, if the caller is still there to hear of it. A
/// tied server keeps standard error, because its caller waits, and standard input, by which it sees
/// the caller's end.
pub(super) fn let_go(standing: Standing, place: &Place) -> Result<(), Failure> {
    let null = OpenOptions::new().read(true).write(true).open("/dev/null");
    let let_go = |null: std::fs::File| {
        std::env::set_current_dir(Path::new("/"))?;
        if standing == Standing::Background {
            let log = place.open_log()?;
            if !is_told_to_go_on(place) {
                let why = "the command was interrupted, or the disk was unmounted meanwhile, so \
                           nothing stays mounted";
                return Err(io::Error::other(why));
            }
            dup2_stdin(&null)?;
            dup2_stderr(log)?;
        }
        mention(MOUNTED);
        // Its end tells the caller that all is done.
        Ok(dup2_stdout(&null)?)
    };
    null.and_then(let_go).map_err(|error| Failure::about("the server", error))
}

/// Waits for the caller's word, which may be stopped by a signal. False if the caller has ended, or
/// the disk was unmounted meanwhile.
fn is_told_to_go_on(place: &Place) -> bool {
    const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    let stdin = io::stdin();
    let is_mounted = || place.target().is_some_and(|target| mounted_at(&target).is_some());
    loop {
        let word = poll(&mut [PollFd::new(&stdin, PollFlags::IN)], Some(&LOOK));
        match word {
            Ok(0) if is_mounted() => {}
            Ok(0) => return false,
            Err(Errno::INTR) => {}
            _ => return stdin.lock().read_exact(&mut [0; GO_ON.len()]).is_ok(),
        }
    }
}

/// Waits until the command that started this server has ended.
pub(super) fn wait_for_caller() {
    let mut bytes = [0; 64];
    while std::io::stdin().read(&mut bytes).is_ok_and(|read| read > 0) {}
}
