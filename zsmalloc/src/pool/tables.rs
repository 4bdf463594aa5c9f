//! The tables that lead from an entry to the header of its object's zspage, at hand.
//!
//! ```text
//!   entry --> cell --> frame --> descriptor --> header: the lock
//!       cells     word     owners         headers
//! ```
//!
//! A pool is shared. A thread that looks up many objects through it would ask for each of them
//! again where these tables are and how long they are. None of them ever moves, so here both are
//! values.
//!
//! Invariant: the tables neither move nor shrink while the pool exists. A lock's number is cut to
//! those that the pool has, because a frame may have become another pool's.
//!
//! Locks: none. What is found may have moved since, unless the caller keeps it from moving.

use host::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::Pool;
use crate::class::{Class, Descriptors};
use crate::numbers::{CellNumber, Place, Word};
use crate::zspages::{DescriptorId, Header, Headers, Zspage};

/// See the module documentation.
#[derive(Clone, Copy)]
pub(crate) struct Tables<'p> {
    cells: &'p [AtomicU64],
    owners: &'p [AtomicU32],
    headers: Headers<'p>,
    /// The last lock of the pool.
    last_lock: usize,
}

/// An object as its owner finds it without a lock: where it was a moment ago.
#[derive(Clone, Copy)]
pub(crate) struct Found<'p> {
    pub(crate) zspage: Zspage<'p>,
    pub(crate) object: u8,
    /// The lock its zspage is under.
    pub(crate) lock: usize,
}

impl Pool {
    /// The cell of a handle that is this pool's.
    #[inline]
    pub(crate) fn handle_cell(&self, entry: CellNumber) -> &AtomicU64 {
        self.memory.leaves.handle_cell(entry)
    }

    #[inline]
    pub(crate) fn tables(&self) -> Tables<'_> {
        let (memory, last_lock) = (&*self.memory, self.classes.len() - 1);
        let owners = memory.owners.slice(0..memory.owners.len());
        let (cells, headers) = (memory.leaves.cells(), memory.descriptors.headers());
        Tables { cells, owners, headers, last_lock }
    }
}

impl<'p> Tables<'p> {
    /// The cell of a handle that is the pool's.
    #[inline(always)]
    pub(crate) fn handle_cell(self, entry: CellNumber) -> &'p AtomicU64 {
        self.cells.get(entry.table_index()).expect("a handle's entry is in a leaf")
    }

    /// Where the object of a handle's cell is, or was a moment ago; the caller owns it.
    #[inline(always)]
    pub(crate) fn find(self, cell: &AtomicU64) -> Found<'p> {
        self.find_at(place_in(cell))
    }

    /// The zspage of an object that was at `place` a moment ago.
    #[inline(always)]
    pub(crate) fn find_at(self, place: Place) -> Found<'p> {
        // Acquire pairs with the Release in `set_owner`, so that a thread that sees a frame's next
        // life sees what ended the last.
        let descriptor = DescriptorId(self.owners[place.pfn().index()].load(Ordering::Acquire));
        let header = self.headers.get(descriptor);
        // The frame may be another zspage's by now, of a pool with more locks.
        let lock = header.lock().min(self.last_lock);
        Found { zspage: Zspage { id: descriptor, header }, object: place.object(), lock }
    }

    /// A header, by number.
    #[inline(always)]
    pub(crate) fn header(self, id: DescriptorId) -> Header<'p> {
        self.headers.get(id)
    }

    /// How a class finds its descriptors.
    #[inline(always)]
    pub(crate) fn descriptors(self, class: &'p Class) -> Descriptors<'p> {
        Descriptors { headers: self.headers, layout: class.layout() }
    }
}

/// The place of the object that a handle's cell names; the caller owns it.
#[inline(always)]
pub(crate) fn place_in(cell: &AtomicU64) -> Place {
    // Acquire pairs with the Release of the thread that published the object or moved it, so that
    // the frame's descriptor is seen, and its header, as they were then or later.
    let word = Word(cell.load(Ordering::Acquire));
    word.place().expect("a handle's cell names its object")
}
