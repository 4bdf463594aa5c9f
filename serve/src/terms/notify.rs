//! Tells the service manager how the server is, like `sd_notify(3)`: it sends one datagram to the
//! socket in `NOTIFY_SOCKET`, which is a path or, after `@`, an abstract name.
//!
//! Invariant: nothing is sent if `NOTIFY_SOCKET` is not set or empty. Locks: none.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Says that the server serves. `Ok(false)` if no manager asked to be told.
///
/// # Errors
///
/// Those of [`send`].
pub fn ready() -> io::Result<bool> {
    tell("READY=1")
}

/// Says that the server is about to end. `Ok(false)` if no manager asked to be told.
///
/// # Errors
///
/// Those of [`send`].
pub fn stopping() -> io::Result<bool> {
    tell("STOPPING=1")
}

fn tell(state: &str) -> io::Result<bool> {
    match std::env::var_os("NOTIFY_SOCKET") {
        Some(name) if !name.is_empty() => send(&name, state).map(|()| true),
        _ => Ok(false),
    }
}

/// Sends `state` to the socket of this name.
///
/// # Errors
///
/// [`io::ErrorKind::Unsupported`] for a name that begins with neither `/` nor `@`, and the system's
/// error if the datagram cannot be sent.
pub fn send(name: &OsStr, state: &str) -> io::Result<()> {
    let address = match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
        [b'/', ..] => SocketAddr::from_pathname(name)?,
        _ => {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "NOTIFY_SOCKET: / or @ wanted"));
        }
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}
