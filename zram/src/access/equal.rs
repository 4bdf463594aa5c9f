//! Finding a page that is equal to one that is written.
//!
//! ```text
//!   sum of the page -> hint: a page -> lock its cell, decode, compare all bytes
//!        its own object    -> becomes a shared object, which both pages use
//!        a shared object   -> has one use more
//!        anything else     -> none: the written page gets an object of its own
//! ```
//!
//! Invariant: a page names a shared object only after all its bytes were compared with it, under
//! the lock of a cell that names the object. A hint is never trusted.
//!
//! A page that was recompressed stays as it is, because all shared objects are of the first
//! algorithm. A shared page is neither recompressed nor written back.
//!
//! Locks: a stream, the turn of the sum, the cell of the other page, then a shared cell. The cell
//! of the page that is written is not locked.

use codec::Stream;
use host::PAGE_SIZE;
use zsmalloc::CellGuard;

use crate::cells::{PageSum, Sharing, Stored, stored};
use crate::device::Zram;
use crate::page::Decoded;

impl Zram {
    /// The number of a shared object with these bytes, with a use for the page that is written.
    pub(super) fn find_equal(
        &self,
        sharing: &Sharing,
        page: u64,
        sum: PageSum,
        stream: &mut Stream,
        data: &[u8],
    ) -> Option<u32> {
        let twin = sharing.hints.page(sum)?;
        // Before the cell is locked, because a leaf may have to be taken.
        let own = matches!(self.peek(twin), Stored::Blob { .. }) && twin != page;
        let reserved = if own { Some(sharing.reserve()?) } else { None };
        let mut slot = self.slots.lock(twin)?;
        let mut found = [0; PAGE_SIZE];
        match (Stored::in_cell(&slot), reserved) {
            (Stored::Shared { number }, _) if self.holds(&slot, stream, &mut found, data) => {
                sharing.add_use(number)
            }
            (old @ Stored::Blob { priority: 0, len }, Some(reserved))
                if self.holds(&slot, stream, &mut found, data) =>
            {
                // Not needed any more, so it holds the blob.
                found[..len].copy_from_slice(slot.bytes()?);
                let number = sharing.begin(reserved, &found[..len])?;
                stored::put_shared(&mut slot, number);
                self.replaced(&slot, old);
                Some(number)
            }
            _ => None,
        }
    }

    /// Whether a locked slot holds a page with these bytes.
    fn holds(
        &self,
        slot: &CellGuard<'_>,
        stream: &mut Stream,
        found: &mut [u8; PAGE_SIZE],
        data: &[u8],
    ) -> bool {
        let decoded = self.decode(slot, Some(stream), found);
        matches!(decoded, Ok(Decoded::Page)) && found[..] == *data
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use disk::{Disk, DiskError};

    use super::*;
    use crate::{SharedStat, ZramConfig, small};

    fn device() -> Zram {
        let config = ZramConfig { share_equal_pages: true, ..ZramConfig::new("zram0", 1 << 22) };
        Zram::new(small::memory(), config).expect("a device")
    }

    fn page(kind: u8) -> Vec<u8> {
        (0..PAGE_SIZE).map(|at| if at % 7 == 0 { at as u8 } else { kind }).collect()
    }

    fn noise(seed: u64) -> Vec<u8> {
        let mut state = seed * 2 + 1;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        (0..PAGE_SIZE).map(|_| next()).collect()
    }

    fn write(device: &Zram, pages: &[u64], data: &[u8]) {
        pages.iter().for_each(|&at| device.write_page(at, data).expect("room"));
    }

    fn shared(device: &Zram) -> SharedStat {
        device.check().expect("no defect");
        device.stat().shared.expect("it shares")
    }

    #[test]
    fn equal_pages_have_one_object_until_the_last_is_gone() {
        let device = device();
        let (one, other) = (page(1), page(2));
        write(&device, &[0, 1, 2, 3, 4], &one);
        let len = device.compr_data_size();
        let of = |pages, objects: u64| SharedStat {
            pages,
            objects,
            bytes: objects * len,
            saved_bytes: pages * len - objects * len,
        };
        assert_eq!(shared(&device), of(5, 1));
        assert_eq!(device.stat().orig_data_size, 5 * PAGE_SIZE as u64);
        device.write_page(0, &other).expect("room");
        device.discard_pages(1..2).expect("in range");
        device.write(2 * PAGE_SIZE as u64, &[9]).expect("room");
        assert_eq!(shared(&device), of(2, 1));
        let mut data = [0; PAGE_SIZE];
        for (at, first) in [(0, other[0]), (1, 0), (2, 9), (3, one[0]), (4, one[0])] {
            device.read_page(at, &mut data).expect("it decodes");
            assert_eq!(data[0], first, "page {at}");
        }
        device.discard_pages(0..device.pages()).expect("in range");
        device.memory().flush_deferred();
        assert_eq!((shared(&device), device.compr_data_size()), (of(0, 0), 0));
    }

    /// The hint of a page that is written again leads to itself.
    #[test]
    fn a_page_that_is_written_again_stays_shared() {
        let device = device();
        let data = page(1);
        write(&device, &[0, 1, 0, 1, 0], &data);
        assert_eq!(shared(&device).pages, 2);
        let device = self::device();
        write(&device, &[0, 0], &data);
        assert_eq!(shared(&device).pages, 0, "one page");
    }

    #[test]
    fn a_hint_that_is_old_or_wrong_shares_nothing() {
        let device = device();
        let sharing = device.values.sharing.as_ref().expect("it shares");
        device.write_page(0, &page(1)).expect("room");
        device.write_page(1, &[3; PAGE_SIZE]).expect("room");
        for (at, wrong) in (2..).zip([0, 1, 9, device.pages() - 1]) {
            let data = noise(at);
            sharing.hints.note(sharing.hints.sum(&data), wrong);
            device.write_page(at, &data).expect("room");
            let mut read = [0; PAGE_SIZE];
            device.read_page(at, &mut read).expect("it decodes");
            assert!(read[..] == data[..], "page {at} is as it was written");
        }
        assert_eq!(shared(&device).pages, 0);
    }

    #[test]
    fn a_number_without_an_object_is_an_error_and_no_hole() {
        for number in [9, u32::MAX] {
            let device = device();
            write(&device, &[0, 1], &page(1));
            stored::put_shared(&mut device.slots.lock(0).expect("it is there"), number);
            let found = device.read_page(0, &mut [0; PAGE_SIZE]);
            assert!(matches!(found, Err(DiskError::Corrupt { offset: 0 })), "{found:?}");
            assert!(device.check().is_err(), "a recount finds it");
            device.discard_pages(0..1).expect("in range");
            device.read_page(1, &mut [0; PAGE_SIZE]).expect("its twin is whole");
        }
    }

    #[test]
    fn huge_pages_are_shared_and_a_recount_finds_a_wrong_count() {
        let device = device();
        write(&device, &[3, 700], &noise(1));
        let stat = shared(&device);
        assert_eq!((stat.pages, stat.saved_bytes), (2, PAGE_SIZE as u64));
        device.values.sharing.as_ref().expect("it shares").miscount(0);
        let defect = device.check().expect_err("damaged").0;
        assert!(defect.contains("is named by 2 slots, counted 3"), "{defect}");
    }

    /// A client with several connections writes copies of a file side by side.
    #[test]
    fn pages_that_are_written_at_once_find_each_other() {
        const THREADS: u64 = 4;
        const KINDS: u64 = 64; // few enough that no bucket of hints is full
        let device = device();
        let start = std::sync::Barrier::new(THREADS as usize);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (device, start) = (&device, &start);
                scope.spawn(move || {
                    for kind in 0..KINDS {
                        start.wait();
                        write(device, &[thread * KINDS + kind], &noise(kind));
                    }
                });
            }
        });
        let stat = shared(&device);
        assert_eq!((stat.pages, stat.objects), (THREADS * KINDS, KINDS));
    }

    /// Threads write, read and discard few kinds of pages, so that objects come and go at once.
    #[test]
    fn threads_that_share_and_part_leave_each_page_whole() {
        let device = device();
        let failed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let (device, failed) = (&device, &failed);
                scope.spawn(move || {
                    let mut state = thread + 1;
                    let mut data = [0; PAGE_SIZE];
                    for _ in 0..3000 {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        let (at, kind) = ((state >> 40) % 24, (state >> 50) as u8 % 3);
                        let done = match (state >> 60) % 4 {
                            0 => device.discard_pages(at..at + 1),
                            1 => device.read_page(at, &mut data),
                            _ => device.write_page(at, &page(kind)),
                        };
                        let whole = data == [0; PAGE_SIZE] || (0..3).any(|it| data[..] == page(it));
                        // relaxed: looked at when the threads have ended.
                        failed.fetch_or(done.is_err() || !whole, Ordering::Relaxed);
                    }
                });
            }
        });
        // relaxed: the threads have ended.
        assert!(!failed.load(Ordering::Relaxed));
        shared(&device);
    }
}
