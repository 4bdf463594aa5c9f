//! An area: an array of pages by number, as the slots of the kernel's swap device are. A region has
//! one.
//!
//! ```text
//!   page      0        1        2                 pages - 1
//!           | 4096 b | nothing| 4096 b |   ...   |         |     a sparse table: nothing stored,
//!                                                                nothing held
//! ```
//!
//! Rule of buffers: a buffer that is passed to an area is not memory whose faults its cache serves.
//! It is read and written while the lock of a cell or a codec's stream is held, so a fault in it
//! would wait for itself.
//!
//! Invariant: an area's number and its size never change, and no later area gets the number.
//! `removed` only becomes true. When the last handle goes, the area has neither pages nor leaves.
//!
//! Locks: those of `store`, `load` and `detached`.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use zsmalloc::{Slots, leaf_parts};

use super::detached::{Detached, FreeWhen};
use crate::cells::{Event, Stored};
use crate::shared::Core;
use crate::terms::GroupId;

/// A handle to an area of a cache. Clones are handles to the same area, which goes with the last
/// handle.
#[derive(Clone)]
pub struct Area {
    pub(crate) inner: Arc<AreaInner>,
}

/// What the handles of an area share.
pub(crate) struct AreaInner {
    pub(crate) core: Arc<Core>,
    id: u32,
    pages: u64,
    pub(crate) slots: Slots,
    removed: AtomicBool,
    /// True if only the program that made it has handles to it.
    private: bool,
}

impl Area {
    pub(crate) fn new(core: Arc<Core>, id: u32, slots: Slots, pages: u64, private: bool) -> Area {
        let removed = AtomicBool::new(false);
        core.counters.area_came();
        Area { inner: Arc::new(AreaInner { core, id, pages, slots, removed, private }) }
    }

    pub(crate) fn from_inner(inner: Arc<AreaInner>) -> Area {
        Area { inner }
    }

    pub(crate) fn downgrade(&self) -> Weak<AreaInner> {
        Arc::downgrade(&self.inner)
    }

    /// Its number, which no other area of the cache has or will have.
    pub fn id(&self) -> u32 {
        self.inner.id
    }

    /// How many pages it has room for.
    pub fn pages(&self) -> u64 {
        self.inner.pages
    }

    /// Starts loading a page that is about to be read, if it is in memory.
    pub fn prefetch(&self, page: u64) {
        if self.inner.has(page) {
            self.inner.slots.prefetch(page);
        }
    }

    /// Forgets a page. Nothing happens if the page is not stored or lies outside the area.
    pub fn invalidate(&self, page: u64) {
        self.invalidate_pages(page..page.saturating_add(1), FreeWhen::Soon);
    }

    /// Forgets the pages of a range, as far as it lies in the area. A whole leaf of 512 pages is
    /// taken out of the table by one exchange, whatever it holds. `free` says when its memory is
    /// freed.
    pub fn invalidate_pages(&self, pages: Range<u64>, free: FreeWhen) {
        let end = pages.end.min(self.inner.pages);
        // Only leaves need it: a page is counted with its cell locked, in the stripes of its CPU.
        let mut detached = None;
        for part in leaf_parts(pages.start..end, self.inner.pages) {
            if part.whole {
                let leaves = detached.get_or_insert_with(|| Detached::nothing(&self.inner.core));
                leaves.take(&self.inner.slots, part.index);
            } else if self.inner.slots.leaf(part.index).is_some() {
                part.pages.for_each(|page| self.inner.invalidate_page(page));
            }
        }
        if let Some(leaves) = detached {
            leaves.free(free);
        }
    }

    /// Bytes of the table that names its leaves.
    pub(crate) fn root_bytes(&self) -> u64 {
        let (mapped, heap) = self.inner.slots.root_bytes();
        mapped + heap
    }

    /// Forgets everything, and refuses later stores.
    pub(crate) fn remove(&self) {
        // relaxed: a store that races with this counts as earlier. Its page goes with the last
        // handle.
        self.inner.removed.store(true, Ordering::Relaxed);
        self.inner.empty(FreeWhen::Soon);
    }

    /// Forgets everything. When this returns, the area uses no memory, except for pages that other
    /// threads store meanwhile.
    pub fn clear(&self) {
        self.inner.empty(FreeWhen::Now);
    }
}

impl AreaInner {
    pub(crate) fn pages(&self) -> u64 {
        self.pages
    }

    pub(crate) fn is_private(&self) -> bool {
        self.private
    }

    pub(crate) fn is_removed(&self) -> bool {
        // relaxed: see `Area::remove`.
        self.removed.load(Ordering::Relaxed)
    }

    /// True for one of its pages.
    #[inline]
    pub(crate) fn has(&self, page: u64) -> bool {
        page < self.pages
    }

    fn invalidate_page(&self, page: u64) {
        if let Some(mut slot) = self.slots.lock(page) {
            let before = Stored::in_cell(&slot);
            if let Stored::Blob { .. } = before {
                self.core.orders.remove(slot.number());
            }
            self.forget(&mut slot);
            self.core.settle(&slot, before, GroupId::ROOT, Event::Invalidated);
        }
    }

    fn empty(&self, free: FreeWhen) {
        let mut detached = Detached::nothing(&self.core);
        detached.take_all(&self.slots);
        detached.free(free);
    }
}

impl Drop for AreaInner {
    fn drop(&mut self) {
        self.empty(FreeWhen::Soon);
        self.core.counters.area_went();
    }
}

impl std::fmt::Debug for Area {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Area").field("id", &self.id()).field("pages", &self.pages()).finish()
    }
}
