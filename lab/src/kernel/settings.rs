//! Settings of the system that a study of swapping changes, and the lock that keeps two labs apart.
//!
//! Invariant: what is put back is what was found, and nothing is written that is so already.

use super::text::selected;
use crate::error::LabError;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const LOCK_FILE: &str = "/run/lock/ramfold-lab-zram.lock";
/// Read-ahead of swapped pages, a power of two of them.
pub(super) const CLUSTER: &str = "/proc/sys/vm/page-cluster";
pub(super) const ZSWAP: &str = "/sys/module/zswap/parameters";
const SYSTEM: [&str; 8] = [
    CLUSTER,
    "/sys/module/zswap/parameters/enabled",
    "/sys/module/zswap/parameters/compressor",
    "/sys/module/zswap/parameters/max_pool_percent",
    "/sys/module/zswap/parameters/accept_threshold_percent",
    "/sys/module/zswap/parameters/shrinker_enabled",
    "/sys/module/zswap/parameters/non_same_filled_pages_enabled",
    "/sys/module/zswap/parameters/same_filled_pages_enabled",
];

/// Files and what was in them.
#[derive(Default)]
pub(super) struct Settings(Vec<(PathBuf, String)>);

impl Settings {
    /// What of the system's is there.
    pub(super) fn of_system() -> Settings {
        let mut found = Settings::default();
        SYSTEM.iter().for_each(|path| found.remember(Path::new(path)));
        found
    }

    /// Adds a file, if it can be read.
    pub(super) fn remember(&mut self, path: &Path) {
        if let Ok(value) = fs::read_to_string(path) {
            let value = selected(&value).unwrap_or(value.trim()).to_owned();
            self.0.push((path.to_owned(), value));
        }
    }

    /// Writes what was found where it is otherwise now.
    pub(super) fn put_back(&self) -> Result<(), String> {
        for (path, value) in &self.0 {
            put_back(path, value).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }
}

fn put_back(path: &Path, value: &str) -> io::Result<()> {
    let now = fs::read_to_string(path)?;
    let now = selected(&now).unwrap_or(now.trim());
    if now == value { Ok(()) } else { fs::write(path, value) }
}

/// The read-ahead of swapped pages that is set now.
pub(crate) fn page_cluster() -> Result<u64, LabError> {
    let set = fs::read_to_string(CLUSTER).map_err(LabError::io(CLUSTER))?;
    set.trim().parse().map_err(LabError::store(CLUSTER))
}

/// Whether swap and block devices may be changed by us.
pub(super) fn needs_root() -> Result<(), String> {
    let root = fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0);
    root.then_some(()).ok_or_else(|| "needs root".into())
}

/// Held as long as the file is open.
pub(super) fn lock_file() -> Result<File, String> {
    let cannot = |error: &dyn std::fmt::Display| format!("{LOCK_FILE}: {error}");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false);
    let file = options.open(LOCK_FILE).map_err(|error| cannot(&error))?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(fs::TryLockError::WouldBlock) => Err("another lab is measuring it".into()),
        Err(error) => Err(cannot(&error)),
    }
}
