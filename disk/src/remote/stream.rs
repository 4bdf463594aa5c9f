//! A connected socket of either kind.
//!
//! Invariant: after `end` every call that waits returns. Locks: none.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use super::address::Place;

/// A connection, which several threads may use at once: one reads, and one writes.
#[derive(Debug)]
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    /// Connects. Each address of a host gets `patience`.
    pub(super) fn connect(place: &Place, patience: Duration) -> io::Result<Stream> {
        match place {
            Place::Unix(path) => Ok(Stream::Unix(UnixStream::connect(path)?)),
            Place::Tcp { host, port } => {
                let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, patience) {
                        Ok(stream) => {
                            // A request is small, and its answer is waited for.
                            stream.set_nodelay(true)?;
                            return Ok(Stream::Tcp(stream));
                        }
                        Err(error) => last = error,
                    }
                }
                Err(last)
            }
        }
    }

    /// Limits how long one call waits for the peer.
    pub(super) fn limit(&self, read: Option<Duration>, write: Duration) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => {
                stream.set_read_timeout(read)?;
                stream.set_write_timeout(Some(write))
            }
            Stream::Tcp(stream) => {
                stream.set_read_timeout(read)?;
                stream.set_write_timeout(Some(write))
            }
        }
    }

    /// Ends both directions.
    pub(super) fn end(&self) {
        // If the peer has gone already, there is nothing to end.
        let _ = match self {
            Stream::Unix(stream) => stream.shutdown(Shutdown::Both),
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl Read for &Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => (&*stream).read(into),
            Stream::Tcp(stream) => (&*stream).read(into),
        }
    }
}

impl Write for &Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => (&*stream).write(bytes),
            Stream::Tcp(stream) => (&*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The next `LEN` bytes.
pub(super) fn take<const LEN: usize>(mut from: impl Read) -> io::Result<[u8; LEN]> {
    let mut bytes = [0; LEN];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}
