//! When each page was last accessed, and how far its reads are apart.
//!
//! ```text
//!   page        0     1     2     3
//!   seconds  | 712 | 712 |  0  | 815 | ...     since the system started; 0 means never
//!
//!   a word    31    28 27                 0
//!            |  gap   |      seconds       |
//!
//!   gap        0: not read since it came     15: read once
//!              1 to 14: 2^(gap - 1) seconds or more
//! ```
//!
//! A page that is read once says little of how often it is read, because a look at a whole device
//! reads every page. So two reads are compared, as in LRU-2 (O'Neil and others, 1993). The exponent
//! of a new gap is averaged with the one before, rounded up.
//!
//! The table lies beside the slot table, and is touched only where a page is accessed. A device
//! that does not note ages has no such table.
//!
//! Invariant: a page that is stored was stamped when it was written, except if it was stored before
//! the device began to note ages. It counts as accessed at that time then. A second access in the
//! same second stores nothing.
//!
//! Lock: none; each age is an atomic, and an age that is a moment old does no harm.

use std::ops::Range;
use std::time::Duration;

use host::sync::atomic::{AtomicU32, Ordering};
use host::{Table, clock};
use zsmalloc::{MemoryError, Pool};

/// Bits of the seconds: eight years.
const SECONDS_BITS: u32 = 28;
const SECONDS_MASK: u32 = (1 << SECONDS_BITS) - 1; // 0x0fff_ffff
/// Gaps that are no gaps.
const NOT_READ: u32 = 0;
const READ_ONCE: u32 = u32::MAX >> SECONDS_BITS; // 15

const _: () = assert!(READ_ONCE == 15, "four bits of a gap");

/// A stamp for each page of a device.
pub(crate) struct Ages {
    seconds: Table<AtomicU32>,
    /// When the device began to note them.
    began: u32,
}

impl Ages {
    /// Stamps of which none is set.
    pub(crate) fn new(pool: &Pool, pages: u64) -> Result<Ages, MemoryError> {
        Ok(Ages { seconds: pool.table(pages as usize)?, began: clock::boot_seconds() })
    }

    /// Notes that the page is read now.
    pub(crate) fn read(&self, page: u64) {
        let (now, word) = (clock::boot_seconds(), self.word(page));
        if word & SECONDS_MASK != now {
            self.put(page, read(word, now));
        }
    }

    /// Notes that the page is written now. If it is `new`, no content was there, and what is known
    /// of reads is of another page.
    pub(crate) fn write(&self, page: u64, new: bool) {
        let (now, word) = (clock::boot_seconds(), self.word(page));
        let gap = if new { NOT_READ } else { word >> SECONDS_BITS };
        let written = word_of(gap, now);
        if word != written {
            self.put(page, written);
        }
    }

    /// When the page was last accessed, or when ages began to be noted if it was not since.
    pub(crate) fn of(&self, page: u64) -> u32 {
        match self.word(page) & SECONDS_MASK {
            0 => self.began,
            seconds => seconds,
        }
    }

    /// How many seconds its reads are apart, as a power of two. `None` if it was not read twice.
    pub(crate) fn gap_of(&self, page: u64) -> Option<u32> {
        seconds_of(self.word(page) >> SECONDS_BITS)
    }

    fn word(&self, page: u64) -> u32 {
        // relaxed: an independent number.
        self.seconds.get(page as usize).map_or(0, |seconds| seconds.load(Ordering::Relaxed))
    }

    /// The last second at which a page of this age can have been accessed. `None` if the system has
    /// not been up that long.
    pub(crate) fn cutoff(&self, age: Duration) -> Option<u32> {
        u64::from(clock::boot_seconds()).checked_sub(age.as_secs()).map(|seconds| seconds as u32)
    }

    pub(crate) fn put(&self, page: u64, word: u32) {
        let index = page as usize;
        self.seconds.touch(index..index + 1);
        // relaxed: an independent number. If two threads race, either value will do.
        self.seconds[index].store(word, Ordering::Relaxed);
    }

    /// Bytes held: mapped, and on the heap.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.seconds.held_bytes(), self.seconds.heap_bytes())
    }

    /// The table's addresses.
    pub(crate) fn range(&self) -> Range<usize> {
        self.seconds.range()
    }
}

/// The word of a page that is read in another second than that of the word.
fn read(word: u32, now: u32) -> u32 {
    let (then, gap) = (word & SECONDS_MASK, word >> SECONDS_BITS);
    let latest = gap_for(now.saturating_sub(then));
    let gap = match gap {
        NOT_READ => READ_ONCE,
        READ_ONCE => latest,
        _ => (gap + latest).div_ceil(2),
    };
    word_of(gap, now)
}

fn word_of(gap: u32, now: u32) -> u32 {
    gap << SECONDS_BITS | (now & SECONDS_MASK)
}

/// Accesses that are so many seconds apart.
fn gap_for(seconds: u32) -> u32 {
    (seconds.max(1).ilog2() + 1).min(READ_ONCE - 1)
}

fn seconds_of(gap: u32) -> Option<u32> {
    (gap != NOT_READ && gap != READ_ONCE).then(|| 1 << (gap - 1))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_that_of_reads() {
        let after = |gaps: &[u32]| {
            let mut second = 1000;
            let word = gaps.iter().fold(word_of(NOT_READ, second), |word, gap| {
                second += gap;
                read(word, second)
            });
            assert_eq!(word & SECONDS_MASK, second);
            seconds_of(word >> SECONDS_BITS)
        };
        assert_eq!(after(&[]), None, "it was written");
        assert_eq!(after(&[7]), None, "it was read once");
        assert_eq!(after(&[7, 1]), Some(1));
        assert_eq!(after(&[7, 20]), Some(16));
        assert_eq!(after(&[7, 1, 1, 1, 16]), Some(4), "half as long, in powers of two");
        assert_eq!(after(&[7, 1, 16, 16, 16]), Some(16));
        assert_eq!(after(&[7, 100_000, 1, 1, 1, 1]), Some(2), "it is read more now");
        assert_eq!(after(&[7, 1 << 20]), Some(1 << 13), "the longest");
        assert_eq!(word_of(14, u32::MAX) & SECONDS_MASK, SECONDS_MASK, "it does not run over");
    }

    #[test]
    fn reads_of_what_was_there_before_do_not_count() {
        let zram = device(true);
        let (gap, early) = (|| ages(&zram).gap_of(0), word_of(5, EARLY));
        zram.write_page(0, &blob(1)).expect("room");
        ages(&zram).put(0, early);
        zram.write_page(0, &blob(2)).expect("room");
        assert_eq!(gap(), Some(16), "it is read as often when its content changes");
        disk::Disk::discard(&zram, 0, PAGE as u64).expect("in range");
        ages(&zram).put(0, early);
        zram.write_page(0, &blob(3)).expect("room");
        assert_eq!(gap(), None, "another page");
    }
    use crate::{Idle, Zram, ZramConfig, small};

    const PAGE: usize = 4096;
    /// A second at which the system was up already.
    const EARLY: u32 = 1;

    fn device(track_ages: bool) -> Zram {
        let config = ZramConfig { track_ages, ..ZramConfig::new("zram0", 1 << 22) };
        Zram::new(small::memory(), config).expect("a device")
    }

    fn ages(zram: &Zram) -> &Ages {
        zram.ages().expect("they are tracked")
    }

    fn blob(byte: u8) -> Vec<u8> {
        (0..PAGE).map(|at| if at % 7 == 0 { at as u8 } else { byte }).collect()
    }

    fn idle(zram: &Zram) -> Vec<u64> {
        zram.block_states(0..zram.pages()).filter(|it| it.idle).map(|it| it.page).collect()
    }

    #[test]
    fn pages_that_nobody_used_for_long_are_idle() {
        let zram = device(true);
        for page in 0..4 {
            zram.write_page(page, &blob(page as u8)).expect("room");
            assert!(ages(&zram).of(page) >= EARLY, "a write is an access");
            ages(&zram).put(page, EARLY);
        }
        zram.read_page(1, &mut [0; PAGE]).expect("in range");
        disk::Disk::write(&zram, 2 * PAGE as u64, &[1]).expect("room");
        let age = Duration::from_secs(u64::from(clock::boot_seconds() - EARLY));
        if age.is_zero() {
            return println!("skipped: needs a system that is up for two seconds");
        }
        assert_eq!(zram.mark_idle(Idle::OlderThan(age)).expect("tracked"), 2);
        assert_eq!(idle(&zram), [0, 3]);
        let state = zram.block_states(0..1).next().expect("it is stored");
        assert_eq!(state.accessed_seconds, EARLY);
        let older_than_the_system = Duration::from_secs(u64::from(u32::MAX));
        assert_eq!(zram.mark_idle(Idle::OlderThan(older_than_the_system)).expect("tracked"), 0);
        assert_eq!(idle(&zram), [0; 0], "no page is so old");
        let all = zram.mark_idle(Idle::OlderThan(Duration::ZERO)).expect("tracked");
        assert_eq!(all, 4, "pages marked that were used until now");
        zram.check().expect("no defect");
    }

    #[test]
    fn ages_take_memory_where_something_is_stored() {
        let (zram, without) = (device(true), device(false));
        let more = || zram.stat().metadata.slot_table - without.stat().metadata.slot_table;
        let bits = ages(&zram).bytes().1;
        assert_eq!((ages(&zram).bytes().0, more()), (0, bits));
        zram.write_page(3, &blob(1)).expect("room");
        without.write_page(3, &blob(1)).expect("room");
        assert_eq!((ages(&zram).bytes().0, more()), (PAGE as u64, PAGE as u64 + bits));
    }
}
