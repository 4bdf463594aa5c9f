//! Descriptors: the process at the other end of a Unix socket (`SO_PEERCRED`), and what a program
//! that is started gets besides the standard streams.
//!
//! Invariants
//! - `None` stands for a process that has no number here because it lives in a name space that we
//!   do not see. The kernel gives 0 for it, which `rustix` would take for a number that cannot be.
//! - No descriptor is closed in this process.
//!
//! Lock: none.

use std::fs;
use std::mem;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd};

/// The last of the standard streams.
const STANDARD_MAX: i32 = 2;

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

/// Marks every descriptor except the standard streams to be closed when a program is started. A
/// server that goes on in the background would else keep open what its caller had open.
pub fn inherit_only_streams() {
    // Without this directory nothing is marked, and a program gets what it would have got.
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for number in numbers.filter(|&number| number > STANDARD_MAX) {
        // SAFETY: no pointer is passed. The mark acts when a program is started, so whatever
        // owns the descriptor here keeps it. A number that is not open is refused.
        unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::net::UnixStream;
    use std::process::Command;

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
