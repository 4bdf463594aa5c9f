//! Where pages come from: files, or the copy of a process.
//!
//! Invariant: a page reads the same each time unless its file is written to meanwhile. Then
//! `suspect` says so. Locks: none.

use std::path::PathBuf;

use super::device::Page;
use super::files::Files;
use super::process::Snapshot;
use crate::line::Failure;

/// Pages by number.
pub(crate) enum Source {
    Files(Files),
    Process(Box<Snapshot>),
}

impl Source {
    /// The files' pages, in the order given.
    pub(crate) fn of_files(paths: &[PathBuf]) -> Result<Source, Failure> {
        Files::open(paths).map(Source::Files)
    }

    /// The resident anonymous pages of a process, held compressed within `limit` bytes.
    pub(crate) fn of_process(pid: u32, limit: u64) -> Result<Source, Failure> {
        Ok(Source::Process(Box::new(Snapshot::take(pid, limit)?)))
    }

    pub(crate) fn pages(&self) -> u64 {
        match self {
            Source::Files(files) => files.pages(),
            Source::Process(snapshot) => snapshot.pages(),
        }
    }

    /// The source has every so many of the pages that there were.
    pub(crate) fn stride(&self) -> u64 {
        match self {
            Source::Files(_) => 1,
            Source::Process(snapshot) => snapshot.stride(),
        }
    }

    /// How many pages could not be read.
    pub(crate) fn unread(&self) -> u64 {
        match self {
            Source::Files(_) => 0,
            Source::Process(snapshot) => snapshot.unread(),
        }
    }

    pub(crate) fn read(&self, number: u64, page: &mut Page) -> Result<(), Failure> {
        match self {
            Source::Files(files) => files.read(number, page),
            Source::Process(snapshot) => snapshot.read(number, page),
        }
    }

    /// Why this page may have come back different although nothing here is wrong.
    pub(crate) fn suspect(&self, number: u64) -> Option<String> {
        match self {
            Source::Files(files) => files.suspect(number),
            Source::Process(_) => None,
        }
    }
}
