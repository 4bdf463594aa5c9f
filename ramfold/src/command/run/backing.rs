//! The disk behind the stores of a run: a directory, in which each process makes files of its own.
//!
//! The files have no name, so they are gone when the last process has ended, however it ends.
//!
//! Invariant: what the processes cannot do there is told before the program starts. Locks: none.

use std::io;
use std::path::{Path, PathBuf};

use inside::board::{BACKING_LEN, Board};
use rustix::fs::statfs;
use rustix::io::Errno;

use crate::line::Failure;

/// `TMPFS_MAGIC` of `linux/magic.h`.
const TMPFS: i64 = 0x0102_1994;

/// The directory that was asked for.
pub(super) struct Backing {
    path: PathBuf,
}

impl Backing {
    /// A directory in which pages can be kept.
    pub(super) fn of(given: &Path) -> Result<Backing, Failure> {
        let refused =
            |why: String| Failure::Failed(format!("--backing {}: {why}", given.display()));
        // The program may change its directory.
        let path = given.canonicalize().map_err(|error| refused(error.to_string()))?;
        if !path.is_dir() {
            return Err(refused("not a directory".to_owned()));
        }
        if path.as_os_str().len() >= BACKING_LEN {
            let why = format!("its whole path is longer than {} bytes", BACKING_LEN - 1);
            return Err(refused(why));
        }
        inside::can_back(&path).map_err(|error| refused(why_not(&error)))?;
        Ok(Backing { path })
    }

    /// Why it saves nothing, if that is so.
    pub(super) fn warning(&self) -> Option<String> {
        let is_memory = statfs(&self.path).is_ok_and(|system| i64::from(system.f_type) == TMPFS);
        let given = self.path.display();
        is_memory.then(|| format!("--backing {given} is in memory (tmpfs), so pages there take it"))
    }

    /// Tells the processes of the run.
    pub(super) fn tell(&self, board: &Board) {
        // Its length was looked at.
        board.set_backing(&self.path);
    }

    /// What pages that do not fit become.
    pub(super) fn explain(&self) -> String {
        format!("pages that do not fit go to files without a name in {}", self.path.display())
    }

    /// What the disk refused, as a line.
    pub(super) fn refused(&self, pages: u64, errno: u64) -> Option<String> {
        let reason = io::Error::from_raw_os_error(i32::try_from(errno).unwrap_or(0));
        let reason = Errno::from_io_error(&reason).map_or_else(String::new, |_| reason.to_string());
        let times = crate::line::size::count(pages, "page");
        let path = self.path.display();
        (pages > 0).then(|| format!("{path} refused {times}, which stayed in memory: {reason}"))
    }
}

fn why_not(error: &io::Error) -> String {
    match Errno::from_io_error(error) {
        Some(Errno::OPNOTSUPP | Errno::ISDIR) => {
            "its file system has no files without a name (O_TMPFILE)".to_owned()
        }
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_refused_is_told_with_the_reason() {
        let backing = Backing { path: "/disk".into() };
        assert_eq!(backing.refused(0, 0), None);
        let line = backing.refused(7, 28).expect("a line");
        assert!(
            line.starts_with("/disk refused 7 pages, which stayed in memory: No space"),
            "{line}"
        );
    }

    #[test]
    fn a_directory_without_such_files_is_refused_in_words() {
        let proc = Backing::of(Path::new("/proc"));
        let Err(Failure::Failed(line)) = proc else { panic!("no files can be made there") };
        assert!(line.starts_with("--backing /proc: "), "{line}");
        assert!(why_not(&Errno::OPNOTSUPP.into()).contains("O_TMPFILE"));
        assert!(why_not(&Errno::ISDIR.into()).contains("O_TMPFILE"));
    }
}
