//! Between a process and its parent: descriptors that the parent passed on, and a child that ends
//! with its parent.
//!
//! Invariant: nothing that the parent passed is closed, and a copy is a new descriptor. So it does
//! not matter who else in this process has the original. Lock: none.

use std::os::fd::{BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::{env, fs, io};

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

/// Removes variables from the environment, so that programs that this process starts do not have
/// them.
///
/// # Errors
///
/// If this process has several threads, because another one might read the environment meanwhile,
/// or if `/proc` does not say.
pub fn forget_variables(names: &[&str]) -> io::Result<()> {
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("the environment is changed only before there are threads"));
    }
    for name in names {
        // SAFETY: this is the only thread of the process, so no other reads the environment.
        unsafe { env::remove_var(name) };
    }
    Ok(())
}

/// Has the program of `command` get SIGTERM when the thread that starts it ends. If that thread
/// ends before, the program is not started.
pub fn end_with_parent(command: &mut Command) {
    let parent = std::process::id();
    // SAFETY: between fork and exec there are two system calls without memory, and no lock.
    unsafe {
        command.pre_exec(move || {
            let set = libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM as libc::c_ulong);
            if set != 0 {
                return Err(io::Error::last_os_error());
            }
            let is_there = u32::try_from(libc::getppid()) == Ok(parent);
            if is_there { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
        });
    }
}

#[cfg(all(test, not(any(loom, shuttle, miri))))]
mod tests {
    use super::*;

    /// A test has threads, and its descriptors from 3 on are whatever the harness has open.
    #[test]
    fn what_is_not_there_is_an_error() {
        let refused = passed_descriptors(u16::MAX).expect_err("so many are not open");
        assert_eq!(refused.raw_os_error(), Some(libc::EBADF));
        assert!(passed_descriptors(0).expect("none").is_empty());
    }

    #[test]
    fn a_process_with_threads_keeps_its_environment() {
        let other = crate::thread::spawn("waits", || forget_variables(&["PATH"]).is_err());
        assert!(other.expect("a thread").join().expect("no panic"));
        assert!(env::var_os("PATH").is_some());
    }
}
