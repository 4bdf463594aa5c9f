//! The process at the other end of a Unix socket (`SO_PEERCRED`).
//!
//! Invariant: `None` stands for a process that has no number here because it lives in a name space
//! that we do not see. The kernel gives 0 for it, which `rustix` would take for a number that
//! cannot be. Lock: none.

use std::mem;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd};

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
}
