//! Other processes: the one at the other end of a socket, the parent, and children.
//!
//! ```text
//!   peer_process         who has connected a Unix socket (SO_PEERCRED)
//!   passed_descriptors   what the parent has left open for this process
//!   inherit_only_streams, forget_variables    what children do not get
//!   end_with_parent      a child that ends with the thread that has started it
//! ```
//!
//! Invariants
//! - `None` stands for a peer that has no number here because it lives in a namespace that we do
//!   not see. The kernel gives 0 for it, which `rustix` would take for a number that cannot be.
//! - Nothing that the parent passed is closed, and a copy is a new descriptor. So it does not
//!   matter who else in this process has the original.
//!
//! Lock: none.

use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::{env, fs, io, mem};

use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};

/// The first descriptor after standard input, output and error.
const FIRST: RawFd = 3;

/// The number of the process that connected a Unix socket, or that listened on it. `None` if the
/// system does not say, and for sockets of other kinds.
pub fn peer_process(socket: impl AsFd) -> Option<NonZeroU32> {
    let mut peer = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = mem::size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is borrowed and therefore open. `peer` and `len` are ours. The kernel
    // writes at most `len` bytes, which is the size of `peer`, and any bytes are a valid `ucred`.
    let done = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut len,
        )
    };
    // A socket of another kind has no process: the number is 0.
    u32::try_from(peer.pid).ok().filter(|_| done == 0).and_then(NonZeroU32::new)
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::net::UnixStream;

    #[test]
    #[cfg_attr(miri, ignore = "the system is asked")]
    fn who_connected_is_known_and_who_is_no_process_is_not() {
        let (ours, _other) = UnixStream::pair().unwrap();
        assert_eq!(peer_process(&ours).map(NonZeroU32::get), Some(std::process::id()));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let tcp = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(peer_process(&tcp), None, "TCP has addresses");
    }

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
        // A copy that a program would get. Its number is none that the program opens itself.
        // SAFETY: no pointer is passed, and the copy is this test's own.
        let copy = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD, 500) };
        assert!(copy >= 500, "a descriptor");
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

    #[test]
    #[cfg_attr(miri, ignore = "the system is asked")]
    fn a_process_with_threads_keeps_its_environment() {
        let other = crate::thread::spawn("waits", || forget_variables(&["PATH"]).is_err());
        assert!(other.expect("a thread").join().expect("no panic"));
        assert!(env::var_os("PATH").is_some());
    }
}
