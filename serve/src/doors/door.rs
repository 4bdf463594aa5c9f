//! A listening socket: a Unix path that only its owner can open, or a TCP address.
//!
//! What a door does depends on what it finds at its Unix path:
//!
//! | found | done |
//! |---|---|
//! | nothing | the socket is made, mode 0600 |
//! | no directory | refused, because the path may be mistyped |
//! | a socket that refuses connections | it is replaced, because its server is gone |
//! | a socket that accepts them | `ServeError::InUse` |
//! | anything else | `ServeError::NotASocket`, left alone |
//!
//! Invariants
//! - Looking, removing, binding and listening happen under a lock on the directory. So one of two
//!   servers that start at the same time sees the other.
//! - When a door closes, it removes its path only if the path still leads to its own socket.
//! - A socket that was [`Passed`] to this process stays as it is, for its owner. A thread that
//!   waits for a connection to it is woken by an event of our own.
//!
//! Lock: the directory's (`flock`), which other processes take too. It is held for less than a
//! millisecond, and never while a connection is waited for.

use super::passed::Passed;
use super::place::Place;
use super::socket::Socket;
use crate::terms::ServeError;
use crate::terms::limits::SOCKET_PATH_MAX;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{FlockOperation, Mode, OFlags, fcntl_getfl};
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{self, AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType};
use std::fs::{self, File, Metadata};
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// How many connections the system keeps waiting until they are accepted.
const BACKLOG: i32 = 128;
/// How often it is tried to lock a directory. A server that starts holds the lock for less than a
/// millisecond.
const LOCK_TRIES: u32 = 100;
/// The pause between two tries. All tries together take a second.
const LOCK_PAUSE: Duration = Duration::from_millis(10);

/// A listening socket.
pub(crate) struct Door {
    fd: OwnedFd,
    place: Place,
    /// Of a socket that was passed.
    lent: Option<Lent>,
}

/// A socket that goes on when this server has ended.
struct Lent {
    /// Ends a wait for a connection.
    wake: OwnedFd,
    /// Its owner waits in `accept`.
    blocks: bool,
}

impl Door {
    /// Listens at a path.
    pub(crate) fn unix(path: &Path) -> Result<Self, ServeError> {
        let failed = |source| ServeError::Unix { path: path.to_owned(), source };
        if path.as_os_str().len() > SOCKET_PATH_MAX {
            return Err(ServeError::PathTooLong(path.to_owned()));
        }
        let address = SocketAddrUnix::new(path).map_err(|error| failed(error.into()))?;
        let _lock = lock_directory(parent_of(path))?;
        clear(path)?;
        let fd = bind_private(&address).map_err(|error| match error {
            Errno::ADDRINUSE => ServeError::InUse(path.to_owned()),
            other => failed(other.into()),
        })?;
        let file = identity(&fs::symlink_metadata(path).map_err(failed)?);
        let place = Place::Unix { path: path.to_owned(), ours: Some(file) };
        Ok(Self { fd, place, lent: None })
    }

    /// Listens on a socket that was passed to this process. It was bound by its owner, who decided
    /// who can reach it.
    pub(crate) fn passed(passed: &Passed) -> Result<Self, ServeError> {
        let failed = |error: io::Error| ServeError::Passed(error.to_string());
        let fd = passed.as_fd().try_clone_to_owned().map_err(failed)?;
        let flags = fcntl_getfl(&fd).map_err(|error| failed(error.into()))?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        // Another process may accept on it too, and take the connection that was announced here.
        ioctl_fionbio(&fd, true).map_err(|error| failed(error.into()))?;
        let lent = Lent { wake, blocks: !flags.contains(OFlags::NONBLOCK) };
        Ok(Self { fd, place: passed.place(), lent: Some(lent) })
    }

    /// Listens at `HOST:PORT`. Without `anywhere` it must be an address of the loopback.
    pub(crate) fn tcp(address: &str, anywhere: bool) -> Result<Self, ServeError> {
        let failed = |source| ServeError::Tcp { address: address.to_owned(), source };
        let found: Vec<SocketAddr> = address.to_socket_addrs().map_err(failed)?.collect();
        if let Some(open) = found.iter().find(|found| !anywhere && !found.ip().is_loopback()) {
            return Err(ServeError::NotLoopback(*open));
        }
        let listener = TcpListener::bind(&found[..]).map_err(failed)?;
        let local = listener.local_addr().map_err(failed)?;
        Ok(Self { fd: listener.into(), place: Place::Tcp(local), lent: None })
    }

    /// Where the door is.
    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Waits for a connection.
    pub(crate) fn accept(&self) -> Result<Socket, Errno> {
        if let Some(lent) = &self.lent {
            return self.accept_passed(&lent.wake);
        }
        self.accept_now()
    }

    /// Waits without holding the socket: `INTR` if the door was closed, or if another process has
    /// taken the connection.
    fn accept_passed(&self, wake: &OwnedFd) -> Result<Socket, Errno> {
        let mut events = [PollFd::new(&self.fd, PollFlags::IN), PollFd::new(wake, PollFlags::IN)];
        poll(&mut events, None)?;
        if !events[1].revents().is_empty() {
            return Err(Errno::INTR);
        }
        self.accept_now().map_err(|error| if error == Errno::AGAIN { Errno::INTR } else { error })
    }

    fn accept_now(&self) -> Result<Socket, Errno> {
        let socket = Socket::new(net::accept_with(&self.fd, SocketFlags::CLOEXEC)?);
        if let Place::Tcp(_) = self.place {
            // Both settings are improvements. Neither is needed.
            let _ = socket.tune_tcp();
        }
        Ok(socket)
    }

    /// Ends listening: a blocked `accept` returns, and the path is removed.
    pub(crate) fn close(&self) {
        if let Some(lent) = &self.lent {
            // It fails only if it was woken 2^64 times before.
            let _ = rustix::io::write(&lent.wake, &1_u64.to_ne_bytes());
            if lent.blocks {
                // The flag is the socket's, so its owner has it too. Nothing can be done otherwise.
                let _ = ioctl_fionbio(&self.fd, false);
            }
            return;
        }
        if let Place::Unix { path, ours: Some(file) } = &self.place {
            let is_ours = fs::symlink_metadata(path).is_ok_and(|found| identity(&found) == *file);
            if is_ours {
                // If another process was faster, the path is gone, as it should be.
                let _ = fs::remove_file(path);
            }
        }
        // It fails only if the socket was shut already.
        let _ = net::shutdown(&self.fd, Shutdown::Both);
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.close();
    }
}

fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Keeps other servers from starting in this directory until the file is dropped.
fn lock_directory(directory: &Path) -> Result<File, ServeError> {
    let failed = |source| ServeError::Unix { path: directory.to_owned(), source };
    let opened = File::open(directory).map_err(failed)?;
    for _ in 0..LOCK_TRIES {
        match rustix::fs::flock(&opened, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(opened),
            Err(Errno::WOULDBLOCK) => thread::sleep(LOCK_PAUSE),
            Err(error) => return Err(failed(error.into())),
        }
    }
    Err(ServeError::Busy(directory.to_owned()))
}

/// Makes room for a new socket, as the table above says.
fn clear(path: &Path) -> Result<(), ServeError> {
    let failed = |source| ServeError::Unix { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(ServeError::NotASocket(path.to_owned()));
        }
        Ok(_) => {}
    }
    match knock(path) {
        Ok(_) => Err(ServeError::InUse(path.to_owned())),
        // A server listens, but it is stopped or too busy to answer.
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(ServeError::InUse(path.to_owned()))
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(path).map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

/// Removes a socket whose server is gone. False if there is none, or if a server listens.
pub(crate) fn clear_abandoned(path: &Path) -> Result<bool, ServeError> {
    let is_abandoned = || {
        fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
            && knock(path).is_err_and(|why| why.kind() == io::ErrorKind::ConnectionRefused)
    };
    // Looked at without the lock first, because the lock delays servers that start.
    if !is_abandoned() {
        return Ok(false);
    }
    let _lock = lock_directory(parent_of(path))?;
    // And again under the lock, because a socket refuses too between binding and listening.
    let abandoned = is_abandoned();
    if abandoned {
        fs::remove_file(path)
            .map_err(|source| ServeError::Unix { path: path.to_owned(), source })?;
    }
    Ok(abandoned)
}

/// Connects without waiting. If a stopped server's backlog is full, the error is `WouldBlock`.
pub(crate) fn knock(path: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    net::connect(&fd, &SocketAddrUnix::new(path)?)?;
    let stream = UnixStream::from(fd);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

/// Makes the socket and listens. On Linux the file takes the mode of the unbound socket, so there
/// is no moment at which others could connect.
fn bind_private(address: &SocketAddrUnix) -> Result<OwnedFd, Errno> {
    let fd = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::fs::fchmod(&fd, Mode::from_raw_mode(0o600))?;
    net::bind(&fd, address)?;
    net::listen(&fd, BACKLOG)?;
    Ok(fd)
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}
