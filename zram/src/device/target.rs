//! The memory that a device may take: its own limit, and a target that it is held at.
//!
//! ```text
//!   bytes of touched frames
//!   target + 1/32  ---------------- a write that would exceed it brings memory down first
//!   target         ================ the policy's thread brings memory down, at its next look
//!   target - 1/32  ---------------- to here
//! ```
//!
//! The upper line is the pool's limit, which every allocation is compared with anyway. So without a
//! target nothing here costs anything. If memory cannot be brought down, the target is lifted. Then
//! only the device's own limit refuses a write.
//!
//! Invariant: the pool's limit is the lower of the device's own and, unless it is lifted, the
//! target's. Lock: that of the limits, a leaf.

use host::Rank;
use host::unmodelled::RankedMutex;
use zsmalloc::Pool;

use crate::cells::read;
use crate::cells::totals::AtomicU64;
use crate::terms::Unreached;

/// The part of the target by which memory may be above or below: 3.1 %.
pub(crate) const BAND: u64 = 32;

/// The target and limit of one device, and the work that was done for them.
pub(crate) struct Hold {
    limits: RankedMutex<Limits>,
    pub(crate) rounds: AtomicU64,
    pub(crate) recompressed: AtomicU64,
    pub(crate) written_back: AtomicU64,
}

#[derive(Clone, Copy, Default)]
struct Limits {
    /// The device's own limit; 0 means none.
    limit: u64,
    /// The target; 0 means none.
    target: u64,
    /// Why the target is lifted. `None` while it is in force.
    lifted: Option<Unreached>,
}

/// The work that was done to hold a device's memory at its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct HoldStat {
    /// The target in bytes; 0 means that there is no policy.
    pub target_bytes: u64,
    /// True while memory could not be brought down to the target.
    pub lifted: bool,
    /// Why it is lifted, while it is.
    pub unreached: Option<Unreached>,
    /// Times that the work of bringing memory down began.
    pub rounds: u64,
    /// Pages that were recompressed for it.
    pub recompressed_pages: u64,
    /// Pages that were written back for it.
    pub written_back_pages: u64,
}

impl Limits {
    /// The limit of the pool.
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
    /// Neither limit nor target.
    pub(crate) fn new() -> Hold {
        Hold {
            limits: RankedMutex::new(Rank::Leaf, Limits::default()),
            rounds: AtomicU64::new(0),
            recompressed: AtomicU64::new(0),
            written_back: AtomicU64::new(0),
        }
    }

    /// Nothing foreign is called under the lock: `change` is one of those below.
    fn change<T>(&self, pool: &Pool, change: impl FnOnce(&mut Limits) -> T) -> T {
        let mut limits = self.limits.lock();
        let changed = change(&mut limits);
        pool.set_limit(limits.effective());
        changed
    }

    /// The work that was done to hold a device at its target. All figures are zero if there is
    /// none.
    pub(crate) fn stat(&self) -> HoldStat {
        let Limits { target, lifted, .. } = *self.limits.lock();
        HoldStat {
            target_bytes: target,
            lifted: lifted.is_some(),
            unreached: lifted,
            rounds: read(&self.rounds),
            recompressed_pages: read(&self.recompressed),
            written_back_pages: read(&self.written_back),
        }
    }

    /// The target to which memory is brought down. `None` if there is none.
    pub(crate) fn target(&self) -> Option<u64> {
        Some(self.limits.lock().target).filter(|&target| target > 0)
    }

    /// The target that limits writes now. `None` if there is none or while it is lifted.
    pub(crate) fn target_in_force(&self) -> Option<u64> {
        let Limits { target, lifted, .. } = *self.limits.lock();
        (target > 0 && lifted.is_none()).then_some(target)
    }

    /// The device's own limit.
    pub(crate) fn limit(&self) -> u64 {
        self.limits.lock().limit
    }

    /// Sets the device's own limit.
    pub(crate) fn set_limit(&self, pool: &Pool, bytes: u64) {
        self.change(pool, |limits| limits.limit = bytes);
    }

    /// Sets a target and returns true. False if there is one already, which has an owner.
    pub(crate) fn take_target(&self, pool: &Pool, bytes: u64) -> bool {
        self.change(pool, |limits| {
            let is_free = limits.target == 0;
            if is_free {
                (limits.target, limits.lifted) = (bytes, None);
            }
            is_free
        })
    }

    /// Changes the target, and puts it in force. Its owner calls this.
    pub(crate) fn change_target(&self, pool: &Pool, bytes: u64) {
        self.change(pool, |limits| (limits.target, limits.lifted) = (bytes, None));
    }

    /// Removes the target. Its owner calls this.
    pub(crate) fn drop_target(&self, pool: &Pool) {
        self.change(pool, |limits| (limits.target, limits.lifted) = (0, None));
    }

    /// Lifts the target for a reason, or puts it in force again.
    pub(crate) fn lift(&self, pool: &Pool, why: Option<Unreached>) {
        self.change(pool, |limits| limits.lifted = why);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// If the line had no band, it would be the target itself, and every write past it would bring
    /// memory down.
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
}
