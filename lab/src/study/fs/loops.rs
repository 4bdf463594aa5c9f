//! A file as a block device.

use super::tool;
use crate::frame::Lab;
use crate::ground::{Deferred, LabError};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A loop device; gone when dropped.
pub(super) struct Loop {
    device: PathBuf,
    _deferred: Deferred,
}

impl Loop {
    /// One that passes the page cache by: what is written is in the file, not in memory twice.
    pub(super) fn over(file: &Path, lab: &Lab) -> Result<Loop, LabError> {
        let mut command = Command::new("losetup");
        command.args(["--find", "--show", "--direct-io=on", "--sector-size=4096"]).arg(file);
        let said = tool::run(command, "util-linux", lab)?;
        let device = PathBuf::from(said.trim());
        let doomed = device.clone();
        let deferred = lab.cleanup.defer(move || {
            // It may be gone already.
            let _ = Command::new("losetup").arg("--detach").arg(doomed).output();
        });
        Ok(Loop { device, _deferred: deferred })
    }

    pub(super) fn device(&self) -> &Path {
        &self.device
    }
}
