//! An object that is stored but not yet published.
//!
//! Its slot is taken and filled; no cell names it, so nobody can read, move or free it but its
//! owner. Putting it in a cell publishes it, dropping it frees it.

use crate::class::{Class, Slot};
use crate::numbers::{CellNumber, Place};
use crate::pool::Pool;

/// A stored object without a cell; freed when dropped.
#[must_use = "an object that is not put in a cell is freed again"]
pub struct Object<'p> {
    pub(crate) pool: &'p Pool,
    pub(crate) place: Place,
    /// The entry taken for its handle, and named as its owner; or `NONE`.
    pub(crate) entry: CellNumber,
}

/// A slot that was taken. Plain values, which stay in registers where an object, that is freed on
/// every way out, would be in memory.
#[derive(Clone, Copy)]
#[must_use = "a slot that is not made an object is lost"]
pub(crate) struct Reserved<'p> {
    pub(crate) class: &'p Class,
    pub(crate) slot: Slot,
    /// The entry taken with it, or `NONE`.
    pub(crate) entry: CellNumber,
}

impl<'p> Reserved<'p> {
    /// The object of `len` bytes that is in the slot, or will be.
    #[inline]
    pub(crate) fn object(self, pool: &'p Pool, len: usize) -> Object<'p> {
        Object { pool, place: self.place(len), entry: self.entry }
    }

    /// Where it is, for a word.
    #[inline]
    pub(crate) fn place(self, len: usize) -> Place {
        let Reserved { class, slot, .. } = self;
        Place::new(slot.at, class.index, class.shape.size - len as u16)
    }
}

impl Object<'_> {
    /// Names `entry`, whose lock the caller holds, as the owner; gives the place for its word.
    pub(crate) fn publish(self, entry: CellNumber) -> Place {
        let class = self.pool.class(self.place.class());
        let zspage = self.pool.descriptors(class).get(self.pool.memory.owner(self.place.pfn()));
        zspage.publish(usize::from(self.place.object()), entry);
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

impl Drop for Object<'_> {
    fn drop(&mut self) {
        self.pool.free_with_entry(self.place, self.entry);
    }
}

impl std::fmt::Debug for Object<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Object({:?})", self.place)
    }
}
