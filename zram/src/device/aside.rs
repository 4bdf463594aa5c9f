//! Slots that are emptied later, one by one: there are none. A discard empties a slot at once, or
//! takes the whole leaf.
//!
//! With the feature `study` the file of that name is in the place of this one.

use std::sync::Arc;

use zsmalloc::{CellGuard, MemoryError, PoolConfig, Slots};

use crate::cells::{Counters, Stored};
use crate::terms::ZramConfig;

/// No slots.
pub(crate) struct Aside;
const _: () = assert!(size_of::<Aside>() == 0, "there is one way to free");

impl Aside {
    /// The pool of a device.
    pub(super) fn pool(_: &ZramConfig, pool: PoolConfig) -> PoolConfig {
        pool
    }

    /// No slots.
    pub(super) fn new(
        _: &ZramConfig,
        _: &Arc<Slots>,
        _: &Arc<Counters>,
    ) -> Result<Aside, MemoryError> {
        Ok(Aside)
    }

    /// Empties the slots; false if there never are any.
    pub(crate) fn flush(&self) -> bool {
        false
    }

    /// The content of a locked slot, which is about to be replaced.
    pub(crate) fn take(&self, slot: &mut CellGuard<'_>) -> Stored {
        Stored::in_cell(slot)
    }

    /// The content that a locked slot has until it is emptied.
    pub(crate) fn kept(&self, slot: &CellGuard<'_>) -> Stored {
        Stored::in_cell(slot)
    }

    /// Bytes of the objects in the slots.
    pub(crate) fn bytes(&self) -> u64 {
        0
    }

    /// Bytes of heap.
    pub(crate) fn heap_bytes(&self) -> u64 {
        0
    }

    /// Recounts the slots.
    pub(crate) fn check(&self, _: &Slots) -> Result<(), String> {
        Ok(())
    }
}
