//! One request: what it asks for, doing it, and its status.
//!
//! | kind | does | refused |
//! |---|---|---|
//! | `IN`, `OUT` | reads, writes | more than `PAYLOAD_MAX`, or parts of sectors |
//! | `FLUSH` | flushes | |
//! | `DISCARD` | discards each segment | a segment with a flag: `UNSUPP` |
//! | `WRITE_ZEROES` | zeroes each segment, as a hole if it may | an unknown flag: `UNSUPP` |
//! | `GET_ID` | the name of the device, at most 20 bytes | |
//! | any other | nothing | `UNSUPP` |
//!
//! The protocol has no word for what went wrong. A full disk and a damaged page are `IOERR` like
//! a range past the end. The server's own notices say which it was.
//!
//! Invariants
//! - The header, segments and data are copied before they are looked at or stored. So a guest that
//!   changes them meanwhile gets what was there at one moment, and never a page that does not
//!   decode.
//! - A request costs one piece of memory, whatever its length.
//!
//! Locks: the disk's.

use super::chain::{Chain, Unreachable};
use super::memory::Memory;
use super::wire::{self, HEADER_BYTES, ID_BYTES, SECTOR, SEGMENT_BYTES};
use crate::doors::{Buffer, NoMemory, pieces};
use crate::terms::limits::{PAYLOAD_MAX, ZEROED_SEGMENTS_MAX};
use disk::{Allocation, Disk, DiskError, check_range};
use vm_memory::Bytes;

/// What requests are answered with.
pub(super) struct Desk<'a> {
    pub(super) disk: &'a dyn Disk,
    pub(super) memory: &'a Memory,
    pub(super) id: &'a [u8; ID_BYTES],
    /// Where data is between the guest and the disk.
    pub(super) piece: &'a mut Buffer,
}

/// Why a request failed.
#[derive(Debug)]
enum Failed {
    Io,
    Unsupported,
}

/// A header that was copied.
struct Header {
    kind: u32,
    /// The first byte of the disk.
    offset: u64,
}

impl Desk<'_> {
    /// Does a request, and says how many bytes the guest got. Without a place for the status there
    /// is no answer, and the guest gets its buffers back with nothing in them.
    pub(super) fn answer(&mut self, chain: &mut Chain) -> u32 {
        let Some(status_at) = chain.writable.take_last() else { return 0 };
        let room = chain.writable.len();
        let done = self.perform(chain);
        let status = match done {
            Ok(()) => wire::STATUS_OK,
            Err(Failed::Io) => wire::STATUS_IOERR,
            Err(Failed::Unsupported) => wire::STATUS_UNSUPP,
        };
        if self.memory.map.write_obj(status, status_at).is_err() {
            return 0;
        }
        let data = room - chain.writable.len();
        // The status counts if there is no gap before it.
        u32::try_from(data + u64::from(data == room)).unwrap_or(u32::MAX)
    }

    fn perform(&mut self, chain: &mut Chain) -> Result<(), Failed> {
        let mut header = [0; HEADER_BYTES];
        chain.readable.read(self.memory, &mut header)?;
        let header = Header::parse(&header)?;
        match header.kind {
            wire::KIND_IN => self.read(header.offset, chain),
            wire::KIND_OUT => self.write(header.offset, chain),
            wire::KIND_FLUSH => Ok(self.disk.flush()?),
            wire::KIND_DISCARD => self.each_segment(chain, Self::discard),
            wire::KIND_WRITE_ZEROES => self.each_segment(chain, Self::write_zeroes),
            wire::KIND_GET_ID => {
                let len = chain.writable.len().min(ID_BYTES as u64) as usize;
                Ok(chain.writable.write(self.memory, &self.id[..len])?)
            }
            _ => Err(Failed::Unsupported),
        }
    }

    fn read(&mut self, offset: u64, chain: &mut Chain) -> Result<(), Failed> {
        let len = chain.writable.len();
        check_payload(self.disk, offset, len)?;
        for (offset, len) in pieces(offset, len) {
            let piece = room(self.piece, len)?;
            self.disk.read(offset, piece)?;
            chain.writable.write(self.memory, piece)?;
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, chain: &mut Chain) -> Result<(), Failed> {
        let len = chain.readable.len();
        check_payload(self.disk, offset, len)?;
        for (offset, len) in pieces(offset, len) {
            let piece = room(self.piece, len)?;
            chain.readable.read(self.memory, piece)?;
            self.disk.write(offset, piece)?;
        }
        Ok(())
    }

    /// Calls `act` with offset, length and flags of each segment.
    fn each_segment(
        &self,
        chain: &mut Chain,
        act: fn(&Self, u64, u64, u32) -> Result<(), Failed>,
    ) -> Result<(), Failed> {
        let len = chain.readable.len();
        let most = u64::from(ZEROED_SEGMENTS_MAX) * SEGMENT_BYTES as u64;
        if len == 0 || len > most || !len.is_multiple_of(SEGMENT_BYTES as u64) {
            return Err(Failed::Io);
        }
        for _ in 0..len / SEGMENT_BYTES as u64 {
            let mut segment = [0; SEGMENT_BYTES];
            chain.readable.read(self.memory, &mut segment)?;
            let (sector, rest) = segment.split_first_chunk().ok_or(Failed::Io)?;
            let (sectors, rest) = rest.split_first_chunk().ok_or(Failed::Io)?;
            let (flags, _) = rest.split_first_chunk().ok_or(Failed::Io)?;
            let offset = u64::from_le_bytes(*sector).checked_mul(SECTOR).ok_or(Failed::Io)?;
            let len = u64::from(u32::from_le_bytes(*sectors)) * SECTOR;
            act(self, offset, len, u32::from_le_bytes(*flags))?;
        }
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64, flags: u32) -> Result<(), Failed> {
        match flags {
            0 => Ok(self.disk.discard(offset, len)?),
            _ => Err(Failed::Unsupported),
        }
    }

    fn write_zeroes(&self, offset: u64, len: u64, flags: u32) -> Result<(), Failed> {
        match flags {
            0 => Ok(self.disk.write_zeroes(offset, len, Allocation::Keep)?),
            wire::SEGMENT_UNMAP => Ok(self.disk.write_zeroes(offset, len, Allocation::MayUnmap)?),
            _ => Err(Failed::Unsupported),
        }
    }
}

impl Header {
    fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Failed> {
        let (kind, rest) = bytes.split_first_chunk().ok_or(Failed::Io)?;
        let (_reserved, rest) = rest.split_first_chunk::<4>().ok_or(Failed::Io)?;
        let (sector, _) = rest.split_first_chunk().ok_or(Failed::Io)?;
        let kind = u32::from_le_bytes(*kind);
        let offset = u64::from_le_bytes(*sector).checked_mul(SECTOR);
        // The sector says nothing in a request that is not about a range.
        let ranged = [wire::KIND_IN, wire::KIND_OUT].contains(&kind);
        Ok(Self { kind, offset: offset.or((!ranged).then_some(0)).ok_or(Failed::Io)? })
    }
}

/// Whether a range may be read or written, before any of it is.
fn check_payload(disk: &dyn Disk, offset: u64, len: u64) -> Result<(), Failed> {
    if len > PAYLOAD_MAX.into() || !len.is_multiple_of(SECTOR) {
        return Err(Failed::Io);
    }
    Ok(check_range(disk.size_bytes(), offset, len)?)
}

fn room(piece: &mut Buffer, len: usize) -> Result<&mut [u8], Failed> {
    piece.reserve()?;
    piece.touch(len);
    piece.bytes_mut().get_mut(..len).ok_or(Failed::Io)
}

impl From<DiskError> for Failed {
    fn from(_: DiskError) -> Self {
        Self::Io
    }
}

impl From<Unreachable> for Failed {
    fn from(_: Unreachable) -> Self {
        Self::Io
    }
}

impl From<NoMemory> for Failed {
    fn from(_: NoMemory) -> Self {
        Self::Io
    }
}
