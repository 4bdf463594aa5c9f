//! Descriptors by their numbers: those that the parent has left open for this process, and those that
//! a program gets that this process starts.
//!
//! Invariant: nothing is closed here, and a copy is a new descriptor. So it does not matter who else
//! in this process has the original.
//!
//! Lock: none.

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::{fs, io};

use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};

/// The first descriptor after standard input, output and error.
const FIRST: RawFd = 3;

/// Copies of the `count` descriptors after standard error. Neither the originals nor the copies
/// are open in programs that this process starts.
///
/// # Errors
///
/// `EBADF` if one of them is not open, and the system's error if there is no room for a copy.
pub fn passed_descriptors(count: u16) -> io::Result<Vec<OwnedFd>> {
    let beyond = FIRST + RawFd::from(count);
    // All of them are looked at first, so that no copy is taken for one of them.
    (FIRST..beyond).try_for_each(|number| fcntl_setfd(borrowed(number), FdFlags::CLOEXEC))?;
    let copies = (FIRST..beyond).map(|number| fcntl_dupfd_cloexec(borrowed(number), beyond));
    Ok(copies.collect::<Result<Vec<OwnedFd>, Errno>>()?)
}

/// A descriptor by its number, for one system call.
fn borrowed<'a>(number: RawFd) -> BorrowedFd<'a> {
    // SAFETY: the number goes to one system call each time, which answers EBADF if it is not open.
    // Nothing is closed, and no memory depends on it.
    unsafe { BorrowedFd::borrow_raw(number) }
}

/// Marks every descriptor except the standard streams to be closed when a program is started. A
/// server that goes on in the background would else keep open what its caller had open.
pub fn inherit_only_streams() {
    // Without this directory nothing is marked, and a program gets what it would have got.
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<RawFd>().ok());
    for number in numbers.filter(|&number| number >= FIRST) {
        // The mark acts when a program is started, so whatever owns the descriptor here keeps it.
        // One that was closed meanwhile needs no mark.
        let _ = fcntl_setfd(borrowed(number), FdFlags::CLOEXEC);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::process::Command;

    /// A test has threads, and its descriptors from 3 on are whatever the harness has open.
    #[test]
    #[cfg_attr(miri, ignore = "the system is asked")]
    fn what_is_not_there_is_an_error() {
        let refused = passed_descriptors(u16::MAX).expect_err("so many are not open");
        assert_eq!(refused.raw_os_error(), Some(libc::EBADF));
        assert!(passed_descriptors(0).expect("none").is_empty());
    }

    #[test]
    #[cfg_attr(miri, ignore = "a program is started")]
    fn a_program_gets_the_streams_and_nothing_else() {
        let file = File::open("/proc/self/status").unwrap();
        // A copy that a program would get.
        // SAFETY: no pointer is passed, and the copy is this test's own.
        let copy = unsafe { libc::dup(file.as_raw_fd()) };
        let listed = || {
            let listed = Command::new("ls").arg("/proc/self/fd").output().unwrap();
            let text = String::from_utf8(listed.stdout).unwrap();
            text.lines().any(|number| number == copy.to_string())
        };
        assert!(listed(), "without the call");
        inherit_only_streams();
        assert!(!listed(), "with it");
        // SAFETY: as above.
        unsafe { libc::close(copy) };
    }
}
