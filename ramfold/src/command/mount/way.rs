//! How a disk becomes a file system: by the kernel, or by programs of the user's.
//!
//! | way | needs | file systems |
//! |---|---|---|
//! | loop | root, `/dev/loop-control` | ext4, btrfs, xfs |
//! | fuse2fs | `/dev/fuse`, fuse2fs, and fusermount3 unless it is root | ext4 |
//! | a name space | `/dev/fuse`, fuse2fs, unshare, and a command to run | ext4 |
//!
//! In a name space the command is root of a user name space, and takes the second way.
//!
//! Invariant: the first way that the system grants is taken, and a refusal names what is missing
//! in it. Locks: none.

use std::fs::OpenOptions;
use std::io;

use rustix::process::geteuid;

use super::tools::find;
use crate::line::Failure;
use crate::line::mounting::FileSystem;

const LOOP: &str = "/dev/loop-control";
const FUSE: &str = "/dev/fuse";

/// How a disk becomes a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// A loop device, which the kernel mounts.
    Loop,
    /// The program fuse2fs.
    Fuse2fs,
}

impl Way {
    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Loop => "loop",
            Way::Fuse2fs => "fuse2fs",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Way> {
        [Way::Loop, Way::Fuse2fs].into_iter().find(|way| way.name() == name)
    }

    /// The way that this process can take.
    pub(super) fn choose(fs: FileSystem) -> Result<Way, Failure> {
        if let Err(error) = open(FUSE) {
            return Err(Failure::about(FUSE, format!("{}; a disk is mounted by it", hint(&error))));
        }
        let no_loop = match geteuid().is_root() {
            true => open(LOOP).map_err(|error| format!("{LOOP}: {}", hint(&error))),
            false => Err("loop devices need root".to_owned()),
        };
        let Err(no_loop) = no_loop else { return Ok(Way::Loop) };
        if fs != FileSystem::Ext4 {
            let why = format!("{no_loop}, and without them there is only ext4 (by fuse2fs)");
            return Err(Failure::about(format!("--fs {}", fs.name()), why));
        }
        let needed = ["fuse2fs", "fusermount3"];
        let needed = needed.iter().take(if geteuid().is_root() { 1 } else { 2 });
        let missing: Vec<&str> = needed.copied().filter(|tool| find(tool).is_none()).collect();
        if missing.is_empty() {
            return Ok(Way::Fuse2fs);
        }
        let why = format!("{no_loop}, and without them it takes {}", missing.join(" and "));
        let right = match missing.contains(&"fuse2fs") {
            true => "install the package fuse2fs",
            false => "install the package fuse3, or give a command to run: -- COMMAND",
        };
        Err(Failure::Failed(format!("{why}; {right}")))
    }

    /// Whether a command needs a name space: only fusermount3 is missing, or may not mount.
    pub(super) fn needs_space() -> bool {
        !geteuid().is_root() && find("fuse2fs").is_some() && find("fusermount3").is_none()
    }
}

fn open(device: &str) -> io::Result<()> {
    OpenOptions::new().read(true).write(true).open(device).map(drop)
}

/// What the system says of a device, and what helps.
fn hint(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such device here (modprobe, or --device of a \
                                    container engine)"
            .to_owned(),
        _ => error.to_string(),
    }
}
