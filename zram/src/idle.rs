//! Marking pages idle: those that nobody used for a while, or all.
//!
//! ```text
//!   mark_idle(All)             every page in memory that is not same-filled
//!   mark_idle(OlderThan(age))  those of them whose last access is so long ago
//! ```
//!
//! Lock: one cell at a time.

use crate::ages::Ages;
use crate::candidates::Candidate;
use crate::device::Zram;
use crate::post::{Idle, PostError};
use crate::slot_flags::{self, IDLE};

impl Zram {
    /// Marks pages idle until their next access; gives how many were marked that were not.
    ///
    /// # Errors
    ///
    /// [`PostError::Invalid`] for an age when the device does not note accesses
    /// (`ZramConfig::track_ages`).
    pub fn mark_idle(&self, which: Idle) -> Result<u64, PostError> {
        match which {
            Idle::All => self.mark_where(|_| true),
            Idle::OlderThan(age) => {
                let untracked = PostError::Invalid("the device does not note when pages are used");
                let ages = self.ages.as_ref().ok_or(untracked)?;
                match ages.cutoff(age) {
                    // Nothing is older than the system.
                    None => Ok(0),
                    Some(cutoff) => self.mark_where(|page| is_older(ages, page, cutoff)),
                }
            }
        }
    }

    fn mark_where(&self, idle: impl Fn(u64) -> bool) -> Result<u64, PostError> {
        let mut marked = 0;
        self.each_object(&self.all_pages(), |candidate: &Candidate, slot| {
            if !candidate.is_idle() && idle(candidate.page) {
                slot_flags::set(slot, IDLE);
                marked += 1;
            }
            Ok(())
        })?;
        Ok(marked)
    }
}

fn is_older(ages: &Ages, page: u64, cutoff: u32) -> bool {
    ages.of(page) <= cutoff
}
