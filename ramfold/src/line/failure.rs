//! Why a command did not succeed, in one line for the person who typed it.
//!
//! ```text
//!   Usage         the command line       exit code 2: it would be wrong on every machine
//!   Failed        everything else        exit code 1: the system or a server refused
//!   ReaderGone    `ramfold .. | head`    exit code 0, and no message
//!   NotStarted    `ramfold run`          exit code 126 or 127, as a shell's
//!   Ended         `run`, `serve --run`   its exit code, and no message
//! ```
//!
//! Invariant: a message is one line that names what it is about. Locks: none.

use std::process::ExitCode;
use std::{error, fmt, io};

use serve::control::ControlError;
use serve::{ServeError, runtime};
use zram::ZramError;
use zsmalloc::MemoryError;

/// Why a command did not succeed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line is wrong.
    Usage(String),
    /// The command line is right, but it could not be done.
    Failed(String),
    /// The reader of the output has closed it.
    ReaderGone,
    /// A program could not be started. The code is a shell's.
    NotStarted { text: String, code: i32 },
    /// A program ended like this, and has said why.
    Ended(i32),
}

impl Failure {
    /// A failure that names what it is about.
    pub(crate) fn about(what: impl fmt::Display, why: impl fmt::Display) -> Failure {
        Failure::Failed(format!("{what}: {why}"))
    }

    /// The exit code for the shell.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Usage(_) => ExitCode::from(2),
            Failure::Failed(_) => ExitCode::FAILURE,
            Failure::ReaderGone => ExitCode::SUCCESS,
            Failure::NotStarted { code, .. } | Failure::Ended(code) => {
                ExitCode::from(u8::try_from(*code).unwrap_or(u8::MAX))
            }
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(text) | Failure::Failed(text) => f.write_str(text),
            Failure::ReaderGone => f.write_str("the reader of the output is gone"),
            Failure::NotStarted { text, .. } => f.write_str(text),
            Failure::Ended(code) => write!(f, "the program ended with {code}"),
        }
    }
}

impl error::Error for Failure {}

/// Only for writing to standard output. Any other failure must name what it is about.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ReaderGone,
            _ => Failure::about("standard output", error),
        }
    }
}

impl From<ControlError> for Failure {
    fn from(error: ControlError) -> Failure {
        match error {
            ControlError::BadTarget { .. } => Failure::Usage(error.to_string()),
            other => Failure::Failed(other.to_string()),
        }
    }
}

impl From<ServeError> for Failure {
    fn from(error: ServeError) -> Failure {
        let right = match &error {
            ServeError::NotLoopback(_) => {
                return Failure::Usage(format!("{error}, or give --tcp-anywhere if it is meant"));
            }
            ServeError::InUse(path) if path.parent() == Some(&*runtime::directory()) => {
                "; give this one a name of its own with --name"
            }
            ServeError::InUse(_) => "; give this one another path",
            ServeError::Tcp { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                "; port 0 takes one that is free"
            }
            _ => "",
        };
        Failure::Failed(format!("{error}{right}"))
    }
}

/// A refusal of the system is told in its own words, which say what was asked for.
impl From<MemoryError> for Failure {
    fn from(error: MemoryError) -> Failure {
        match error {
            MemoryError::Host(refusal) => Failure::Failed(refusal.to_string()),
            other => Failure::Failed(other.to_string()),
        }
    }
}

impl From<ZramError> for Failure {
    fn from(error: ZramError) -> Failure {
        match error {
            ZramError::Memory(error) => error.into(),
            other => Failure::Failed(other.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_is_told_what_would() {
        let tcp = |kind| ServeError::Tcp { address: "x".into(), source: io::Error::from(kind) };
        let rows = [
            (tcp(io::ErrorKind::AddrInUse), "port 0"),
            (ServeError::NotLoopback(([0, 0, 0, 0], 1).into()), "--tcp-anywhere"),
            (ServeError::InUse(runtime::directory().join("zram0.ctl")), "--name"),
            (ServeError::InUse("/a/b.sock".into()), "another path"),
        ];
        for (error, expected) in rows {
            let line = Failure::from(error).to_string();
            assert!(line.contains(expected), "{line}");
        }
    }

    #[test]
    fn a_reader_that_leaves_is_no_failure() {
        let gone = Failure::from(io::Error::from(io::ErrorKind::BrokenPipe));
        assert!(matches!(gone, Failure::ReaderGone), "{gone:?}");
        let full = Failure::from(io::Error::from(io::ErrorKind::StorageFull));
        assert!(matches!(full, Failure::Failed(_)), "{full:?}");
    }
}
