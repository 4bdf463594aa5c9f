//! Doors: sockets that clients come to, and a thread with two buffers for each connection.
//!
//! ```text
//!   runtime: where a socket lies --> door: listens --> service: a thread for each connection
//!   passed: made by another  -------'                    |
//!                                                        |      \
//!                                      guests: who is served     event: what the owner is told
//!                                      reserve: descriptors      buffer: counted bytes
//! ```
//!
//! Invariant: this room knows connections and no protocol.
//!
//! Locks: the list of a service, and the list of a reserve. Both are leaves.

mod buffer;
mod door;
mod event;
mod guests;
mod held;
mod passed;
mod peer;
mod pieces;
mod place;
mod reserve;
pub mod runtime;
mod service;
mod socket;

pub(crate) use buffer::{Buffer, Inbox, Meter, NoMemory, Outbox};
pub(crate) use door::{Door, clear_abandoned, knock};
pub use event::{Event, Observer, Purpose, Refused, Stall};
pub(crate) use guests::Places;
pub(crate) use held::open_sized;
pub use passed::{Passed, PassedSockets};
pub use peer::Peer;
pub(crate) use pieces::pieces;
pub(crate) use place::Place;
pub(crate) use service::{Rules, Serve, Service, Ticket};
pub(crate) use socket::{Progress, Socket};
