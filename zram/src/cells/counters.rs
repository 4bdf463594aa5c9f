//! The counters of a device, and how a slot's content is counted.
//!
//! Invariant: each counter is the sum over the slots of what [`Stored::tally`] says about them. A
//! slot's change is entered under its lock, or together with others before the request ends. So
//! `check` can recount them while no request is under way. Pages in detached leaves are pending
//! instead. A counter may lack what threads are about to enter, so for a moment it may be negative.
//!
//! Lock: none; each is an atomic.
//!
//! [`Stored::tally`]: super::stored::Stored::tally

use std::sync::atomic::{AtomicU64, Ordering, fence};

use zsmalloc::LeafTally;

use super::stored::kind;
use super::totals::{bump, change, total};
use super::troubles::Troubles;

/// Kinds of slots that are counted: the constants of [`kind`].
const KINDS: usize = kind::DISK + 1;

/// Objects of detached leaves that are yet to be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Pending {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
}

impl Pending {
    /// The objects of slots.
    pub(crate) fn of(tally: LeafTally) -> Pending {
        Pending { objects: tally.counts[kind::BLOB], bytes: tally.bytes }
    }
}

/// The counters of a device.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    counts: [AtomicU64; KINDS],
    /// Bytes of objects; a huge page counts 4096.
    bytes: AtomicU64,
    /// Requests that change slots: how many there ever were, and how many are under way. A check
    /// sees by them that something moved while it looked elsewhere.
    changes: AtomicU64,
    changing: AtomicU64,
    pending_objects: AtomicU64,
    pending_bytes: AtomicU64,
    /// Huge pages that were ever stored.
    pub(crate) huge_since: AtomicU64,
    pub(crate) failed_reads: AtomicU64,
    pub(crate) failed_writes: AtomicU64,
    pub(crate) notify_free: AtomicU64,
    pub(crate) troubles: Troubles,
}

impl Counters {
    /// A slot's content changed.
    pub(crate) fn replace(&self, old: LeafTally, new: LeafTally) {
        for (kind, count) in self.counts.iter().enumerate() {
            change(count, old.counts[kind], new.counts[kind]);
        }
        change(&self.bytes, old.bytes, new.bytes);
        if new.counts[kind::HUGE] > 0 {
            bump(&self.huge_since, 1);
        }
    }

    /// The content of a slot in a detached leaf changed, because a thread was late.
    pub(crate) fn replace_pending(&self, old: LeafTally, new: LeafTally) {
        let (old, new) = (Pending::of(old), Pending::of(new));
        change(&self.pending_objects, old.objects, new.objects);
        change(&self.pending_bytes, old.bytes, new.bytes);
    }

    /// Slots were emptied together because their leaf was detached. The leaf is yet to be drained.
    pub(crate) fn detach(&self, gone: LeafTally) {
        self.replace_pending(LeafTally::default(), gone);
        self.replace(gone, LeafTally::default());
    }

    /// Objects of a detached leaf were freed.
    pub(crate) fn drained(&self, freed: Pending) {
        change(&self.pending_objects, freed.objects, 0);
        change(&self.pending_bytes, freed.bytes, 0);
    }

    /// What is yet to be freed of detached leaves.
    pub(crate) fn pending(&self) -> Pending {
        Pending { objects: total(&self.pending_objects), bytes: total(&self.pending_bytes) }
    }

    /// Enters a request that changes slots. It ends when the guard is dropped.
    pub(crate) fn change(&self) -> Change<'_> {
        bump(&self.changing, 1);
        bump(&self.changes, 1);
        Change(self)
    }

    /// Requests that change slots, so far; `None` while one is under way.
    pub(crate) fn changes(&self) -> Option<u64> {
        // Acquire pairs with the Release in `bump`, so that a thread that has read what a request
        // added to any counter sees below that the request was entered.
        fence(Ordering::Acquire);
        // Acquire pairs with the same, so that a thread that sees that a request was entered sees
        // it under way until it ends.
        let changes = self.changes.load(Ordering::Acquire);
        // Acquire pairs with the same, so that a thread that sees that a request ended reads all
        // that it added.
        let changing = self.changing.load(Ordering::Acquire);
        (changing == 0).then_some(changes)
    }

    /// The totals over all slots.
    pub(crate) fn tally(&self) -> LeafTally {
        let count = |kind: usize| total(&self.counts[kind]);
        LeafTally { counts: std::array::from_fn(count), bytes: total(&self.bytes) }
    }
}

/// A request that changes slots.
pub(crate) struct Change<'a>(&'a Counters);

impl Drop for Change<'_> {
    fn drop(&mut self) {
        bump(&self.0.changing, 1u64.wrapping_neg());
    }
}
