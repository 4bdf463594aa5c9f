//! The counters of a device, and how a slot's content enters them.
//!
//! Invariant: each counter is the sum over the slots of what [`Tally::of`] says of their content;
//! a slot's change is entered under its lock, or with others before the request ends, so `check`
//! can recount them while no request is under way. What is in detached leaves is pending instead. A
//! counter may be behind by what threads are at: it is read as a number that may for a moment be
//! less than nothing.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use zsmalloc::{Content, PAGE_SIZE};

use crate::trouble::Troubles;
use crate::written_back::WrittenBack;

/// What one slot, or many, add to the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Tally {
    /// Slots that hold something, same-filled pages included.
    pub(crate) stored: u64,
    /// Same-filled pages.
    pub(crate) same: u64,
    /// Pages stored uncompressed.
    pub(crate) huge: u64,
    /// Pages on the backing disk.
    pub(crate) written_back: u64,
    /// Bytes of objects; a huge page counts 4096.
    pub(crate) compressed_bytes: u64,
}

impl Tally {
    /// What a slot with this content counts.
    pub(crate) fn of(content: Content) -> Tally {
        match content {
            Content::Empty => Tally::default(),
            Content::Value { .. } if WrittenBack::of(content).is_some() => {
                Tally { stored: 1, written_back: 1, ..Tally::default() }
            }
            Content::Value { .. } => Tally { stored: 1, same: 1, ..Tally::default() },
            Content::Object { len } => Tally {
                stored: 1,
                huge: u64::from(len == PAGE_SIZE),
                compressed_bytes: len as u64,
                ..Tally::default()
            },
        }
    }

    /// What was added since it was `before`.
    pub(crate) fn since(self, before: Tally) -> Tally {
        Tally {
            stored: self.stored - before.stored,
            same: self.same - before.same,
            huge: self.huge - before.huge,
            written_back: self.written_back - before.written_back,
            compressed_bytes: self.compressed_bytes - before.compressed_bytes,
        }
    }

    /// Adds another tally.
    pub(crate) fn add(&mut self, other: Tally) {
        self.stored += other.stored;
        self.same += other.same;
        self.huge += other.huge;
        self.written_back += other.written_back;
        self.compressed_bytes += other.compressed_bytes;
    }
}

/// What is to be freed of detached leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Pending {
    pub(crate) objects: u64,
    pub(crate) bytes: u64,
}

impl Pending {
    /// The objects of slots.
    pub(crate) fn of(tally: Tally) -> Pending {
        let objects = tally.stored - tally.same - tally.written_back;
        Pending { objects, bytes: tally.compressed_bytes }
    }
}

/// The counters of a device.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    stored: AtomicU64,
    same: AtomicU64,
    huge: AtomicU64,
    written_back: AtomicU64,
    compressed_bytes: AtomicU64,
    /// Requests that change slots, ever, and those under way: they tell a check that something
    /// moved while it looked elsewhere.
    changes: AtomicU64,
    changing: AtomicU64,
    pending_objects: AtomicU64,
    pending_bytes: AtomicU64,
    /// Bytes of objects in marked slots, which are counted above.
    marked_bytes: AtomicU64,
    /// Huge pages ever stored.
    pub(crate) huge_since: AtomicU64,
    pub(crate) failed_reads: AtomicU64,
    pub(crate) failed_writes: AtomicU64,
    pub(crate) notify_free: AtomicU64,
    pub(crate) troubles: Troubles,
}

impl Counters {
    /// A slot's content changed.
    pub(crate) fn replace(&self, old: Tally, new: Tally) {
        change(&self.stored, old.stored, new.stored);
        change(&self.same, old.same, new.same);
        change(&self.huge, old.huge, new.huge);
        change(&self.written_back, old.written_back, new.written_back);
        change(&self.compressed_bytes, old.compressed_bytes, new.compressed_bytes);
        if new.huge > 0 {
            bump(&self.huge_since, 1);
        }
    }

    /// The content of a slot in a detached leaf changed: somebody was late.
    pub(crate) fn replace_pending(&self, old: Tally, new: Tally) {
        let (old, new) = (Pending::of(old), Pending::of(new));
        change(&self.pending_objects, old.objects, new.objects);
        change(&self.pending_bytes, old.bytes, new.bytes);
    }

    /// Slots were emptied together, by detaching their leaf, which is to be drained.
    pub(crate) fn detach(&self, gone: Tally) {
        self.replace_pending(Tally::default(), gone);
        self.replace(gone, Tally::default());
    }

    /// Objects of a detached leaf were freed.
    pub(crate) fn drained(&self, freed: Pending) {
        change(&self.pending_objects, freed.objects, 0);
        change(&self.pending_bytes, freed.bytes, 0);
    }

    /// What is to be freed of detached leaves.
    pub(crate) fn pending(&self) -> Pending {
        Pending { objects: total(&self.pending_objects), bytes: total(&self.pending_bytes) }
    }

    /// Slots whose objects have `old` bytes lost their marks, and others with `new` bytes were
    /// marked, to be emptied later.
    pub(crate) fn replace_marked(&self, old: u64, new: u64) {
        change(&self.marked_bytes, old, new);
    }

    /// Bytes of objects in marked slots.
    pub(crate) fn marked_bytes(&self) -> u64 {
        total(&self.marked_bytes)
    }

    /// Enters a request that changes slots, until the guard is dropped.
    pub(crate) fn change(&self) -> Change<'_> {
        bump(&self.changing, 1);
        bump(&self.changes, 1);
        Change(self)
    }

    /// Requests that change slots, so far; `None` while one is under way.
    pub(crate) fn changes(&self) -> Option<u64> {
        // Pairs with the Release in `bump`: who has read what a request added to any counter sees
        // below that it was entered.
        fence(Ordering::Acquire);
        // Pairs with the same: who sees that a request was entered sees it under way until it ends.
        let changes = self.changes.load(Ordering::Acquire);
        // Pairs with the same: who sees that it ended reads all that it added.
        let changing = self.changing.load(Ordering::Acquire);
        (changing == 0).then_some(changes)
    }

    /// The totals over all slots.
    pub(crate) fn tally(&self) -> Tally {
        Tally {
            stored: total(&self.stored),
            same: total(&self.same),
            huge: total(&self.huge),
            written_back: total(&self.written_back),
            compressed_bytes: total(&self.compressed_bytes),
        }
    }
}

/// A request that changes slots.
pub(crate) struct Change<'a>(&'a Counters);

impl Drop for Change<'_> {
    fn drop(&mut self) {
        bump(&self.0.changing, 1u64.wrapping_neg());
    }
}

/// Adds to a counter.
pub(crate) fn bump(counter: &AtomicU64, by: u64) {
    // Release pairs with the fence and loads in `changes`; else it is an independent total.
    counter.fetch_add(by, Ordering::Release);
}

/// Reads a counter.
pub(crate) fn read(counter: &AtomicU64) -> u64 {
    // relaxed: an independent total.
    counter.load(Ordering::Relaxed)
}

/// Reads a counter that others may bring below 0 for a moment: each thread enters its own changes
/// in order, but they may come between each other's.
fn total(counter: &AtomicU64) -> u64 {
    let value = read(counter);
    if value.cast_signed() < 0 { 0 } else { value }
}

fn change(counter: &AtomicU64, old: u64, new: u64) {
    if old != new {
        bump(counter, new.wrapping_sub(old));
    }
}
