//! Age: the oldest group takes one step out, as in the segmented queue of `queue`.
//!
//! ```text
//!   queue   resident ... oldest --> staging: its second chance ... oldest --> store
//! ```
//!
//! Locks: the queue's. It is given up before a group's is taken.

use crate::state::Folded;
use crate::terms::{GROUP_PAGES, PageOut, RegionError};

/// Of the pages that a region holds, 1/this may be in staging for their second chance.
const STAGED_DIVISOR: u64 = 32;

impl Folded {
    /// One step of the segmented queue. The oldest group goes to staging. If staging has its share,
    /// the oldest there goes to the store. False means that there is nothing to do, or no room.
    pub(super) fn age(&self) -> bool {
        let share = (self.held() / STAGED_DIVISOR / GROUP_PAGES as u64) as usize;
        let staging = self.shared.staging.used() + 1 < self.shared.staging.segments();
        let (staged, next) = {
            let mut queue = self.queue.lock();
            let full = queue.staged_len() > share || !staging || queue.len() == 0;
            let staged = if full { queue.pop_staged() } else { None };
            let next = if staged.is_none() { queue.pop() } else { None };
            (staged, next)
        };
        match (staged, next) {
            (Some(group), _) => self.compress(group as usize).refused == 0,
            (None, Some(group)) if staging => self.stage_oldest(group as usize),
            // The last segment is for pages that are on their way to the store.
            (None, Some(group)) => self.page_out_oldest(group).is_ok_and(|out| out.refused == 0),
            (None, None) => false,
        }
    }

    /// Pages out a group that was taken off the queue. If some of it stays, the queue gets it
    /// again.
    fn page_out_oldest(&self, group: u32) -> Result<PageOut, RegionError> {
        let index = group as usize;
        if let Some(mut group) = self.lock_known(index) {
            group.unlist();
        }
        let out = self.page_out_group(index, u64::MAX);
        if let Some(mut group) = self.lock_known(index) {
            self.list(index, &mut group);
        }
        out
    }

    fn stage_oldest(&self, index: usize) -> bool {
        if let Some(mut group) = self.lock_known(index) {
            group.unlist();
        }
        let staged = self.stage(index, u64::MAX);
        if let Some(mut group) = self.lock_known(index) {
            self.list(index, &mut group);
        }
        match staged {
            Ok((staged, _)) if staged > 0 => {
                self.queue.lock().push_staged(index as u32);
                true
            }
            outcome => outcome.is_ok(),
        }
    }

    /// Pages out the `pages` pages that came first, or as many as there are. It moves whole groups
    /// at a time.
    pub(crate) fn page_out_coldest(&self, pages: u64) -> Result<PageOut, RegionError> {
        let mut out = PageOut::default();
        // Each group is looked at once. Pinned groups go to the end of the queue.
        let steps = self.queue.lock().steps();
        for _ in 0..steps {
            if out.stored >= pages || out.refused > 0 {
                break;
            }
            let _gate = self.enter()?;
            let staged = self.queue.lock().pop_staged();
            if let Some(staged) = staged {
                out += self.compress(staged as usize);
                continue;
            }
            let Some(next) = self.queue.lock().pop() else { break };
            out += self.page_out_oldest(next)?;
        }
        Ok(out)
    }
}
