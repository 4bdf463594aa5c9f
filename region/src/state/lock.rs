//! The ways to lock a group. A locked group knows its pages.
//!
//! ```text
//!   lock             registers the chunk first            page-outs, pins
//!   lock_known       None if nothing is registered        discards, queues
//!   lock_unfetched   as lock_known, once no thread fetches  discards
//!   lock_faulted     of a missing page; never None        faults
//! ```
//!
//! Invariant: a group that is locked here has asked the system which of its pages are resident,
//! unless the system gave no answer. Its words, the chunk's counts and the region's counters change
//! in the same hold of its lock.
//!
//! Locks: for [`Folded::lock`] the one for registering; then a group's; under it the queue's.

use super::folded::Folded;
use crate::places::Group;
use crate::resources::Count;
use crate::terms::{GROUP_PAGES, RegionError};
use host::LockGuard;
use std::time::Duration;

/// How long to wait at a time for a page that another thread fetches.
const WAIT: Duration = Duration::from_millis(2);

impl Folded {
    /// Registers the chunk of a group and locks the group.
    pub(crate) fn lock(&self, index: usize) -> Result<LockGuard<'_, Group>, RegionError> {
        self.chunks.register(index, &self.span)?;
        let mut group = self.chunks.get_or_add(index).lock();
        self.learn(index, &mut group);
        Ok(group)
    }

    /// A group of a registered chunk, locked; `None` if nothing is registered.
    pub(crate) fn lock_known(&self, index: usize) -> Option<LockGuard<'_, Group>> {
        if !self.chunks.is_registered(index) {
            return None;
        }
        let mut group = self.chunks.get(index)?.lock();
        self.learn(index, &mut group);
        Some(group)
    }

    /// As `lock_known`. It waits until no thread fetches `pages` of the group.
    pub(crate) fn lock_unfetched(&self, index: usize, pages: u64) -> Option<LockGuard<'_, Group>> {
        loop {
            let seen = self.shared.fetched.seen();
            let group = self.lock_known(index)?;
            if !group.is_fetching(pages) {
                return Some(group);
            }
            drop(group);
            self.wait_for_fetch(seen);
        }
    }

    /// The group of a page that is missing. A page-out lets this thread in before its next page.
    pub(crate) fn lock_faulted(&self, index: usize) -> LockGuard<'_, Group> {
        loop {
            if let Some(group) = self.lock_for_fault(index) {
                return group;
            }
            // The system has registered it already, and the thread that asked for that is about to
            // say so.
            if self.chunks.get(index).is_none() {
                self.end("a page is missing that was never taken away", index * GROUP_PAGES);
            }
            std::thread::yield_now();
        }
    }

    /// A group of a registered chunk, locked for a fault; `None` if nothing is registered.
    pub(crate) fn lock_for_fault(&self, index: usize) -> Option<LockGuard<'_, Group>> {
        let mut group = self.chunks.lock_for_fault(index)?;
        self.learn(index, &mut group);
        Some(group)
    }

    /// Waits for a short time until some thread has fetched something. `seen` was read before the
    /// group was.
    pub(crate) fn wait_for_fetch(&self, seen: u32) {
        self.shared.fetched.wait(seen, WAIT);
    }

    /// Asks the system, once, which pages it had when the chunk was registered, including those in
    /// its swap. If the system does not say, the next thread asks again.
    fn learn(&self, index: usize, group: &mut Group) {
        if !group.is_known()
            && let Some(there) = self.span.touched(self.chunks.pages_of(index))
        {
            let before = group.resident();
            let new = group.learn(there);
            self.chunks.changed(index, before, group.resident());
            self.counters.add(Count::Resident, u64::from(new.count_ones()));
            self.list(index, group);
        }
    }

    /// Enters a group that has resident pages in the queue.
    pub(crate) fn list(&self, index: usize, group: &mut Group) {
        group.list(|| self.queue.lock().push(index as u32));
    }

    /// Registers the whole region, and enters the groups with resident pages in the queue.
    pub(crate) fn learn_all(&self) -> Result<(), RegionError> {
        (0..self.chunks.groups()).try_for_each(|index| {
            let _gate = self.enter()?;
            self.lock(index).map(drop)
        })
    }
}
