//! A disk of ours as a file, served by a process of its own: `server`, started by this program.
//!
//! Invariants
//! - The process is told to end by the end of its standard input, and killed if it does not; what
//!   it had mounted then is unmounted here.

use super::server::{INSIDE, READY};
use crate::frame::Lab;
use crate::ground::{Deferred, GuardedChild, LabError, PrivateDirectory};
use crate::kernel::{MmStat, Requests};
use codec::Codec;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use zsmalloc::Rule;
use zsmalloc::study::LockDesign;

/// For the server to unmount and end.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is served.
pub(super) struct Config {
    pub(super) design: LockDesign,
    pub(super) chain_order: u32,
    pub(super) rule: Rule,
    pub(super) algorithm: Codec,
    pub(super) size: u64,
    pub(super) requests: Requests,
}

/// A tree that is served.
pub(super) struct Served {
    child: GuardedChild,
    /// After the child: it must have unmounted.
    _unmounted: Deferred,
    directory: PrivateDirectory,
}

impl Served {
    pub(super) fn start(config: &Config, lab: &Lab) -> Result<Served, LabError> {
        let directory = PrivateDirectory::new(&lab.cleanup)?;
        let doomed = directory.path().to_owned();
        let unmounted = lab.cleanup.defer(move || {
            // Not mounted any more where the server ended in order.
            let _ = Command::new("umount").args(["--lazy", "--quiet"]).arg(doomed).output();
        });
        let program = std::env::current_exe().map_err(LabError::io("this program"))?;
        let mut command = Command::new(program);
        command.arg(INSIDE.name).arg("--dir").arg(directory.path());
        command.args(["--size", &config.size.to_string()]);
        command.args(["--algorithm", &config.algorithm.to_string()]);
        command.args(["--chain-order", &config.chain_order.to_string()]);
        command.args(["--rule", config.rule.name()]);
        command.args(["--design", config.design.name()]);
        command.args(["--requests", config.requests.name()]);
        let _offer = config.requests.offer(&lab.cleanup)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = lab.cleanup.spawn(&mut command)?;
        let served = Served { child, _unmounted: unmounted, directory };
        served.await_ready()?;
        Ok(served)
    }

    /// The disk, a file.
    pub(super) fn disk(&self) -> PathBuf {
        self.directory.path().join("zram0/disk")
    }

    pub(super) fn mm_stat(&self) -> Result<MmStat, LabError> {
        let path = self.directory.path().join("zram0/mm_stat");
        let text = fs::read_to_string(&path).map_err(LabError::io(path.display()))?;
        MmStat::parse(&text)
            .ok_or_else(|| LabError::Wrong(format!("mm_stat is not understood: {text}")))
    }

    /// The `classes` table of its pool.
    pub(super) fn classes(&self) -> Result<String, LabError> {
        let path = self.directory.path().join("zram0/zsmalloc/classes");
        fs::read_to_string(&path).map_err(LabError::io(path.display()))
    }

    fn await_ready(&self) -> Result<(), LabError> {
        let mut line = String::new();
        if let Some(output) = self.child.stdout() {
            BufReader::new(output).read_line(&mut line).map_err(LabError::io("the server"))?;
        }
        let why = || LabError::missing("a FUSE mount", line.trim());
        (line.trim() == READY).then_some(()).ok_or_else(why)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // The end of its input tells it to end.
        drop(self.child.stdin());
        // If it does not, it is killed with the child's guard.
        let _ = self.child.wait(PATIENCE);
    }
}
