//! The folding half of a region: everything but the client's right to its bytes.
//!
//! ```text
//!   Region ---- SpanMemory          the bytes: slices
//!      |
//!      `------- Arc<Folded> <------ pager's list, Control (weak), the table of faults
//!                  | span, staging      what moves pages
//!                  | chunks             where each page is
//!                  ` store              compressed pages
//! ```
//!
//! Invariants
//! - F1 the sums in `counters` are those of the groups: they change under the lock of the group
//!   whose pages move.
//! - F2 who works on the region by a control, as the pager or for a limit holds its gate, for a
//!   group at a time; teardown closes the gate and finds nobody inside. Pins borrow the region
//!   itself.
//!
//! Locks: turnstile, then gate, then registering, then a group's, then buffer or the store's own;
//! the queue of groups is a leaf. No byte of a client's is touched with any of them held.

use crate::around::Around;
use crate::chunk::Chunks;
use crate::counters::{Count, Counters};
use crate::gate::{Gate, Gates};
use crate::group::Group;
use crate::look::NextLook;
use crate::pager::Shared;
use crate::queue::Queue;
use crate::stats::RegionStats;
use crate::store::Store;
use crate::{GROUP_PAGES, Quads, RegionError};
use host::fault::{Server, Watch};
use host::{Lock, LockGuard, PAGE_SIZE, Rank, Span};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// No limit.
const UNLIMITED: u64 = u64::MAX;

pub(crate) struct Folded {
    pub(crate) this: Weak<Folded>,
    pub(crate) store: Store,
    pub(crate) chunks: Chunks,
    pub(crate) queue: Lock<Queue>,
    pub(crate) counters: Counters,
    pub(crate) around: Around,
    /// A bit for each group that has dead copies in the store.
    dirty: Box<[AtomicU64]>,
    limit_pages: AtomicU64,
    /// The pager could not bring the region below its limit: nobody is to wait for that.
    stuck: AtomicBool,
    /// Who may work on it; closed: the region is being torn down.
    gates: Gates,
    pub(crate) shared: Arc<Shared>,
    pub(crate) next_look: NextLook,
    #[cfg(test)]
    pub(crate) probe: Probe,
    /// Until here, a touch of the region ends the process with a word; from here on, by the signal.
    /// Before the addresses are given back, since another region may have them then.
    watch: OnceLock<Watch>,
    pub(crate) span: Arc<Span>,
}

/// What tests set and read in the middle of a region's work.
#[cfg(test)]
#[derive(Debug, Default)]
pub(crate) struct Probe {
    /// A bit for each page of a group that is taken to be in use by the system.
    pub(crate) in_use: AtomicU64,
    /// How often faults were let in.
    pub(crate) yields: AtomicU64,
    /// The region is taken to have been moved by other code.
    pub(crate) moved: AtomicBool,
}

#[cfg(test)]
impl Probe {
    /// Pages from `at` on that are not in use.
    pub(crate) fn free_from(&self, at: usize) -> usize {
        // relaxed: one thread.
        (self.in_use.load(Ordering::Relaxed) >> at).trailing_zeros() as usize
    }
}

impl Folded {
    pub(crate) fn new(
        shared: &Arc<Shared>,
        span: Arc<Span>,
        store: Store,
        quads: Quads,
    ) -> Arc<Folded> {
        let chunks = Chunks::new(span.pages(), &shared.mappings);
        let words = chunks.groups().div_ceil(u64::BITS as usize);
        Arc::new_cyclic(|this| Folded {
            this: Weak::clone(this),
            store,
            queue: Lock::new(Rank::Leaf, Queue::with_room(chunks.groups())),
            watch: OnceLock::new(),
            counters: Counters::default(),
            around: Around::new(quads, shared.worth()),
            dirty: (0..words).map(|_| AtomicU64::new(0)).collect(),
            limit_pages: AtomicU64::new(UNLIMITED),
            stuck: AtomicBool::new(false),
            gates: Gates::new(),
            shared: Arc::clone(shared),
            next_look: NextLook::default(),
            #[cfg(test)]
            probe: Probe::default(),
            chunks,
            span,
        })
    }

    /// The right to work on the region, unless it is being torn down.
    pub(crate) fn enter(&self) -> Result<Gate<'_>, RegionError> {
        self.gates.enter().ok_or(RegionError::Gone)
    }

    /// Has faults of the region found.
    pub(crate) fn watch(self: &Arc<Folded>) -> Result<(), RegionError> {
        let server: Arc<dyn Server> = Arc::<Folded>::clone(self);
        let watch = host::fault::watch(self.span.range(), server)?;
        // Set once, before anybody else knows of the region.
        drop(self.watch.set(watch));
        Ok(())
    }

    /// As [`Folded::enter`], unless somebody is about to be alone, or just enters too: for who
    /// holds another's gate.
    pub(crate) fn try_enter(&self) -> Option<Gate<'_>> {
        self.gates.try_enter()
    }

    /// Whether somebody has entered.
    #[cfg(test)]
    pub(crate) fn is_entered(&self) -> bool {
        self.gates.is_entered()
    }

    /// Does something while nobody else works on the region, unless it is being torn down. With the
    /// client kept away too, nobody but late messages moves a page until it ends.
    pub(crate) fn alone<R>(&self, work: impl FnOnce() -> R) -> Result<R, RegionError> {
        self.gates.alone(work).ok_or(RegionError::Gone)
    }

    /// Waits until nobody works on the region, and lets nobody begin; from here on, a touch of it
    /// ends the process.
    pub(crate) fn close(&self) {
        self.gates.close();
        if let Some(watch) = self.watch.get() {
            watch.retire();
        }
    }

    /// Registers the chunk of a group and locks the group, which knows its pages then.
    pub(crate) fn lock(&self, index: usize) -> Result<LockGuard<'_, Group>, RegionError> {
        self.chunks.register(index, &self.span)?;
        let mut group = self.chunks.get_or_add(index).lock();
        self.learn(index, &mut group);
        Ok(group)
    }

    /// A group of a registered chunk, locked for a fault; `None` where nothing is registered.
    pub(crate) fn lock_for_fault(&self, index: usize) -> Option<LockGuard<'_, Group>> {
        let mut group = self.chunks.lock_for_fault(index)?;
        self.learn(index, &mut group);
        Some(group)
    }

    /// A group of a registered chunk, locked; `None` where nothing is registered.
    pub(crate) fn lock_known(&self, index: usize) -> Option<LockGuard<'_, Group>> {
        if !self.chunks.is_registered(index) {
            return None;
        }
        let mut group = self.chunks.get(index)?.lock();
        self.learn(index, &mut group);
        Some(group)
    }

    /// Looks, once, at what the system had when the chunk was registered, in its swap as well.
    /// Where it does not say, whoever comes next asks again.
    fn learn(&self, index: usize, group: &mut Group) {
        if !group.known
            && let Some(there) = self.span.touched(self.chunks.pages_of(index))
        {
            group.known = true;
            let new = there & !(group.staged | group.stored | group.resident | group.gone);
            group.resident |= new;
            self.counters.add(Count::Resident, u64::from(new.count_ones()));
            self.list(index, group);
        }
    }

    /// Enters a group that has resident pages in the queue.
    pub(crate) fn list(&self, index: usize, group: &mut Group) {
        if !group.listed && group.resident != 0 {
            group.listed = self.queue.lock().push(index as u32);
        }
    }

    /// Notes that a group, whose lock the caller holds, has come to have dead copies in the store.
    /// Where it has some already, either the note is still there, or who took it is on the way to
    /// the lock.
    pub(crate) fn mark_dirty(&self, index: usize) {
        let (word, bit) = (index / u64::BITS as usize, index % u64::BITS as usize);
        // relaxed: a note for the sweeper, which looks at the group under its lock.
        self.dirty[word].fetch_or(1 << bit, Ordering::Relaxed);
    }

    /// Discards copies in the store that nobody will read; how many.
    pub(crate) fn sweep(&self) -> u64 {
        let mut swept = 0;
        for (word, bits) in self.dirty.iter().enumerate() {
            // relaxed: as in `mark_dirty`. The load keeps the sweep of a clean region cheap.
            if bits.load(Ordering::Relaxed) == 0 {
                continue;
            }
            // relaxed: as in `mark_dirty`.
            for (first, count) in crate::group::runs(bits.swap(0, Ordering::Relaxed)) {
                let groups = first..first + count;
                swept += groups
                    .map(|bit| self.sweep_group(word * u64::BITS as usize + bit))
                    .sum::<u64>();
            }
        }
        swept
    }

    fn sweep_group(&self, index: usize) -> u64 {
        let Some(lock) = self.chunks.get(index) else { return 0 };
        let mut group = lock.lock();
        let dead = group.dead_copies();
        let first = index * GROUP_PAGES;
        crate::group::runs(dead).for_each(|(at, count)| self.store.drop_copies(first + at, count));
        group.copies &= !dead;
        let swept = u64::from(dead.count_ones());
        self.counters.sub(Count::DeadCopies, swept);
        swept
    }

    /// Pages that may be in memory or staging at most.
    pub(crate) fn limit(&self) -> Option<u64> {
        // relaxed: an independent value.
        Some(self.limit_pages.load(Ordering::Relaxed)).filter(|&limit| limit != UNLIMITED)
    }

    pub(crate) fn set_limit(&self, pages: Option<u64>) {
        // relaxed: an independent value.
        self.limit_pages.store(pages.unwrap_or(UNLIMITED), Ordering::Relaxed);
    }

    /// Whether waiting for the limit is of use.
    pub(crate) fn is_stuck(&self) -> bool {
        // relaxed: a hint.
        self.stuck.load(Ordering::Relaxed)
    }

    pub(crate) fn set_stuck(&self, stuck: bool) {
        // relaxed: a hint.
        self.stuck.store(stuck, Ordering::Relaxed);
    }

    /// Ends the process with a word about a page: there is nothing right to give to who waits.
    pub(crate) fn end(&self, why: &str, page: usize) -> ! {
        host::fault::die_at(why, self.span.range().start + page * PAGE_SIZE)
    }

    /// Mappings that the regions of the pager may make.
    pub(crate) fn mappings_max(&self) -> u64 {
        self.shared.mappings.max()
    }

    /// Pages in memory and in staging.
    pub(crate) fn held(&self) -> u64 {
        self.counters.read(Count::Resident) + self.counters.read(Count::Staged)
    }

    /// The groups that a range of pages lies in.
    pub(crate) fn groups_of(&self, pages: &Range<usize>) -> Range<usize> {
        pages.start / GROUP_PAGES..pages.end.div_ceil(GROUP_PAGES)
    }

    pub(crate) fn stats(&self) -> RegionStats {
        let registered = |index: &usize| self.chunks.is_registered(*index);
        let pages_of = |index| self.chunks.pages_of(index).len() as u64;
        let known: u64 = (0..self.chunks.groups()).filter(registered).map(pages_of).sum();
        let pages = self.span.pages() as u64;
        let [quads, stretches] = self.around.density.per_cent();
        RegionStats {
            pages,
            unregistered_pages: pages - known,
            compr_data_size: self.store.compr_data_size(),
            disk_pages: self.store.disk_pages(),
            metadata_bytes: self.chunks.heap_bytes()
                + size_of_val(&*self.dirty) as u64
                + self.queue.lock().heap_bytes()
                + size_of::<Folded>() as u64,
            limit_pages: self.limit(),
            density: u64::from(quads.max(stretches)),
            fault_costs: self.around.worth.costs(),
            ..self.counters.stats()
        }
    }
}
