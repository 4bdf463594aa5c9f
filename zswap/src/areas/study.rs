//! Emptying the cell of a page that is forgotten, in one of the ways that study S3 compares.
//! Without the feature `study` the file `forget` is in the place of this one: it has the way
//! [`Free::AtOnce`].
//!
//! Lock: the cell's, which the caller holds.

use zsmalloc::CellGuard;

use super::area::{Area, AreaInner};
use crate::cells::stored;
use crate::terms::study::{Free, Meters};

impl AreaInner {
    /// Empties a cell. Its object is freed, or queued.
    pub(super) fn forget(&self, slot: &mut CellGuard<'_>) {
        if self.core.config.study.free == Free::Handles {
            slot.clear_deferred();
        }
        // Empty already, if the object was queued.
        stored::clear(slot);
    }
}

impl Area {
    /// The queue of the cache's objects: what is pending in it, and what was freed at once because
    /// it had no room.
    pub fn deferred(&self) -> Meters {
        self.inner.core.pool.deferred()
    }
}
