//! The other end of a connection: a process of this machine, or an address.
//!
//! Invariant: connections of one client compare equal as `Client`s. Locks: none.

use super::socket::Socket;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// The client at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A process of this machine, by its process number.
    Process(u32),
    /// The address of a TCP client.
    Address(SocketAddr),
    /// The system does not say. The process is in another namespace, or it has ended.
    Unknown,
}

/// What connections of one client have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Client {
    Process(u32),
    Host(IpAddr),
    Unknown,
}

impl Peer {
    pub(crate) fn of(socket: &Socket) -> Self {
        match socket.address() {
            Some(address) => Self::Address(address),
            None => socket.process().map_or(Self::Unknown, Self::Process),
        }
    }

    pub(crate) fn client(self) -> Client {
        match self {
            Self::Process(pid) => Client::Process(pid),
            Self::Address(address) => Client::Host(address.ip()),
            Self::Unknown => Client::Unknown,
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(pid) => write!(f, "pid {pid}"),
            Self::Address(address) => write!(f, "{address}"),
            Self::Unknown => f.write_str("an unknown process"),
        }
    }
}
