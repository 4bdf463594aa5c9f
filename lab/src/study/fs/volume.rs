//! A file system on a store, mounted.
//!
//! ```text
//!   ours:     server process -> DIR/zram0/disk -> loop device \
//!   kernel:                                       /dev/zram0   > mkfs -> mount -> path
//! ```
//!
//! Invariants
//! - V1 everything made is undone, newest first, when the volume is dropped or a signal comes.
//! - V2 a volume whose `end` succeeds was mounted anew and read back the same, and its file system
//!   has no defect.

use super::classes::{self, Class};
use super::loops::Loop;
use super::served::{self, Served};
use super::tool;
use super::workload::digest;
use crate::frame::Lab;
use crate::ground::{Deferred, LabError, PrivateDirectory};
use crate::kernel::{KernelZram, MmStat};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The file systems measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum FileSystem {
    /// As `mkfs.ext4` makes it
    Ext4,
    /// As `ramfold mount` makes it: without a journal
    Ext4Unjournaled,
    /// As `mkfs.btrfs` makes it
    Btrfs,
}

impl FileSystem {
    pub(super) fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Ext4Unjournaled => "ext4-unjournaled",
            FileSystem::Btrfs => "btrfs",
        }
    }

    /// Unused blocks are not discarded beforehand: the disk is empty.
    fn make(self, device: &Path, lab: &Lab) -> Result<(), LabError> {
        let (program, options, package) = match self {
            FileSystem::Ext4 => {
                ("mkfs.ext4", &["-q", "-F", "-E", "nodiscard,lazy_itable_init=0"][..], "e2fsprogs")
            }
            FileSystem::Ext4Unjournaled => (
                "mkfs.ext4",
                &["-q", "-F", "-b", "4096", "-m", "0", "-O", "^has_journal", "-E", "nodiscard"][..],
                "e2fsprogs",
            ),
            FileSystem::Btrfs => ("mkfs.btrfs", &["-q", "-f", "-K"][..], "btrfs-progs"),
        };
        let mut command = Command::new(program);
        command.args(options).arg(device);
        tool::run(command, package, lab).map(drop)
    }

    /// The file system's own check, of one that is not mounted.
    fn check(self, device: &Path, lab: &Lab) -> Result<(), LabError> {
        let (program, options, package) = match self {
            FileSystem::Ext4 | FileSystem::Ext4Unjournaled => {
                ("e2fsck", &["-f", "-n"][..], "e2fsprogs")
            }
            FileSystem::Btrfs => ("btrfs", &["check", "--readonly"][..], "btrfs-progs"),
        };
        let mut command = Command::new(program);
        command.args(options).arg(device);
        tool::run(command, package, lab).map(drop)
    }
}

/// As `ramfold mount` has it: each flush would be a request to the loop device, and nothing below
/// it has to be flushed. The system knows of the kernel's zram that it needs no flush, so the
/// option changes nothing there.
const WITHOUT_FLUSHES: [&str; 2] = ["-o", "nobarrier"];

/// What is below the file system; dropped after the mount.
enum Below<'a> {
    Ours { disk: Loop, server: Served },
    Kernel(&'a KernelZram),
}

/// A mounted file system.
pub(super) struct Volume<'a> {
    fs: FileSystem,
    mount: Option<Mount>,
    directory: PrivateDirectory,
    below: Below<'a>,
}

impl<'a> Volume<'a> {
    /// On a disk of ours, served by a process of its own.
    pub(super) fn ours(
        fs: FileSystem,
        config: &served::Config,
        lab: &Lab,
    ) -> Result<Volume<'a>, LabError> {
        let server = Served::start(config, lab)?;
        let disk = Loop::over(&server.disk(), lab)?;
        Volume::on(fs, Below::Ours { disk, server }, lab)
    }

    /// On the kernel's device, which was set up.
    pub(super) fn kernel(
        fs: FileSystem,
        peer: &'a KernelZram,
        lab: &Lab,
    ) -> Result<Volume<'a>, LabError> {
        peer.close()?;
        Volume::on(fs, Below::Kernel(peer), lab)
    }

    fn on(fs: FileSystem, below: Below<'a>, lab: &Lab) -> Result<Volume<'a>, LabError> {
        fs.make(&below.device(), lab)?;
        let directory = PrivateDirectory::new(&lab.cleanup)?;
        let mount = Mount::new(&below.device(), directory.path(), &WITHOUT_FLUSHES, lab)?;
        Ok(Volume { fs, mount: Some(mount), directory, below })
    }

    /// Where it is mounted.
    pub(super) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(super) fn mm_stat(&self) -> Result<MmStat, LabError> {
        match &self.below {
            Below::Ours { server, .. } => server.mm_stat(),
            Below::Kernel(peer) => peer.mm_stat(),
        }
    }

    /// The classes that a disk of ours has in use; none of the kernel's, which shows no table.
    pub(super) fn classes(&self) -> Result<Vec<Class>, LabError> {
        match &self.below {
            Below::Ours { server, .. } => Ok(classes::in_use(&server.classes()?)),
            Below::Kernel(_) => Ok(Vec::new()),
        }
    }

    /// Unmounts, checks, mounts anew, compares, and takes everything apart.
    pub(super) fn end(mut self, lab: &Lab) -> Result<(), LabError> {
        let device = self.below.device();
        let before = digest(self.path())?;
        self.unmount(lab)?;
        self.fs.check(&device, lab)?;
        self.mount = Some(Mount::new(&device, self.path(), &["-o", "ro"], lab)?);
        let after = digest(self.path())?;
        self.unmount(lab)?;
        let differs =
            || LabError::Wrong(format!("{}: files differ after a remount", self.fs.name()));
        (before == after).then_some(()).ok_or_else(differs)
    }

    fn unmount(&mut self, lab: &Lab) -> Result<(), LabError> {
        self.mount.take().map_or(Ok(()), |mount| mount.end(lab))
    }
}

impl Below<'_> {
    fn device(&self) -> PathBuf {
        match self {
            Below::Ours { disk, .. } => disk.device().to_owned(),
            Below::Kernel(peer) => peer.device(),
        }
    }
}

/// A mount; gone when dropped, if need be only once nobody uses it any more.
struct Mount {
    path: PathBuf,
    _deferred: Deferred,
}

impl Mount {
    fn new(device: &Path, path: &Path, options: &[&str], lab: &Lab) -> Result<Mount, LabError> {
        let mut command = Command::new("mount");
        command.args(options).arg(device).arg(path);
        tool::run(command, "mount", lab)?;
        let (path, doomed) = (path.to_owned(), path.to_owned());
        let deferred = lab.cleanup.defer(move || {
            // Not mounted any more where it was unmounted in order.
            let _ = Command::new("umount").args(["--lazy", "--quiet"]).arg(doomed).output();
        });
        Ok(Mount { path, _deferred: deferred })
    }

    fn end(self, lab: &Lab) -> Result<(), LabError> {
        let mut command = Command::new("umount");
        command.arg(&self.path);
        tool::run(command, "mount", lab).map(drop)
    }
}
