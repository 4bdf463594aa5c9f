//! Discarding many pages: their leaves are taken out of the root and drained later.
//!
//! ```text
//!   discard of   ...####|########|########|###.....
//!                 slot   leaf     leaf     slot         by slot at the ends
//!                          `--------`----> job: drained by the memory's worker
//! ```
//!
//! With the feature `study` the file of that name is in the place of this one: it has other ways
//! too.
//!
//! Locks: none while detaching; one cell at a time at the ends.

use std::ops::Range;

use zsmalloc::leaf_parts;

use super::detached::Detached;
use crate::cells::{Emptied, Stored, bump};
use crate::device::Zram;

impl Zram {
    /// Empties whole pages: whole leaves in one exchange each, the rest slot by slot.
    pub(crate) fn discard_whole(&self, pages: &Range<u64>) {
        let mut detached = Detached::none(self);
        for part in leaf_parts(pages.clone(), self.pages()) {
            if part.whole {
                detached.take(self, part.index);
            } else if self.slots.leaf(part.index).is_some() {
                self.discard_slots(part.pages);
            }
        }
        bump(&self.counters.notify_free, pages.end - pages.start);
        detached.defer();
    }

    /// Empties the slots of pages of one leaf.
    fn discard_slots(&self, pages: Range<u64>) {
        let mut emptied = Emptied::new(&self.counters);
        for page in pages {
            let Some(mut slot) = self.slots.lock(page) else { continue };
            let old = Stored::in_cell(&slot);
            slot.clear();
            slot.set_client(0);
            self.values.retire(old);
            emptied.add(&slot, old);
        }
    }
}
