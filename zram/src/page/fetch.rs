//! Reading a page that was written back.
//!
//! ```text
//!   lock slot: block 7 -> unlock -> read block 7 -> lock slot: still block 7? its checksum?
//!                  ^                                   |                          yes: decode
//!                  `------------ no: look again -------'
//! ```
//!
//! The slot is not locked while the disk works. So the page may be overwritten meanwhile, and its
//! block may become another page's. The second look detects that. The block may also come back to
//! the same page with other content. Then its checksum differs, and it is read again. A block
//! counts as damaged only if it is wrong several times, and the checksum that was expected of it
//! did not change meanwhile.
//!
//! Invariant: the bytes that are decoded were read from the block that the locked slot names. They
//! have the checksum that the block had when it was written.
//!
//! Locks: none while the disk works; then stream, and cell.

use codec::{CodecError, Stream};
use disk::DiskError;
use host::PAGE_SIZE;
use zsmalloc::CellGuard;

use super::decode::{Decoded, corrupt, undecoded};
use crate::backing::{Backing, Place};
use crate::cells::Stored;
use crate::device::Zram;

/// Times that a block is read before it counts as damaged.
const READS_MAX: u32 = 3;

/// A block that was read without a lock.
pub(crate) struct Fetched {
    place: Place,
    /// The checksum that was expected of the block just before it was read.
    noted: u32,
    sum: u32,
    block: [u8; PAGE_SIZE],
}

/// The blocks read for one access to a page.
pub(crate) struct Fetches {
    page: u64,
    last: Option<Fetched>,
    /// Times that the last one's block was read.
    reads: u32,
}

impl Fetches {
    /// No block was read yet.
    pub(crate) fn new(page: u64) -> Fetches {
        Fetches { page, last: None, reads: 0 }
    }

    /// The last block read.
    pub(crate) fn last(&self) -> Option<&Fetched> {
        self.last.as_ref()
    }

    /// Reads a block, because the slot named it, and the last block read was another one or did not
    /// have its checksum. No slot is locked.
    pub(crate) fn fetch(&mut self, zram: &Zram, place: Place) -> Result<(), DiskError> {
        let backing = zram.values.backing.as_ref().ok_or_else(|| corrupt(self.page))?;
        // If another checksum is expected by now, the block was written meanwhile, and is not
        // wrong.
        let noted = backing.blocks.sum(place.block);
        let is_same = |last: &Fetched| (last.place, last.noted) == (place, noted);
        let again = self.last.as_ref().is_some_and(is_same);
        self.reads = if again { self.reads + 1 } else { 1 };
        if self.reads > READS_MAX {
            return Err(corrupt(self.page));
        }
        let mut fetched = Fetched { place, noted, sum: 0, block: [0; PAGE_SIZE] };
        backing.read(place.block, &mut fetched.block).map_err(DiskError::Backing)?;
        fetched.sum = backing.sum(place.block, self.page, &fetched.block);
        self.last = Some(fetched);
        Ok(())
    }
}

impl Zram {
    /// Reads a page that was found on the backing disk.
    #[cold]
    pub(crate) fn load_back(
        &self,
        page: u64,
        place: Place,
        data: &mut [u8],
    ) -> Result<(), DiskError> {
        let mut fetches = Fetches::new(page);
        fetches.fetch(self, place)?;
        while let Decoded::Back(place) = self.read_again(page, fetches.last(), data)? {
            fetches.fetch(self, place)?;
        }
        Ok(())
    }

    /// As [`Zram::load_back`], without counting as a use of the page. A recount calls it.
    pub(crate) fn try_back(&self, page: u64, place: Place) -> Result<(), DiskError> {
        let (mut fetches, mut data) = (Fetches::new(page), [0; PAGE_SIZE]);
        fetches.fetch(self, place)?;
        loop {
            let decoded = self.with_stream(|stream| {
                let Some(slot) = self.slots.lock(page) else { return Ok(Decoded::Page) };
                self.decode_with(&slot, fetches.last(), stream, &mut data)
            });
            match decoded.map_err(|error| undecoded(page, error))? {
                Decoded::Page => return Ok(()),
                Decoded::Back(place) => fetches.fetch(self, place)?,
            }
        }
    }

    fn read_again(
        &self,
        page: u64,
        fetched: Option<&Fetched>,
        data: &mut [u8],
    ) -> Result<Decoded, DiskError> {
        self.with_stream(|stream| {
            let Some(mut slot) = self.slots.lock(page) else {
                data.fill(0);
                return Ok(Decoded::Page);
            };
            self.accessed(page, &mut slot);
            let decoded = self.decode_with(&slot, fetched, stream, data);
            decoded.map_err(|error| undecoded(page, error))
        })
    }

    /// Decodes the content of a locked slot. It uses a block that was read, if the slot names that
    /// block.
    pub(crate) fn decode_with(
        &self,
        slot: &CellGuard<'_>,
        fetched: Option<&Fetched>,
        stream: &mut Stream,
        data: &mut [u8],
    ) -> Result<Decoded, CodecError> {
        let backing = self.values.backing.as_ref();
        match (Stored::in_cell(slot), fetched, backing) {
            (Stored::Disk { priority, at }, Some(fetched), Some(backing))
                if fetched.is_of(at, backing) =>
            {
                let compressed = self.config.compressed_writeback;
                let len = if compressed { at.len } else { PAGE_SIZE };
                let blob = &fetched.block[..len];
                self.decode_blob(priority, blob, Some(stream), data).map(|()| Decoded::Page)
            }
            _ => self.decode(slot, Some(stream), data),
        }
    }
}

impl Fetched {
    /// Whether this is the content of the block that a locked slot names.
    fn is_of(&self, place: Place, backing: &Backing) -> bool {
        self.place == place && self.sum == backing.blocks.sum(place.block)
    }
}
