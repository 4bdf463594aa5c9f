//! The directory over which a disk is mounted: found, judged, made.
//!
//! | found | done |
//! |---|---|
//! | an empty directory | mounted over |
//! | nothing | the directory is made, and goes again with the mount |
//! | not even a parent directory | refused, because the path may be mistyped |
//! | a mount, a file, files in it | refused |
//!
//! Invariant: a path is resolved without asking what is mounted at its end, because that may be
//! dead. Locks: none.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serve::fuse::mounted_at;

use super::way::Way;
use crate::line::Failure;

/// A directory that can be mounted over.
pub(super) struct Target {
    pub(super) directory: PathBuf,
    /// Whether it is missing, and is made here.
    pub(super) made: bool,
}

impl Target {
    /// Judges a directory.
    pub(super) fn judge(path: &Path) -> Result<Target, Failure> {
        let failed = |why: &dyn std::fmt::Display| Failure::about(path.display(), why);
        let directory = resolve(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound if fs::read_link(path).is_ok() => {
                failed(&"it is a link to nothing")
            }
            io::ErrorKind::NotFound => failed(&"its parent directory does not exist"),
            _ => failed(&error),
        })?;
        let mounted = || {
            mounted_at(&directory).map(|mounted| {
                let (kind, source) = (mounted.kind, mounted.source);
                let why = format!("{kind} is mounted there already ({})", source.display());
                failed(&format!("{why}; ramfold umount, or umount, ends that"))
            })
        };
        if let Some(why) = mounted() {
            return Err(why);
        }
        let first = fs::read_dir(&directory).map(|mut entries| entries.next());
        let made = match first {
            Ok(None) => false,
            Ok(Some(_)) => {
                let full = || failed(&"it is not empty; what is in it would be hidden");
                return Err(mounted().unwrap_or_else(full));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
                return Err(failed(&"it is not a directory"));
            }
            Err(error) => return Err(failed(&error)),
        };
        Ok(Target { directory, made })
    }

    /// Makes the directory if it was missing. Nobody else mounts over it, so it is this disk's.
    pub(super) fn make(&self) -> Result<(), Failure> {
        let made = self.made.then(|| DirBuilder::new().mode(0o755).create(&self.directory));
        let made = made.unwrap_or(Ok(()));
        made.map_err(|error| Failure::about(self.directory.display(), error))
    }

    /// Removes the directory if it was made here.
    pub(super) fn undo(&self) {
        if self.made {
            // Something may be in it by now, which is not ours to remove.
            let _ = fs::remove_dir(&self.directory);
        }
    }
}

/// The path without symbolic links. The file system that is mounted at its end is not asked.
pub(super) fn resolve(path: &Path) -> io::Result<PathBuf> {
    if fs::read_link(path).is_ok() {
        return fs::canonicalize(path);
    }
    let path = std::path::absolute(path)?;
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => {
            let found = fs::canonicalize(parent)?.join(name);
            // With a slash at its end, a link was not seen as one.
            if fs::read_link(&found).is_ok() { fs::canonicalize(found) } else { Ok(found) }
        }
        _ => fs::canonicalize(path), // the root, or a path that ends with `..`
    }
}

/// Why a directory stays mounted.
#[derive(Debug)]
pub(super) enum Stays {
    /// It is in use, by these.
    Busy(Vec<String>),
    Failed(String),
}

impl std::fmt::Display for Stays {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Stays::Busy(users) if users.is_empty() => {
                f.write_str("in use by a process that this user may not see")
            }
            Stays::Busy(users) => write!(f, "in use by {}", users.join(", ")),
            Stays::Failed(why) => f.write_str(why),
        }
    }
}

/// Unmounts a directory, after what was written is on the disk.
pub(super) fn unmount(directory: &Path, way: Way, lazily: bool) -> Result<(), Stays> {
    let by_user = way == Way::Fuse2fs && !rustix::process::geteuid().is_root();
    let (program, how) = match (by_user, lazily) {
        (true, true) => ("fusermount3", "-uz"),
        (true, false) => ("fusermount3", "-u"),
        (false, true) => ("umount", "-l"),
        (false, false) => ("umount", "--"),
    };
    let mut command = super::tools::command(program).map_err(|e| Stays::Failed(e.to_string()))?;
    let output = command.arg(how).arg(directory).output();
    let output = output.map_err(|error| Stays::Failed(format!("{program}: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let said = super::tools::said(&output.stderr, &output.status.to_string());
    match said.contains("target is busy") || said.contains("resource busy") {
        true => Err(Stays::Busy(super::users::of(directory))),
        false => Err(Stays::Failed(format!("{program}: {said}"))),
    }
}
