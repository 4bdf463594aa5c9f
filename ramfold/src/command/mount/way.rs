//! How a disk becomes a file system: by the kernel, or by programs of the user's.
//!
//! | way | needs | file systems |
//! |---|---|---|
//! | loop | root, `/dev/loop-control` | ext4, btrfs, xfs |
//! | fuse2fs | `/dev/fuse`, fuse2fs, and fusermount3 unless it is root | ext4 |
//! | a namespace | `/dev/fuse`, fuse2fs, unshare, and a command to run | ext4 |
//!
//! In a namespace the command is root of a user namespace, and takes the second way.
//!
//! fusermount3 mounts for a user because it has the set-user-id bit. Where it has none, or where
//! this process may get no rights (`no_new_privs`), it is of no use.
//!
//! Invariant: the first way that the system grants is taken, and a refusal names what is missing
//! in it. Locks: none.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;

use rustix::fs::Mode;
use rustix::process::geteuid;

use super::tools::find;
use crate::line::Failure;
use crate::line::mounting::FileSystem;

const LOOP: &str = "/dev/loop-control";
const FUSE: &str = "/dev/fuse";
const FUSERMOUNT: &str = "fusermount3";

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
        let cannot_mount = if geteuid().is_root() { None } else { cannot_mount() };
        let (lacks, right) = match (find("fuse2fs"), cannot_mount) {
            (Some(_), None) => return Ok(Way::Fuse2fs),
            (Some(_), Some(FUSERMOUNT)) => (
                FUSERMOUNT.to_owned(),
                "install the package fuse3, or give a command to run: -- COMMAND",
            ),
            (Some(_), Some(why)) => (why.to_owned(), "give a command to run: -- COMMAND"),
            (None, None) => ("fuse2fs".to_owned(), "install the package fuse2fs"),
            (None, Some(why)) => (format!("fuse2fs and {why}"), "install the package fuse2fs"),
        };
        let why = format!("{no_loop}, and without them it takes {lacks}");
        Err(Failure::Failed(format!("{why}; {right}")))
    }

    /// Whether a command needs a namespace: only fusermount3 is missing, or may not mount.
    pub(super) fn needs_space() -> bool {
        !geteuid().is_root() && find("fuse2fs").is_some() && cannot_mount().is_some()
    }
}

/// What a user lacks to mount, if it is something.
fn cannot_mount() -> Option<&'static str> {
    let Some(program) = find(FUSERMOUNT) else { return Some(FUSERMOUNT) };
    let gives_rights = fs::metadata(program)
        .is_ok_and(|it| it.uid() == 0 && Mode::from_raw_mode(it.mode()).contains(Mode::SUID));
    if !gives_rights {
        return Some("fusermount3 with the set-user-id bit");
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let value = status.lines().find_map(|line| line.strip_prefix("NoNewPrivs:"));
    let gets_none = value.is_some_and(|value| value.trim() != "0");
    gets_none.then_some("fusermount3 with rights that no_new_privs keeps from it")
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
