//! Other processes: the one at the other end of a socket, the parent, and children.
//!
//! ```text
//!   peer_process         who has connected a Unix socket (SO_PEERCRED)
//!   forget_variables     what children are not told
//!   end_with_parent      a child that ends with the thread that has started it
//! ```
//!
//! Invariant: `None` stands for a peer that has no number here because it lives in a name space
//! that we do not see. The kernel gives 0 for it, which `rustix` would take for a number that cannot
//! be.
//!
//! Lock: none.

use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::{env, fs, io, mem};

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

    #[test]
    #[cfg_attr(miri, ignore = "the system is asked")]
    fn a_process_with_threads_keeps_its_environment() {
        let other = crate::thread::spawn("waits", || forget_variables(&["PATH"]).is_err());
        assert!(other.expect("a thread").join().expect("no panic"));
        assert!(env::var_os("PATH").is_some());
    }
}
