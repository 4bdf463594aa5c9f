//! What compresses for tiers, and is dropped after the work.
//!
//! It is no stream of the device, because contexts of zstd and of a longer search have several
//! hundred KiB.
//!
//! Invariant: what it takes is counted as long as it lives. Locks: none.

use codec::{Codec, Stream};

use crate::cells::totals::change;
use crate::device::Zram;

/// A stream, and the bytes of it that are counted.
pub(super) struct Bench<'z> {
    zram: &'z Zram,
    stream: Stream,
    counted_bytes: u64,
}

impl<'z> Bench<'z> {
    pub(super) fn new(zram: &'z Zram) -> Bench<'z> {
        Bench { zram, stream: Stream::new(), counted_bytes: 0 }
    }

    /// Compresses a page. The blob lies here until the next one.
    pub(super) fn compress(&mut self, codec: &Codec, page: u64, data: &[u8]) -> Option<&[u8]> {
        self.stream.set_place(Zram::place_of(page));
        codec.compress(&mut self.stream, data).ok()?;
        self.count_bytes(self.stream.heap_bytes() as u64);
        Some(self.stream.last_blob())
    }

    fn count_bytes(&mut self, bytes: u64) {
        change(&self.zram.settings.tiering.packing_bytes, self.counted_bytes, bytes);
        self.counted_bytes = bytes;
    }
}

impl Drop for Bench<'_> {
    fn drop(&mut self) {
        self.count_bytes(0);
    }
}
