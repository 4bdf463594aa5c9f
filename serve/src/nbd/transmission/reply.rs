//! Third phase of a request: the reply's bytes.
//!
//! ```text
//!   simple   0      4       8         16
//!            | magic | error | cookie  |  then a read's data
//!   chunk    0      4       6      8         16       20
//!            | magic | flags | kind | cookie  | length  |  then so many bytes:
//!              OFFSET_DATA   offset(8) data
//!              OFFSET_HOLE   offset(8) length(4)
//!              BLOCK_STATUS  context(4) extents * (length(4) flags(4))
//!              ERROR         number(4) words_len(2) words
//!              ERROR_OFFSET  number(4) words_len(2) words offset(8)
//! ```
//!
//! Invariant: a read and a block status request of a client with structured replies is answered
//! in chunks, success or not; everything else in simple replies.

use super::export::Agreed;
use super::link::{End, Link};
use super::refusal::Refusal;
use super::request::Request;
use super::wire;

/// Bytes in a simple reply.
pub(super) const SIMPLE_BYTES: usize = 16;
/// Bytes before a chunk's own.
pub(super) const CHUNK_BYTES: usize = 20;

/// A chunk's place in its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// More follow.
    Inner,
    /// The reply is complete.
    Last,
}

impl Place {
    /// The place of a chunk after which `left` bytes remain to be sent.
    pub(super) fn before(left: u32) -> Self {
        if left == 0 { Self::Last } else { Self::Inner }
    }
}

/// Success without data, or an error, in the form the client expects.
pub(super) fn conclude(
    link: &mut Link<'_>,
    agreed: Agreed,
    request: &Request,
    outcome: Result<(), Refusal>,
) -> Result<(), End> {
    match outcome {
        Err(refusal) if agreed.structured && has_chunks(request) => error(link, request, refusal),
        Err(refusal) => simple(link, request.cookie, refusal.number),
        Ok(()) => simple(link, request.cookie, 0),
    }
}

fn has_chunks(request: &Request) -> bool {
    matches!(request.kind, wire::CMD_READ | wire::CMD_BLOCK_STATUS)
}

/// A simple reply; 0 is success.
pub(super) fn simple(link: &mut Link<'_>, cookie: u64, number: u32) -> Result<(), End> {
    let mut bytes = [0; SIMPLE_BYTES];
    bytes[..4].copy_from_slice(&wire::SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&number.to_be_bytes());
    bytes[8..].copy_from_slice(&cookie.to_be_bytes());
    link.put(&bytes)
}

/// The beginning of a chunk of `len` bytes.
pub(super) fn chunk(
    link: &mut Link<'_>,
    cookie: u64,
    place: Place,
    kind: u16,
    len: usize,
) -> Result<(), End> {
    let flags = if place == Place::Last { wire::CHUNK_DONE } else { 0 };
    // A chunk is bounded by the outbox.
    let len = u32::try_from(len).map_err(|_| End::CutReply)?;
    let mut bytes = [0; CHUNK_BYTES];
    bytes[..4].copy_from_slice(&wire::CHUNK_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..].copy_from_slice(&len.to_be_bytes());
    link.put(&bytes)
}

/// An error in a structured reply; nothing follows it.
fn error(link: &mut Link<'_>, request: &Request, refusal: Refusal) -> Result<(), End> {
    chunk(link, request.cookie, Place::Last, wire::CHUNK_ERROR, 6 + refusal.why.len())?;
    reason(link, refusal)
}

/// An error that concerns one place of a read; nothing follows it.
pub(super) fn error_at(
    link: &mut Link<'_>,
    request: &Request,
    refusal: Refusal,
    offset: u64,
) -> Result<(), End> {
    chunk(link, request.cookie, Place::Last, wire::CHUNK_ERROR_OFFSET, 14 + refusal.why.len())?;
    reason(link, refusal)?;
    link.put(&offset.to_be_bytes())
}

fn reason(link: &mut Link<'_>, refusal: Refusal) -> Result<(), End> {
    // The words are ours and short.
    let len = u16::try_from(refusal.why.len()).map_err(|_| End::CutReply)?;
    link.put(&refusal.number.to_be_bytes())?;
    link.put(&len.to_be_bytes())?;
    link.put(refusal.why.as_bytes())
}
