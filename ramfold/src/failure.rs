//! Why a command did not do what was asked, in one line for the person who typed it.

use std::process::ExitCode;
use std::{error, fmt, io};

/// Why a command did not do what was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line cannot be meant as it stands.
    Usage(String),
    /// It was understood and could not be done.
    Failed(String),
    /// Whoever read the output reads no more.
    ReaderGone,
}

impl Failure {
    /// A failure with the thing it is about.
    pub(crate) fn about(what: impl fmt::Display, why: impl fmt::Display) -> Failure {
        Failure::Failed(format!("{what}: {why}"))
    }

    /// What the shell is told.
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Usage(_) => ExitCode::from(2),
            Failure::Failed(_) => ExitCode::FAILURE,
            Failure::ReaderGone => ExitCode::SUCCESS,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(text) | Failure::Failed(text) => f.write_str(text),
            Failure::ReaderGone => f.write_str("the reader of the output is gone"),
        }
    }
}

impl error::Error for Failure {}

/// Only for writing to standard output; other failures name what they are about.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        match error.kind() {
            io::ErrorKind::BrokenPipe => Failure::ReaderGone,
            _ => Failure::about("standard output", error),
        }
    }
}

impl From<serve::control::ControlError> for Failure {
    fn from(error: serve::control::ControlError) -> Failure {
        Failure::Failed(error.to_string())
    }
}

impl From<serve::ServeError> for Failure {
    fn from(error: serve::ServeError) -> Failure {
        Failure::Failed(error.to_string())
    }
}

impl From<zram::ZramError> for Failure {
    fn from(error: zram::ZramError) -> Failure {
        Failure::Failed(error.to_string())
    }
}

impl From<zsmalloc::MemoryError> for Failure {
    fn from(error: zsmalloc::MemoryError) -> Failure {
        Failure::Failed(error.to_string())
    }
}
