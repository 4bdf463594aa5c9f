//! The backing device that was typed: a path, or the address of a server.
//!
//! Invariant: nothing is written here. Locks: none.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use disk::NbdDisk;

use super::log::Log;
use crate::line::Failure;

/// So many bytes of a backing file are looked at. The first superblock of a file system is within
/// them (btrfs at 64 KiB, ZFS within 256 KiB).
const HEAD_BYTES: u64 = 256 << 10; // 256 KiB

/// What is written to `backing_dev`: the address of a server as it was typed, or a whole path.
pub(super) fn path(typed: &Path, log: &Log) -> Result<PathBuf, Failure> {
    if typed.to_str().is_some_and(NbdDisk::is_address) {
        return Ok(typed.to_owned());
    }
    warn_of_content(typed, log);
    std::path::absolute(typed).map_err(|error| Failure::about("--backing", error))
}

/// Warns if a backing file has content, because it will be overwritten.
fn warn_of_content(path: &Path, log: &Log) {
    // Anything else is refused later, and so is a file without a length. Reading them might wait.
    let may_be_read = |status: fs::Metadata| {
        status.file_type().is_block_device() || status.is_file() && status.len() > 0
    };
    if !fs::metadata(path).is_ok_and(may_be_read) {
        return;
    }
    let mut head = Vec::new();
    let read = File::open(path).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
    if read.is_ok() && head.iter().any(|&byte| byte != 0) {
        log.complain(format!(
            "warning: --backing {} is not empty; what it holds is overwritten",
            path.display()
        ));
    }
}
