//! Files that are the content of loop devices, which the kernel offers as block devices.
//!
//! ```text
//!   device --> partition's disk, parts of a mapped device --> ... --> loop device --> its file
//! ```
//!
//! The process that sets up a loop device ends, and the kernel keeps the device's file open without
//! a lock on it. The path of the file is in `/sys/block/loopN/loop/backing_file`. A user of a loop
//! device therefore claims what is under it as well: a file is locked (flock), a device is opened
//! for exclusive use. A user of the file does the same for the file. So of two users the second is
//! refused, through the file or through the device. While the device is open, the kernel keeps the
//! file under it.
//!
//! A file is found by the path that the system shows. That path leads nowhere if the file was
//! deleted or is in another mount namespace. Then no process can tell which others use the file,
//! and the device is refused.
//!
//! Invariant: a claim is whole or nothing. `claim_under` returns every file under the device, each
//! opened alone, or an error, and then nothing stays claimed. A claim ends when its files are
//! dropped.
//!
//! No locks of its own.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{major, minor};

use super::open::open_alone;

/// The most devices that are looked at, one under the other. No system has so many.
const DEVICES_MAX: usize = 256;

/// Loop devices over a file, by name: `loop0`. The path must be the file's own, absolute and
/// without links. It is compared and not followed, so this does not wait for a file system that
/// hangs.
pub fn loops_over(file: &Path) -> Vec<String> {
    let over = |backing: &Path| backing == file;
    loops().filter(|(_, backing)| over(backing)).map(|(name, _)| name).collect()
}

/// As `loops_over`, for a file that was opened. A file with several names is found by any of them.
pub(crate) fn loops_over_opened(path: &Path, file: &Metadata) -> io::Result<Vec<String>> {
    let own = path.canonicalize()?;
    let same = |it: Metadata| (it.dev(), it.ino()) == (file.dev(), file.ino());
    // Only if the file has several names are the files of other paths examined.
    let by_other_name = |backing: &Path| file.nlink() > 1 && fs::metadata(backing).is_ok_and(same);
    let over = |backing: &Path| backing == own || by_other_name(backing);
    Ok(loops().filter(|(_, backing)| over(backing)).map(|(name, _)| name).collect())
}

/// Every loop device in use, with the path of its file.
fn loops() -> impl Iterator<Item = (String, PathBuf)> {
    let blocks = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    blocks.filter_map(|block| {
        let backing = backing_file(&block.path())?;
        Some((block.file_name().into_string().ok()?, backing))
    })
}

/// The file of the loop device that has this directory.
fn backing_file(directory: &Path) -> Option<PathBuf> {
    let mut path = fs::read(directory.join("loop/backing_file")).ok()?;
    path.pop_if(|last| *last == b'\n');
    Some(OsString::from_vec(path).into())
}

/// Claims what is under a block device that the caller has open, so that no other process can. The
/// claim ends when everything that this returns is dropped.
///
/// # Errors
///
/// `ResourceBusy` if another process has it, and the errors of opening it.
pub(crate) fn claim_under(device: &Metadata, read_only: bool) -> io::Result<Vec<File>> {
    let mut claimed = Vec::new();
    let mut devices = vec![number(device)];
    let mut looked = 0;
    while let Some(device) = devices.pop() {
        looked += 1;
        if looked > DEVICES_MAX {
            return Err(io::Error::other("there are too many devices under this one"));
        }
        let directory = PathBuf::from(format!("/sys/dev/block/{device}"));
        if let Some(path) = backing_file(&directory) {
            let opened = open_alone(&path, read_only).map_err(|error| under(&path, &error))?;
            let kind = opened.metadata()?;
            if kind.file_type().is_block_device() {
                devices.push(number(&kind));
            }
            claimed.push(opened);
        }
        devices.extend(devices_under(&directory));
    }
    Ok(claimed)
}

/// A device's number, in the form of the names in `/sys/dev/block`.
fn number(device: &Metadata) -> String {
    format!("{}:{}", major(device.rdev()), minor(device.rdev()))
}

/// The disk of a partition, or the parts of a mapped device. The kernel itself keeps other
/// processes from both.
fn devices_under(directory: &Path) -> Vec<String> {
    let number = |directory: PathBuf| {
        let number = fs::read_to_string(directory.join("dev")).ok()?;
        Some(number.trim_end().to_owned())
    };
    let is_partition = directory.join("partition").exists();
    let disk = is_partition.then(|| fs::canonicalize(directory).ok()).flatten();
    let parts = fs::read_dir(directory.join("slaves")).into_iter().flatten().flatten();
    let parts = parts.map(|part| part.path());
    let disk = disk.and_then(|partition| Some(partition.parent()?.to_owned()));
    parts.chain(disk).filter_map(number).collect()
}

/// The error for something under a device that cannot be claimed.
fn under(path: &Path, error: &io::Error) -> io::Error {
    let path = path.display();
    let why = match error.kind() {
        io::ErrorKind::ResourceBusy => format!("it is over {path}, which is in use: {error}"),
        _ => format!("it is over {path}, and whether that is in use cannot be told: {error}"),
    };
    io::Error::new(io::ErrorKind::ResourceBusy, why)
}
