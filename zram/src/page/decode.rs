//! Decoding the content of a locked slot.
//!
//! ```text
//!   lock slot -> nothing: zeros | word: fill | raw: copy | blob: decompress in place
//!                | on the backing disk: see `fetch` | shared: lock its cell, as a blob
//!                | in a unit: copy its frame, decompress all its pages
//! ```
//!
//! Invariants
//! - I1 an object of 4096 bytes is a raw page, because the watermark is lower.
//! - I2 every access clears the bits that `flags` names, under the lock that it takes anyway.
//!
//! Locks: the caller has the slot locked. A stream is taken before a cell. A thread that holds a
//! stream waits for cells, so a thread that holds a cell must not wait for a stream.

use codec::{CodecError, Stream, same};
use disk::DiskError;
use host::PAGE_SIZE;
use zsmalloc::CellGuard;

use crate::backing::Place;
use crate::cells::flags::accessed;
use crate::cells::{Stored, enter};
use crate::device::Zram;

/// The result of decoding a locked slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Decoded {
    /// The page was decoded.
    Page,
    /// Nothing was decoded, because the page is on the backing disk.
    Back(Place),
}

/// The error for a page that is lost.
pub(crate) fn corrupt(page: u64) -> DiskError {
    DiskError::Corrupt { offset: page * PAGE_SIZE as u64 }
}

/// The error for a page that was not decoded. If there was no memory, the page is unharmed.
pub(crate) fn undecoded(page: u64, error: CodecError) -> DiskError {
    match error {
        CodecError::NoMemory => DiskError::NoMemory,
        _ => corrupt(page),
    }
}

impl Zram {
    /// Decodes the content of a locked slot. [`CodecError::NeedsStream`] if that takes a stream and
    /// none was passed.
    pub(crate) fn decode(
        &self,
        slot: &CellGuard<'_>,
        stream: Option<&mut Stream>,
        data: &mut [u8],
    ) -> Result<Decoded, CodecError> {
        match Stored::in_cell(slot) {
            Stored::Nothing => data.fill(0),
            Stored::Unknown => return Err(CodecError::Corrupt),
            Stored::Blob { priority, .. } => {
                let blob = slot.bytes().unwrap_or(&[]);
                self.decode_blob(priority, blob, stream, data)?;
            }
            Stored::Same(same) => same::fill(data, self.values.words.word(same)),
            Stored::Disk { at, .. } => return Ok(Decoded::Back(at)),
            Stored::Shared { number } => {
                let sharing = self.values.sharing.as_ref().ok_or(CodecError::Corrupt)?;
                let shared = sharing.lock(number).ok_or(CodecError::Corrupt)?;
                let blob = shared.bytes().ok_or(CodecError::Corrupt)?;
                self.decode_blob(0, blob, stream, data)?;
            }
            Stored::Unit { page } => {
                let units = self.values.units.as_ref().ok_or(CodecError::Corrupt)?;
                let stream = stream.ok_or(CodecError::NeedsStream)?;
                data.copy_from_slice(units.page(page, stream)?);
            }
        }
        Ok(Decoded::Page)
    }

    /// Decodes the object of a locked slot.
    pub(crate) fn decode_object(
        &self,
        page: u64,
        slot: &CellGuard<'_>,
        stream: &mut Stream,
        data: &mut [u8],
    ) -> Result<(), DiskError> {
        match self.decode(slot, Some(stream), data) {
            Ok(Decoded::Page) => Ok(()),
            Ok(Decoded::Back(_)) => Err(corrupt(page)),
            Err(error) => Err(undecoded(page, error)),
        }
    }

    /// Decodes a blob that was compressed with the algorithm of a priority.
    pub(crate) fn decode_blob(
        &self,
        priority: u8,
        blob: &[u8],
        stream: Option<&mut Stream>,
        data: &mut [u8],
    ) -> Result<(), CodecError> {
        if blob.len() == PAGE_SIZE {
            data.copy_from_slice(blob);
            return Ok(());
        }
        let codec = self.codec(priority).ok_or(CodecError::Corrupt)?;
        match stream {
            Some(stream) => codec.decompress(stream, blob, data),
            None => codec.decompress_stateless(blob, data),
        }
    }

    /// A client reads a slot.
    pub(crate) fn accessed(&self, page: u64, slot: &mut CellGuard<'_>) {
        accessed(slot);
        if let Some(ages) = self.ages() {
            ages.read(page);
        }
    }

    /// A client has given a slot other content.
    pub(crate) fn written(&self, page: u64, slot: &mut CellGuard<'_>, old: Stored) {
        accessed(slot);
        if let Some(ages) = self.ages() {
            ages.write(page, old == Stored::Nothing);
        }
        self.replaced(slot, old);
    }

    /// A slot was given other content, and is locked still.
    pub(crate) fn replaced(&self, slot: &CellGuard<'_>, old: Stored) {
        self.values.retire(old);
        enter(&self.counters, slot, old);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No memory for a context was once reported as damage. The page is whole, and can be read
    /// later.
    #[test]
    fn want_of_memory_is_not_told_as_damage() {
        let told = |error| undecoded(3, error);
        assert!(matches!(told(CodecError::NoMemory), DiskError::NoMemory));
        let lost = |error| matches!(error, DiskError::Corrupt { offset: 12288 });
        assert!(lost(told(CodecError::Corrupt)) && lost(told(CodecError::NeedsStream)));
    }
}
