//! Writing a page, or a part of one, into its slot.
//!
//! ```text
//!   write   same-filled? -> word ............................. \
//!           equal to a page, see `equal` -> its object ....... |
//!           else compress -> longer than the watermark: raw     > lock slot, put, free the old
//!                            else the blob -> object .......... /
//!   change  lock slot -> read -> edit -> write           part of a page, or one not aligned
//! ```
//!
//! Invariants
//! - I1 the old content of a slot stays until the new content is stored, so a write that fails
//!   changes nothing.
//! - I2 room is made with no lock of an attempt held.
//!
//! Locks: stream, then cell, then class; see `decode`.

use codec::Stream;
use codec::same::{self, Same};
use disk::DiskError;
use host::PAGE_SIZE;
use zsmalloc::{CellGuard, Object};

use crate::backing::Place;
use crate::cells::{Stored, bump, stored};
use crate::device::Zram;
use crate::page::{Decoded, Fetched, Fetches, undecoded};
use crate::terms::disk_error;

/// Times that a write brings memory down before the target is lifted. Other writers may be faster.
const ATTEMPTS: usize = 8;

/// A page ready to be put in a slot.
enum Encoded<'p> {
    Same(Same),
    Object(Object<'p>),
    /// An object that this page is counted as a user of.
    Shared(u32),
}

impl Zram {
    /// Stores a whole page, which is of a place ([`Stream::set_place`]).
    pub(crate) fn store_page(&self, page: u64, place: u64, data: &[u8]) -> Result<(), DiskError> {
        self.with_room(|| self.try_store_page(page, place, data))
    }

    /// As `store_page`, except that it makes no room.
    pub(crate) fn try_store_page(
        &self,
        page: u64,
        place: u64,
        data: &[u8],
    ) -> Result<(), DiskError> {
        if let Some(same) = self.same_filled(data) {
            return self.put_page(page, Encoded::Same(same));
        }
        self.with_stream(|stream| {
            let Some(sharing) = &self.values.sharing else {
                return self.put_compressed(page, place, stream, data);
            };
            let sum = sharing.hints.sum(data);
            let _turn = sharing.turn(sum);
            if let Some(number) = self.find_equal(sharing, page, sum, stream, data) {
                return self.put_page(page, Encoded::Shared(number));
            }
            self.put_compressed(page, place, stream, data)?;
            sharing.hints.note(sum, page);
            Ok(())
        })
    }

    fn put_compressed(
        &self,
        page: u64,
        place: u64,
        stream: &mut Stream,
        data: &[u8],
    ) -> Result<(), DiskError> {
        stream.set_place(place);
        let object = self.store_first(stream, data).map_err(disk_error)?;
        self.put_page(page, Encoded::Object(object))
    }

    /// Marks a page as zeros that are stored, not as a hole.
    pub(crate) fn write_zero_page(&self, page: u64) -> Result<(), DiskError> {
        self.put_page(page, Encoded::Same(Same::ZERO))
    }

    /// Changes a part of a page, under the slot's lock. If two clients write neighbouring sectors,
    /// both find their bytes afterwards.
    pub(crate) fn change_page(&self, page: u64, edit: impl Fn(&mut [u8])) -> Result<(), DiskError> {
        self.with_room(|| self.try_change_page(page, &edit))
    }

    /// As `change_page`, except that it makes no room.
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

    /// Changes a part of a page. If the page is on the backing disk and its block was not
    /// `fetched`, it returns the place of the block instead.
    fn change_slot(
        &self,
        page: u64,
        edit: &impl Fn(&mut [u8]),
        fetched: Option<&Fetched>,
    ) -> Result<Option<Place>, DiskError> {
        self.with_stream(|stream| {
            let mut data = [0; PAGE_SIZE];
            let mut slot = self.slots.lock_or_add(page).map_err(disk_error)?;
            let found = self.decode_with(&slot, fetched, stream, &mut data);
            match found.map_err(|error| undecoded(page, error))? {
                Decoded::Back(place) => return Ok(Some(place)),
                Decoded::Page => {}
            }
            edit(&mut data);
            stream.set_place(Zram::place_of(page));
            let encoded = match self.same_filled(&data) {
                Some(same) => Encoded::Same(same),
                None => Encoded::Object(self.store_first(stream, &data).map_err(disk_error)?),
            };
            self.put(page, &mut slot, encoded);
            Ok(None)
        })
    }

    fn same_filled(&self, data: &[u8]) -> Option<Same> {
        same::repeated_word(data).and_then(|word| self.values.words.intern(word))
    }

    /// Tries to store. At the limit it tries again after pages went elsewhere, if there is a
    /// target. It tries once more after pending objects were freed and the pool was compacted. No
    /// lock of an attempt is held meanwhile.
    fn with_room<T>(&self, attempt: impl Fn() -> Result<T, DiskError>) -> Result<T, DiskError> {
        match attempt() {
            Err(DiskError::NoSpace) => self.with_more_room(&attempt),
            Err(DiskError::NoMemory) if self.aside.flush() || self.memory().deferred().jobs > 0 => {
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
            if !self.relieve(times == ATTEMPTS) {
                break;
            }
            let done = attempt();
            if !matches!(done, Err(DiskError::NoSpace)) {
                return done;
            }
        }
        self.make_room();
        attempt()
    }

    fn put_page(&self, page: u64, encoded: Encoded<'_>) -> Result<(), DiskError> {
        match self.slots.lock_or_add(page) {
            Ok(mut slot) => {
                self.put(page, &mut slot, encoded);
                Ok(())
            }
            Err(error) => {
                match encoded {
                    Encoded::Same(same) => self.values.retire(Stored::Same(same)),
                    Encoded::Shared(number) => self.values.retire(Stored::Shared { number }),
                    Encoded::Object(_) => {}
                }
                Err(disk_error(error))
            }
        }
    }

    fn put<'p>(&'p self, page: u64, slot: &mut CellGuard<'p>, encoded: Encoded<'p>) {
        let old = self.aside.take(slot);
        match encoded {
            Encoded::Same(same) => stored::put_same(slot, same),
            Encoded::Object(object) => stored::put_blob(slot, 0, object),
            Encoded::Shared(number) => stored::put_shared(slot, number),
        }
        self.written(page, slot, old);
    }

    /// Counts a failure and passes it on.
    pub(crate) fn counted_write<T>(&self, result: Result<T, DiskError>) -> Result<T, DiskError> {
        result.inspect_err(|error| {
            bump(&self.counters.failed_writes, 1);
            self.counters.troubles.note(error);
        })
    }

    /// Fails if the disk is read-only.
    pub(crate) fn check_writable(&self) -> Result<(), DiskError> {
        if self.config.read_only { Err(DiskError::ReadOnly) } else { Ok(()) }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::device::BAND;
    use crate::{ZramConfig, small};

    const TARGET: u64 = 64 * PAGE_SIZE as u64;

    fn held() -> Zram {
        let device =
            Zram::new(small::memory(), ZramConfig::new("zram0", 1 << 20)).expect("a device");
        assert!(device.settings.hold.take_target(&device.slots.pool, TARGET), "it has none");
        device
    }

    fn noise(page: u64) -> Vec<u8> {
        let mut state = page * 2 + 1;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        (0..PAGE_SIZE).map(|_| next()).collect()
    }

    /// A writer found no room eight times, because other writers were faster. It once went on
    /// trying, or was refused, although only the target was in its way.
    #[test]
    fn a_writer_lifts_the_target_after_its_last_attempt() {
        let device = held();
        for attempt in 1..ATTEMPTS {
            assert!(device.relieve(false), "attempt {attempt} is not the last");
            assert!(!device.hold_stat().lifted, "lifted after attempt {attempt} of {ATTEMPTS}");
        }
        assert!(device.relieve(true), "it may try once more");
        assert!(device.hold_stat().lifted, "lifted after the last attempt, {ATTEMPTS}");
        assert!(!device.relieve(false), "no target is in the way of a write any more");
        assert_eq!(device.hold_stat().rounds, ATTEMPTS as u64, "times memory was brought down");
    }

    /// A region writes with its group locked. If such a write brought memory down itself, it would
    /// wait for a write-back, and that may wait for the group.
    #[test]
    fn a_write_if_there_is_room_brings_no_memory_down() {
        let device = held();
        let refused = (0..256).find_map(|page| {
            device.write_page_if_room(page, &noise(page)).err().map(|error| (page, error))
        });
        let (page, error) = refused.expect("there is a target");
        assert!(matches!(error, DiskError::NoSpace), "{error}");
        let line = (TARGET + TARGET / BAND) / PAGE_SIZE as u64;
        assert!((line - 2..=line).contains(&page), "refused at page {page}, the line is {line}");
        let stat = device.hold_stat();
        assert_eq!(stat.rounds, 0, "times that the write brought memory down");
        assert!(!stat.lifted, "nor did it lift the target");
        device.write_page(page, &noise(page)).expect("one that may wait lifts it");
        assert!(device.hold_stat().rounds > 0, "times that one that may wait did");
    }

    #[cfg(debug_assertions)]
    fn device() -> Zram {
        Zram::new(small::memory(), ZramConfig::new("zram0", 1 << 20)).expect("a device")
    }

    /// A thread that has a stream and a slot, and wants another stream, may wait for a thread that
    /// wants the slot.
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
