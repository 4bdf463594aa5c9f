//! The doors: how others reach a disk and what it says about itself.
//!
//! ```text
//!   NBD clients                               ramfold stat, set, check
//!       |  Unix socket, TCP                       |  PATH.ctl, one JSON object per line
//!     door                                      door
//!       |                                         |
//!    service  (one thread per connection)      service
//!       |                                         |
//!      nbd -> link (inbox, outbox)             control
//!       |                                         |
//!     Disk                                     a handler of the caller's
//! ```
//!
//! | item | what it is for |
//! |---|---|
//! | [`Server`], [`ServerConfig`] | serves one [`disk::Disk`] over NBD |
//! | [`control`] | asks and answers questions about a running server |
//! | [`runtime`] | where sockets lie that were given no place |
//! | [`notify`] | tells the service manager that we serve |
//! | [`limits`] | what a client can cost |
//!
//! Invariant: a client, whatever it sends and however slowly, costs one thread and two bounded
//! buffers, and nobody else notices. Locks: the list of connections of each service, a leaf; no
//! disk is called, and no client waited for, under it.
#![forbid(unsafe_code)]

mod buffer;
pub mod control;
mod door;
mod error;
pub mod fuse;
pub mod limits;
mod link;
mod nbd;
pub mod notify;
pub mod runtime;
mod server;
mod service;
mod socket;
mod uri;

pub use error::ServeError;
pub use server::{Server, ServerConfig};
