//! Leaves that were taken out of an area's table and wait to be drained.
//!
//! ```text
//!   area    ...|########|########|...       one exchange per leaf; counters down by its sums;
//!                 leaf     leaf             its tokens stale, by its generation
//!                  `--------`----> job: drained by the memory's worker
//! ```
//!
//! Invariants
//! - I1 a detached leaf is in one job, and in no table.
//! - I2 pending is the sum of what the cells of all detached leaves hold.
//! - I3 once a leaf's tokens are stale, none of its pages is written back any more. A write-back
//!   that was under way for such a page finds that its mark is gone.
//!
//! Locks: only the order's while a leaf is detached. The job takes the locks of a drain, and holds
//! no other.

use std::sync::Arc;

use zsmalloc::{DrainedCell, LeafId, LeafSums, LeafTally, Slots};

use crate::cells::{Pending, Stored};
use crate::shared::Core;

/// When the entries of whole leaves are freed. A leaf covers 2 MiB of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum FreeWhen {
    /// The memory's worker frees them soon. Loads find nothing there from now on.
    #[default]
    Soon,
    /// They are freed before the call returns.
    Now,
}

/// Leaves that wait to be drained.
pub(crate) struct Detached {
    core: Arc<Core>,
    leaves: Vec<LeafId>,
    pending_bytes: u64,
}

impl Detached {
    pub(crate) fn nothing(core: &Arc<Core>) -> Detached {
        core.counters.begin();
        Detached { core: Arc::clone(core), leaves: Vec::new(), pending_bytes: 0 }
    }

    /// Takes the leaf of root entry `index` out, if it has one.
    pub(crate) fn take(&mut self, slots: &Slots, index: usize) {
        self.make_room();
        slots.detach(index).into_iter().for_each(|leaf| self.put(leaf));
    }

    /// Takes every leaf out.
    pub(crate) fn take_all(&mut self, slots: &Slots) {
        slots.detach_all(|leaf| {
            self.make_room();
            self.put(leaf);
        });
    }

    /// Makes room in the list for one more leaf. If there is no memory for that, the leaves in the
    /// list are drained at once. So a leaf that was taken out is never lost.
    fn make_room(&mut self) {
        if self.leaves.try_reserve(1).is_err() {
            self.drain_all();
        }
    }

    fn put(&mut self, leaf: LeafId) {
        let Some(word) = self.core.pool.leaf_word(leaf) else { return };
        let gone = LeafSums(word).detach();
        self.core.orders.detach(leaf);
        self.core.counters.detach(gone);
        self.pending_bytes += gone.bytes;
        self.leaves.push(leaf);
    }

    /// Frees what the leaves hold.
    pub(crate) fn free(mut self, free: FreeWhen) {
        if self.leaves.is_empty() {
            return;
        }
        match free {
            FreeWhen::Now => self.drain_all(),
            FreeWhen::Soon => {
                let memory = Arc::clone(self.core.pool.memory());
                memory.defer(self.pending_bytes, move || self.drain_all());
            }
        }
    }

    fn drain_all(&mut self) {
        if self.leaves.is_empty() {
            return;
        }
        for leaf in self.leaves.drain(..) {
            drain(&self.core, leaf);
        }
        self.pending_bytes = 0;
        // The leaves' tokens are stale now. Perhaps no store follows that would drop them.
        self.core.orders.compact();
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        self.drain_all();
        self.core.counters.end();
    }
}

/// Frees what a detached leaf holds.
fn drain(core: &Core, leaf: LeafId) {
    let mut gone = LeafTally::default();
    core.orders.forget(leaf);
    let freed = core.pool.free_leaf(leaf, |cell| {
        let stored = Stored::of(cell.content(), cell.client());
        gone.add(stored.tally());
        core.orders.remove(cell.number()); // one that came after the leaf was out
        forget(core, cell, stored);
    });
    debug_assert!(freed.is_ok(), "I1: the leaf was ours, and detached once");
    core.counters.replace_pending(Pending::of(gone), Pending::default());
}

fn forget(core: &Core, cell: &DrainedCell<'_>, stored: Stored) {
    stored.algorithm().into_iter().for_each(|it| core.counters.here().algorithm(it, false));
    core.let_go(cell.number(), stored);
}
