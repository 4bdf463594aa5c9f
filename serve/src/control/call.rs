//! The asking side of a control socket: over one connection, a line is sent and a line received.
//!
//! ```text
//!   ping  ->   answered at once, even if the server is busy; a stopped server does not answer,
//!              and after LOOK_AFTER the caller looks at its process
//!   request -> answered within the limit
//! ```
//!
//! Invariant: a call ends, with an answer or an error, at the latest after the server was silent
//! for the limit or has sent `ANSWER_MAX` bytes. Locks: none.

use super::{ANSWER_MAX, CALL_TIMEOUT, LOOK_AFTER, PING_TIMEOUT, Request, Response};
use crate::doors::knock;
use serde_json::Value;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{error, fmt};

/// Why there is no answer. Its message is one line for the person who asked.
#[derive(Debug)]
#[non_exhaustive]
pub enum ControlError {
    /// TARGET names nothing that has a control socket.
    NoSuchTarget {
        /// TARGET as it was given.
        target: String,
        /// What is missing, or what to give instead.
        hint: String,
    },
    /// TARGET has a form that can never name a control socket.
    BadTarget {
        /// TARGET as it was given.
        target: String,
        /// What to give instead.
        hint: String,
    },
    /// There is no socket at this path.
    NotRunning(PathBuf),
    /// The socket is there, but the server that made it is gone.
    Killed(PathBuf),
    /// The server did not answer in time.
    Timeout(PathBuf),
    /// The server did not answer because its process is stopped, for example by SIGSTOP.
    Stopped {
        /// Its control socket.
        path: PathBuf,
        /// The number of its process.
        pid: u32,
    },
    /// The server hung up without an answer.
    Closed(PathBuf),
    /// The server's answer is not one of this protocol.
    Garbled(PathBuf),
    /// The server refused the request. These are its words.
    Refused(String),
    /// The connection failed.
    Io {
        /// The socket's path.
        path: PathBuf,
        /// The system's error.
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

/// Asks the server at a control socket, and waits for at most `CALL_TIMEOUT`.
///
/// # Errors
///
/// [`ControlError`] if no server answers, or if the server refuses the request.
pub fn call(path: &Path, request: &Request) -> Result<Value, ControlError> {
    call_within(path, request, CALL_TIMEOUT)
}

/// Asks the server at a control socket, and waits for at most `limit`.
///
/// If the server does not even answer a ping, the call ends after `PING_TIMEOUT`, or after
/// `LOOK_AFTER` if its process is stopped.
///
/// # Errors
///
/// [`ControlError`] if no server answers, or if the server refuses the request.
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

/// The answer to a request. If the answer to the ping before it is not of this protocol, it is that
/// one. It is empty if the server hung up.
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
    // A refusal is enough, because a server that does not know the word is alive too.
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
        // The server may have answered before it hung up.
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

/// The process at the other end if SIGSTOP, its terminal or a debugger has stopped it.
fn stopped_process(stream: &UnixStream) -> Option<u32> {
    let pid = host::peer_process(stream)?.get();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The state follows the name, which may have any character in it.
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
        // The system accepts connections and what is written to them, but no program reads.
        let (_listener, path) = listener("stopped");
        let started = std::time::Instant::now();
        let waits = Waits { look: SOON, ping: 2 * SOON, limit: LATE };
        let asked = exchange(&path, &Request::CHECK, &waits);
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
            let asked = call_within(&path, &Request::STAT, LATE);
            server.join().unwrap();
            std::fs::remove_file(&path).unwrap();
            let told = asked.unwrap_err().to_string();
            assert!(told.contains(expected), "{said:?}: {told}");
        }
    }
}
