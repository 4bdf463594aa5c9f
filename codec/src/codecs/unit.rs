//! Units: several pages that are compressed as one.
//!
//! ```text
//!   page | page | page | page  --pack-->  one frame of zstd  --unpack_unit-->  all pages
//! ```
//!
//! Pages that are alike share what a frame says once: its tables, and the bytes that matches lead
//! to. So a unit is smaller than the blobs of its pages. To read one page, all of them are
//! decompressed.
//!
//! A packer has a context of several hundred KiB. So it is no part of a stream, and is to be
//! dropped when there is nothing more to pack. Room to unpack belongs to a stream, and is as large
//! as the largest unit that was unpacked.
//!
//! Invariant: a frame says neither its length nor that of its unit. The store knows both.
//!
//! Locks: none.

use crate::algorithms::zstd;
use crate::terms::{CodecError, UNIT_LEN_MAX};
use std::fmt;

/// Compresses units of several pages.
pub struct UnitPacker {
    compressor: zstd::UnitCompressor,
    output: Vec<u8>,
}

impl UnitPacker {
    /// A packer at a level of zstd.
    pub(super) fn new(level: i32) -> Result<UnitPacker, CodecError> {
        let mut output = Vec::new();
        let scratch = room_of(&mut output, zstd::bound(UNIT_LEN_MAX))?;
        let compressor = zstd::UnitCompressor::new(level, scratch)?;
        Ok(UnitPacker { compressor, output })
    }

    /// Compresses a unit of 1 to [`UNIT_LEN_MAX`] bytes. The frame lies here until the next one. It
    /// may be longer than the unit.
    ///
    /// # Errors
    ///
    /// [`CodecError::Refused`] for a unit of another length, or if the library gives up.
    /// [`CodecError::NoMemory`].
    pub fn pack(&mut self, unit: &[u8]) -> Result<&[u8], CodecError> {
        if !(1..=UNIT_LEN_MAX).contains(&unit.len()) {
            return Err(CodecError::Refused);
        }
        let len = self.compressor.compress(unit, &mut self.output)?;
        Ok(&self.output[..len])
    }

    /// Bytes on the heap, with those that the library has allocated.
    pub fn heap_bytes(&self) -> usize {
        self.compressor.heap_bytes() + self.output.capacity()
    }
}

impl fmt::Debug for UnitPacker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnitPacker").field("heap_bytes", &self.heap_bytes()).finish_non_exhaustive()
    }
}

/// Where a unit and its frame lie.
#[derive(Default)]
pub(super) struct UnitRoom {
    frame: Vec<u8>,
    unit: Vec<u8>,
}

impl UnitRoom {
    /// Room for a frame and a unit of these lengths, of any content.
    pub(super) fn room(
        &mut self,
        frame_len: usize,
        unit_len: usize,
    ) -> Result<(&mut [u8], &mut [u8]), CodecError> {
        Ok((room_of(&mut self.frame, frame_len)?, room_of(&mut self.unit, unit_len)?))
    }

    /// Bytes on the heap.
    pub(super) fn heap_bytes(&self) -> usize {
        self.frame.capacity() + self.unit.capacity()
    }
}

/// So many bytes of a buffer, which grows if it has to.
fn room_of(buffer: &mut Vec<u8>, len: usize) -> Result<&mut [u8], CodecError> {
    if let Some(more) = len.checked_sub(buffer.len()) {
        buffer.try_reserve_exact(more).map_err(|_| CodecError::NoMemory)?;
        buffer.resize(len, 0);
    }
    Ok(&mut buffer[..len])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, Codec, PAGE_LEN_MAX, Stream};

    fn unit(pages: usize) -> Vec<u8> {
        (0..pages * PAGE_LEN_MAX).map(|at| (at % PAGE_LEN_MAX * at / 97) as u8 & 31).collect()
    }

    fn unpacked<'s>(
        stream: &'s mut Stream,
        frame: &[u8],
        len: usize,
    ) -> Result<&'s [u8], CodecError> {
        stream.unpack_unit(frame.len(), len, |room| {
            room.copy_from_slice(frame);
            true
        })
    }

    #[test]
    fn units_of_all_lengths_come_back_and_room_is_that_of_the_largest() {
        let codec: Codec = "zstd:1".parse().expect("a codec");
        let (mut packer, mut stream) = (codec.unit_packer().expect("memory"), Stream::new());
        let mut bytes = 0;
        for pages in [1, 4, 16, 9] {
            let unit = unit(pages);
            let frame = packer.pack(&unit).expect("it packs").to_vec();
            assert!(unpacked(&mut stream, &frame, unit.len()).expect("its frame") == unit);
            assert!(stream.heap_bytes() >= bytes.max(unit.len() + frame.len()), "{pages} pages");
            bytes = stream.heap_bytes();
        }
        let before = bytes;
        let four = packer.pack(&unit(4)).expect("it packs").to_vec();
        unpacked(&mut stream, &four, 4 * PAGE_LEN_MAX).expect("its frame");
        assert_eq!(stream.heap_bytes(), before, "a shorter unit needs no more");
    }

    #[test]
    fn pages_that_are_alike_take_less_together() {
        let codec = Codec::new(Algorithm::Zstd);
        let page: Vec<u8> = (0..PAGE_LEN_MAX).map(|at| (at * at / 7) as u8).collect();
        let mut stream = Stream::new();
        let alone = codec.compress(&mut stream, &page).expect("it compresses").len();
        let mut packer = codec.unit_packer().expect("memory");
        let together = packer.pack(&page.repeat(16)).expect("it packs").len();
        assert!(together < 2 * alone, "{together} bytes for sixteen pages, {alone} for one");
    }

    #[test]
    fn frames_that_are_wrong_and_units_that_are_too_long_are_errors() {
        let codec = Codec::new(Algorithm::Zstd);
        let (mut packer, mut stream) = (codec.unit_packer().expect("memory"), Stream::new());
        let frame = packer.pack(&unit(4)).expect("it packs").to_vec();
        for (frame, len) in [(&frame[..], 3 * PAGE_LEN_MAX), (&frame[..9], 4 * PAGE_LEN_MAX)] {
            assert_eq!(unpacked(&mut stream, frame, len), Err(CodecError::Corrupt));
        }
        assert_eq!(stream.unpack_unit(7, 4096, |_| false), Err(CodecError::Corrupt));
        assert_eq!(packer.pack(&unit(17)), Err(CodecError::Refused));
        assert_eq!(packer.pack(&[]), Err(CodecError::Refused));
        assert!(packer.heap_bytes() > UNIT_LEN_MAX, "its output alone");
        let lz4 = Codec::new(Algorithm::Lz4);
        assert!(matches!(lz4.unit_packer(), Err(CodecError::Refused)));
    }
}
