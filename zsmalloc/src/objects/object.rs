//! An object that is stored but not yet published.
//!
//! ```text
//!   Slot      which slot of which zspage      a class gives it, under its lock
//!     |  + class, length
//!   Place     also the class and the slack: all that finding its bytes takes
//!     |  + pool, entry
//!   Object    the right to the slot           filled without a lock; dropped: the slot is freed
//!     |  put in a cell
//!   Word      a place, a lock bit, the client's bits      what everybody reads from here on
//! ```
//!
//! Its slot is taken and filled. No cell names it, so only its owner can read, move or free it.
//! Putting it in a cell publishes it; dropping it frees it.

use crate::numbers::{CellNumber, Place};
use crate::pool::Pool;
use crate::zspages::zspage;

/// A stored object without a cell; freed when dropped.
#[must_use = "an object that is not put in a cell is freed again"]
pub struct Object<'p> {
    pub(crate) pool: &'p Pool,
    pub(crate) place: Place,
    /// The entry that was taken for its handle and is its owner, or `NONE`.
    pub(crate) entry: CellNumber,
}

impl Object<'_> {
    /// Names the cell `owner`, whose lock the caller holds. Returns the place for its word.
    pub(crate) fn publish(self, owner: CellNumber) -> Place {
        let class = self.pool.class(self.place.class());
        let zspage = self.pool.descriptors(class).get(self.pool.memory.owner(self.place.pfn()));
        zspage.publish(usize::from(self.place.object()), owner);
        self.into_place()
    }

    /// The place, for the cell of the entry that was taken with the slot and owns it already.
    #[inline]
    pub(crate) fn into_place(self) -> Place {
        let place = self.place;
        std::mem::forget(self);
        place
    }
}

impl Pool {
    /// The bytes at a place that the caller read in a cell, which it has locked.
    pub(crate) fn bytes_at(&self, place: Place) -> &[u8] {
        zspage::bytes(&self.memory.arena, self.geometry().shape(place.class()), place)
    }
}

impl Drop for Object<'_> {
    // Inlined, so that an object that is published was in registers all the time.
    #[inline]
    fn drop(&mut self) {
        self.pool.free_with_entry(self.place, self.entry);
    }
}

impl std::fmt::Debug for Object<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Object({:?})", self.place)
    }
}
