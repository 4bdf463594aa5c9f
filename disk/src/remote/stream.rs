//! A connected socket of either kind, whose calls end at a given time.
//!
//! Invariant: a call returns at its time, except `read_on`, which returns when the peer has closed.
//! Locks: none.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};

use super::address::Place;

/// A connection, which several threads may use at once: one reads, and one writes.
#[derive(Debug)]
pub(super) enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Stream {
    /// Connects.
    pub(super) fn connect(place: &Place, until: Instant) -> io::Result<Stream> {
        match place {
            Place::Unix(path) => {
                let socket = rustix::net::socket_with(
                    AddressFamily::UNIX,
                    SocketType::STREAM,
                    SocketFlags::CLOEXEC,
                    None,
                )?;
                // A server that stands still has its queue of connections full at some time.
                sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(left(until)?))?;
                let address = SocketAddrUnix::new(path.as_path())?;
                rustix::net::connect(&socket, &address).map_err(|error| late(error.into()))?;
                Ok(Stream::Unix(UnixStream::from(socket)))
            }
            Place::Tcp { host, port } => {
                let mut last = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
                for address in (host.as_str(), *port).to_socket_addrs()? {
                    match TcpStream::connect_timeout(&address, left(until)?) {
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

    /// Sends all of `bytes`.
    pub(super) fn send(&self, mut bytes: &[u8], until: Instant) -> io::Result<()> {
        while !bytes.is_empty() {
            self.limit_write(Some(left(until)?))?;
            let sent = match self {
                Stream::Unix(stream) => (&*stream).write(bytes),
                Stream::Tcp(stream) => (&*stream).write(bytes),
            };
            match sent.map_err(late) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Ends what is sent. The peer reads all that was sent before, and then that this is the end.
    pub(super) fn end_sending(&self) {
        // If the peer has gone already, there is nothing to end.
        let _ = match self {
            Stream::Unix(stream) => stream.shutdown(Shutdown::Write),
            Stream::Tcp(stream) => stream.shutdown(Shutdown::Write),
        };
    }

    /// Has the system give up a peer on another machine that does not acknowledge what was sent.
    pub(super) fn give_up_after(&self, time: Duration) {
        if let Stream::Tcp(stream) = self {
            let millis = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
            // Without it the system gives up later.
            let _ = sockopt::set_tcp_user_timeout(stream, millis);
            let _ = sockopt::set_socket_keepalive(stream, true);
        }
    }

    fn read_some(&self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Unix(stream) => (&*stream).read(into),
            Stream::Tcp(stream) => (&*stream).read(into),
        }
    }

    fn limit_read(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.set_read_timeout(limit),
            Stream::Tcp(stream) => stream.set_read_timeout(limit),
        }
    }

    fn limit_write(&self, limit: Option<Duration>) -> io::Result<()> {
        match self {
            Stream::Unix(stream) => stream.set_write_timeout(limit),
            Stream::Tcp(stream) => stream.set_write_timeout(limit),
        }
    }
}

/// A stream that is read and written until a time.
pub(super) struct Until<'a> {
    pub(super) stream: &'a Stream,
    pub(super) until: Instant,
}

impl Read for Until<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.stream.limit_read(Some(left(self.until)?))?;
        self.stream.read_some(into).map_err(late)
    }
}

impl Write for Until<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.send(bytes, self.until)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A stream that is read for as long as the peer sends.
pub(super) struct ReadOn<'a>(&'a Stream);

impl Stream {
    pub(super) fn read_on(&self) -> io::Result<ReadOn<'_>> {
        self.limit_read(None)?;
        Ok(ReadOn(self))
    }
}

impl Read for ReadOn<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.0.read_some(into)
    }
}

/// The time that is left, which is not 0.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// The system says `EAGAIN` when the time of a socket's call is up.
fn late(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

/// The next `LEN` bytes.
pub(super) fn take<const LEN: usize>(mut from: impl Read) -> io::Result<[u8; LEN]> {
    let mut bytes = [0; LEN];
    from.read_exact(&mut bytes)?;
    Ok(bytes)
}
