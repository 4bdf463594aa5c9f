//! Discarding many pages: their leaves are taken out of the root and drained later.
//!
//! ```text
//!   discard of   ...####|########|########|###.....
//!                 slot   leaf     leaf     slot         by slot at the ends
//!                          `--------`----> job: drained by the memory's worker
//! ```
//!
//! A detached leaf is nobody's way to anything: the pages read as zeros at once, and a write takes
//! a fresh leaf. The counters go down by the leaf's sums; the bytes of its objects are pending,
//! which the limit counts as used, until the job has freed them. Where there is no worker the job
//! is done before the discard returns.
//!
//! Invariants
//! - I1 a leaf is in one job, and in no root.
//! - I2 pending is the sum over the detached leaves of what their cells hold.
//!
//! Locks: none while detaching; those of a drain in the job, which holds nothing else.

use std::ops::Range;
use std::sync::Arc;

use zsmalloc::{LeafId, LeafSums, LeafTally, Pool, leaf_parts};

use crate::cells::{Counters, Emptied, Pending, Stored, Values, bump};
use crate::device::Zram;
use crate::terms::Free;

/// Leaves that are to be drained, and what that needs of the device.
struct Detached {
    pool: Arc<Pool>,
    values: Arc<Values>,
    counters: Arc<Counters>,
    leaves: Vec<LeafId>,
    /// What they held when they were detached.
    sums: LeafTally,
}

impl Zram {
    /// Empties whole pages: whole leaves in one exchange each, the rest slot by slot.
    pub(crate) fn discard_whole(&self, pages: &Range<u64>) {
        let whole_leaves = matches!(self.config.free, Free::Range | Free::Sync);
        let mut detached = self.nothing_detached();
        for part in leaf_parts(pages.clone(), self.pages()) {
            if part.whole && whole_leaves {
                detached.take(self, part.index);
            } else if self.slots.leaf(part.index).is_some() {
                self.discard_slots(part.pages);
            }
        }
        bump(&self.counters.notify_free, pages.end - pages.start);
        match self.config.free {
            Free::Sync => detached.drain_all(),
            _ => detached.defer(),
        }
        if let Some(set_aside) = &self.set_aside {
            set_aside.ask(&self.slots);
        }
    }

    /// Empties the slots of pages of one leaf.
    pub(crate) fn discard_slots(&self, pages: Range<u64>) {
        let mut emptied = Emptied::new(&self.counters);
        pages.for_each(|page| self.discard_page(page, &mut emptied));
        drop(emptied);
        if let Some(set_aside) = &self.set_aside {
            set_aside.ask_if_full(&self.slots);
        }
    }

    /// Empties a slot.
    fn discard_page(&self, page: u64, emptied: &mut Emptied<'_>) {
        let Some(mut slot) = self.slots.lock(page) else { return };
        let old = Stored::in_cell(&slot);
        match (&self.set_aside, self.config.free) {
            (Some(set_aside), _) if set_aside.put(page, &mut slot, emptied) => return,
            (_, Free::Handles) => slot.clear_deferred(),
            _ => slot.clear(),
        }
        slot.set_client(0);
        self.values.retire(old);
        emptied.add(&slot, old);
    }

    fn nothing_detached(&self) -> Detached {
        Detached {
            pool: Arc::clone(&self.slots.pool),
            values: Arc::clone(&self.values),
            counters: Arc::clone(&self.counters),
            leaves: Vec::new(),
            sums: LeafTally::default(),
        }
    }
}

impl Detached {
    /// Takes the leaf of root entry `index` out, if it has one.
    fn take(&mut self, zram: &Zram, index: usize) {
        // Before the leaf is out: afterwards it must not get lost. Where there is no memory for the
        // list, what it has is drained here and now.
        if self.leaves.try_reserve(1).is_err() {
            self.drain_all();
        }
        let Some(leaf) = zram.slots.detach(index) else { return };
        let Some(word) = self.pool.leaf_word(leaf) else { return };
        let gone = LeafSums(word).detach();
        self.counters.detach(gone);
        self.sums.add(gone);
        self.leaves.push(leaf);
    }

    /// Hands the leaves to the memory's worker.
    fn defer(mut self) {
        if !self.leaves.is_empty() {
            let memory = Arc::clone(self.pool.memory());
            memory.defer(self.sums.bytes, move || self.drain_all());
        }
    }

    fn drain_all(&mut self) {
        let counters = Arc::clone(&self.counters);
        let _change = counters.change();
        for leaf in self.leaves.drain(..) {
            if self.pool.is_retired() {
                self.pool.retire([leaf].into_iter());
            } else {
                drain(&self.pool, &self.values, &self.counters, leaf);
            }
        }
        self.sums = LeafTally::default();
    }
}

/// Frees what a detached leaf holds.
fn drain(pool: &Pool, values: &Values, counters: &Counters, leaf: LeafId) {
    let mut gone = LeafTally::default();
    let freed = pool.free_leaf(leaf, |cell| {
        let stored = Stored::of(cell.content(), cell.client());
        gone.add(stored.tally());
        values.retire(stored);
    });
    debug_assert!(freed.is_ok(), "I1: the leaf was ours, and detached once");
    counters.drained(Pending::of(gone));
}
