//! Bringing a device's memory down to its target: cold pages go elsewhere.
//!
//! ```text
//!   make room --> recompress the coldest, a slice at a time --> write back the coldest,
//!                                                               up to three times
//! ```
//!
//! `target` has the lines that memory is held between. Memory cannot be brought down if there is no
//! backing disk, or if the disk is full or failing. Then the target is lifted, so that only the
//! device's own limit refuses a write. The policy's thread tries again.
//!
//! Invariant: memory is brought down by one thread at a time. A thread that waited for that looks
//! again.
//!
//! Locks: `Settings::run` while memory is brought down. None is held when it is called.

use host::PAGE_SIZE;

use super::candidates::{Candidate, Candidates, Kinds};
use super::recompress::is_wanted;
use crate::cells::{bump, kind};
use crate::device::{BAND, HoldStat, Zram};
use crate::terms::{PostError, Recompress, Unreached};

/// Times that pages are chosen each time memory is brought down.
const ROUNDS: usize = 3;
/// Between two compactions, 1/this of the target is recompressed.
const SLICES: u64 = 64;
/// Bytes of objects that are compressed again for each byte that must go, because a fifth or more
/// is saved.
const RECOMPRESS_FOR_EACH: u64 = 5;

/// The number of pages that went elsewhere or became smaller, and the last reason why others did
/// not.
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

impl Zram {
    /// The work that the policy did. All figures are zero if there is none.
    pub fn hold_stat(&self) -> HoldStat {
        self.settings.hold.stat()
    }

    /// Brings memory down for a write that found no room. False if no target is in its way. If it
    /// is the write's `last` attempt, the target is lifted. The caller holds no lock.
    pub(crate) fn relieve(&self, last: bool) -> bool {
        let Some(target) = self.settings.hold.target_in_force() else { return false };
        let done = self.bring_down(target, self.values.backing.is_none());
        if done && last {
            // Other writers were faster each time.
            self.settings.hold.lift(&self.slots.pool, Some(Unreached::Outrun));
        }
        true
    }

    /// Brings memory down if it is above the target. False if that is not possible.
    pub(crate) fn hold(&self) -> bool {
        let above = |target: &u64| self.slots.pool.object_bytes_resident() > *target;
        let Some(target) = self.settings.hold.target().filter(above) else {
            self.settings.hold.lift(&self.slots.pool, None);
            return true;
        };
        self.bring_down(target, true)
    }

    fn bring_down(&self, target: u64, recompress: bool) -> bool {
        let _one = self.settings.run();
        bump(&self.settings.hold.rounds, 1);
        // Others store meanwhile, so the bytes held now do not tell whether anything was done.
        let moved = self.bring_down_below(target, recompress);
        let is_above = self.slots.pool.object_bytes_resident() > target;
        let stuck = moved.pages == 0 && is_above && self.is_wanted_at(target);
        let why = stuck.then(|| moved.failed.unwrap_or(Unreached::InUse));
        self.settings.hold.lift(&self.slots.pool, why);
        !stuck
    }

    fn written_back_pages(&self) -> u64 {
        self.counters.tally().counts[kind::DISK]
    }

    /// Returns how many pages went elsewhere or became smaller, and why others did not.
    fn bring_down_below(&self, target: u64, recompress: bool) -> Moved {
        let mut moved = Moved::default();
        self.make_room();
        if recompress && self.excess(target) > 0 {
            moved.add(self.recompress_coldest(target));
        }
        for _ in 0..ROUNDS {
            let bytes = self.excess(target);
            let written =
                if bytes == 0 { Moved::default() } else { self.write_back_coldest(bytes, target) };
            moved.add(written);
            if written.pages == 0 {
                break;
            }
            self.make_room();
        }
        moved
    }

    /// Whether the target is still this one or a lower one.
    fn is_wanted_at(&self, target: u64) -> bool {
        self.settings.hold.target().is_some_and(|now| now <= target)
    }

    /// Bytes of objects that must go so that memory is at the lower line of a target, if pages stay
    /// as densely stored as now. 0 if the target is a higher one by now, or none.
    fn excess(&self, target: u64) -> u64 {
        if !self.is_wanted_at(target) {
            return 0;
        }
        let low = target - target / BAND;
        let resident = self.slots.pool.object_bytes_resident();
        let excess = u128::from(resident.saturating_sub(low));
        (excess * u128::from(self.compr_data_size()) / u128::from(resident.max(1))) as u64
    }

    /// Recompresses pages with the algorithm of the highest priority, until memory is below the
    /// target. Returns how many pages are smaller. New objects exceed the line, and frames of old
    /// ones become free only by a compaction. So only a few pages are recompressed at a time.
    fn recompress_coldest(&self, target: u64) -> Moved {
        let mut pages = 0;
        let failed = self.recompress_coldest_into(target, &mut pages).err();
        Moved { pages, failed: failed.map(|error| Unreached::from(&error)) }
    }

    fn recompress_coldest_into(&self, target: u64, pages: &mut u64) -> Result<(), PostError> {
        let configured = self.config.configured_densest();
        let generation = self.generations.latest();
        let trained = generation.as_ref().map(|it| (it.priority, &it.codec));
        // Only Zstandard is denser than tables that were trained.
        let is_denser = configured.is_some_and(|(_, codec)| codec.packs_units());
        let best = if is_denser { configured } else { trained.or(configured) };
        let Some((priority, codec)) = best else { return Ok(()) };
        let slice_pages = target / SLICES / PAGE_SIZE as u64 + 1;
        let what = Recompress { max_pages: Some(slice_pages), ..Recompress::with(priority) };
        let wanted = |candidate: &Candidate| is_wanted(&what, candidate);
        let bytes = self.excess(target).saturating_mul(RECOMPRESS_FOR_EACH);
        let mut coldest = Candidates::coldest(self, Kinds::Objects, bytes, wanted)?;
        while !coldest.is_empty() && self.excess(target) > 0 {
            let report = self.recompress_chosen(&mut coldest, &what, codec)?;
            bump(&self.settings.hold.recompressed, report.pages);
            *pages += report.pages;
            self.make_room();
        }
        Ok(())
    }

    /// Writes back the coldest pages that take so many bytes, as long as that is the target.
    /// Returns how many went to the backing disk.
    fn write_back_coldest(&self, bytes: u64, target: u64) -> Moved {
        let Some(backing) = &self.values.backing else { return Moved::none(&PostError::NoBacking) };
        let coldest = match Candidates::coldest(self, Kinds::ObjectsAndUnits, bytes, |_| true) {
            Ok(coldest) => coldest,
            Err(error) => return Moved::none(&error),
        };
        let before = self.written_back_pages();
        // If some fail, others may have been written.
        let report = self.write_chosen(backing, coldest, u64::MAX, || self.is_wanted_at(target));
        let now = self.written_back_pages();
        let failed = report.as_ref().err().map(Unreached::from);
        let pages = report.map_or(now.saturating_sub(before), |report| report.pages);
        bump(&self.settings.hold.written_back, pages);
        Moved { pages, failed }
    }
}
