//! Leaves that were taken out of the root of a device, and are drained later.
//!
//! A detached leaf leads to no page any more. Its pages read as zeros at once, and a write takes a
//! fresh leaf. The counters go down by the leaf's sums. The bytes of its objects are pending until
//! the job has freed them, and the limit counts them as used. If there is no worker, the job is
//! done before the discard returns.
//!
//! Invariants
//! - I1 a leaf is in one job, and in no root.
//! - I2 pending is the sum over the detached leaves of what their cells hold.
//!
//! Locks: none while detaching; those of a drain in the job, which holds nothing else.

use std::sync::Arc;

use zsmalloc::{LeafId, LeafSums, LeafTally, Pool};

use crate::cells::{Counters, Pending, Stored, Values};
use crate::device::Zram;

/// Leaves that are to be drained, and what that needs of the device.
pub(super) struct Detached {
    pool: Arc<Pool>,
    values: Arc<Values>,
    counters: Arc<Counters>,
    leaves: Vec<LeafId>,
    /// What they held when they were detached.
    sums: LeafTally,
}

impl Detached {
    /// No leaf of a device.
    pub(super) fn none(zram: &Zram) -> Detached {
        Detached {
            pool: Arc::clone(&zram.slots.pool),
            values: Arc::clone(&zram.values),
            counters: Arc::clone(&zram.counters),
            leaves: Vec::new(),
            sums: LeafTally::default(),
        }
    }

    /// Takes the leaf of root entry `index` out, if it has one.
    pub(super) fn take(&mut self, zram: &Zram, index: usize) {
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
    pub(super) fn defer(mut self) {
        if !self.leaves.is_empty() {
            let memory = Arc::clone(self.pool.memory());
            memory.defer(self.sums.bytes, move || self.drain_all());
        }
    }

    pub(super) fn drain_all(&mut self) {
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
