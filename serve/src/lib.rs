//! The doors through which clients reach a disk, and read what it says about itself.
//!
//! ```text
//!   NBD clients                      files                   ramfold stat, set, check
//!       |  Unix socket, TCP            |  /dev/fuse               |  PATH.ctl, JSON lines
//!     door                           mount                      door
//!       |                              |                          |
//!    service (a thread for each)     connection (its threads)   service
//!       |                              |                          |
//!      nbd -> link (inbox, outbox)   tree                       control
//!       |                              |                          |
//!     Disk                           Devices                    a handler of the caller's
//! ```
//!
//! | item | what it is for |
//! |---|---|
//! | [`Server`], [`ServerConfig`] | serves one [`disk::Disk`], or every device, over NBD |
//! | [`TlsConfig`] | encrypts NBD, and asks clients for certificates |
//! | [`VhostUser`], [`VhostUserConfig`] | serves one disk to a virtual machine |
//! | [`Ublk`], [`UblkConfig`] | makes one disk a block device of this machine |
//! | [`Observer`], [`Event`] | tells what happens to connections |
//! | [`fuse`] | mounts devices as the kernel shows them |
//! | [`metrics`] | figures for monitoring, over HTTP |
//! | [`control`] | asks and answers questions about a running server |
//! | [`PassedSockets`] | listening sockets that systemd or libnbd passed to this process |
//! | [`runtime`] | where the sockets of a server lie that was given no path |
//! | [`notify`] | tells the service manager how the server is |
//! | [`shell`] | paths in commands to paste |
//! | [`limits`] | what a client can cost |
//!
//! Invariant: a client costs one thread and two bounded buffers, whatever it sends and however
//! slowly. It does not delay other clients.
//!
//! Locks: the list of connections of each service is a leaf. No disk is called and no client is
//! waited for under it.
#![forbid(unsafe_code)]

// Rooms, from the top down. Each of them stands only on rooms that are named after it:
// ublk, fuse, fuse/channel, metrics, control, vhost_user, nbd, nbd/transmission, tls, doors, terms.
pub mod control;
mod doors;
pub mod fuse;
pub mod metrics;
mod nbd;
mod terms;
mod tls;
mod ublk;
mod vhost_user;

pub use doors::{Event, Observer, Passed, PassedSockets, Peer, Purpose, Refused, Stall, runtime};
pub use nbd::{Server, ServerConfig};
pub use terms::{ServeError, limits, notify, shell};
pub use tls::TlsConfig;
pub use ublk::{StopError, Ublk, UblkConfig};
pub use vhost_user::{VhostUser, VhostUserConfig};
