//! Files without a name, in a directory of the user's: they are gone when nobody has them.
//!
//! Invariant: no path leads to such a file, however the process ends. Lock: none.

use crate::places::PAGE;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Makes one.
///
/// # Errors
///
/// What the system answers. `EOPNOTSUPP` and `EISDIR` say that the file system has no such files.
pub(crate) fn create(directory: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(directory)
}

/// Finds out whether pages can be written there, and be read in memory.
///
/// # Errors
///
/// What the system answers.
pub(crate) fn check(directory: &Path) -> io::Result<()> {
    let file = create(directory)?;
    let page = [0x5a; PAGE];
    file.write_all_at(&page, 0)?;
    let (access, sharing) = (libc::PROT_READ, libc::MAP_SHARED);
    // SAFETY: a new mapping, at an address that the system chooses.
    let at =
        unsafe { libc::mmap(std::ptr::null_mut(), PAGE, access, sharing, file.as_raw_fd(), 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the mapping has a page of a file that is as long, and nobody writes to it.
    let is_same = unsafe { std::slice::from_raw_parts(at.cast::<u8>(), PAGE) == page };
    // SAFETY: the mapping is ours, and not used any more.
    unsafe { libc::munmap(at, PAGE) };
    if is_same { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_such_a_file_and_no_name_for_it() {
        let path = std::env::temp_dir().join(format!("nameless-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a directory");
        let checked = check(&path);
        let file = create(&path);
        let names = std::fs::read_dir(&path).expect("it is there").count();
        std::fs::remove_dir(&path).expect("it is empty");
        assert_eq!(names, 0);
        match file {
            Ok(_) => checked.expect("a file can be made"),
            Err(error) => println!("skipped: needs O_TMPFILE: {error}"),
        }
        assert!(check(&path).is_err(), "no directory");
    }
}
