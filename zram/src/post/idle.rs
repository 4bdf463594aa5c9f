//! Marking pages idle: those that were not used for a while, or all.
//!
//! ```text
//!   mark_idle(All)             every page in memory that is not same-filled
//!   mark_idle(OlderThan(age))  those of them that were last accessed so long ago; the others lose
//!                              the mark if they have it
//! ```
//!
//! Lock: one cell at a time.

use super::candidates::{Candidate, Kinds};
use crate::cells::flags::{self, IDLE};
use crate::device::Zram;
use crate::terms::{Idle, PostError};

impl Zram {
    /// Marks pages idle until their next access. Returns how many were marked that were not before.
    /// Younger pages lose the mark, so that the idle pages are always those of the last call.
    ///
    /// Source: `mark_idle` of the kernel's driver.
    ///
    /// # Errors
    ///
    /// [`PostError::Invalid`] for an age if the device does not note accesses
    /// (`ZramConfig::track_ages`, or a policy).
    pub fn mark_idle(&self, which: Idle) -> Result<u64, PostError> {
        match which {
            Idle::All => self.mark_where(|_| true),
            Idle::OlderThan(age) => {
                let untracked = PostError::Invalid("the device does not note when pages are used");
                let ages = self.ages().ok_or(untracked)?;
                // Nothing is older than the system.
                let cutoff = ages.cutoff(age);
                self.mark_where(|page| cutoff.is_some_and(|cutoff| ages.of(page) <= cutoff))
            }
        }
    }

    fn mark_where(&self, idle: impl Fn(u64) -> bool) -> Result<u64, PostError> {
        let mut marked = 0;
        self.each_of(Kinds::ObjectsAndUnits, &self.all_pages(), |candidate: &Candidate, slot| {
            match (candidate.is_idle(), idle(candidate.page)) {
                (false, true) => {
                    flags::set(slot, IDLE);
                    marked += 1;
                }
                (true, false) => flags::clear(slot, IDLE),
                _ => {}
            }
            Ok(())
        })?;
        Ok(marked)
    }
}
