//! Frames that no zspage uses, as a value: one can move there.
//!
//! Invariant: the frames are claimed from the arena until a zspage takes them, or until the value
//! is dropped, which gives them back.
//!
//! Lock: a zone's, to take frames and to give them back.

use std::fmt;
use std::sync::Arc;

use host::{Pfn, Run};

use super::Memory;
use crate::numbers::AllocError;

/// Frames that no zspage uses, for one to move to. They are given back when this is dropped.
#[must_use = "the frames are given back when this is dropped"]
pub struct Frames {
    pub(crate) memory: Arc<Memory>,
    /// `None` once a zspage has them.
    pub(crate) run: Option<Run>,
    pub(crate) resident: u32,
}

/// Why a zspage stayed where it is.
#[derive(Debug)]
pub enum MigrateError {
    /// No zspage of this pool starts at that frame.
    NoZspage,
    /// An object of it is being read, written or published. Try again later.
    Busy(Frames),
    /// The frames are another memory's, or more or fewer than the zspage has.
    WrongFrames(Frames),
}

impl fmt::Display for MigrateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            MigrateError::NoZspage => "no zspage of this pool starts at that frame",
            MigrateError::Busy(_) => "an object of the zspage is in use",
            MigrateError::WrongFrames(_) => "the frames do not fit the zspage",
        })
    }
}

impl std::error::Error for MigrateError {}

impl Memory {
    /// Takes `frames` contiguous frames, 1 to 1024.
    ///
    /// # Errors
    ///
    /// [`AllocError::BadRun`] for 0 and for more than 1024 frames, [`AllocError::OutOfFrames`] when
    /// the arena has no such run, [`AllocError::FrameInUse`] for a defect of this library, and
    /// [`AllocError::NotOpened`] when the system refuses.
    pub fn frames(self: &Arc<Memory>, frames: u32) -> Result<Frames, AllocError> {
        if !(1..=buddy::RUN_FRAMES_MAX).contains(&frames) {
            return Err(AllocError::BadRun { frames });
        }
        let (run, resident) = self.take_run(0, frames)?;
        Ok(Frames { memory: Arc::clone(self), run: Some(run), resident })
    }
}

impl Frames {
    /// Frames whose first one `alloc` finds. `None` if it finds none.
    pub(crate) fn of(
        memory: &Arc<Memory>,
        frames: u32,
        alloc: impl FnOnce(u32) -> Option<Pfn>,
    ) -> Option<Frames> {
        let (run, resident) = memory.take_found_run(frames, alloc)?;
        Some(Frames { memory: Arc::clone(memory), run: Some(run), resident })
    }

    /// The number of the first; `None` for frames that a zspage has taken.
    pub fn pfn(&self) -> Option<Pfn> {
        self.run.as_ref().map(Run::pfn)
    }

    pub(crate) fn len(&self) -> u32 {
        self.run.as_ref().map_or(0, Run::frames)
    }

    /// Returns to the system what is touched beyond where the last touched one of as many frames
    /// from `pfn` on is.
    pub(crate) fn reach_as_far_as(&mut self, pfn: Pfn) {
        let Some(run) = &mut self.run else { return };
        let last = (0..run.frames()).rfind(|at| self.memory.arena.is_resident(pfn.plus(*at)));
        self.resident -= self.memory.purge_from(run, last.map_or(0, |last| last + 1));
    }
}

impl fmt::Debug for Frames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frames({:?})", self.run)
    }
}

impl Drop for Frames {
    fn drop(&mut self) {
        self.memory.give_runs(self.run.take().into_iter());
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::memory::MemoryConfig;

    /// The zone takes a frame for free that has an owner, as if it had handed it out twice. A
    /// client must be told that, and not that there are no frames, and the frame must stay its
    /// owner's.
    #[test]
    fn a_frame_with_an_owner_is_refused_by_its_number() {
        let config = MemoryConfig {
            arena_frames: 1 << 10,
            entries_max: 512,
            expected_bytes: 1 << 20,
            worker: false,
        };
        let memory = Memory::new(config).expect("a memory");
        let pfn = memory.frames(1).expect("an empty arena").pfn().expect("a frame");
        let owner = memory.arena.claim(pfn, 1).expect("it went back");
        let mut held = Vec::new();
        let error = loop {
            match memory.frames(1) {
                Ok(frames) => held.push(frames),
                Err(error) => break error,
            }
        };
        assert_eq!(error, AllocError::FrameInUse { pfn });
        assert!(error.to_string().contains(&format!("{pfn}, which is in use")));
        assert!(held.iter().all(|frames| frames.pfn() != Some(pfn)));
        assert_eq!(memory.defect(), Some(error));
        let next = memory.frames(1).expect("the others are still there");
        assert_ne!(next.pfn(), Some(pfn));
        memory.arena.unclaim(owner).expect("it had it all the time");
    }

    /// An evacuation only tries to take a run, and goes on without it.
    #[test]
    fn a_frame_with_an_owner_is_told_where_a_run_is_only_tried() {
        let memory = Memory::new(MemoryConfig::for_disk(1 << 20)).expect("a memory");
        let owned = memory.frames(1).expect("an empty arena");
        let pfn = owned.pfn().expect("a frame");
        assert_eq!(memory.defect(), None);
        assert!(Frames::of(&memory, 1, |_| None).is_none());
        assert_eq!(memory.defect(), None, "there is no such run, which is no defect");
        assert!(Frames::of(&memory, 1, |_| Some(pfn)).is_none());
        assert_eq!(memory.defect(), Some(AllocError::FrameInUse { pfn }));
    }
}
