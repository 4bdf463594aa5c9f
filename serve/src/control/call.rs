//! The asking side of a control socket: one connection, one line out, one line in.
//!
//! Invariant: a call ends, with an answer or an error, when the server has been silent for the
//! limit or has sent `ANSWER_MAX` bytes.

use super::{ANSWER_MAX, CALL_TIMEOUT, Request, Response};
use crate::door::knock;
use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read, Write};
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
    /// Nobody listens there.
    NotRunning(PathBuf),
    /// The server did not answer in time.
    Timeout(PathBuf),
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
            Self::NoSuchTarget { target, hint } => write!(f, "{target}: {hint}"),
            Self::NotRunning(path) => write!(f, "no server runs at {}", path.display()),
            Self::Timeout(path) => write!(f, "the server at {} does not answer", path.display()),
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

/// As `call`, with a limit on how long the server may be silent.
pub fn call_within(path: &Path, request: &Request, limit: Duration) -> Result<Value, ControlError> {
    let line = exchange(path, request, limit).map_err(|source| explain(path, source))?;
    if !line.ends_with('\n') {
        return Err(ControlError::Garbled(path.to_owned()));
    }
    match serde_json::from_str(&line) {
        Ok(Response::Ok(value)) => Ok(value),
        Ok(Response::Error(why)) => Err(ControlError::Refused(why)),
        Err(_) => Err(ControlError::Garbled(path.to_owned())),
    }
}

fn exchange(path: &Path, request: &Request, limit: Duration) -> io::Result<String> {
    let mut stream = knock(path)?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    let mut text = serde_json::to_string(request).map_err(io::Error::other)?;
    text.push('\n');
    stream.write_all(text.as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream.take(ANSWER_MAX as u64)).read_line(&mut line)?;
    Ok(line)
}

fn explain(path: &Path, source: io::Error) -> ControlError {
    let path = path.to_owned();
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            ControlError::NotRunning(path)
        }
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ControlError::Timeout(path),
        io::ErrorKind::InvalidData => ControlError::Garbled(path),
        _ => ControlError::Io { path, source },
    }
}
