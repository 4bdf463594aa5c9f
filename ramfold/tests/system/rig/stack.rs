//! Loop devices and file systems, which are undone at the end of a test.
//!
//! Invariant: they are undone in the reverse order, even if the test fails. A device or a mount
//! that cannot be undone is named.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::spaces::{Entered, Space};
use super::{succeed, tool};

/// A loop device over a file, until dropped.
pub(crate) struct Loop {
    pub(crate) device: String,
}

impl Loop {
    /// A loop device that uses the page cache.
    pub(crate) fn attach(file: &Path) -> Loop {
        Loop::with(&[], file)
    }

    /// Past the page cache, in blocks of a page, because the file is memory itself.
    pub(crate) fn direct(file: &Path) -> Loop {
        Loop::with(&["--direct-io=on", "--sector-size", "4096"], file)
    }

    fn with(how: &[&str], file: &Path) -> Loop {
        let mut losetup = tool("losetup");
        let device = succeed(losetup.args(["--find", "--show"]).args(how).arg(file));
        Loop { device: device.trim().to_string() }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        undo(tool("losetup").args(["--detach", &self.device]));
    }
}

/// A mounted file system, until dropped.
pub(crate) struct Mount {
    pub(crate) directory: PathBuf,
    /// Dropped after it was unmounted.
    _space: Entered,
}

impl Mount {
    pub(crate) fn of(device: &str, directory: PathBuf) -> Mount {
        let _space = Space::Mount.enter();
        std::fs::create_dir_all(&directory).expect("a mount point can be made");
        succeed(tool("mount").arg(device).arg(&directory));
        Mount { directory, _space }
    }

    /// Files in memory, so many bytes at most.
    pub(crate) fn memory(directory: PathBuf, bytes: u64) -> Mount {
        let _space = Space::Mount.enter();
        std::fs::create_dir_all(&directory).expect("a mount point can be made");
        let size = format!("size={bytes}");
        let mut mount = tool("mount");
        succeed(mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(&directory));
        Mount { directory, _space }
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        undo(tool("umount").arg(&self.directory));
    }
}

/// Clean-up that says what it could not undo, and goes on.
pub(crate) fn undo(command: &mut Command) {
    match command.status() {
        Ok(status) if status.success() => {}
        status => eprintln!("left behind, {command:?}: {status:?}"),
    }
}
