//! The NBD protocol, server side, as its specification `doc/proto.md` has it: fixed newstyle
//! negotiation, structured replies, block status; no TLS, no extended headers.
//!
//! ```text
//!   connect -> handshake (options) -> transmission (requests) -> close
//!                handshake, option,     session: parse    request
//!                contexts                        validate validate
//!                                                handle   handle, read, write, status
//!                                                reply    reply
//! ```
//!
//! Invariants
//! - N1. Every request is answered once, in order, or the connection ends; a refused or failed
//!   request changes nothing outside its range and leaves the connection usable.
//! - N2. No disk call is under way while the server waits for the client.
//! - N3. What a client can make the server hold is bounded by `limits`, whatever it sends.

mod contexts;
mod export;
mod handle;
mod handshake;
mod option;
mod read;
mod refusal;
mod reply;
mod request;
mod session;
mod status;
mod validate;
mod wire;
mod write;

pub(crate) use export::Export;

use crate::link::{End, Link};
use std::time::Duration;

/// Serves one connection from its first byte to its last.
pub(crate) fn serve(export: &Export, link: &mut Link<'_>, idle_after: Duration) -> Result<(), End> {
    let agreed = handshake::negotiate(export, link)?;
    link.relax(idle_after)?;
    session::run(export, agreed, link)
}
