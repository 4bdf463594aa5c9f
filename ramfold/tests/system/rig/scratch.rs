//! Directories that are removed at the end of a test.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// A short-named directory for sockets, whose paths may have 107 bytes, and one for large files on
/// the disk that holds the build.
pub(crate) struct Scratch {
    directory: PathBuf,
    large: PathBuf,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        // Short: fs_mark ends with an overflow if a directory's path is longer.
        let name = format!("ramfold-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(&name);
        let large = Path::new(env!("CARGO_TARGET_TMPDIR")).join(&name);
        for path in [&directory, &large] {
            std::fs::create_dir_all(path).expect("temporary directories can be made");
        }
        Scratch { directory, large }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(crate) fn large(&self, name: &str) -> PathBuf {
        self.large.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for path in [&self.directory, &self.large] {
            if let Err(error) = std::fs::remove_dir_all(path) {
                eprintln!("left behind: {}: {error}", path.display());
            }
        }
    }
}
