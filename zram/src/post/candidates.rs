//! The pages that a post-processing has chosen, the largest first.
//!
//! ```text
//!   bytes of the object   ..64   ..128   ...   4032..4095   4096
//!   bucket                  0      1     ...       63         64      64 bytes wide
//!                                               <------------ the next page comes from this end
//! ```
//!
//! A chosen page has the PP mark, and any access clears it. The thread that comes to process the
//! page looks for the mark under the slot's lock. So pages are chosen without holding anything.
//!
//! Invariant: a page in a bucket was marked by this post-processing. Pages that are left in the
//! buckets when it ends lose the mark. From the first mark to the last, a recount sees that
//! something changes.
//!
//! Lock: one cell at a time. Source: the kernel's buckets of post-processing.

use std::cell::Cell;
use std::ops::RangeInclusive;

use host::{PAGE_SIZE, clock};
use zsmalloc::CellGuard;

use crate::cells::flags::{self, PP};
use crate::cells::unit::unit_of;
use crate::cells::{Change, Stored};
use crate::device::Zram;
use crate::terms::PostError;

const BUCKET_BYTES: usize = 64;
const BUCKETS: usize = PAGE_SIZE / BUCKET_BYTES + 1; // 65
/// The ages that are told apart by the second.
const SECONDS: usize = 64;
/// The number of ages that are told apart.
const AGES: usize = SECONDS + 4 * (u32::BITS - SECONDS.ilog2()) as usize; // 168

/// Which pages are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kinds {
    /// Those that have an object of their own.
    Objects,
    /// Those in units too. The length of such a page is its share of the frame.
    ObjectsAndUnits,
}

/// The facts by which a page is chosen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) page: u64,
    /// Bytes of its object.
    pub(crate) len: usize,
    /// Its client's bits.
    pub(crate) bits: u8,
}

impl Candidate {
    pub(crate) fn is_huge(&self) -> bool {
        self.len == PAGE_SIZE
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.bits & flags::IDLE != 0
    }
}

/// Pages with the PP mark.
pub(crate) struct Candidates<'z> {
    zram: &'z Zram,
    buckets: [Vec<u32>; BUCKETS],
    /// The highest bucket that may contain a page.
    highest: usize,
    /// Held from before the first mark until after the last, so that a recount sees that something
    /// moves.
    _change: Change<'z>,
}

impl<'z> Candidates<'z> {
    /// Chooses among the pages of `ranges` that are objects in memory.
    pub(crate) fn choose(
        zram: &'z Zram,
        ranges: &[RangeInclusive<u64>],
        wanted: impl Fn(&Candidate) -> bool,
    ) -> Result<Candidates<'z>, PostError> {
        Candidates::choose_of(zram, Kinds::Objects, ranges, wanted)
    }

    /// As [`Candidates::choose`], of some kinds of pages.
    pub(crate) fn choose_of(
        zram: &'z Zram,
        kinds: Kinds,
        ranges: &[RangeInclusive<u64>],
        wanted: impl Fn(&Candidate) -> bool,
    ) -> Result<Candidates<'z>, PostError> {
        let (buckets, _change) = ([const { Vec::new() }; BUCKETS], zram.counters.change());
        let mut chosen = Candidates { zram, buckets, highest: BUCKETS - 1, _change };
        let each = |candidate: &Candidate, slot: &mut CellGuard<'_>| {
            // Ranges may overlap, and a page is chosen once.
            if candidate.bits & PP != 0 || !wanted(candidate) {
                return Ok(());
            }
            let bucket = &mut chosen.buckets[candidate.len / BUCKET_BYTES];
            bucket.try_reserve(1).map_err(|_| PostError::NoMemory)?;
            bucket.push(candidate.page as u32);
            flags::set(slot, PP);
            Ok(())
        };
        zram.each_of(kinds, ranges, each)?;
        Ok(chosen)
    }

    /// Chooses the pages that were last accessed longest ago, until their objects have `bytes`.
    pub(crate) fn coldest(
        zram: &'z Zram,
        kinds: Kinds,
        bytes: u64,
        wanted: impl Fn(&Candidate) -> bool,
    ) -> Result<Candidates<'z>, PostError> {
        let now = clock::boot_seconds();
        let age = |page| bucket_of_age(now, zram.ages().map_or(0, |ages| ages.of(page)));
        let mut of_age = [0; AGES];
        zram.each_of(kinds, &zram.all_pages(), |candidate, _| {
            if wanted(candidate) {
                of_age[age(candidate.page)] += candidate.len as u64;
            }
            Ok(())
        })?;
        let (youngest, of_youngest) = youngest_needed(&of_age, bytes);
        let left = Cell::new(of_youngest);
        Candidates::choose_of(zram, kinds, &zram.all_pages(), |candidate| {
            let age = age(candidate.page);
            let chosen = wanted(candidate) && (age > youngest || age == youngest && left.get() > 0);
            if chosen && age == youngest {
                left.set(left.get().saturating_sub(candidate.len as u64));
            }
            chosen
        })
    }

    /// Whether all were taken out.
    pub(crate) fn is_empty(&self) -> bool {
        self.buckets.iter().all(Vec::is_empty)
    }

    /// Takes the next page out. The caller handles its mark.
    pub(crate) fn pop(&mut self) -> Option<u64> {
        loop {
            if let Some(page) = self.buckets[self.highest].pop() {
                return Some(page.into());
            }
            self.highest = self.highest.checked_sub(1)?;
        }
    }
}

/// The bucket of an age. Each second of the first minute is told apart, then four steps each time
/// the age doubles.
fn bucket_of_age(now: u32, accessed: u32) -> usize {
    let age = now.saturating_sub(accessed) as usize;
    if age < SECONDS {
        return age;
    }
    let doublings = age.ilog2() - SECONDS.ilog2();
    let quarter = (age >> (age.ilog2() - 2)) & 3;
    SECONDS + doublings as usize * 4 + quarter
}

/// The youngest age that is needed for so many bytes if the oldest pages come first, and how many
/// bytes of that age are needed.
fn youngest_needed(of_age: &[u64; AGES], bytes: u64) -> (usize, u64) {
    let mut left = bytes;
    for (age, &here) in of_age.iter().enumerate().rev() {
        if here >= left {
            return (age, left);
        }
        left -= here;
    }
    (0, left)
}

impl Drop for Candidates<'_> {
    fn drop(&mut self) {
        while let Some(page) = self.pop() {
            self.zram.unmark_post(page);
        }
    }
}

impl Zram {
    /// Calls `each` with every page of `ranges` that is of these kinds and will not be freed. The
    /// page's slot is locked.
    pub(crate) fn each_of(
        &self,
        kinds: Kinds,
        ranges: &[RangeInclusive<u64>],
        mut each: impl FnMut(&Candidate, &mut CellGuard<'_>) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        for range in ranges {
            let mut page = *range.start();
            while page <= *range.end() {
                let absent = self.slots.absent(page);
                if absent == 0 {
                    self.if_of(kinds, page, &mut each)?;
                }
                page += absent.max(1);
            }
        }
        Ok(())
    }

    fn if_of(
        &self,
        kinds: Kinds,
        page: u64,
        each: &mut impl FnMut(&Candidate, &mut CellGuard<'_>) -> Result<(), PostError>,
    ) -> Result<(), PostError> {
        // A glance comes first, because most pages of a disk are not objects.
        if self.len_of(kinds, self.peek(page)).is_none() {
            return Ok(());
        }
        let Some(mut slot) = self.slots.lock(page) else { return Ok(()) };
        match self.len_of(kinds, Stored::in_cell(&slot)) {
            Some(len) => {
                let candidate = Candidate { page, len, bits: slot.client() };
                each(&candidate, &mut slot)
            }
            None => Ok(()),
        }
    }

    /// Bytes that a page of these kinds takes.
    fn len_of(&self, kinds: Kinds, stored: Stored) -> Option<usize> {
        match (stored, &self.values.units) {
            (Stored::Blob { len, .. }, _) => Some(len),
            (Stored::Unit { page }, Some(units)) if kinds == Kinds::ObjectsAndUnits => {
                Some(units.unit(unit_of(page)).share())
            }
            _ => None,
        }
    }

    /// Locks the slot of a page that was chosen, if the page has not changed since.
    pub(crate) fn lock_chosen(&self, page: u64) -> Option<(CellGuard<'_>, usize)> {
        let slot = self.slots.lock(page)?;
        match Stored::in_cell(&slot) {
            Stored::Blob { len, .. } if slot.client() & PP != 0 => Some((slot, len)),
            _ => None,
        }
    }

    /// A chosen page is not processed after all.
    pub(crate) fn unmark_post(&self, page: u64) {
        if let Some(mut slot) = self.slots.lock(page) {
            flags::clear(&mut slot, PP);
        }
    }

    /// Every page of the disk.
    pub(crate) fn all_pages(&self) -> [RangeInclusive<u64>; 1] {
        [0..=self.pages() - 1]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Disk, ZramConfig, small};
    use proptest::prelude::*;
    use std::sync::Arc;

    const PAGES: u64 = 600;

    fn device() -> Zram {
        let backing: Arc<dyn Disk> = Arc::new(disk::RamDisk::new(1 << 23).expect("a size"));
        let size = PAGES * PAGE_SIZE as u64;
        let config = ZramConfig {
            track_ages: true,
            backing: Some(backing),
            ..ZramConfig::new("zram0", size)
        };
        Zram::new(small::memory(), config).expect("a device")
    }

    /// Stores a page of about `len` bytes that was last accessed at a second.
    fn store(zram: &Zram, page: u64, len: usize, second: u32) {
        let mut state = page << 8 | 1;
        let mut next = || {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (state >> 56) as u8
        };
        let data: Vec<u8> = (0..PAGE_SIZE).map(|at| if at < len { next() } else { 0 }).collect();
        zram.write_page(page, &data).expect("room");
        zram.ages().expect("tracked").put(page, second);
    }

    #[test]
    fn what_is_coldest_is_chosen_whatever_its_size() {
        let zram = device();
        for page in 0..PAGES {
            // One page in ten was accessed long ago. They are in no order of place or size.
            let second = if page % 10 == 7 { 1 } else { clock::boot_seconds() };
            store(&zram, page, 100 + (page * 37 % 3000) as usize, second);
        }
        let cold = |page: &u64| page % 10 == 7;
        let bytes_of = |pages: &[u64]| -> u64 {
            let object = |page: &u64| zram.peek(*page).tally().bytes;
            pages.iter().map(object).sum()
        };
        let all: Vec<u64> = (0..PAGES).filter(cold).collect();
        let take = |bytes| {
            let mut chosen =
                Candidates::coldest(&zram, Kinds::Objects, bytes, |_| true).expect("memory");
            let mut pages: Vec<u64> = std::iter::from_fn(|| chosen.pop()).collect();
            pages.iter().for_each(|&page| zram.unmark_post(page));
            pages.sort_unstable();
            pages
        };
        if clock::boot_seconds() < 3 {
            return println!("skipped: needs a system that is up for three seconds");
        }
        let half = take(bytes_of(&all) / 2);
        assert!(half.iter().all(cold));
        assert!(bytes_of(&half) >= bytes_of(&all) / 2);
        assert!(bytes_of(&half) < bytes_of(&all) / 2 + PAGE_SIZE as u64, "no more than needed");
        assert_eq!(take(bytes_of(&all)), all);
        let more = take(bytes_of(&all) + 1);
        assert_eq!(more.len(), all.len() + 1);
        assert!(all.iter().all(|page| more.contains(page)));
        assert_eq!(take(u64::MAX).len() as u64, PAGES);
        assert_eq!(take(0), [0_u64; 0]);
        zram.check().expect("no defect");
    }

    proptest! {
        #[test]
        fn an_older_page_is_in_no_younger_bucket(now: u32, one: u32, other: u32) {
            let (older, younger) = (one.min(other).min(now), one.max(other).min(now));
            let (older, younger) = (bucket_of_age(now, older), bucket_of_age(now, younger));
            prop_assert!(older >= younger && older < AGES);
            prop_assert_eq!(bucket_of_age(now, u32::MAX), 0, "a clock that ran ahead is now");
        }
    }

    #[test]
    fn ages_are_told_apart_by_seconds_and_then_by_quarters() {
        let at = |age| bucket_of_age(u32::MAX, u32::MAX - age);
        assert_eq!([at(0), at(1), at(63), at(64), at(79), at(80)], [0, 1, 63, 64, 64, 65]);
        assert_eq!([at(127), at(128), at(u32::MAX)], [67, 68, AGES - 1]);
    }
}
