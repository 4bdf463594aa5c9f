//! One zone for all threads.
//!
//! Invariant: whenever the lock is free, the zone obeys I1 to I6. A request that could fail because
//! runs are on lists is tried again with all lists locked and empty (C5).
//!
//! Lock: one mutex around the whole zone, held for one operation and never across a call out of
//! this crate: no public method takes a closure, and none returns a guard. Those of the per-CPU
//! lists are taken before it.

use super::cpu_lists::CpuLists;
use crate::lists::Published;
use crate::numbers::{
    AllocError, AllocatedRun, Arc, FreeError, FreedRun, IsolateError, Migratetype, Mutex,
    MutexGuard, ORDERS, Occupancy, OfflineError, Order, PAGEBLOCK_FRAMES, PageblockIndex, Pfn,
    PoisonError, ReserveError, TakeError, Warm,
};
use crate::zone::Zone;
use std::fmt;

/// A [`Zone`] behind a lock, and per-CPU lists of runs before it. Methods with the name of one of
/// the zone's are that method, done atomically; the lists are used by those that name a CPU.
pub struct SharedZone {
    pub(crate) cpus: CpuLists,
    zone: Mutex<Zone>,
    published: Arc<Published>,
}

impl SharedZone {
    /// See [`Zone::new`]. There are no per-CPU lists.
    pub fn new(frames_max: u32) -> SharedZone {
        SharedZone::with_lists(frames_max, 0, 0)
    }

    /// As [`SharedZone::new`], with lists for `cpus` CPUs of at most `listed_frames_max` frames
    /// each; with 0 of either, none.
    pub fn with_lists(frames_max: u32, cpus: usize, listed_frames_max: u32) -> SharedZone {
        let zone = Zone::new(frames_max);
        SharedZone {
            cpus: CpuLists::new(cpus, listed_frames_max),
            published: Arc::clone(zone.published()),
            zone: Mutex::new(zone),
        }
    }

    /// The counts, which are read without the lock and may outlive the zone.
    pub fn published(&self) -> &Arc<Published> {
        &self.published
    }

    /// See [`Zone::alloc`].
    pub fn alloc(&self, order: Order, migratetype: Migratetype) -> Result<Pfn, AllocError> {
        self.alloc_run(order.frames(), migratetype)
    }

    /// See [`Zone::alloc_run`]. Refused only if it would be with the per-CPU lists empty.
    pub fn alloc_run(&self, frames: u32, migratetype: Migratetype) -> Result<Pfn, AllocError> {
        self.of_all(AllocError::is_want, |zone| zone.alloc_run(frames, migratetype))
    }

    /// See [`Zone::alloc_hole`].
    pub fn alloc_hole(&self, frames: u32, migratetype: Migratetype) -> Result<Pfn, AllocError> {
        self.lock().alloc_hole(frames, migratetype)
    }

    /// See [`Zone::alloc_warm`].
    pub fn alloc_warm(&self, frames: u32, migratetype: Migratetype) -> Result<Pfn, AllocError> {
        self.lock().alloc_warm(frames, migratetype)
    }

    /// See [`Zone::free`].
    pub fn free(&self, pfn: Pfn, order: Order, warm: Warm) -> Result<(), FreeError> {
        self.lock().free(pfn, order, warm)
    }

    /// See [`Zone::free_run`].
    pub fn free_run(&self, pfn: Pfn, frames: u32, warm: Warm) -> Result<(), FreeError> {
        self.lock().free_run(pfn, frames, warm)
    }

    /// See [`Zone::free_runs`]: one hold of the lock for all, with which the iterator is asked for
    /// the next run too: one that uses this zone waits for itself.
    pub fn free_runs(&self, runs: impl Iterator<Item = FreedRun>) -> Result<(), FreeError> {
        self.lock().free_runs(runs)
    }

    /// See [`Zone::take_free`].
    pub fn take_free(&self, pfn: Pfn, order: Order) -> Result<(), TakeError> {
        self.lock().take_free(pfn, order)
    }

    /// Takes warm free blocks, the largest first of those with no more than what is left of
    /// `frames`, until they have as many or are `blocks_max` blocks. The last one has more where
    /// no smaller one is warm.
    pub fn take_warm(&self, frames: u64, blocks_max: usize) -> Vec<(Pfn, Order)> {
        let (mut zone, mut taken, mut total) = (self.lock(), Vec::new(), 0);
        while total < frames && taken.len() < blocks_max {
            let Some((pfn, order)) = zone.take_warm_near(frames - total) else { break };
            total += u64::from(order.frames());
            taken.push((pfn, order));
        }
        taken
    }

    /// See [`Zone::take_largest_warm`].
    pub fn take_largest_warm(&self, min_order: Order) -> Option<(Pfn, Order)> {
        self.lock().take_largest_warm(min_order)
    }

    /// See [`Zone::offline`]. What is on per-CPU lists is not in use.
    pub fn offline(&self, index: PageblockIndex) -> Result<(), OfflineError> {
        let in_use = |refused: OfflineError| matches!(refused, OfflineError::InUse(_));
        self.of_all(in_use, |zone| zone.offline(index))
    }

    /// See [`Zone::offline_untouched`].
    pub fn offline_untouched(&self) -> u32 {
        self.lock().offline_untouched()
    }

    /// See [`Zone::isolate`]. The per-CPU lists are emptied: a run of the pageblock that nobody
    /// uses is free, and stays so.
    pub fn isolate(&self, index: PageblockIndex) -> Result<(), IsolateError> {
        self.lock().isolate(index)?;
        self.drain();
        Ok(())
    }

    /// See [`Zone::undo_isolation`].
    pub fn undo_isolation(&self, index: PageblockIndex) -> Result<(), IsolateError> {
        self.lock().undo_isolation(index)
    }

    /// The runs of which a frame lies in a pageblock, lowest first; see [`Zone::runs_in`]. Anybody
    /// may free one before the caller gets to it, unless the pageblock's runs are the caller's.
    pub fn runs_in(&self, index: PageblockIndex) -> Vec<AllocatedRun> {
        let mut found = Vec::with_capacity(PAGEBLOCK_FRAMES as usize);
        self.lock().runs_in(index, &mut found);
        found
    }

    /// See [`Zone::occupancy`].
    pub fn occupancy(&self, index: PageblockIndex) -> Option<Occupancy> {
        self.lock().occupancy(index)
    }

    /// See [`Zone::occupancies`]: the lock is held for `pageblocks_max` looks, and shorter if
    /// `found` has room for as many.
    pub fn occupancies(
        &self,
        from: PageblockIndex,
        pageblocks_max: u32,
        found: &mut Vec<Occupancy>,
    ) -> Option<PageblockIndex> {
        self.lock().occupancies(from, pageblocks_max, found)
    }

    /// See [`Zone::set_reserve_max`].
    pub fn set_reserve_max(&self, pageblocks: u32) {
        self.lock().set_reserve_max(pageblocks);
    }

    /// See [`Zone::reserve`]. If there is no pageblock, it is refused only if it would also be
    /// refused with the per-CPU lists empty.
    pub fn reserve(&self) -> Result<PageblockIndex, ReserveError> {
        self.of_all(ReserveError::is_want, Zone::reserve)
    }

    /// See [`Zone::unreserve`].
    pub fn unreserve(&self, to: Migratetype, force: bool) -> Result<PageblockIndex, ReserveError> {
        self.lock().unreserve(to, force)
    }

    /// See [`Zone::set_aside_cma`]. Refused only if it would be with the per-CPU lists empty.
    pub fn set_aside_cma(&self) -> Result<PageblockIndex, AllocError> {
        self.of_all(AllocError::is_want, Zone::set_aside_cma)
    }

    /// See [`Zone::is_online`].
    pub fn is_online(&self, index: PageblockIndex) -> bool {
        self.lock().is_online(index)
    }

    /// See [`Zone::free_frames`].
    pub fn free_frames(&self) -> u64 {
        self.lock().free_frames()
    }

    /// See [`Zone::allocated_frames`].
    pub fn allocated_frames(&self) -> u64 {
        self.lock().allocated_frames()
    }

    /// See [`Zone::online_frames`].
    pub fn online_frames(&self) -> u64 {
        self.lock().online_frames()
    }

    /// See [`Zone::frames_max`].
    pub fn frames_max(&self) -> u64 {
        self.lock().frames_max()
    }

    /// See [`Zone::counts`].
    pub fn counts(&self) -> [[u64; Migratetype::COUNT]; ORDERS] {
        self.lock().counts()
    }

    /// See [`Zone::largest_free_order`].
    pub fn largest_free_order(&self) -> Option<Order> {
        self.lock().largest_free_order()
    }

    /// See [`Zone::metadata_bytes`]; the locks and the per-CPU lists are counted too.
    pub fn metadata_bytes(&self) -> usize {
        let own = size_of::<SharedZone>() - size_of::<Zone>() + self.cpus.heap_bytes();
        self.lock().metadata_bytes() + own
    }

    /// A poisoned lock is taken all the same. No foreign code runs under it, so only a broken
    /// invariant can have panicked there, and [`SharedZone::check`] is what says so; refusing
    /// would turn one failed operation into the loss of every page that is stored.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Zone> {
        self.zone.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is published: it takes no lock.
impl fmt::Debug for SharedZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (counts, listed_frames) = (self.published.read(), self.listed_frames());
        let (online, free) = (counts.online_frames(), counts.free_frames());
        let mut zone = f.debug_struct("SharedZone");
        zone.field("online_frames", &online).field("free_frames", &free);
        zone.field("listed_frames", &listed_frames).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_panic_under_the_lock_does_not_end_the_zone() {
        let zone = SharedZone::new(1024);
        let run = zone.alloc_run(3, Migratetype::Movable).expect("an empty zone has room");
        std::thread::scope(|scope| {
            let poisoner = scope.spawn(|| {
                let _held = zone.lock();
                panic!("poisons the lock, as a broken invariant would");
            });
            assert!(poisoner.join().is_err(), "the lock was not poisoned");
        });
        assert!(zone.zone.is_poisoned(), "the lock was not poisoned");
        assert_eq!(zone.free_run(run, 3, Warm::Resident), Ok(()));
        zone.check().expect("the zone is as sound as before");
    }

    #[test]
    fn the_lock_is_counted() {
        let zone = SharedZone::new(1024);
        let bytes = size_of::<SharedZone>() + size_of::<Published>();
        assert_eq!(zone.metadata_bytes(), bytes, "with nothing online");
    }
}
