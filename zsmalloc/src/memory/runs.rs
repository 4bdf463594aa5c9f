//! Runs of frames: taken from a zone and claimed, and given back to the system in part.
//!
//! Invariant: a run that a zone handed out is claimed, given back, or, if a frame of it is in use,
//! left where it is. That is noted for a check.
//!
//! Locks: those of a zone, for its own calls.

use std::sync::Arc;

use host::faults::{self, Operation};
use host::sync::atomic::Ordering;
use host::{ClaimError, Pfn, Run};

use super::zones::Unclaimed;
use super::{Memory, WARM_MIN, warmth};
use crate::numbers::AllocError;

impl Memory {
    /// A run of contiguous frames for a shard, and how many of them are resident already.
    pub(crate) fn take_run(
        self: &Arc<Memory>,
        shard: usize,
        frames: u32,
    ) -> Result<(Run, u32), AllocError> {
        let refused = |_| AllocError::OutOfFrames;
        faults::guard(self.faults.as_deref(), Operation::Frames).map_err(refused)?;
        let held = self.free_bytes_held();
        let pfn = self.zones.alloc_run(shard, frames, held >= WARM_MIN)?;
        let (run, resident) = self.own_run(pfn, frames)?;
        if resident < frames && held >= WARM_MIN {
            self.worker.notice_untouched(self, frames - resident, held);
        }
        Ok((run, resident))
    }

    /// A run of frames whose first `alloc` finds. `None` if it finds none, or if they cannot be
    /// taken: [`Memory::defect`] tells of a frame in use.
    pub(crate) fn take_found_run(
        &self,
        frames: u32,
        alloc: impl FnOnce(u32) -> Option<Pfn>,
    ) -> Option<(Run, u32)> {
        faults::guard(self.faults.as_deref(), Operation::Frames).ok()?;
        self.own_run(alloc(frames)?, frames).ok()
    }

    /// Claims what the zone handed out, and says how many of the frames are resident.
    fn own_run(&self, pfn: Pfn, frames: u32) -> Result<(Run, u32), AllocError> {
        let run = self.claim(pfn, frames)?;
        let first = pfn.index();
        if self.owners.open(first..first + 1).is_err() {
            let (run, _) = self.free_run(run);
            self.zones.put_back(&[run]);
            return Err(AllocError::NotOpened);
        }
        self.owners.touch(first..first + 1);
        let resident = self.arena.resident_in(run.pfn(), frames);
        // relaxed: the frames counted are this thread's.
        self.free_held.0.fetch_sub(u64::from(resident), Ordering::Relaxed);
        Ok((run, resident))
    }

    /// Claims what the zone handed out. If a frame is in use, the zone was wrong. The run is left
    /// where it is then, neither used nor given back.
    pub(crate) fn claim(&self, pfn: Pfn, frames: u32) -> Result<Run, AllocError> {
        let refused = match self.arena.claim(pfn, frames) {
            Ok(run) => return Ok(run),
            Err(ClaimError::InUse { pfn }) => return Err(self.note_in_use(pfn)),
            Err(ClaimError::NotOpened { .. }) => AllocError::NotOpened,
            Err(_) => AllocError::OutOfFrames,
        };
        let warm = warmth(self.arena.resident_in(pfn, frames));
        self.zones.put_back(&[Unclaimed { pfn, frames, warm }]);
        Err(refused)
    }

    fn note_in_use(&self, pfn: Pfn) -> AllocError {
        // relaxed: an independent value; the first one stays.
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.in_use.compare_exchange(0, pfn.get() + 1, set, fetch);
        AllocError::FrameInUse { pfn }
    }

    /// The first error of the page allocator that was ever seen: it handed out a frame that is in
    /// use. Callers that only try to take a run do not return it, so a check asks for it here.
    pub fn defect(&self) -> Option<AllocError> {
        // relaxed: an independent value, never cleared.
        let number = self.in_use.load(Ordering::Relaxed).checked_sub(1)?;
        Some(AllocError::FrameInUse { pfn: Pfn::new(number) })
    }

    /// Returns a run's frames to the system, from its frame `first` on, as far as the system takes
    /// them. The result is how many are no longer resident. The system may refuse a part, for
    /// example one that the program has locked.
    pub(crate) fn purge_from(&self, run: &mut Run, first: u32) -> u32 {
        let resident = |run: &Run| self.arena.resident_in(run.pfn(), run.frames());
        let before = resident(run);
        // The bits say what went and what stayed, whether it was refused or not.
        let _ = self.arena.purge_from(run, first);
        before - resident(run)
    }
}
