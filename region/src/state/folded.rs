//! The folding half of a region: everything except the client's right to its bytes.
//!
//! ```text
//!   Region ---- SpanMemory          the bytes: slices
//!      |
//!      `------- Arc<Folded> <------ pager's list, RegionControl (weak), the table of faults
//!                  | span, staging      what moves pages
//!                  | chunks             where each page is
//!                  ` store              compressed pages
//! ```
//!
//! Invariants
//! - F1 the sums in `counters` are those of the groups. They change under the lock of the group
//!   whose pages move.
//! - F2 a control, the pager and the keeping of a limit hold the region's gate while they work on
//!   it, for one group at a time. Teardown closes the gate and finds no thread inside. Pins borrow
//!   the region itself.
//! - F3 what makes pages denser holds a gate of its own, because a turn of it may take long, and
//!   nothing but teardown has to wait for it. It runs deferred jobs. One of them could be the end
//!   of the region, which waits until no thread has it. So teardown closes this gate, too, before
//!   it defers that job.
//!
//! Locks: turnstile, then gate, then the lock for registering, then a group's, then a buffer's or
//! the store's own. The queue of groups is a leaf. No byte of the client's is touched while any of
//! them is held.

use super::dirty::Dirty;
use super::limit::Limit;
#[cfg(test)]
use super::probe::Probe;
use crate::neighbours::Around;
use crate::places::{Chunks, Queue};
use crate::resources::{Count, Counters, Gate, Gates, Shared, Store};
use crate::terms::{PlotStats, Quads, RegionError, RegionStats};
use host::fault::Watch;
use host::{FaultMode, Lock, PAGE_SIZE, Rank, Span};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::sync::{Arc, OnceLock, Weak};
use zram::Zram;

pub(crate) struct Folded {
    pub(crate) this: Weak<Folded>,
    pub(crate) store: Store,
    pub(crate) chunks: Chunks,
    pub(crate) queue: Lock<Queue>,
    pub(crate) counters: Counters,
    pub(crate) around: Around,
    pub(crate) dirty: Dirty,
    pub(crate) limit: Limit,
    /// Which threads may work on the region. If the gates are closed, it is being torn down.
    gates: Gates,
    /// Which threads may make its stored pages denser.
    tending: Gates,
    pub(crate) shared: Arc<Shared<Folded>>,
    /// The group that the pager's thread looks at next.
    pub(crate) next_look: AtomicUsize,
    /// Touches of closed pages that nothing here explains.
    pub(crate) strays: AtomicU32,
    #[cfg(test)]
    pub(crate) probe: Probe,
    /// Until this is dropped, a touch of a closed region ends the process with a message. After
    /// that, the signal alone ends it. It is dropped before `span`, because another region may get
    /// the addresses once they are given back.
    watch: OnceLock<Watch<'static>>,
    pub(crate) span: Arc<Span>,
}

impl Folded {
    pub(crate) fn new(
        shared: &Arc<Shared<Folded>>,
        span: Arc<Span>,
        store: Store,
        quads: Quads,
    ) -> Arc<Folded> {
        let chunks = Chunks::new(span.pages(), &shared.mappings, span.mode());
        Arc::new_cyclic(|this| Folded {
            this: Weak::clone(this),
            store,
            queue: Lock::new(Rank::Leaf, Queue::with_room(chunks.groups())),
            watch: OnceLock::new(),
            counters: Counters::default(),
            around: Around::new(quads, shared.worth()),
            dirty: Dirty::new(chunks.groups()),
            limit: Limit::none(),
            gates: Gates::new(),
            tending: Gates::new(),
            shared: Arc::clone(shared),
            next_look: AtomicUsize::new(0),
            strays: AtomicU32::new(0),
            #[cfg(test)]
            probe: Probe::default(),
            chunks,
            span,
        })
    }

    /// Keeps `watch`, by which faults of the region are found, for as long as the region.
    pub(crate) fn keep_watch(&self, watch: Watch<'static>) {
        // It is set once, before another thread knows the region.
        drop(self.watch.set(watch));
    }

    /// The right to work on the region, unless it is being torn down, or belongs to the process
    /// that forked this one.
    pub(crate) fn enter(&self) -> Result<Gate<'_>, RegionError> {
        self.shared.path.expect_own()?;
        self.gates.enter().ok_or(RegionError::Gone)
    }

    /// As [`Folded::enter`], except that it fails if a thread is about to be alone or is just
    /// entering. It is for a thread that holds another region's gate.
    pub(crate) fn try_enter(&self) -> Option<Gate<'_>> {
        self.gates.try_enter()
    }

    /// Whether a thread has entered.
    #[cfg(test)]
    pub(crate) fn is_entered(&self) -> bool {
        self.gates.is_entered()
    }

    /// Does something while no other thread works on the region, unless it is being torn down. If
    /// the client does not touch it either, only late messages move a page until this ends.
    pub(crate) fn alone<R>(&self, work: impl FnOnce() -> R) -> Result<R, RegionError> {
        self.shared.path.expect_own()?;
        self.gates.alone(work).ok_or(RegionError::Gone)
    }

    /// Whether a thread does something alone at the moment. May be called in a signal handler.
    pub(crate) fn is_alone(&self) -> bool {
        self.gates.is_alone()
    }

    /// Makes stored pages denser, or does other work on the device behind the region that takes
    /// long and may run deferred jobs. Teardown waits for it, and nothing else.
    ///
    /// # Errors
    ///
    /// Those of [`Folded::enter`], and [`RegionError::NoTiers`] if the store is no device.
    pub(crate) fn tend<R>(&self, work: impl FnOnce(&Zram) -> R) -> Result<R, RegionError> {
        self.shared.path.expect_own()?;
        let device = self.store.zram().ok_or(RegionError::NoTiers)?;
        let _gate = self.tending.enter().ok_or(RegionError::Gone)?;
        Ok(work(device))
    }

    /// Waits until no thread works on the region, and lets none begin. From now on, a touch of the
    /// region ends the process.
    pub(crate) fn close(&self) {
        self.tending.close();
        self.gates.close();
        if let Some(watch) = self.watch.get() {
            watch.retire();
        }
    }

    /// Ends the process with a message about a page, because there is no right content for the
    /// thread that waits for it.
    pub(crate) fn end(&self, why: &str, page: usize) -> ! {
        host::fault::die_at(why, self.span.range().start + page * PAGE_SIZE)
    }

    /// How many aligned pages come and go together, so that fewer mappings are split.
    pub(crate) fn block(&self) -> usize {
        if self.span.mode() == FaultMode::Protection { self.shared.mappings.block() } else { 1 }
    }

    /// Pages in memory and in staging.
    pub(crate) fn held(&self) -> u64 {
        self.counters.read(Count::Resident) + self.counters.read(Count::Staged)
    }

    /// Where the pages of whole groups are.
    pub(crate) fn places_of(&self, pages: &Range<usize>) -> PlotStats {
        let mut places = PlotStats { pages: pages.len() as u64, ..PlotStats::default() };
        for index in Chunks::groups_of(pages) {
            let Some(group) = self.lock_known(index) else {
                places.unregistered_pages += self.chunks.pages_of(index).len() as u64;
                continue;
            };
            places.resident_pages += u64::from(group.resident().count_ones());
            places.staged_pages += u64::from(group.staged().count_ones());
            places.stored_pages += u64::from(group.stored().count_ones());
        }
        places
    }

    pub(crate) fn stats(&self) -> RegionStats {
        let registered = |index: &usize| self.chunks.is_registered(*index);
        let pages_of = |index| self.chunks.pages_of(index).len() as u64;
        let known: u64 = (0..self.chunks.groups()).filter(registered).map(pages_of).sum();
        let pages = self.span.pages() as u64;
        let [quads, stretches] = self.around.density.per_cent();
        let mappings = self.chunks.mappings_made();
        RegionStats {
            pages,
            unregistered_pages: pages - known,
            compr_data_size: self.store.compr_data_size(),
            disk_pages: self.store.disk_pages(),
            metadata_bytes: self.chunks.heap_bytes()
                + self.dirty.heap_bytes()
                + self.queue.lock().heap_bytes()
                + size_of::<Folded>() as u64,
            limit_pages: self.limit.pages(),
            mappings,
            density: u64::from(quads.max(stretches)),
            fault_costs: self.around.worth.costs(),
            ..self.counters.stats()
        }
    }
}
