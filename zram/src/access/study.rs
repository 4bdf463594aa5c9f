//! Discarding many pages, in one of the ways that study S3 compares; see [`FreeDesign`]. Without
//! the feature `study` the file `discard` is in the place of this one: it has the way
//! [`FreeDesign::Range`].
//!
//! Locks: none while leaves are detached; one cell at a time otherwise.

use std::ops::Range;

use zsmalloc::leaf_parts;

use super::detached::Detached;
use crate::cells::{Change, Emptied};
use crate::device::{Marks, Zram};
use crate::terms::study::FreeDesign;

impl Zram {
    /// Empties whole pages: whole leaves in one exchange each, if the way takes leaves, and the
    /// rest slot by slot.
    pub(crate) fn discard_whole(&self, pages: &Range<u64>, change: &Change<'_>) {
        let free = self.config.study.free;
        let whole_leaves = matches!(free, FreeDesign::Range | FreeDesign::Sync);
        let mut detached = None;
        for part in leaf_parts(pages.clone(), self.pages()) {
            if part.whole && whole_leaves {
                detached.get_or_insert_with(|| Detached::none(self)).take(self, part.index);
            } else if self.slots.leaf(part.index).is_some() {
                self.discard_slots(part.pages, change);
            }
        }
        change.discarded(pages.end - pages.start);
        match (free, detached) {
            (_, None) => {}
            (FreeDesign::Sync, Some(mut detached)) => detached.drain_all(),
            (_, Some(detached)) => detached.defer(),
        }
        if let Some(set_aside) = self.aside.slots() {
            set_aside.ask(&self.slots);
        }
    }

    /// Empties the slots of pages of one leaf, or sets them aside.
    pub(crate) fn discard_slots(&self, pages: Range<u64>, change: &Change<'_>) {
        let mut emptied = Emptied::new(change);
        let mut marks = self.aside.slots().map(|slots| slots.marks());
        pages.for_each(|page| self.discard_page(page, &mut emptied, marks.as_mut()));
        drop((marks, emptied));
        if let Some(set_aside) = self.aside.slots() {
            set_aside.ask_if_full(&self.slots);
        }
    }

    fn discard_page(&self, page: u64, emptied: &mut Emptied<'_>, marks: Option<&mut Marks<'_>>) {
        let Some(mut slot) = self.slots.lock(page) else { return };
        if let Some((set_aside, marks)) = self.aside.slots().zip(marks)
            && set_aside.put(page, &mut slot, marks)
        {
            return;
        }
        let old = self.aside.kept(&slot);
        match self.config.study.free {
            FreeDesign::Handles => slot.clear_deferred(),
            _ => slot.clear(),
        }
        slot.set_client(0);
        self.values.retire(old);
        emptied.add(&slot, old);
    }
}
