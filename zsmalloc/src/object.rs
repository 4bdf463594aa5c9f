//! An object that is stored but not yet published.
//!
//! Its slot is taken and filled; no cell names it, so nobody can read, move or free it but its
//! owner. Putting it in a cell publishes it, dropping it frees it.

use crate::descriptor::DescriptorId;
use crate::pool::Pool;
use crate::word::Place;

/// A stored object without a cell; freed when dropped.
#[must_use = "an object that is not put in a cell is freed again"]
pub struct Object<'p> {
    pub(crate) pool: &'p Pool,
    pub(crate) descriptor: DescriptorId,
    pub(crate) place: Place,
}

impl Object<'_> {
    /// Names `entry`, whose lock the caller holds, as the owner; gives the place for its word.
    pub(crate) fn publish(self, entry: u32) -> Place {
        let class = self.pool.class(self.place.class);
        let zspage = self.pool.list(class).get(self.descriptor);
        zspage.publish(usize::from(self.place.object), entry);
        let place = self.place;
        std::mem::forget(self);
        place
    }
}

impl Drop for Object<'_> {
    fn drop(&mut self) {
        self.pool.free(self.place);
    }
}

impl std::fmt::Debug for Object<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Object({:?})", self.place)
    }
}
