//! How a page leaves the order without being a victim: loaded, removed, or gone with its leaf.
//!
//! ```text
//!   load, remove   --> one word changes, without the order's lock unless its leaf is mixed
//!   detach         --> the leaf's generation changes: 512 words count as gone at once
//!   forget         --> the words of a detached leaf are made new for its next owner
//! ```
//!
//! Locks: the caller has the cell locked, or owns the leaf; the order's lock is taken where a leaf
//! has pages of several groups.

use zsmalloc::{CellNumber, LeafId};

use super::leaves::Leaf;
use super::orders::{Orders, cells_of};
use super::word::{State, Word};
use crate::terms::{GroupId, Order};

impl Orders {
    /// The page in a cell, which the caller has locked, was loaded and leaves memory. Gives its
    /// group; `None` if it was not in the order.
    pub(crate) fn load(&self, cell: CellNumber) -> Option<GroupId> {
        self.leave(cell, |word| match self.kind {
            _ if !self.is_live(cell, word) => word,
            // The token stays where it is, for when the page is stored again.
            Order::S3Fifo => match self.hand_of(word) {
                None => word.used().with_state(State::Loaded),
                Some(group) => Word::evicted(self.counts.evictions(group), 0),
            },
            Order::Kernel => self.without_page(word),
        })
    }

    /// The page in a cell, which the caller has locked, is invalid; or whatever was known of the
    /// cell is. Gives the group of a page that was in the order.
    pub(crate) fn remove(&self, cell: CellNumber) -> Option<GroupId> {
        self.leave(cell, |word| self.without_page(word))
    }

    /// The page in a cell, which the caller has locked, was read and stays.
    pub(crate) fn touch(&self, cell: CellNumber) {
        self.change(cell, |word| (word.state() == State::Live).then(|| word.used()));
    }

    /// A leaf was taken out of its table: none of its pages is in the order any more. Before it is
    /// given back, [`Orders::forget`] its cells. [`Orders::remove`] those that still held a page,
    /// because a thread was storing when the leaf was taken out.
    pub(crate) fn detach(&self, leaf: LeafId) {
        let leaf = leaf.get() as usize;
        let one_group = |leaf: Leaf| !leaf.mixed;
        let Some(had) = self.leaves.detach(leaf, one_group) else {
            return self.detach_mixed(leaf);
        };
        self.counts.change(had.group, had.pages.map(|pages| pages.wrapping_neg()));
    }

    /// What is known of the cells of a detached leaf means nothing for its next owner.
    pub(crate) fn forget(&self, leaf: LeafId) {
        for cell in cells_of(leaf.get() as usize) {
            self.change(cell, |word| match self.is_live(cell, word) {
                true => None,
                false => Some(self.without_page(word)),
            });
        }
    }

    /// A live page leaves its queue, and its word becomes what `next` says.
    fn leave(&self, cell: CellNumber, next: impl Fn(Word) -> Word) -> Option<GroupId> {
        let leaf = self.leaf(cell);
        if leaf.mixed {
            let rings = self.rings.lock();
            return self.take_out(cell, next, |cell, word| self.group_in(&rings, cell, word));
        }
        // While a page of it is counted, a leaf that is not mixed keeps its group.
        self.take_out(cell, next, |_, _| leaf.group)
    }

    /// Detaches a leaf with pages of several groups: one page after the other.
    fn detach_mixed(&self, leaf: usize) {
        let rings = self.rings.lock();
        loop {
            for cell in cells_of(leaf) {
                let gone = |word| self.without_page(word);
                self.take_out(cell, gone, |cell, word| self.group_in(&rings, cell, word));
            }
            // Not yet empty: somebody changed a word and is about to count that.
            if self.leaves.detach(leaf, Leaf::is_empty).is_some() {
                return;
            }
            host::sync::thread::yield_now();
        }
    }
}
