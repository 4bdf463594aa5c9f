//! One end of a connection, Unix or TCP: it receives and sends bytes until it is ended.
//!
//! Invariant: every call that blocks returns after another thread has called `end`, and a `receive`
//! also after `end_input`. Locks: none.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, sockopt};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::os::fd::OwnedFd;
use std::time::Duration;

/// How a peer that must take many bytes goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It has taken some.
    Made,
    /// It has taken none until the limit on sending passed.
    Missed,
}

/// A connected stream socket.
#[derive(Debug)]
pub(crate) struct Socket {
    fd: OwnedFd,
}

impl Socket {
    /// Takes over a connected stream socket.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { fd }
    }

    /// Waits for bytes. 0 means that the peer has closed, and `Errno::AGAIN` that the time is up.
    pub(crate) fn receive(&self, into: &mut [u8]) -> Result<usize, Errno> {
        loop {
            match net::recv(&self.fd, &mut *into, RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                other => return other.map(|(_, received)| received),
            }
        }
    }

    /// Waits until there are bytes, or the peer has closed, without taking any.
    pub(crate) fn wait_for_input(&self) -> Result<(), Errno> {
        loop {
            match poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], None) {
                Err(Errno::INTR) => {}
                other => return other.map(drop),
            }
        }
    }

    /// The same socket, for code that owns its end.
    pub(crate) fn try_clone(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// Sends all of `bytes`. It waits for the peer as long as it takes, or as long as the limit on
    /// sending says.
    pub(crate) fn send(&self, bytes: &[u8]) -> Result<(), Errno> {
        self.send_while(bytes, |_| false)
    }

    /// Sends all of `bytes`. `is_patient` is told of all progress. Where it is missed, the answer
    /// says whether to go on.
    pub(crate) fn send_while(
        &self,
        mut bytes: &[u8],
        mut is_patient: impl FnMut(Progress) -> bool,
    ) -> Result<(), Errno> {
        while !bytes.is_empty() {
            match net::send(&self.fd, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => {
                    bytes = &bytes[sent..];
                    is_patient(Progress::Made);
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if is_patient(Progress::Missed) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Sends some of the bytes, at least one. `is_patient` is asked as `send_while` does.
    pub(crate) fn send_some(
        &self,
        bytes: &[IoSlice<'_>],
        mut is_patient: impl FnMut(Progress) -> bool,
    ) -> Result<usize, Errno> {
        loop {
            let mut nothing = SendAncillaryBuffer::default();
            match net::sendmsg(&self.fd, bytes, &mut nothing, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if is_patient(Progress::Missed) => {}
                Ok(sent) => {
                    is_patient(Progress::Made);
                    return Ok(sent);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Sends as many of the bytes as the system takes without waiting.
    pub(crate) fn send_at_once(&self, bytes: &[u8]) -> Result<usize, Errno> {
        net::send(&self.fd, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }

    /// The process at the other end of a Unix socket, if the system says.
    pub(crate) fn process(&self) -> Option<u32> {
        host::peer_process(&self.fd).map(NonZeroU32::get)
    }

    /// The address at the other end of a TCP connection.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        net::getpeername(&self.fd).ok()??.try_into().ok()
    }

    /// Limits how long one `receive` waits. `None` means for ever.
    pub(crate) fn limit_receive(&self, limit: Option<Duration>) -> Result<(), Errno> {
        sockopt::set_socket_timeout(&self.fd, sockopt::Timeout::Recv, limit)
    }

    /// Limits how long one `send` waits. `None` means for ever.
    pub(crate) fn limit_send(&self, limit: Option<Duration>) -> Result<(), Errno> {
        sockopt::set_socket_timeout(&self.fd, sockopt::Timeout::Send, limit)
    }

    /// Has replies sent at once, and has the system notice a peer whose machine is gone.
    pub(crate) fn tune_tcp(&self) -> Result<(), Errno> {
        sockopt::set_tcp_nodelay(&self.fd, true)?;
        sockopt::set_socket_keepalive(&self.fd, true)
    }

    /// Ends input: a blocked `receive` returns, but replies can still be sent.
    pub(crate) fn end_input(&self) {
        // If the peer is gone already, there is nothing to end.
        let _ = net::shutdown(&self.fd, Shutdown::Read);
    }

    /// Ends both directions: every blocked call returns.
    pub(crate) fn end(&self) {
        // If the peer is gone already, there is nothing to end.
        let _ = net::shutdown(&self.fd, Shutdown::Both);
    }
}
