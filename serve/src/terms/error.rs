//! Why a server did not start, in words for the person who started it.
//!
//! Invariant: a message is one line. It says what is wrong, and what to do if that is not obvious.
//! Locks: none.

use super::limits::SOCKET_PATH_MAX;
use super::shell;
use std::{error, fmt, io, net::SocketAddr, path::PathBuf};

/// What keeps a server or a control socket from starting.
#[derive(Debug)]
#[non_exhaustive]
pub enum ServeError {
    /// Neither a Unix socket nor a TCP address was given.
    NoListener,
    /// The export's name is empty, too long for NBD, or has a NUL in it.
    BadName {
        /// Bytes in the name.
        len: usize,
    },
    /// A running server listens there.
    InUse(PathBuf),
    /// A file that is not a socket is there. It is never removed.
    NotASocket(PathBuf),
    /// Another process holds the lock of this directory.
    Busy(PathBuf),
    /// The directory must belong to this user and be closed to others, but it is not.
    NotPrivate(PathBuf),
    /// The path is too long for a socket.
    PathTooLong(PathBuf),
    /// The Unix socket could not be made.
    Unix {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Other machines could connect to this address, and the caller did not allow that.
    NotLoopback(SocketAddr),
    /// The TCP address could not be understood or bound.
    Tcp {
        /// As it was given.
        address: String,
        /// Why.
        source: io::Error,
    },
    /// A certificate or a key cannot be used.
    Tls {
        /// The file.
        path: PathBuf,
        /// Why, in words.
        why: String,
    },
    /// What was passed to this process to listen on makes no sense.
    Passed(String),
    /// A killed server has left a mount there that cannot be removed.
    Dead(PathBuf),
    /// Neither the directory nor its parent exists.
    NoParent(PathBuf),
    /// The directory has files in it, which a mount would hide.
    NotEmpty(PathBuf),
    /// This user may not mount, and `fusermount3`, which may, is not installed.
    NoFusermount,
    /// The system has no `/dev/fuse`.
    NoFuse,
    /// The tree could not be mounted.
    Mount {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The system has no `/dev/ublk-control`.
    NoUblk,
    /// The driver of block devices is older than Linux 6.5.
    OldUblk,
    /// The driver of block devices refuses something.
    Ublk {
        /// What it refuses to do.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// The device has no size, or cannot be opened.
    NoDisk(String),
    /// No thread could be started.
    Thread(io::Error),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoListener => {
                f.write_str("nothing to listen on: give a Unix socket or an address")
            }
            Self::BadName { len } => {
                write!(f, "the name has {len} bytes; it must have 1 to 4096 and no NUL")
            }
            Self::InUse(path) => write!(f, "{} is in use by a running server", path.display()),
            Self::NotASocket(path) => {
                write!(f, "{} exists and is not a socket; it is left alone", path.display())
            }
            Self::Busy(path) => write!(
                f,
                "another process holds the lock of {}; try again, or another directory",
                path.display()
            ),
            Self::NotPrivate(path) => write!(
                f,
                "{} must be a directory of yours with mode 0700; remove it or set XDG_RUNTIME_DIR",
                path.display()
            ),
            Self::PathTooLong(path) => write!(
                f,
                "{} is too long for a socket: {} bytes, and {SOCKET_PATH_MAX} are the most",
                path.display(),
                path.as_os_str().len()
            ),
            Self::Unix { path, source } => write!(f, "{}: {source}", path.display()),
            Self::NotLoopback(address) => write!(
                f,
                "{address} is reachable from other machines and NBD has no password; \
                 use 127.0.0.1"
            ),
            Self::Tcp { address, source } => write!(f, "{address}: {source}"),
            Self::Tls { path, why } => write!(f, "{}: {why}", path.display()),
            Self::Passed(why) => write!(f, "socket activation: {why}"),
            Self::Dead(path) => write!(
                f,
                "{} has the mount of a server that was killed; run fusermount3 -uz {}",
                path.display(),
                shell::word(path)
            ),
            Self::NoParent(path) => write!(
                f,
                "cannot mount {}: there is no directory to make it in; mkdir -p {} makes both",
                path.display(),
                shell::word(path)
            ),
            Self::NotEmpty(path) => {
                write!(f, "{} is not empty; mount over an empty directory", path.display())
            }
            Self::NoFusermount => f.write_str(
                "mounting needs fusermount3 (package fuse3) or root; without either, use --unix",
            ),
            Self::NoFuse => f.write_str(
                "there is no /dev/fuse: load the module fuse, or give the container the device",
            ),
            Self::Mount { path, source } => write!(f, "cannot mount {}: {source}", path.display()),
            Self::NoUblk | Self::OldUblk | Self::Ublk { .. } => self.fmt_ublk(f),
            Self::NoDisk(why) => f.write_str(why),
            Self::Thread(source) => write!(f, "cannot start a thread: {source}"),
        }
    }
}

impl ServeError {
    fn fmt_ublk(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OldUblk => f.write_str(
                "this kernel's ublk cannot copy by read and write (USER_COPY); use Linux 6.5 or \
                 later",
            ),
            Self::Ublk { what, source } if source.kind() == io::ErrorKind::PermissionDenied => {
                write!(f, "ublk cannot {what}: {source}; block devices are for root")
            }
            Self::Ublk { what, source } if source.kind() == io::ErrorKind::AlreadyExists => {
                write!(f, "ublk cannot {what}: it is there already; choose another, or auto")
            }
            Self::Ublk { what, source } => write!(f, "ublk cannot {what}: {source}"),
            _ => f.write_str(
                "there is no /dev/ublk-control: load the module ublk_drv (modprobe ublk_drv), or \
                 use a kernel of Linux 6.5 or later that has it",
            ),
        }
    }
}

impl error::Error for ServeError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Unix { source, .. }
            | Self::Tcp { source, .. }
            | Self::Mount { source, .. }
            | Self::Ublk { source, .. }
            | Self::Thread(source) => Some(source),
            _ => None,
        }
    }
}
