//! What to mount, and where: the settings of a mount.
//!
//! Invariant: only plain values, which the mount takes over. Locks: none.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

/// Is told, in a line, why something was refused.
pub type Complain = dyn Fn(&str) + Send + Sync;

/// A text file in the root of the tree, about the memory of all devices.
#[derive(Clone)]
pub struct TextFile {
    /// Its name.
    pub name: &'static str,
    /// Its permission bits.
    pub mode: u16,
    /// Makes the text; waits for nothing.
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
    /// The directory: empty, or yet to be made.
    pub directory: PathBuf,
    /// Threads, at least two; one of them is always free for those who only look.
    pub threads: usize,
    /// Files in the root.
    pub texts: Vec<TextFile>,
    /// Is told of commands that were refused: the number an error has says little.
    pub complain: Arc<Complain>,
}

impl fmt::Debug for FuseConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FuseConfig")
            .field("directory", &self.directory)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}
