//! Emptying the cell of a page that is forgotten: its object is freed at once. With the feature
//! `study` the file of that name is in the place of this one.
//!
//! Lock: the cell's, which the caller holds.

use zsmalloc::CellGuard;

use super::area::AreaInner;
use crate::cells::stored;

impl AreaInner {
    /// Empties a cell.
    pub(super) fn forget(&self, slot: &mut CellGuard<'_>) {
        stored::clear(slot);
    }
}
