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

use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use zsmalloc::Pool;

use crate::candidates::{Candidate, Candidates};
use crate::counters::{bump, read};
use crate::device::Zram;
use crate::post::{PostError, Recompress};
use crate::recompress::is_wanted;
use crate::slot_flags::PRIORITIES;

/// The part of the target by which memory may be above or below: 3.1 %.
const BAND: u64 = 32;
/// Times that pages are chosen to bring memory down once.
const ROUNDS: usize = 3;
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
    lifted: bool,
}

/// What was done to hold a device's memory at its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct HoldStat {
    /// Bytes; 0 = no policy.
    pub target_bytes: u64,
    /// True while memory could not be brought down to the target.
    pub lifted: bool,
    /// Times that memory was to be brought down.
    pub rounds: u64,
    /// Pages that were recompressed for it.
    pub recompressed_pages: u64,
    /// Pages that were written back for it.
    pub written_back_pages: u64,
}

impl Limits {
    /// What the pool's limit is.
    fn effective(self) -> u64 {
        let soft = if self.lifted { 0 } else { self.target + self.target / BAND };
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

    fn change(&self, pool: &Pool, change: impl FnOnce(&mut Limits)) {
        let mut limits = self.limits();
        change(&mut limits);
        pool.set_limit(limits.effective());
    }

    /// The device's own limit.
    pub(crate) fn limit(&self) -> u64 {
        self.limits().limit
    }

    pub(crate) fn set_limit(&self, pool: &Pool, bytes: u64) {
        self.change(pool, |limits| limits.limit = bytes);
    }

    /// 0 = none.
    pub(crate) fn set_target(&self, pool: &Pool, bytes: u64) {
        self.change(pool, |limits| (limits.target, limits.lifted) = (bytes, false));
    }

    fn lift(&self, pool: &Pool, lifted: bool) {
        self.change(pool, |limits| limits.lifted = lifted);
    }
}

impl Zram {
    /// What the policy did; all zero where there is none.
    pub fn hold_stat(&self) -> HoldStat {
        let hold = &self.settings.hold;
        let Limits { target, lifted, .. } = *hold.limits();
        HoldStat {
            target_bytes: target,
            lifted,
            rounds: read(&hold.rounds),
            recompressed_pages: read(&hold.recompressed),
            written_back_pages: read(&hold.written_back),
        }
    }

    /// Brings memory down for a write that found no room; false where there is no target. Given
    /// the caller holds no lock.
    pub(crate) fn relieve(&self) -> bool {
        let Limits { target, lifted, .. } = *self.settings.hold.limits();
        if target == 0 || lifted {
            return false;
        }
        self.bring_down(target, self.values.backing.is_none());
        true
    }

    /// Brings memory down if it is above the target; false if that could not be done.
    pub(crate) fn hold(&self) -> bool {
        let target = self.settings.hold.limits().target;
        if target == 0 || self.object_bytes_resident() <= target {
            self.settings.hold.lift(&self.slots.pool, false);
            return true;
        }
        self.bring_down(target, true)
    }

    fn bring_down(&self, target: u64, recompress: bool) -> bool {
        let _one = self.settings.run();
        bump(&self.settings.hold.rounds, 1);
        let low = target - target / BAND;
        let done = self.bring_down_to(low, recompress);
        let held = self.object_bytes_resident() <= target;
        self.settings.hold.lift(&self.slots.pool, !held);
        // What failed is for who asks for a write-back; here it shows in what is held.
        held && done.is_ok()
    }

    fn bring_down_to(&self, low: u64, recompress: bool) -> Result<(), PostError> {
        self.make_room();
        if recompress && self.excess(low) > 0 {
            self.recompress_coldest(self.excess(low))?;
            self.make_room();
        }
        for _ in 0..ROUNDS {
            let bytes = self.excess(low);
            if bytes == 0 || self.write_back_coldest(bytes)? == 0 {
                break;
            }
            self.make_room();
        }
        Ok(())
    }

    /// Bytes of objects that must go for memory to be no more than `low`, as densely stored as now.
    fn excess(&self, low: u64) -> u64 {
        let resident = self.object_bytes_resident();
        let excess = u128::from(resident.saturating_sub(low));
        (excess * u128::from(self.compr_data_size()) / u128::from(resident.max(1))) as u64
    }

    /// Recompresses pages with the last algorithm there is, to save about so many bytes.
    fn recompress_coldest(&self, bytes: u64) -> Result<(), PostError> {
        let last = (1..PRIORITIES as u8).rev().find_map(|it| Some((it, self.codec(it)?)));
        let Some((priority, codec)) = last else { return Ok(()) };
        let what = Recompress::with(priority);
        let wanted = |candidate: &Candidate| is_wanted(&what, candidate);
        let bytes = bytes.saturating_mul(RECOMPRESS_FOR_EACH);
        let coldest = Candidates::coldest(self, bytes, wanted)?;
        let report = self.recompress_chosen(coldest, &what, codec)?;
        bump(&self.settings.hold.recompressed, report.pages);
        Ok(())
    }

    /// Writes pages back that take so many bytes; gives how many pages.
    fn write_back_coldest(&self, bytes: u64) -> Result<u64, PostError> {
        let Some(backing) = &self.values.backing else { return Ok(0) };
        let coldest = Candidates::coldest(self, bytes, |_| true)?;
        let report = self.write_chosen(backing, coldest, u64::MAX)?;
        bump(&self.settings.hold.written_back, report.pages);
        Ok(report.pages)
    }
}
