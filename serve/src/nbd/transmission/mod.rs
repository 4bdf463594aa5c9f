//! Transmission: an agreed connection, its requests, and their replies.
//!
//! ```text
//!   link --> session: one request after the other
//!              request    what the client sent         (parse)
//!              validate   what is to be done, or why not
//!              handle, read, write, status             the disk does it
//!              reply, refusal                          what the client is told
//! ```
//!
//! `wire` has the protocol's numbers, for the handshake too.
//!
//! Invariant: a request reaches the disk only after `validate`. Locks: none.

mod export;
mod handle;
mod link;
mod read;
mod refusal;
mod reply;
mod request;
mod session;
mod status;
mod validate;
pub(crate) mod wire;
mod write;

pub(crate) use export::{Agreed, Export};
pub(crate) use link::{End, Link, Waits};
pub(crate) use session::run;
pub(crate) use status::ALLOCATION_ID;
