//! Opening a file or a block device so that no other process can use it.

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Open flag: for a block device, fail if it is in use, by a mount for example.
const O_EXCL: i32 = 0o200;

/// Opens a file or a block device so that no other process can use it. A file that is opened only
/// to be read may have other readers.
pub(crate) fn open_alone(path: &Path, read_only: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(!read_only);
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_block_device() {
        options.custom_flags(O_EXCL);
    } else if !kind.is_file() {
        return Err(invalid("neither a file nor a block device"));
    }
    let file = options.open(path)?;
    if kind.is_file() {
        lock(&file, read_only)?;
    }
    Ok(file)
}

fn lock(file: &File, shared: bool) -> io::Result<()> {
    let how = match shared {
        true => FlockOperation::NonBlockingLockShared,
        false => FlockOperation::NonBlockingLockExclusive,
    };
    rustix::fs::flock(file, how).map_err(|error| match error {
        Errno::WOULDBLOCK => {
            io::Error::new(io::ErrorKind::ResourceBusy, "another process or device uses this file")
        }
        other => other.into(),
    })
}

pub(crate) fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
