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
//! | [`Observer`], [`Event`] | tells what happens to connections |
//! | [`fuse`] | mounts devices as the kernel shows them |
//! | [`control`] | asks and answers questions about a running server |
//! | [`runtime`] | where sockets lie that were given no place |
//! | [`notify`] | tells the service manager that we serve |
//! | [`shell`] | paths in commands to paste |
//! | [`limits`] | what a client can cost |
//!
//! Invariant: a client costs one thread and two bounded buffers, whatever it sends and however
//! slowly. No other client notices it.
//!
//! Locks: the list of connections of each service is a leaf. No disk is called and no client is
//! waited for under it.
#![forbid(unsafe_code)]

mod buffer;
pub mod control;
mod door;
mod error;
mod event;
mod exports;
pub mod fuse;
mod guests;
pub mod limits;
mod link;
mod nbd;
pub mod notify;
mod peer;
mod reserve;
pub mod runtime;
mod server;
mod service;
pub mod shell;
mod socket;
mod uri;

pub use error::ServeError;
pub use event::{Event, Observer, Purpose, Refused, Stall};
pub use peer::Peer;
pub use server::{Server, ServerConfig};
