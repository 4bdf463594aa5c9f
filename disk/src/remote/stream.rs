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

/// How often a silent peer is asked at most, before it is given up.
const PROBES_MAX: u64 = 3;

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
                let addresses: Vec<_> = (host.as_str(), *port).to_socket_addrs()?.collect();
                for (tried, address) in addresses.iter().enumerate() {
                    let time = share(left(until)?, addresses.len() - tried);
                    match TcpStream::connect_timeout(address, time) {
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

    /// Has the system give up a peer on another machine that does not acknowledge what was sent. A
    /// peer that is waited for is asked whether it is there, also after the end of what is sent.
    pub(super) fn give_up_after(&self, time: Duration) {
        if let Stream::Tcp(stream) = self {
            let millis = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
            let probes = Probes::within(time);
            // Without these the system gives up later, after two hours at the latest.
            let _ = sockopt::set_tcp_user_timeout(stream, millis);
            let _ = sockopt::set_tcp_keepidle(stream, Duration::from_secs(probes.idle));
            let _ = sockopt::set_tcp_keepintvl(stream, Duration::from_secs(probes.interval));
            let _ = sockopt::set_tcp_keepcnt(stream, probes.count);
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

/// When a silent peer is asked whether it is there: after `idle` seconds, and then `count` times,
/// `interval` seconds apart.
struct Probes {
    idle: u64,
    interval: u64,
    count: u32,
}

impl Probes {
    /// A peer is given up after about `time`: at most 2 s sooner, and not before 2 s.
    fn within(time: Duration) -> Probes {
        let seconds = time.as_secs();
        let idle = (seconds / 2).max(1);
        let rest = seconds.saturating_sub(idle).max(1);
        let count = rest.min(PROBES_MAX);
        Probes { idle, interval: rest / count, count: count as u32 }
    }
}

/// The time for one of so many addresses that are left, so that a dead one leaves time for the
/// others. It is not 0.
fn share(left: Duration, addresses: usize) -> Duration {
    let addresses = u32::try_from(addresses).unwrap_or(u32::MAX).max(1);
    (left / addresses).max(Duration::from_millis(1))
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

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// The system's own times are two hours, and then nine times 75 s. For so long no connection
    /// was made after a machine had vanished, because the last one had not been closed.
    #[test]
    fn a_peer_that_vanished_is_given_up_in_about_the_time_of_a_request() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        let place = Place::Tcp { host: "127.0.0.1".to_owned(), port };
        let until = Instant::now() + Duration::from_secs(60);
        let stream = Stream::connect(&place, until).expect("it listens");
        let Stream::Tcp(socket) = &stream else { panic!("it is of the other kind") };
        for seconds in [1, 2, 3, 5, 7, 30, 31, 3600] {
            stream.give_up_after(Duration::from_secs(seconds));
            assert!(sockopt::socket_keepalive(socket).expect("an option"));
            let idle = sockopt::tcp_keepidle(socket).expect("an option").as_secs();
            let interval = sockopt::tcp_keepintvl(socket).expect("an option").as_secs();
            let count = u64::from(sockopt::tcp_keepcnt(socket).expect("an option"));
            assert!(idle >= 1 && interval >= 1 && count >= 1, "{idle} {interval} {count}");
            let (sum, least) = (idle + interval * count, seconds.saturating_sub(2));
            assert!((least..=seconds.max(2)).contains(&sum), "{sum} s for {seconds} s");
        }
    }

    #[test]
    fn each_address_that_is_left_has_a_share_of_the_time() {
        let seconds = Duration::from_secs;
        assert_eq!(share(seconds(30), 3), seconds(10));
        assert_eq!(share(seconds(20), 2), seconds(10));
        assert_eq!(share(seconds(17), 1), seconds(17), "the last one has all of it");
        assert_eq!(share(Duration::from_nanos(1), 1000), Duration::from_millis(1), "never 0");
    }
}
