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

use crate::event::Event;
use crate::exports::Exports;
use crate::link::{End, Link};

/// Serves one connection from its first byte to its last.
pub(crate) fn serve(exports: &dyn Exports, link: &mut Link<'_>) -> Result<(), End> {
    let (export, agreed) = handshake::negotiate(exports, link)?;
    link.engage(export.name())?;
    let (peer, name) = (link.peer(), export.name().to_owned());
    link.tell(Event::Connected { peer, export: name });
    session::run(&export, agreed, link)
}

/// Tells a client why it is not served, whatever it asks for.
pub(crate) fn turn_away(link: &mut Link<'_>, why: &str) -> Result<(), End> {
    handshake::turn_away(link, why)
}
