//! The asking side of a control socket: one connection, a line out, a line in.
//!
//! ```text
//!   ping  ->   answered at once, however busy the server is; a stopped one does not answer, and
//!              after LOOK_AFTER its process is looked at
//!   request -> answered within the limit
//! ```
//!
//! Invariant: a call ends, with an answer or an error, when the server has been silent for the
//! limit or has sent `ANSWER_MAX` bytes.

use super::{ANSWER_MAX, CALL_TIMEOUT, LOOK_AFTER, PING_TIMEOUT, Request, Response};
use crate::door::knock;
use serde_json::Value;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{error, fmt};

/// Why there is no answer, in one line for the person who asked.
#[derive(Debug)]
#[non_exhaustive]
pub enum ControlError {
    /// TARGET names nothing that could have a control socket.
    NoSuchTarget {
        /// As it was given.
        target: String,
        /// What would be right.
        hint: String,
    },
    /// TARGET cannot name one, whatever runs.
    BadTarget {
        /// As it was given.
        target: String,
        /// What would be right.
        hint: String,
    },
    /// Nobody listens there.
    NotRunning(PathBuf),
    /// The socket is there, and the server that made it is not.
    Killed(PathBuf),
    /// The server did not answer in time.
    Timeout(PathBuf),
    /// The server did not answer because its process was stopped, as SIGSTOP does.
    Stopped {
        /// Its control socket.
        path: PathBuf,
        /// Its process.
        pid: u32,
    },
    /// The server hung up without an answer.
    Closed(PathBuf),
    /// The server's answer makes no sense.
    Garbled(PathBuf),
    /// The server says no; these are its words.
    Refused(String),
    /// The connection failed.
    Io {
        /// To where.
        path: PathBuf,
        /// How.
        source: io::Error,
    },
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchTarget { target, hint } | Self::BadTarget { target, hint } => {
                write!(f, "{target}: {hint}")
            }
            Self::NotRunning(path) => write!(f, "no server runs at {}", path.display()),
            Self::Killed(path) => write!(
                f,
                "the server at {} was killed: its socket is left, and what it stored is gone",
                path.display()
            ),
            Self::Timeout(path) => write!(f, "the server at {} does not answer", path.display()),
            Self::Stopped { path, pid } => write!(
                f,
                "the server at {} does not answer: its process is stopped; kill -CONT {pid} lets \
                 it go on",
                path.display()
            ),
            Self::Closed(path) => {
                write!(f, "the server at {} hung up: it may have too many callers", path.display())
            }
            Self::Garbled(path) => {
                write!(f, "{} does not speak ramfold's control protocol", path.display())
            }
            Self::Refused(why) => f.write_str(why),
            Self::Io { path, source } => write!(f, "{}: {source}", path.display()),
        }
    }
}

impl error::Error for ControlError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Asks the server at a control socket, and waits `CALL_TIMEOUT` at most.
pub fn call(path: &Path, request: &Request) -> Result<Value, ControlError> {
    call_within(path, request, CALL_TIMEOUT)
}

/// As `call`, with a limit on how long the server may be silent. One that does not even answer a
/// ping is waited for no longer than `PING_TIMEOUT`, and `LOOK_AFTER` if its process is stopped.
pub fn call_within(path: &Path, request: &Request, limit: Duration) -> Result<Value, ControlError> {
    let waits = Waits { look: limit.min(LOOK_AFTER), ping: limit.min(PING_TIMEOUT), limit };
    let line = exchange(path, request, &waits)?;
    if line.is_empty() {
        return Err(ControlError::Closed(path.to_owned()));
    }
    if !line.ends_with('\n') {
        return Err(ControlError::Garbled(path.to_owned()));
    }
    match serde_json::from_str(&line) {
        Ok(Response::Ok(value)) => Ok(value),
        Ok(Response::Error(why)) => Err(ControlError::Refused(why)),
        Err(_) => Err(ControlError::Garbled(path.to_owned())),
    }
}

/// How long a server may be silent.
struct Waits {
    /// Before its process is looked at.
    look: Duration,
    /// Before the answer to a ping, if its process is not stopped.
    ping: Duration,
    /// Before the answer to the request.
    limit: Duration,
}

/// The answer to a request; or to the ping before it, where that is in no words of ours; empty
/// where the server hung up.
fn exchange(path: &Path, request: &Request, waits: &Waits) -> Result<String, ControlError> {
    let failed = |source| explain(path, source);
    let stream = knock(path).map_err(failed)?;
    let mut answers = BufReader::new(&stream);
    say(&stream, &Request::Ping, waits.ping).map_err(failed)?;
    let mut alive = hear(&stream, &mut answers, waits.look);
    if alive.as_ref().is_err_and(is_silence) {
        if let Some(pid) = stopped_process(&stream) {
            return Err(ControlError::Stopped { path: path.to_owned(), pid });
        }
        alive = hear(&stream, &mut answers, waits.ping.saturating_sub(waits.look));
    }
    let alive = alive.map_err(failed)?;
    // A refusal will do: a server that does not know the word is alive too.
    let Ok(pong) = serde_json::from_str::<Response>(&alive) else { return Ok(alive) };
    let sent = say(&stream, request, waits.limit);
    let answer = sent.and_then(|()| hear(&stream, &mut answers, waits.limit));
    let is_over = answer.as_ref().map_or_else(is_hangup, String::is_empty);
    // A server that hangs up after a refusal has refused the caller, not the ping.
    if is_over && matches!(pong, Response::Error(_)) { Ok(alive) } else { answer.map_err(failed) }
}

/// Sends a request.
fn say(mut stream: &UnixStream, request: &Request, limit: Duration) -> io::Result<()> {
    stream.set_write_timeout(Some(limit))?;
    let mut text = serde_json::to_string(request).map_err(io::Error::other)?;
    text.push('\n');
    match stream.write_all(text.as_bytes()) {
        // It may have said something before it hung up.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Waits for a line.
fn hear(
    stream: &UnixStream,
    answers: &mut BufReader<&UnixStream>,
    limit: Duration,
) -> io::Result<String> {
    stream.set_read_timeout(Some(limit.max(Duration::from_millis(1))))?;
    let mut line = String::new();
    answers.take(ANSWER_MAX as u64).read_line(&mut line)?;
    Ok(line)
}

fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn is_hangup(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

/// The process at the other end, if it is stopped: by SIGSTOP, by its terminal or by a debugger.
fn stopped_process(stream: &UnixStream) -> Option<u32> {
    let pid = host::peer_process(stream)?.get();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The state follows the name, which may hold anything.
    let state = stat.rsplit_once(") ")?.1;
    state.starts_with(['T', 't']).then_some(pid)
}

fn explain(path: &Path, source: io::Error) -> ControlError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound => ControlError::NotRunning(path),
        io::ErrorKind::ConnectionRefused => ControlError::Killed(path),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ControlError::Timeout(path),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => ControlError::Closed(path),
        io::ErrorKind::InvalidData => ControlError::Garbled(path),
        _ => ControlError::Io { path, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    const SOON: Duration = Duration::from_millis(50);
    const LATE: Duration = Duration::from_secs(10);

    fn listener(name: &str) -> (UnixListener, PathBuf) {
        let path = std::env::temp_dir().join(format!("ramfold-{name}-{}", std::process::id()));
        (UnixListener::bind(&path).unwrap(), path)
    }

    #[test]
    fn a_server_that_is_stopped_is_not_waited_for() {
        // The system takes connections and what is written to them; nobody reads.
        let (_listener, path) = listener("stopped");
        let started = std::time::Instant::now();
        let waits = Waits { look: SOON, ping: 2 * SOON, limit: LATE };
        let asked = exchange(&path, &Request::Check, &waits);
        std::fs::remove_file(&path).unwrap();
        let error = asked.unwrap_err();
        assert!(matches!(error, ControlError::Timeout(_)), "{error:?}");
        assert!(started.elapsed() < LATE, "it was asked all the same");
    }

    #[test]
    fn a_server_that_hangs_up_is_told_from_one_that_talks_nonsense() {
        for (said, expected) in [("", "hung up"), ("hello\n", "does not speak")] {
            let (listener, path) = listener("rude");
            let server = std::thread::spawn(move || {
                let (caller, _) = listener.accept().unwrap();
                BufReader::new(&caller).read_line(&mut String::new()).unwrap();
                (&caller).write_all(said.as_bytes()).unwrap();
            });
            let asked = call_within(&path, &Request::Stat, LATE);
            server.join().unwrap();
            std::fs::remove_file(&path).unwrap();
            let told = asked.unwrap_err().to_string();
            assert!(told.contains(expected), "{said:?}: {told}");
        }
    }
}
