//! Directories of the lab's own, removed at the end, also on a signal.

use super::{Cleanup, Deferred, LabError};
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// A directory nobody else looks into.
pub(crate) struct PrivateDirectory {
    path: PathBuf,
    _deferred: Deferred,
}

impl PrivateDirectory {
    /// A new one in the temporary directory.
    pub(crate) fn new(cleanup: &Cleanup) -> Result<PrivateDirectory, LabError> {
        let path = create().map_err(LabError::io("a directory of the lab's own"))?;
        let doomed = path.clone();
        let deferred = cleanup.defer(move || {
            // It may be gone already; nothing else can be done about what is left.
            let _ = fs::remove_dir_all(doomed);
        });
        Ok(PrivateDirectory { path, _deferred: deferred })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// The first name of ours that is not taken.
fn create() -> io::Result<PathBuf> {
    const OWNER_ONLY: u32 = 0o700;
    let mut number = 0;
    loop {
        let name = format!("lab-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        match fs::DirBuilder::new().mode(OWNER_ONLY).create(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            result => return result.map(|()| path),
        }
    }
}
