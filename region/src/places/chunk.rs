//! Chunks: the 2 MiB parts of a region in which it is registered, and the groups of pages in them.
//!
//! ```text
//!   region   | chunk 0 | chunk 1 | ....                        a chunk appears when one of its
//!                 `--> registered?  | group 0 | ... | group 7 |      pages is to be paged out
//! ```
//!
//! Before that, first touches are ordinary page faults of the system. They cost less, and the
//! region does not see them. If few mappings are left, other chunks are registered together with it
//! (module `runs`).
//!
//! Invariant C1: a chunk is registered only after it can be found, so the fault path finds it. A
//! group learns what was resident only after that, because a page that arrives later arrives under
//! the group's lock.
//!
//! Locks: the lock for registering, then a group's.

use super::bits::bits;
use super::group::Group;
use super::runs::{Mappings, Runs};
use super::splits::Splits;
use crate::terms::{CHUNK_GROUPS, GROUP_PAGES};
use host::{FaultError, FaultMode, Lock, LockGuard, Rank, Span};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// Pages of a chunk.
const CHUNK_PAGES: usize = CHUNK_GROUPS * GROUP_PAGES; // 2 MiB

struct Chunk {
    registered: AtomicBool,
    groups: [Lock<Group>; CHUNK_GROUPS],
    /// The number of threads that fault in each group and do not have its lock yet.
    awaited: [AtomicU32; CHUNK_GROUPS],
}

impl Chunk {
    fn new() -> Box<Chunk> {
        Box::new(Chunk {
            registered: AtomicBool::new(false),
            groups: std::array::from_fn(|_| Group::new_lock()),
            awaited: Default::default(),
        })
    }
}

/// All chunks of a region.
pub(crate) struct Chunks {
    chunks: Box<[OnceLock<Box<Chunk>>]>,
    pages: usize,
    /// Held by a thread that registers chunks.
    runs: Lock<Runs>,
    /// Where pages that are out are closed.
    splits: Option<Splits>,
    /// Set by a test: the system is taken to refuse.
    #[cfg(test)]
    pub(crate) refuses: AtomicBool,
}

impl Chunks {
    /// The chunks of a region of `pages` pages, whose faults are served in `mode`. None of them
    /// exists yet.
    pub(crate) fn new(pages: usize, mappings: &Arc<Mappings>, mode: FaultMode) -> Chunks {
        let count = pages.div_ceil(CHUNK_PAGES);
        let splits = mode == FaultMode::Protection;
        Chunks {
            chunks: (0..count).map(|_| OnceLock::new()).collect(),
            pages,
            runs: Lock::new(Rank::Registering, Runs::new(count, mappings, mode)),
            splits: splits.then(|| Splits::new(pages, mappings)),
            #[cfg(test)]
            refuses: AtomicBool::new(false),
        }
    }

    /// The number of groups that there can be.
    pub(crate) fn groups(&self) -> usize {
        self.pages.div_ceil(GROUP_PAGES)
    }

    /// The pages of a group.
    pub(crate) fn pages_of(&self, group: usize) -> Range<usize> {
        group * GROUP_PAGES..((group + 1) * GROUP_PAGES).min(self.pages)
    }

    /// The groups that a range of pages lies in.
    pub(crate) fn groups_of(pages: &Range<usize>) -> Range<usize> {
        pages.start / GROUP_PAGES..pages.end.div_ceil(GROUP_PAGES)
    }

    /// As `groups_of`, each group with the bits of those of `pages` that it has.
    pub(crate) fn parts_of(
        &self,
        pages: &Range<usize>,
    ) -> impl Iterator<Item = (usize, u64)> + use<> {
        let (pages, len) = (pages.clone(), self.pages);
        Chunks::groups_of(&pages).map(move |group| {
            let first = group * GROUP_PAGES;
            let (start, end) =
                (pages.start.max(first), pages.end.min(first + GROUP_PAGES).min(len));
            (group, bits(start - first, end - start))
        })
    }

    /// A group, if its chunk exists.
    pub(crate) fn get(&self, group: usize) -> Option<&Lock<Group>> {
        let chunk = self.chunks.get(group / CHUNK_GROUPS)?.get()?;
        Some(&chunk.groups[group % CHUNK_GROUPS])
    }

    /// A group. Its chunk is made if necessary.
    pub(crate) fn get_or_add(&self, group: usize) -> &Lock<Group> {
        &self.chunks[group / CHUNK_GROUPS].get_or_init(Chunk::new).groups[group % CHUNK_GROUPS]
    }

    /// Registers the chunk of a group, once. Others are registered with it if few mappings are
    /// left.
    pub(crate) fn register(&self, group: usize, span: &Span) -> Result<(), FaultError> {
        let index = group / CHUNK_GROUPS;
        if self.is_registered(group) {
            return Ok(());
        }
        let mut runs = self.runs();
        // Another thread may have registered it meanwhile. It is not registered again, because a
        // failure would undo the registration.
        if self.is_registered(group) {
            return Ok(());
        }
        let mut block = runs.block_of(index);
        match self.register_all(&block, span) {
            Err(FaultError::Mappings { .. }) if block != runs.gap_of(index) => {
                block = runs.gap_of(index);
                self.register_all(&block, span)?;
            }
            done => done?,
        }
        runs.add(block);
        Ok(())
    }

    /// Registers all chunks of a gap, or of a part of it.
    fn register_all(&self, chunks: &Range<usize>, span: &Span) -> Result<(), FaultError> {
        #[cfg(test)]
        // relaxed: one thread.
        if self.refuses.load(Ordering::Relaxed) {
            return Err(FaultError::Mappings { max: 0 });
        }
        // C1.
        let all = self.chunks[chunks.clone()].iter().map(|chunk| chunk.get_or_init(Chunk::new));
        let all: Vec<&Box<Chunk>> = all.collect();
        let pages = chunks.start * CHUNK_PAGES..(chunks.end * CHUNK_PAGES).min(self.pages);
        span.register(pages.clone())?;
        self.parts_of(&pages).for_each(|(group, open)| self.changed(group, open, 0));
        // Release pairs with the Acquire in `is_registered`, so that a thread that sees a chunk
        // registered may look at what is resident.
        all.iter().for_each(|chunk| chunk.registered.store(true, Ordering::Release));
        Ok(())
    }

    /// Notes that other pages of a group are in memory than before, one bit each. The caller has
    /// the group's lock. Where pages that are out are closed, this changes the mappings.
    pub(crate) fn changed(&self, group: usize, before: u64, after: u64) {
        if let Some(splits) = self.splits.as_ref().filter(|_| before != after) {
            splits.changed(group, before, after);
        }
    }

    /// The mappings that the region has made, by registering or by closing pages.
    pub(crate) fn mappings_made(&self) -> u64 {
        self.runs().made() + self.splits.as_ref().map_or(0, Splits::made)
    }

    /// Whether a thread registers chunks. It only tries the lock.
    pub(crate) fn is_registering(&self) -> bool {
        self.runs.try_lock().is_none()
    }

    /// The right to register, and the runs that are registered.
    pub(crate) fn runs(&self) -> LockGuard<'_, Runs> {
        self.runs.lock()
    }

    /// Locks a group for a fault. `None` if its chunk is not registered.
    pub(crate) fn lock_for_fault(&self, group: usize) -> Option<LockGuard<'_, Group>> {
        if !self.is_registered(group) {
            return None;
        }
        let chunk = self.chunks.get(group / CHUNK_GROUPS)?.get()?;
        let index = group % CHUNK_GROUPS;
        if let Some(locked) = chunk.groups[index].try_lock() {
            return Some(locked);
        }
        // relaxed: a hint to the thread that is about to take the lock again.
        chunk.awaited[index].fetch_add(1, Ordering::Relaxed);
        let locked = chunk.groups[index].lock();
        // relaxed: as above.
        chunk.awaited[index].fetch_sub(1, Ordering::Relaxed);
        Some(locked)
    }

    /// Whether a thread that faults waits for the group.
    pub(crate) fn is_awaited(&self, group: usize) -> bool {
        let chunk = self.chunks[group / CHUNK_GROUPS].get();
        // relaxed: a hint.
        chunk.is_some_and(|c| c.awaited[group % CHUNK_GROUPS].load(Ordering::Relaxed) > 0)
    }

    /// For tests: from now on, a thread seems to wait for the group.
    #[cfg(test)]
    pub(crate) fn wait_for_ever(&self, group: usize) {
        let chunk = self.chunks[group / CHUNK_GROUPS].get_or_init(Chunk::new);
        // relaxed: a hint.
        chunk.awaited[group % CHUNK_GROUPS].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn is_registered(&self, group: usize) -> bool {
        let chunk = self.chunks[group / CHUNK_GROUPS].get();
        // Acquire pairs with the Release in `register_all`, so that a thread that sees the chunk
        // registered comes after its registration.
        chunk.is_some_and(|chunk| chunk.registered.load(Ordering::Acquire))
    }

    /// The groups of registered chunks, locked one after the other.
    pub(crate) fn known(&self) -> impl Iterator<Item = (usize, LockGuard<'_, Group>)> {
        let groups = 0..self.groups();
        groups.filter_map(|index| Some((index, self.get(index)?.lock())))
    }

    /// Bytes of heap.
    pub(crate) fn heap_bytes(&self) -> u64 {
        let there = self.chunks.iter().filter(|chunk| chunk.get().is_some()).count();
        let splits = self.splits.as_ref().map_or(0, Splits::heap_bytes);
        (size_of_val(&*self.chunks) + there * size_of::<Chunk>()) as u64 + splits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_parts_of_a_range_are_its_pages(
            len in 1usize..400, one in 0usize..400, other in 0usize..400,
        ) {
            let (start, end) = (one.min(other).min(len), one.max(other).min(len));
            let chunks = Chunks::new(len, &Mappings::at_most(None, 8), FaultMode::Signal);
            let pages = |(group, part): (usize, u64)| {
                let first = group * GROUP_PAGES;
                (first..first + GROUP_PAGES).filter(move |page| part >> (page - first) & 1 == 1)
            };
            let found = chunks.parts_of(&(start..end)).flat_map(pages);
            prop_assert_eq!(found.collect::<Vec<_>>(), (start..end).collect::<Vec<_>>());
        }
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "R1: waiting for a lock of rank Registering")]
    fn registering_with_a_group_locked_is_caught() {
        let chunks = Chunks::new(CHUNK_PAGES, &Mappings::at_most(None, 8), FaultMode::Signal);
        let _group = chunks.get_or_add(0).lock();
        drop(chunks.runs());
    }
}
