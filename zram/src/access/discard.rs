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
use crate::cells::{Change, Emptied, Stored};
use crate::device::Zram;

impl Zram {
    /// Empties whole pages: whole leaves in one exchange each, the rest slot by slot.
    pub(crate) fn discard_whole(&self, pages: &Range<u64>, change: &Change<'_>) {
        let mut detached = None;
        for part in leaf_parts(pages.clone(), self.pages()) {
            if part.whole {
                detached.get_or_insert_with(|| Detached::none(self)).take(self, part.index);
            } else if self.slots.leaf(part.index).is_some() {
                self.discard_slots(part.pages, change);
            }
        }
        change.discarded(pages.end - pages.start);
        detached.into_iter().for_each(Detached::defer);
    }

    /// Empties the slots of pages of one leaf.
    fn discard_slots(&self, pages: Range<u64>, change: &Change<'_>) {
        let mut emptied = Emptied::new(change);
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
