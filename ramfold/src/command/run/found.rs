//! The runs of this user: their directories, and which of them are over.
//!
//! ```text
//!   a process of the run lives       its directory stays
//!   ramfold run lives                the same
//!   neither                          it is removed, and told of if it was killed
//!   another namespace                nothing is known: it stays
//! ```
//!
//! Invariant: only directories that are private to this user are looked into. Locks: none.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use inside::board::Board;

use super::about::About;
use super::process;

pub(super) const LIBRARY_NAME: &str = "libramfold_inside.so";
pub(super) const BOARD: &str = "board";
/// Before the number of the process, in the name of a directory.
pub(super) const PREFIX: &str = "run-";

/// Whether processes of a run still live.
pub(super) fn is_used(directory: &Path) -> bool {
    let Ok(board) = Board::look_at(&directory.join(BOARD)) else { return false };
    board.living().any(|slot| process::has_pager(slot.owner.pid() as u32))
}

/// Directories in which this user's runs may lie, the best first. They need not be there.
pub(super) fn bases() -> Vec<PathBuf> {
    let name = format!("ramfold-{}", rustix::process::getuid().as_raw());
    let parents = [std::env::temp_dir(), PathBuf::from("/dev/shm"), PathBuf::from("/var/tmp")];
    let others = parents.into_iter().map(|parent| parent.join(&name));
    let mut bases = vec![serve::runtime::directory()];
    others.for_each(|base| {
        if !bases.contains(&base) {
            bases.push(base);
        }
    });
    bases
}

/// A directory of a run.
pub(crate) struct Found {
    directory: PathBuf,
    pid: u32,
    /// `None` while the run is being prepared.
    pub(crate) about: Option<About>,
}

/// The directories of this user's runs, in the order of their numbers.
pub(crate) fn found() -> Vec<Found> {
    let private = bases().into_iter().filter(|base| serve::runtime::is_private(base));
    let mut all: Vec<Found> = private.flat_map(|base| found_in(&base)).collect();
    all.sort_by_key(|found| found.pid);
    all
}

fn found_in(base: &Path) -> Vec<Found> {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    let found = entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.strip_prefix(PREFIX)?.parse().ok()?;
        let directory = entry.path();
        Some(Found { about: About::read(&directory), pid, directory })
    });
    found.collect()
}

/// Removes what runs have left that were killed.
pub(super) fn remove_abandoned(base: &Path) {
    found_in(base).iter().for_each(|found| drop(found.clear()));
}

impl Found {
    /// Whether nothing of the run lives. This is not known of a run in another namespace.
    fn is_over(&self) -> bool {
        let is_over = match &self.about {
            Some(about) => !about.is_elsewhere() && !about.is_looked_after(),
            None => process::has_ended(self.pid),
        };
        is_over && !is_used(&self.directory)
    }

    /// Removes the directory if the run is over. Gives a line about it, if it was killed.
    pub(crate) fn clear(&self) -> Option<String> {
        if !self.is_over() || fs::remove_dir_all(&self.directory).is_err() {
            return None;
        }
        let about = self.about.as_ref().filter(|about| !about.ended)?;
        let (pid, name) = (about.pid, about.name());
        Some(format!("run {pid} of {name} was killed; what it left is removed now"))
    }

    /// The board, to look at.
    pub(crate) fn board(&self) -> io::Result<Board> {
        Board::look_at(&self.directory.join(BOARD))
    }

    pub(crate) fn library(&self) -> PathBuf {
        self.directory.join(LIBRARY_NAME)
    }
}
