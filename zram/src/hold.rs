//! Holding a device's memory at a target: what is cold goes elsewhere.
//!
//! ```text
//!   bytes of touched frames
//!   target + 1/32  ---------------- nobody stores past this: who would has it brought down first
//!   target         ================ the policy's thread brings it down, at its next look
//!   target - 1/32  ---------------- to here: what is coldest is written back, the pool compacted
//! ```
//!
//! The upper line is the pool's limit, which every allocation is compared with anyway: without a
//! target nothing here costs anything. Where memory cannot be brought down (no backing disk, or it
//! is full, or failing) the target is lifted, so that only the device's own limit refuses a write;
//! the policy's thread tries again.
//!
//! Invariants
//! - I1 the pool's limit is the lower of the device's own and, unless it is lifted, the target's.
//! - I2 memory is brought down by one thread at a time; who waited for it looks again.
//!
//! Locks: `Settings::run` while memory is brought down; that of the limits is a leaf.

use std::sync::PoisonError;
use std::sync::atomic::AtomicU64;

use zsmalloc::sync::unmodelled::{Mutex, MutexGuard};
use zsmalloc::{PAGE_SIZE, Pool};

use crate::candidates::{Candidate, Candidates};
use crate::counters::{bump, read};
use crate::device::Zram;
use crate::post::{PostError, Recompress};
use crate::recompress::is_wanted;
use crate::slot_flags::PRIORITIES;
use crate::unreached::Unreached;

/// The part of the target by which memory may be above or below: 3.1 %.
const BAND: u64 = 32;
/// Times that pages are chosen to bring memory down once.
const ROUNDS: usize = 3;
/// Times that a write has memory brought down before it goes past the line: others may be faster.
pub(crate) const ATTEMPTS: usize = 8;
/// Parts of the target that are recompressed between two compactions.
const SLICES: u64 = 64;
/// Bytes of objects that are compressed again for each byte that must go: a fifth or more is saved.
const RECOMPRESS_FOR_EACH: u64 = 5;

/// Target and limit of one device, and what was done for them.
#[derive(Default)]
pub(crate) struct Hold {
    limits: Mutex<Limits>,
    rounds: AtomicU64,
    recompressed: AtomicU64,
    written_back: AtomicU64,
}

#[derive(Clone, Copy, Default)]
struct Limits {
    /// The device's own; 0 = none.
    limit: u64,
    /// 0 = none.
    target: u64,
    /// Why the target is lifted, while it is.
    lifted: Option<Unreached>,
}

/// What was done to hold a device's memory at its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct HoldStat {
    /// Bytes; 0 = no policy.
    pub target_bytes: u64,
    /// True while memory could not be brought down to the target.
    pub lifted: bool,
    /// Why it is lifted, while it is.
    pub unreached: Option<Unreached>,
    /// Times that memory was to be brought down.
    pub rounds: u64,
    /// Pages that were recompressed for it.
    pub recompressed_pages: u64,
    /// Pages that were written back for it.
    pub written_back_pages: u64,
}

/// Pages that went elsewhere or became smaller, and the last thing that kept others from it.
#[derive(Clone, Copy, Default)]
struct Moved {
    pages: u64,
    failed: Option<Unreached>,
}

impl Moved {
    fn none(why: &PostError) -> Moved {
        Moved { pages: 0, failed: Some(why.into()) }
    }

    fn add(&mut self, more: Moved) {
        self.pages += more.pages;
        self.failed = more.failed.or(self.failed);
    }
}

impl Limits {
    /// What the pool's limit is.
    fn effective(self) -> u64 {
        let soft =
            if self.lifted.is_some() { 0 } else { self.target.saturating_add(self.target / BAND) };
        match (self.limit, soft) {
            (0, limit) | (limit, 0) => limit,
            (limit, soft) => limit.min(soft),
        }
    }
}

impl Hold {
    fn limits(&self) -> MutexGuard<'_, Limits> {
        // Nothing that runs under the lock can panic half-way.
        self.limits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, pool: &Pool, change: impl FnOnce(&mut Limits) -> T) -> T {
        let mut limits = self.limits();
        let changed = change(&mut limits);
        pool.set_limit(limits.effective());
        changed
    }

    /// The device's own limit.
    pub(crate) fn limit(&self) -> u64 {
        self.limits().limit
    }

    pub(crate) fn set_limit(&self, pool: &Pool, bytes: u64) {
        self.change(pool, |limits| limits.limit = bytes);
    }

    /// Sets a target where there is none; false where there is one, which is somebody's.
    pub(crate) fn take_target(&self, pool: &Pool, bytes: u64) -> bool {
        self.change(pool, |limits| {
            let is_free = limits.target == 0;
            if is_free {
                (limits.target, limits.lifted) = (bytes, None);
            }
            is_free
        })
    }

    /// There is no target any more: said by whoever took it.
    pub(crate) fn drop_target(&self, pool: &Pool) {
        self.change(pool, |limits| (limits.target, limits.lifted) = (0, None));
    }

    fn lift(&self, pool: &Pool, why: Option<Unreached>) {
        self.change(pool, |limits| limits.lifted = why);
    }
}

impl Zram {
    /// What the policy did; all zero where there is none.
    pub fn hold_stat(&self) -> HoldStat {
        let hold = &self.settings.hold;
        let Limits { target, lifted, .. } = *hold.limits();
        HoldStat {
            target_bytes: target,
            lifted: lifted.is_some(),
            unreached: lifted,
            rounds: read(&hold.rounds),
            recompressed_pages: read(&hold.recompressed),
            written_back_pages: read(&hold.written_back),
        }
    }

    /// Brings memory down for a write that found no room, for the `attempt`th time; false where no
    /// target is in its way. Given the caller holds no lock.
    pub(crate) fn relieve(&self, attempt: usize) -> bool {
        let Limits { target, lifted, .. } = *self.settings.hold.limits();
        if target == 0 || lifted.is_some() {
            return false;
        }
        let done = self.bring_down(target, self.values.backing.is_none());
        if done && attempt == ATTEMPTS {
            // Others were faster each time.
            self.settings.hold.lift(&self.slots.pool, Some(Unreached::Outrun));
        }
        true
    }

    /// Brings memory down if it is above the target; false if that could not be done.
    pub(crate) fn hold(&self) -> bool {
        let target = self.settings.hold.limits().target;
        if target == 0 || self.object_bytes_resident() <= target {
            self.settings.hold.lift(&self.slots.pool, None);
            return true;
        }
        self.bring_down(target, true)
    }

    fn bring_down(&self, target: u64, recompress: bool) -> bool {
        let _one = self.settings.run();
        bump(&self.settings.hold.rounds, 1);
        let low = target - target / BAND;
        // Others store meanwhile, so what is held now does not tell whether anything was done.
        let moved = self.bring_down_to(low, recompress);
        let stuck = moved.pages == 0 && self.object_bytes_resident() > target;
        let why = stuck.then(|| moved.failed.unwrap_or(Unreached::InUse));
        self.settings.hold.lift(&self.slots.pool, why);
        !stuck
    }

    /// Gives how many pages went elsewhere, or became smaller, and what kept others from it.
    fn bring_down_to(&self, low: u64, recompress: bool) -> Moved {
        let mut moved = Moved::default();
        self.make_room();
        if recompress && self.excess(low) > 0 {
            moved.add(self.recompress_coldest(low));
        }
        for _ in 0..ROUNDS {
            let bytes = self.excess(low);
            let written =
                if bytes == 0 { Moved::default() } else { self.write_back_coldest(bytes) };
            moved.add(written);
            if written.pages == 0 {
                break;
            }
            self.make_room();
        }
        moved
    }

    /// Bytes of objects that must go for memory to be no more than `low`, as densely stored as now.
    fn excess(&self, low: u64) -> u64 {
        let resident = self.object_bytes_resident();
        let excess = u128::from(resident.saturating_sub(low));
        (excess * u128::from(self.compr_data_size()) / u128::from(resident.max(1))) as u64
    }

    /// Recompresses pages with the last algorithm there is, until memory is down to `low`; gives
    /// how many pages are smaller. New objects go past the line, and frames of old ones are free
    /// after a compaction only: so a few at a time.
    fn recompress_coldest(&self, low: u64) -> Moved {
        let mut pages = 0;
        let failed = self.recompress_coldest_into(low, &mut pages).err();
        Moved { pages, failed: failed.map(|error| Unreached::from(&error)) }
    }

    fn recompress_coldest_into(&self, low: u64, pages: &mut u64) -> Result<(), PostError> {
        let last = (1..PRIORITIES as u8).rev().find_map(|it| Some((it, self.codec(it)?)));
        let Some((priority, codec)) = last else { return Ok(()) };
        let slice_pages = low / SLICES / PAGE_SIZE as u64 + 1;
        let what = Recompress { max_pages: Some(slice_pages), ..Recompress::with(priority) };
        let wanted = |candidate: &Candidate| is_wanted(&what, candidate);
        let bytes = self.excess(low).saturating_mul(RECOMPRESS_FOR_EACH);
        let mut coldest = Candidates::coldest(self, bytes, wanted)?;
        while !coldest.is_empty() && self.excess(low) > 0 {
            let report = self.recompress_chosen(&mut coldest, &what, codec)?;
            bump(&self.settings.hold.recompressed, report.pages);
            *pages += report.pages;
            self.make_room();
        }
        Ok(())
    }

    /// Writes pages back that take so many bytes; gives how many are on the backing disk for it.
    fn write_back_coldest(&self, bytes: u64) -> Moved {
        let Some(backing) = &self.values.backing else { return Moved::none(&PostError::NoBacking) };
        let coldest = match Candidates::coldest(self, bytes, |_| true) {
            Ok(coldest) => coldest,
            Err(error) => return Moved::none(&error),
        };
        let before = self.counters.tally().written_back;
        // Where some fail, others may have been written.
        let report = self.write_chosen(backing, coldest, u64::MAX);
        let now = self.counters.tally().written_back;
        let failed = report.as_ref().err().map(Unreached::from);
        let pages = report.map_or(now.saturating_sub(before), |report| report.pages);
        bump(&self.settings.hold.written_back, pages);
        Moved { pages, failed }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use disk::DiskError;

    use super::*;
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

    /// Without its band the line is the target itself, and every write past it brings memory down.
    #[test]
    fn the_line_is_the_lower_of_the_limit_and_the_target_with_its_band() {
        let line = |limit, target, lifted: bool| {
            Limits { limit, target, lifted: lifted.then_some(Unreached::Outrun) }.effective()
        };
        let rows = [
            ("neither", line(0, 0, false), 0),
            ("a target of 3200 with 1/32 above it", line(0, 3200, false), 3300),
            ("a lower limit", line(3250, 3200, false), 3250),
            ("a higher limit", line(9000, 3200, false), 3300),
            ("a target that is lifted", line(0, 3200, true), 0),
            ("a limit, the target lifted", line(3250, 3200, true), 3250),
            ("the largest target", line(0, u64::MAX, false), u64::MAX),
        ];
        for (what, found, expected) in rows {
            assert_eq!(found, expected, "bytes at which a write waits: {what}");
        }
    }

    /// A writer that found no room eight times, as others were faster, went on trying, or was
    /// refused, where the target alone was in its way.
    #[test]
    fn a_writer_lifts_the_target_after_its_last_attempt() {
        let device = held();
        for attempt in 1..ATTEMPTS {
            assert!(device.relieve(attempt), "attempt {attempt} is not the last");
            assert!(!device.hold_stat().lifted, "lifted after attempt {attempt} of {ATTEMPTS}");
        }
        assert!(device.relieve(ATTEMPTS), "it may try once more");
        assert!(device.hold_stat().lifted, "lifted after the last attempt, {ATTEMPTS}");
        assert!(!device.relieve(1), "no target is in the way of a write any more");
        assert_eq!(device.hold_stat().rounds, ATTEMPTS as u64, "times memory was brought down");
    }

    /// A region writes with its group locked. Where the write brought memory down itself it waited
    /// for a write-back, which may wait for that group.
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
}
