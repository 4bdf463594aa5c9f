//! A read: the disk decodes into the outbox, piece by piece.
//!
//! ```text
//!   plainly     [ ok ][ piece ][ piece ] ...            one header, raw data
//!   in_chunks   [ h data ][ h hole ][ h data, done ]    or  ... [ h error at offset, done ]
//! ```
//!
//! Invariants
//! - R1. A piece has at most `PIECE` bytes, and every piece except the last ends on a page
//!   boundary. So no page is decoded twice. A `DF` read is one piece.
//! - R2. In chunks, a chunk with the error takes the place of a piece that failed. A plain reply
//!   can have an error only before its header is sent, which is during the first piece. After that
//!   the connection is cut, because the client would take any further bytes for data.
//!
//! Locks: the disk's. None is held while the client is waited for.

use super::link::{End, Link};
use super::refusal::Refusal;
use super::reply::{self, CHUNK_BYTES, Place, SIMPLE_BYTES};
use super::request::Request;
use super::{status, wire};
use crate::terms::limits::{HOLE_PROBE_MIN, PAGE, PIECE};
use disk::{Disk, DiskError};

/// Answers a valid read with a header and the data.
pub(super) fn plainly(disk: &dyn Disk, request: &Request, link: &mut Link<'_>) -> Result<(), End> {
    let first = piece_at(request.offset, request.len);
    let mark = link.make_room(SIMPLE_BYTES + first as usize)?;
    reply::simple(link, request.cookie, 0)?;
    if let Err(error) = disk.read(request.offset, link.append(first as usize)?) {
        link.rewind(mark);
        return reply::simple(link, request.cookie, Refusal::of(&error).number);
    }
    let (mut offset, mut left) = (request.offset + u64::from(first), request.len - first);
    while left > 0 {
        let piece = piece_at(offset, left);
        disk.read(offset, link.append(piece as usize)?).map_err(|_| End::CutReply)?;
        offset += u64::from(piece);
        left -= piece;
    }
    Ok(())
}

/// Answers a valid read with chunks.
pub(super) fn in_chunks(
    disk: &dyn Disk,
    request: &Request,
    link: &mut Link<'_>,
) -> Result<(), End> {
    if request.len == 0 {
        return reply::chunk(link, request.cookie, Place::Last, wire::CHUNK_NONE, 0);
    }
    let (mut offset, mut left) = (request.offset, request.len);
    while left > 0 {
        match next_chunk(disk, request, offset, left, link)? {
            Ok(sent) => {
                offset += u64::from(sent);
                left -= sent;
            }
            Err(error) => return reply::error_at(link, request, Refusal::of(&error), offset),
        }
    }
    Ok(())
}

/// Replies with one chunk, a hole or data, and gives how many bytes of the range it covers.
fn next_chunk(
    disk: &dyn Disk,
    request: &Request,
    offset: u64,
    left: u32,
    link: &mut Link<'_>,
) -> Result<Result<u32, DiskError>, End> {
    if request.flags & wire::FLAG_DF != 0 {
        // One piece, even if it does not end on a page boundary. `validate` has checked its length.
        return data(disk, request, offset, left, Place::Last, link);
    }
    let mut piece = piece_at(offset, left);
    if request.len >= HOLE_PROBE_MIN {
        let extent = match disk.next_extent(offset, left.into()) {
            Ok(extent) => extent,
            Err(error) => return Ok(Err(error)),
        };
        let (kind, run) = status::run_of(&extent, left);
        if kind.reads_as_zeros() {
            return hole(request, offset, run, Place::before(left - run), link).map(Ok);
        }
        piece = piece.min(run);
    }
    data(disk, request, offset, piece, Place::before(left - piece), link)
}

fn hole(
    request: &Request,
    offset: u64,
    len: u32,
    place: Place,
    link: &mut Link<'_>,
) -> Result<u32, End> {
    reply::chunk(link, request.cookie, place, wire::CHUNK_OFFSET_HOLE, 12)?;
    link.put(&offset.to_be_bytes())?;
    link.put(&len.to_be_bytes())?;
    Ok(len)
}

fn data(
    disk: &dyn Disk,
    request: &Request,
    offset: u64,
    len: u32,
    place: Place,
    link: &mut Link<'_>,
) -> Result<Result<u32, DiskError>, End> {
    let bytes = len as usize;
    let mark = link.make_room(CHUNK_BYTES + 8 + bytes)?;
    reply::chunk(link, request.cookie, place, wire::CHUNK_OFFSET_DATA, 8 + bytes)?;
    link.put(&offset.to_be_bytes())?;
    let done = disk.read(offset, link.append(bytes)?);
    if done.is_err() {
        link.rewind(mark);
    }
    Ok(done.map(|()| len))
}

/// The length of the piece at `offset`, with `left` to go (R1).
fn piece_at(offset: u64, left: u32) -> u32 {
    let into_page = (offset % PAGE as u64) as u32;
    left.min(PIECE as u32 - into_page)
}
