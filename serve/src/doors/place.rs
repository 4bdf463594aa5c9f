//! Where a listening socket is, for addresses and for its end.
//!
//! Invariant: only a path that is ours names the file that may be removed. Locks: none.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Where a socket listens.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// At a path.
    Unix {
        /// The path as it was given, absolute or not.
        path: PathBuf,
        /// Device and inode of the file, if it is ours to remove.
        ours: Option<(u64, u64)>,
    },
    /// At an address, with the port that the system chose if none was given.
    Tcp(SocketAddr),
    /// At an abstract name, which no NBD address can say.
    Unreachable,
}
