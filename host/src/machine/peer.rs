//! Who is at the other end of a Unix socket: `SO_PEERCRED`.
//!
//! Invariant: a process that has no number here, because it lives in a name space that we do not
//! see, is `None`. The kernel says 0 then, which `rustix` would take for a number that cannot be.

use std::mem;
use std::num::NonZeroU32;
use std::os::fd::{AsFd, AsRawFd};

/// The process that connected a Unix socket, or that listened where it was connected to; `None`
/// where the system does not say, and for sockets of other kinds.
pub fn peer_process(socket: impl AsFd) -> Option<NonZeroU32> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = mem::size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is borrowed and therefore open; `who` and `len` are ours, and the
    // kernel writes `len` bytes at most, which is the size of `who`. Any bytes are a valid `ucred`.
    let done = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut who).cast(),
            &raw mut len,
        )
    };
    // A socket of another kind has nobody, with the number 0.
    u32::try_from(who.pid).ok().filter(|_| done == 0).and_then(NonZeroU32::new)
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
