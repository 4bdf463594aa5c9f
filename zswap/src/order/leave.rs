//! How a page leaves the order without being a victim: it is loaded, removed, or gone with its
//! leaf.
//!
//! ```text
//!   load, remove   --> one word changes, without the order's lock unless its leaf is mixed
//!   detach         --> the leaf's generation changes: 512 words count as gone at once
//!   forget         --> the words of a detached leaf are cleared for its next owner
//! ```
//!
//! Locks: the caller has the cell locked, or owns the leaf. The order's lock is taken if a leaf has
//! pages of several groups.

use zsmalloc::{CellNumber, LeafId};

use super::leaves::Leaf;
use super::orders::{Orders, cells_of};
use super::word::{State, Word};
use crate::terms::{EvictionOrder, GroupId};

impl Orders {
    /// The page in a cell, which the caller has locked, was loaded and leaves memory. Returns its
    /// group, or `None` if it was not in the order.
    pub(crate) fn load(&self, cell: CellNumber) -> Option<GroupId> {
        self.leave(cell, |word| match self.kind {
            _ if !self.is_live(cell, word) => word,
            // The token keeps its place, for when the page is stored again.
            EvictionOrder::S3Fifo => match self.hand_of(word) {
                None => word.used().with_state(State::Loaded),
                Some(group) => Word::evicted(self.counts.evictions(group), 0),
            },
            EvictionOrder::Kernel => self.without_page(word),
        })
    }

    /// Forgets all that is known of a cell, which the caller has locked, because its page is
    /// invalid. Returns the group if the page was in the order.
    pub(crate) fn remove(&self, cell: CellNumber) -> Option<GroupId> {
        self.leave(cell, |word| self.without_page(word))
    }

    /// The page in a cell, which the caller has locked, was read and stays.
    pub(crate) fn touch(&self, cell: CellNumber) {
        self.change(cell, |word| (word.state() == State::Live).then(|| word.used()));
    }

    /// A leaf was taken out of its table, so none of its pages is in the order any more. Two duties
    /// remain before the leaf is given back. [`Orders::remove`] the cells that still held a page,
    /// because a thread was storing when the leaf was taken out. [`Orders::forget`] its cells.
    pub(crate) fn detach(&self, leaf: LeafId) {
        let leaf = leaf.get() as usize;
        let one_group = |leaf: Leaf| !leaf.mixed;
        let Some(had) = self.leaves.detach(leaf, one_group) else {
            return self.detach_mixed(leaf);
        };
        self.counts.change(had.group, had.pages.map(|pages| pages.wrapping_neg()));
    }

    /// Clears what is known of the cells of a detached leaf, for its next owner.
    pub(crate) fn forget(&self, leaf: LeafId) {
        for cell in cells_of(leaf.get() as usize) {
            self.change(cell, |word| match self.is_live(cell, word) {
                true => None,
                false => Some(self.without_page(word)),
            });
        }
    }

    /// A live page leaves its ring, and its word becomes what `next` says.
    fn leave(&self, cell: CellNumber, next: impl Fn(Word) -> Word) -> Option<GroupId> {
        let leaf = self.leaf(cell);
        if leaf.mixed {
            let rings = self.rings.lock();
            return self.take_out(cell, next, |cell, word| self.group_in(&rings, cell, word));
        }
        // A leaf that is not mixed keeps its group while one of its pages is counted.
        self.take_out(cell, next, |_, _| leaf.group)
    }

    /// Detaches a leaf with pages of several groups, page by page.
    fn detach_mixed(&self, leaf: usize) {
        let rings = self.rings.lock();
        loop {
            for cell in cells_of(leaf) {
                let gone = |word| self.without_page(word);
                self.take_out(cell, gone, |cell, word| self.group_in(&rings, cell, word));
            }
            // The leaf is not empty yet: a thread changed a word and is about to count that.
            if self.leaves.detach(leaf, Leaf::is_empty).is_some() {
                return;
            }
            host::sync::thread::yield_now();
        }
    }
}
