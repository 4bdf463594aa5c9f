//! Settings of the system that a study of swapping changes.
//!
//! Invariant: what is put back is what was found, and nothing is written that is so already.

use super::text::selected;
use crate::ground::LabError;
use serde_json::{Value, json};
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

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

    /// For the lock file; `of_note` is the way back.
    pub(super) fn note(&self) -> Value {
        self.0.iter().map(|(path, value)| json!([path.to_string_lossy(), value])).collect()
    }

    pub(super) fn of_note(note: &Value) -> Option<Settings> {
        let one = |pair: &Value| Some((pair[0].as_str()?.into(), pair[1].as_str()?.to_owned()));
        note.as_array()?.iter().map(one).collect::<Option<_>>().map(Settings)
    }

    /// Forgets the files under a directory.
    pub(super) fn leave_alone(&mut self, directory: &Path) {
        self.0.retain(|(path, _)| !path.starts_with(directory));
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
pub(crate) fn needs_root() -> Result<(), String> {
    let root = fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0);
    root.then_some(()).ok_or_else(|| "needs root".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_back_from_a_note_but_for_those_left_alone() {
        let one = |path: &str| (path.into(), "a value".to_owned());
        let found = Settings(vec![one("/sys/block/zram7/comp_algorithm"), one(CLUSTER)]);
        let mut again = Settings::of_note(&found.note()).unwrap();
        assert_eq!(again.0, found.0);
        again.leave_alone(Path::new("/sys/block/zram7"));
        assert_eq!(again.0, [one(CLUSTER)]);
        assert!(Settings::of_note(&json!([["a path"]])).is_none());
    }
}
