//! One page at a time: reading, writing and changing a slot.
//!
//! ```text
//!   write   same-filled? -> word ............................. \
//!           else compress -> longer than the watermark: raw     > lock slot, put, free the old
//!                            else the blob -> object .......... /
//!   read    lock slot -> nothing: zeros | word: fill | raw: copy | blob: decompress in place
//!                        | written back: see `fetch`
//!   change  lock slot -> read -> edit -> write           part of a page, or one not aligned
//! ```
//!
//! Invariants
//! - I1 the old content of a slot is there until the new one is stored: a write that fails changes
//!   nothing.
//! - I2 an object of 4096 bytes is a raw page: the watermark lies below.
//! - I3 every access clears what `slot_flags` says it clears, under the lock it takes anyway.
//!
//! Locks: stream, then cell, then class. A stream is taken first where one may be needed: who
//! holds a stream waits for cells, so who holds a cell must not wait for a stream.

use codec::same::{self, Same};
use codec::{CodecError, Stream};
use disk::DiskError;
use host::{Held, Rank};
use zsmalloc::{CellGuard, Content, Object, PAGE_SIZE, cpu};

use crate::counters::bump;
use crate::device::Zram;
use crate::entries::{is_marked, unmark};
use crate::error::disk_error;
use crate::fetch::{Fetched, Fetches, decode_back};
use crate::hold::ATTEMPTS;
use crate::slot_flags::{accessed, priority};
use crate::sums::enter;
use crate::written_back::WrittenBack;

/// What came of decoding a locked slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Decoded {
    /// The page.
    Page,
    /// Nothing yet: it is on the backing disk.
    Back(WrittenBack),
}

/// A page ready to be put in a slot.
pub(crate) enum Encoded<'p> {
    Same(Same),
    Object(Object<'p>),
}

/// The error for a page that is lost.
pub(crate) fn corrupt(page: u64) -> DiskError {
    DiskError::Corrupt { offset: page * PAGE_SIZE as u64 }
}

/// The error for a page that was not decoded. Want of memory leaves the page as it is.
pub(crate) fn undecoded(page: u64, error: CodecError) -> DiskError {
    match error {
        CodecError::NoMemory => DiskError::NoMemory,
        _ => corrupt(page),
    }
}

impl Zram {
    /// Works with a stream. Its rank is kept here, as `codec` has none.
    pub(crate) fn with_stream<R>(&self, work: impl FnOnce(&mut Stream) -> R) -> R {
        let _held = Held::enter(Rank::Stream);
        self.streams.with(cpu::current_hint(), work)
    }

    /// Stores a whole page.
    pub(crate) fn store_page(&self, page: u64, data: &[u8]) -> Result<(), DiskError> {
        self.with_room(|| self.try_store_page(page, data))
    }

    pub(crate) fn try_store_page(&self, page: u64, data: &[u8]) -> Result<(), DiskError> {
        if let Some(same) = self.same_filled(data) {
            return self.put_page(page, Encoded::Same(same));
        }
        self.with_stream(|stream| {
            let object = self.compress(stream, data)?;
            self.put_page(page, Encoded::Object(object))
        })
    }

    /// Marks a page as zeros that are there: not a hole.
    pub(crate) fn write_zero_page(&self, page: u64) -> Result<(), DiskError> {
        self.put_page(page, Encoded::Same(Same::ZERO))
    }

    /// Reads a whole page.
    pub(crate) fn load_page(&self, page: u64, data: &mut [u8]) -> Result<(), DiskError> {
        match self.load_here(page, data)? {
            Decoded::Back(place) => self.load_back(page, place, data),
            Decoded::Page => Ok(()),
        }
    }

    /// The same where the page is in memory. A stream is taken only for an algorithm that needs
    /// one, which may be found out by looking.
    fn load_here(&self, page: u64, data: &mut [u8]) -> Result<Decoded, DiskError> {
        if !self.config.algorithm.needs_stream_to_decompress() {
            match self.read_slot(page, None, data) {
                Err(CodecError::NeedsStream) => {}
                found => return found.map_err(|error| undecoded(page, error)),
            }
        }
        let found = self.with_stream(|stream| self.read_slot(page, Some(stream), data));
        found.map_err(|error| undecoded(page, error))
    }

    /// Changes a part of a page, under the slot's lock: two clients that write neighbouring
    /// sectors both find their bytes afterwards.
    pub(crate) fn change_page(&self, page: u64, edit: impl Fn(&mut [u8])) -> Result<(), DiskError> {
        self.with_room(|| self.try_change_page(page, &edit))
    }

    /// The same without making room where there is none.
    pub(crate) fn try_change_page(
        &self,
        page: u64,
        edit: impl Fn(&mut [u8]),
    ) -> Result<(), DiskError> {
        let mut fetches = Fetches::new(page);
        while let Some(place) = self.change_slot(page, &edit, fetches.last())? {
            fetches.fetch(self, place)?;
        }
        Ok(())
    }

    /// Changes a part of a page; gives where it is on the backing disk, unless what is there was
    /// `fetched`.
    fn change_slot(
        &self,
        page: u64,
        edit: &impl Fn(&mut [u8]),
        fetched: Option<&Fetched>,
    ) -> Result<Option<WrittenBack>, DiskError> {
        self.with_stream(|stream| {
            let mut data = [0; PAGE_SIZE];
            let mut slot = self.slots.lock_or_add(page).map_err(disk_error)?;
            let found = self.decode_with(&slot, fetched, stream, &mut data);
            match found.map_err(|error| undecoded(page, error))? {
                Decoded::Back(place) => return Ok(Some(place)),
                Decoded::Page => {}
            }
            edit(&mut data);
            let encoded = match self.same_filled(&data) {
                Some(same) => Encoded::Same(same),
                None => Encoded::Object(self.compress(stream, &data)?),
            };
            self.put(page, &mut slot, encoded);
            Ok(None)
        })
    }

    /// A slot was given other content, and is locked still.
    pub(crate) fn replaced(&self, slot: &CellGuard<'_>, old: Content) {
        self.values.retire(old);
        enter(&self.counters, slot, old);
    }

    /// Decodes what a locked slot holds; [`CodecError::NeedsStream`] where that takes a stream and
    /// none was passed.
    pub(crate) fn decode(
        &self,
        slot: &CellGuard<'_>,
        stream: Option<&mut Stream>,
        data: &mut [u8],
    ) -> Result<Decoded, CodecError> {
        match slot.content() {
            Content::Empty => data.fill(0),
            Content::Object { .. } if is_marked(slot) => data.fill(0),
            Content::Object { .. } => {
                let blob = slot.bytes().unwrap_or(&[]);
                self.decode_blob(priority(slot.client()), blob, stream, data)?;
            }
            Content::Value { tag, value } => match Same::from_cell(tag, value) {
                Some(same) => same::fill(data, self.values.words.word(same)),
                None => return decode_back(slot.content()),
            },
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

    fn read_slot(
        &self,
        page: u64,
        stream: Option<&mut Stream>,
        data: &mut [u8],
    ) -> Result<Decoded, CodecError> {
        match self.slots.lock(page) {
            Some(mut slot) => {
                self.accessed(page, &mut slot);
                self.decode(&slot, stream, data)
            }
            None => {
                data.fill(0);
                Ok(Decoded::Page)
            }
        }
    }

    /// A client reads a slot, or has given it other content.
    pub(crate) fn accessed(&self, page: u64, slot: &mut CellGuard<'_>) {
        accessed(slot);
        if let Some(ages) = &self.ages {
            ages.stamp(page);
        }
    }

    fn same_filled(&self, data: &[u8]) -> Option<Same> {
        same::repeated_word(data).and_then(|word| self.values.words.intern(word))
    }

    fn compress(&self, stream: &mut Stream, data: &[u8]) -> Result<Object<'_>, DiskError> {
        let blob = match self.config.algorithm.compress(stream, data) {
            Ok(blob) if blob.len() <= self.watermark => blob,
            // Too long, or the codec failed: neither is an error.
            _ => data,
        };
        self.slots.pool.store(blob).map_err(disk_error)
    }

    /// Tries; at the limit, again after pages went elsewhere, if there is a target; and once more
    /// after what is pending was freed and the pool compacted, which is done with no lock of the
    /// attempt held.
    fn with_room<T>(&self, attempt: impl Fn() -> Result<T, DiskError>) -> Result<T, DiskError> {
        match attempt() {
            Err(DiskError::NoSpace) => self.with_more_room(&attempt),
            Err(DiskError::NoMemory) if self.entries.is_some() || self.has_jobs() => {
                self.flush_entries();
                self.memory().flush_deferred();
                attempt()
            }
            done => done,
        }
    }

    #[cold]
    fn with_more_room<T>(
        &self,
        attempt: &impl Fn() -> Result<T, DiskError>,
    ) -> Result<T, DiskError> {
        for times in 1..=ATTEMPTS {
            if !self.relieve(times) {
                break;
            }
            let done = attempt();
            if !matches!(done, Err(DiskError::NoSpace)) {
                return done;
            }
        }
        self.flush_entries();
        self.slots.pool.make_room();
        attempt()
    }

    fn has_jobs(&self) -> bool {
        self.memory().deferred().jobs > 0
    }

    /// Empties the slots that were set aside; the caller has none locked.
    pub(crate) fn flush_entries(&self) {
        self.entries.iter().for_each(|entries| entries.flush());
    }

    fn put_page(&self, page: u64, encoded: Encoded<'_>) -> Result<(), DiskError> {
        match self.slots.lock_or_add(page) {
            Ok(mut slot) => {
                self.put(page, &mut slot, encoded);
                Ok(())
            }
            Err(error) => {
                if let Encoded::Same(same) = encoded {
                    self.values.words.release(same);
                }
                Err(disk_error(error))
            }
        }
    }

    fn put<'p>(&'p self, page: u64, slot: &mut CellGuard<'p>, encoded: Encoded<'p>) {
        let old = slot.content();
        unmark(slot, &self.counters);
        match encoded {
            Encoded::Same(same) => slot.put_value(same.tag, same.value),
            Encoded::Object(object) => slot.put(object),
        }
        slot.set_client(0);
        self.accessed(page, slot);
        self.replaced(slot, old);
    }

    /// Counts a failure and passes it on.
    pub(crate) fn counted_write<T>(&self, result: Result<T, DiskError>) -> Result<T, DiskError> {
        result.inspect_err(|error| {
            bump(&self.counters.failed_writes, 1);
            self.counters.troubles.note(error);
        })
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

    use super::*;
    use crate::{Recompress, ZramConfig, small};

    /// A look without a stream at a page that needs one gave `Ok`, and whoever did not compare it
    /// with "needs a stream" would have passed on what the buffer held before.
    #[test]
    fn a_page_that_needs_a_stream_is_an_error_without_one() {
        let mut config = ZramConfig::new("zram0", 1 << 20);
        config.recompression[0] = Some(Codec::new(Algorithm::Zstd));
        let device = Zram::new(small::memory(), config).expect("a device");
        let text: Vec<u8> = (0..PAGE_SIZE).map(|at| (at * at / 97) as u8 & 15).collect();
        device.store_page(3, &text).expect("room");
        device.recompress(&Recompress::with(1)).expect("it runs");
        let mut data = [0; PAGE_SIZE];
        let found = device.read_slot(3, None, &mut data);
        assert_eq!(found, Err(CodecError::NeedsStream), "zstd does not decode without a stream");
        device.load_page(3, &mut data).expect("it takes one");
        assert!(data[..] == text[..], "the page comes back");
    }

    /// Want of memory for a context was told as damage: the page is whole, and can be read later.
    #[test]
    fn want_of_memory_is_not_told_as_damage() {
        let told = |error| undecoded(3, error);
        assert!(matches!(told(CodecError::NoMemory), DiskError::NoMemory));
        let lost = |error| matches!(error, DiskError::Corrupt { offset: 12288 });
        assert!(lost(told(CodecError::Corrupt)) && lost(told(CodecError::NeedsStream)));
    }

    #[cfg(debug_assertions)]
    fn device() -> Zram {
        Zram::new(small::memory(), ZramConfig::new("zram0", 1 << 20)).expect("a device")
    }

    /// Who has a stream and a slot, and wants another stream, may wait for who wants the slot.
    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "R1: waiting for a lock of rank Stream")]
    fn a_stream_under_a_slot_is_caught() {
        let device = device();
        let _slot = device.slots.lock_or_add(0).expect("room");
        device.with_stream(|_| ());
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "R1: waiting for a lock of rank Stream")]
    fn a_second_stream_is_caught() {
        let device = device();
        device.with_stream(|_| device.with_stream(|_| ()));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "R1: waiting for a lock of rank PostProcessing")]
    fn post_processing_with_a_stream_in_hand_is_caught() {
        let device = device();
        device.with_stream(|_| drop(device.settings.run()));
    }
}
