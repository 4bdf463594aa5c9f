//! Reading a whole page, wherever it is.
//!
//! ```text
//!   without a stream: lock the slot, decode --> the page
//!                                           `--> it needs a stream: take one, try once more
//!                                           `--> it is on the backing disk: see `fetch`
//!   it was in a unit: it is taken out, see `take_out`, unless it was read for the last time
//! ```
//!
//! Invariant: a page that fails to decode is an error, and stays unchanged. No read fails because
//! its page cannot be taken out.
//!
//! Locks: a stream if one is needed, then the cell.

use codec::{CodecError, Stream};
use disk::DiskError;

use super::decode::{Decoded, undecoded};
use crate::cells::{Stored, bump};
use crate::device::Zram;

/// What becomes of a page that was read.
#[derive(Clone, Copy)]
enum After {
    /// It is in use, and likely to be read again.
    Used,
    /// It is discarded before long.
    Over,
}

impl Zram {
    /// Reads a whole page.
    pub(crate) fn load_page(&self, page: u64, data: &mut [u8]) -> Result<(), DiskError> {
        self.load(page, After::Used, data)
    }

    /// Reads a whole page for the last time.
    pub(crate) fn load_last(&self, page: u64, data: &mut [u8]) -> Result<(), DiskError> {
        self.load(page, After::Over, data)
    }

    fn load(&self, page: u64, after: After, data: &mut [u8]) -> Result<(), DiskError> {
        match self.load_here(page, after, data)? {
            Decoded::Back(place) => self.load_back(page, place, data),
            Decoded::Page => Ok(()),
        }
    }

    /// As `load`, if the page is in memory. A stream is taken only for an algorithm that needs one.
    /// The first look may find that out.
    fn load_here(&self, page: u64, after: After, data: &mut [u8]) -> Result<Decoded, DiskError> {
        if !self.config.algorithm.needs_stream_to_decompress() {
            match self.read_slot(page, (None, after), data) {
                Err(CodecError::NeedsStream) => {}
                found => return found.map_err(|error| undecoded(page, error)),
            }
        }
        let found = self.with_stream(|stream| self.read_slot(page, (Some(stream), after), data));
        found.map_err(|error| undecoded(page, error))
    }

    fn read_slot(
        &self,
        page: u64,
        (mut stream, after): (Option<&mut Stream>, After),
        data: &mut [u8],
    ) -> Result<Decoded, CodecError> {
        match self.slots.lock(page) {
            Some(mut slot) => {
                self.accessed(page, &mut slot);
                let decoded = self.decode(&slot, stream.as_deref_mut(), data)?;
                if let Stored::Unit { .. } = Stored::in_cell(&slot)
                    && let (Some(stream), After::Used) = (stream, after)
                {
                    self.take_out_read(page, &mut slot, stream, data);
                }
                Ok(decoded)
            }
            None => {
                data.fill(0);
                Ok(Decoded::Page)
            }
        }
    }

    /// Counts a failure and passes it on.
    pub(crate) fn counted_read<T>(&self, result: Result<T, DiskError>) -> Result<T, DiskError> {
        result.inspect_err(|error| {
            bump(&self.counters.failed_reads, 1);
            self.counters.troubles.note(error);
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use codec::{Algorithm, Codec};
    use disk::{Disk, ExtentKind};
    use host::PAGE_SIZE;

    use super::*;
    use crate::{Recompress, ZramConfig, small};

    /// A look without a stream at a page that needs one once gave `Ok`. A caller that did not
    /// compare it with "needs a stream" would have passed on the old content of the buffer.
    #[test]
    fn a_page_that_needs_a_stream_is_an_error_without_one() {
        let mut config = ZramConfig::new("zram0", 1 << 20);
        config.recompression[0] = Some(Codec::new(Algorithm::Zstd));
        let device = Zram::new(small::memory(), config).expect("a device");
        let text: Vec<u8> = (0..PAGE_SIZE).map(|at| (at * at / 97) as u8 & 15).collect();
        device.store_page(3, 0, &text).expect("room");
        device.recompress(&Recompress::with(1)).expect("it runs");
        let mut data = [0; PAGE_SIZE];
        let found = device.read_slot(3, (None, After::Used), &mut data);
        assert_eq!(found, Err(CodecError::NeedsStream), "zstd does not decode without a stream");
        device.load_page(3, &mut data).expect("it takes one");
        assert!(data[..] == text[..], "the page comes back");
    }

    /// It once read as zeros, although no client had discarded it.
    #[test]
    fn a_cell_that_means_nothing_is_an_error_and_no_hole() {
        let config = ZramConfig::new("zram0", 1 << 20);
        let device = Zram::new(small::memory(), config).expect("a device");
        device.store_page(3, 0, &[5; PAGE_SIZE]).expect("room");
        device.slots.lock(3).expect("it is there").put_value(7, 9);
        let mut data = [0; PAGE_SIZE];
        let found = device.load_page(3, &mut data);
        assert!(matches!(found, Err(DiskError::Corrupt { offset: 12288 })), "{found:?}");
        let extent = device.next_extent(12288, 4096).expect("in range");
        assert_eq!(extent.kind, ExtentKind::Data, "nobody may skip it");
        assert!(device.check().is_err(), "a recount finds it");
        device.discard(12288, 4096).expect("in range");
        device.load_page(3, &mut data).expect("a hole again");
    }
}
