//! What to mount, and where: the settings of a mount.
//!
//! Invariant: only plain values, which the mount takes over. Locks: none.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// A function that is told in one line why a command was refused.
pub type Complain = dyn Fn(&str) + Send + Sync;

/// A text file in the root of the tree, about the memory of all devices.
#[derive(Clone)]
pub struct TextFile {
    /// Its name.
    pub name: &'static str,
    /// Its permission bits.
    pub mode: u16,
    /// Makes the text. It must not wait.
    pub text: Arc<dyn Fn() -> String + Send + Sync>,
}

impl fmt::Debug for TextFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TextFile")
            .field("name", &self.name)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

/// What to mount, and where.
#[derive(Clone)]
pub struct FuseConfig {
    /// The directory. It must be empty or not exist yet.
    pub directory: PathBuf,
    /// How many threads serve the mount, at least two. One is always free for quick requests.
    pub threads: usize,
    /// Whether requests may come by io_uring. They do if the system allows it.
    pub io_uring: bool,
    /// Text files in the root of the tree.
    pub texts: Vec<TextFile>,
    /// It is told why a command was refused, because an error number says little.
    pub complain: Arc<Complain>,
}

impl fmt::Debug for FuseConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FuseConfig")
            .field("directory", &self.directory)
            .field("threads", &self.threads)
            .field("io_uring", &self.io_uring)
            .finish_non_exhaustive()
    }
}
