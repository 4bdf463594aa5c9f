//! The connection to the kernel: its requests as bytes, and the threads that answer them.
//!
//! ```text
//!   connection   threads that take requests, and answer them by asking `Files`
//!   roles        which thread answers, and which listens      waiters   threads that may wait
//!   greeting     the first request       request   buffers    wire      bytes and their meaning
//!   answering    what `Files` are
//!   rings        the same over io_uring  queue     a ring     way       which of the two it is
//! ```
//!
//! Invariant: this room knows requests, nodes by number, and no device. What a request means is
//! decided by whatever implements `Files`.
//!
//! Locks: one each in `connection`, `queue`, `request`, `roles` and `waiters`. Each is a leaf.

mod answering;
mod connection;
mod greeting;
mod queue;
mod request;
mod rings;
mod roles;
mod waiters;
mod way;
pub(super) mod wire;

pub(super) use answering::{Files, Pace};
pub(super) use connection::{Connection, How};
pub(super) use rings::RING_DATA_MAX;
pub use way::{FuseWay, NoRing};
