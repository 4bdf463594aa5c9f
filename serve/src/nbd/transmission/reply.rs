//! The third phase of a request: the bytes of its reply.
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
//! Invariant: if a client uses structured replies, its reads and block status requests are answered
//! in chunks, even if they fail. All other requests get simple replies. Locks: none.

use super::export::Agreed;
use super::link::{End, Link};
use super::refusal::Refusal;
use super::request::Request;
use super::wire;

/// Bytes in a simple reply.
pub(super) const SIMPLE_BYTES: usize = 16;
/// Bytes of a chunk's header.
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

/// Replies with success without data, or with an error, in the form that the client expects.
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

/// Writes a simple reply. The number 0 means success.
pub(super) fn simple(link: &mut Link<'_>, cookie: u64, number: u32) -> Result<(), End> {
    let mut bytes = [0; SIMPLE_BYTES];
    bytes[..4].copy_from_slice(&wire::SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&number.to_be_bytes());
    bytes[8..].copy_from_slice(&cookie.to_be_bytes());
    link.put(&bytes)
}

/// Writes the header of a chunk of `len` bytes.
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

/// Writes an error as the last chunk of a reply.
fn error(link: &mut Link<'_>, request: &Request, refusal: Refusal) -> Result<(), End> {
    chunk(link, request.cookie, Place::Last, wire::CHUNK_ERROR, 6 + refusal.why.len())?;
    reason(link, refusal)
}

/// Writes an error at one offset of a read as the last chunk of its reply.
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
    // The words are our own, and short.
    let len = u16::try_from(refusal.why.len()).map_err(|_| End::CutReply)?;
    link.put(&refusal.number.to_be_bytes())?;
    link.put(&len.to_be_bytes())?;
    link.put(refusal.why.as_bytes())
}
