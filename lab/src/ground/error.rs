//! What can go wrong in a study, worded for the person at the terminal.

use std::fmt;
use std::io;

/// Why a study did not finish.
#[derive(Debug)]
pub(crate) enum LabError {
    /// The options contradict each other or the corpus (exit code 2).
    Usage(String),
    /// A file, a process or a socket failed.
    Io { what: String, source: io::Error },
    /// Something the study needs is not on this machine.
    Missing { what: &'static str, why: String },
    /// A store gave an answer other than the one expected: its figures are worth nothing.
    Wrong(String),
    /// A store refused to work.
    Store { what: String, why: String },
}

/// In the sentence of a `Missing`, between what and why.
const IS_MISSING: &str = ": missing (";

impl LabError {
    /// What clap says of a command line; for `map_err`.
    pub(crate) fn usage(error: clap::Error) -> LabError {
        LabError::Usage(error.to_string())
    }

    /// Attaches what was being done to an I/O error; for `map_err`. It costs nothing if there is no
    /// error, so it may be part of what is timed.
    pub(crate) fn io(what: impl fmt::Display) -> impl FnOnce(io::Error) -> LabError {
        move |source| LabError::Io { what: what.to_string(), source }
    }

    /// Attaches what was being done to any other error; for `map_err`. Costs nothing if there is no
    /// error.
    pub(crate) fn store<E: fmt::Display>(what: impl fmt::Display) -> impl FnOnce(E) -> LabError {
        move |why| LabError::Store { what: what.to_string(), why: why.to_string() }
    }

    pub(crate) fn missing(what: &'static str, why: impl fmt::Display) -> LabError {
        LabError::Missing { what, why: why.to_string() }
    }

    /// What is missing, if this is the sentence of a `Missing`.
    pub(crate) fn lacks(sentence: &str) -> Option<&str> {
        sentence.strip_suffix(')')?.split_once(IS_MISSING).map(|(what, _)| what)
    }

    /// 2 where the command line is at fault, else 1.
    pub(crate) fn exit_code(&self) -> u8 {
        if matches!(self, LabError::Usage(_)) { 2 } else { 1 }
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LabError::Usage(what) => f.write_str(what),
            LabError::Io { what, source } => write!(f, "{what}: {source}"),
            LabError::Missing { what, why } => write!(f, "{what}{IS_MISSING}{why})"),
            LabError::Wrong(what) => write!(f, "wrong answer: {what}"),
            LabError::Store { what, why } => write!(f, "{what}: {why}"),
        }
    }
}

impl std::error::Error for LabError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LabError::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}
