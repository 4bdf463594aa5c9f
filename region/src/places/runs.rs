//! Which chunks of a region the system has registered, and how many mappings that makes.
//!
//! ```text
//!   chunks     | r | r |   |   |   | r |   |   |     r: registered
//!   mappings   |  run  |    gap    |run|  gap  |     2 runs, 2 gaps, and 2 guards around them
//!
//!   many mappings left                   the chunk alone
//!   less than half left                  a block around it, larger when fewer are left
//!   none left, or the system refuses     the whole gap: a run and its neighbours become one
//! ```
//!
//! Each run that is registered alone splits the region's mapping. The system limits the mappings of
//! a process (`vm.max_map_count`). Beyond the limit it refuses threads, stacks and files to the
//! rest of the program. So all regions of a pager together use only a share of it. A chunk that is
//! registered without need has a cost: its groups are described, and first touches there are
//! faults, which are served with zeros.
//!
//! Invariants
//! - M1 `made` is the sum of the mappings that the regions of the pager have made. Each region is
//!   counted by its runs and by the ranges that were given back.
//! - M2 registering a whole gap takes no mapping, because its ends are ends of mappings already.
//!
//! Lock: the runs of a region are in `chunk`, under the lock for registering.

use crate::terms::{AROUND_PAGES, GROUP_PAGES};
use host::FaultMode;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// A pager's regions make at most 1/this of the mappings that a process may have.
const SHARE_DIVISOR: u64 = 8;
/// The same where each page that is out is closed by a mapping.
const CLOSED_SHARE_DIVISOR: u64 = 2;
/// A region plans to use at most 1/this of the mappings that are left.
const PLAN_DIVISOR: u64 = 2;
/// Mappings of a run that stands alone: the run, and the gap behind it.
const OF_A_RUN: u64 = 2;
/// Mappings before and after a region, which no thread may touch.
const GUARDS: u64 = 2;

/// The mappings that the regions of a pager have made, and may make.
#[derive(Debug)]
pub(crate) struct Mappings {
    max: u64,
    made: AtomicU64,
    /// How often the system has refused one since it gave one.
    refused: AtomicU32,
}

impl Mappings {
    /// As many as a pager may make whose faults are served in `mode`. `max` is the number that its
    /// user gave.
    pub(crate) fn of_pager(max: Option<u64>, mode: FaultMode) -> Arc<Mappings> {
        let closes = mode == FaultMode::Protection;
        Mappings::at_most(max, if closes { CLOSED_SHARE_DIVISOR } else { SHARE_DIVISOR })
    }

    /// At most so many. `None` means 1/`divisor` of what the system allows the process.
    pub(crate) fn at_most(max: Option<u64>, divisor: u64) -> Arc<Mappings> {
        let max = max.unwrap_or_else(|| host::limits::max_map_count() / divisor);
        Arc::new(Mappings { max, made: AtomicU64::new(0), refused: AtomicU32::new(0) })
    }

    /// How many pages should be opened together, so that fewer mappings are split: 1, a part of a
    /// group, or a group.
    pub(crate) fn block(&self) -> usize {
        // relaxed: hints.
        let (made, refused) =
            (self.made.load(Ordering::Relaxed), self.refused.load(Ordering::Relaxed));
        if refused > 0 || made >= self.max / 2 {
            GROUP_PAGES
        } else if made >= self.max / 8 * 3 {
            AROUND_PAGES
        } else {
            1
        }
    }

    /// Whether groups should leave only because closed neighbours share a mapping.
    pub(crate) fn are_scarce(&self) -> bool {
        // relaxed: hints.
        self.refused.load(Ordering::Relaxed) > 0
            || self.made.load(Ordering::Relaxed) > self.max / 8 * 7
    }

    /// The system has refused a mapping. Returns how often it did since it gave one.
    pub(crate) fn note_refusal(&self) -> u32 {
        // relaxed: a count.
        self.refused.fetch_add(1, Ordering::Relaxed)
    }

    /// Neighbours were closed, so the system has mappings again.
    pub(crate) fn note_relief(&self) {
        // relaxed: a count.
        self.refused.store(0, Ordering::Relaxed);
    }

    /// Adds to the mappings that were made.
    pub(crate) fn add(&self, more: i64) {
        // relaxed: a sum that publishes nothing else.
        self.made.fetch_add(more.cast_unsigned(), Ordering::Relaxed);
    }

    /// How many were made.
    #[cfg(test)]
    pub(crate) fn made(&self) -> u64 {
        // relaxed: read by the thread that adds.
        self.made.load(Ordering::Relaxed)
    }

    /// How many there may be.
    pub(crate) fn max(&self) -> u64 {
        self.max
    }

    fn left(&self) -> u64 {
        // relaxed: two regions that look at once may both take the last ones. Then there are a few
        // too many.
        self.max.saturating_sub(self.made.load(Ordering::Relaxed))
    }
}

/// The runs of one region.
#[derive(Debug)]
pub(crate) struct Runs {
    /// First chunk of a run, and the chunk after its last.
    runs: BTreeMap<usize, usize>,
    chunks: usize,
    /// Ranges of pages that were given back: each is a mapping, and splits one.
    given_back: u64,
    /// Whether registering a chunk splits a mapping. It does not without a userfaultfd.
    cuts: bool,
    /// This region's part of `mappings`.
    made: u64,
    mappings: Arc<Mappings>,
}

impl Runs {
    /// The runs of a region of `chunks` chunks, whose faults are served in `mode`. None of them is
    /// registered.
    pub(crate) fn new(chunks: usize, mappings: &Arc<Mappings>, mode: FaultMode) -> Runs {
        let cuts = matches!(mode, FaultMode::Signal | FaultMode::Thread);
        let (runs, mappings) = (BTreeMap::new(), Arc::clone(mappings));
        let mut runs = Runs { runs, chunks, given_back: 0, cuts, made: 0, mappings };
        runs.count();
        runs
    }

    /// The chunks to register together with one that is not registered. It is that chunk alone if
    /// many mappings are left.
    pub(crate) fn block_of(&self, chunk: usize) -> Range<usize> {
        let (gap, left) = (self.gap_of(chunk), self.mappings.left());
        let planned = left / PLAN_DIVISOR / OF_A_RUN;
        let size = match planned {
            0 => return gap,
            _ if left > self.mappings.max / 2 => 1,
            _ => (gap.len() as u64).div_ceil(planned) as usize,
        };
        let start = chunk - chunk % size;
        start.max(gap.start)..(start + size).min(gap.end)
    }

    /// The chunks around one that is not registered, up to the next ones that are.
    pub(crate) fn gap_of(&self, chunk: usize) -> Range<usize> {
        let before = self.runs.range(..=chunk).next_back().map_or(0, |(_, &end)| end);
        let after = self.runs.range(chunk..).next().map_or(self.chunks, |(&start, _)| start);
        before..after
    }

    /// Notes that chunks of one gap are registered.
    pub(crate) fn add(&mut self, mut block: Range<usize>) {
        if let Some((&start, &end)) = self.runs.range(..block.start).next_back()
            && end == block.start
        {
            block.start = start;
        }
        if let Some(end) = self.runs.remove(&block.end) {
            block.end = end;
        }
        self.runs.insert(block.start, block.end);
        self.count();
    }

    /// Whether another range may be given back.
    pub(crate) fn has_room(&self) -> bool {
        self.mappings.left() >= OF_A_RUN
    }

    /// Notes how many ranges are given back now.
    pub(crate) fn gave_back(&mut self, ranges: usize) {
        self.given_back = ranges as u64;
        self.count();
    }

    /// The mappings that the region has made by registering chunks and giving back ranges.
    pub(crate) fn made(&self) -> u64 {
        self.made
    }

    /// Enters this region's number in `mappings`.
    fn count(&mut self) {
        let runs = self.runs.len() as u64;
        let from_start = self.runs.contains_key(&0);
        let to_end = self.runs.last_key_value().is_some_and(|(_, &end)| end == self.chunks);
        let gaps = runs + 1 - u64::from(from_start) - u64::from(to_end);
        let registered = if self.cuts { runs + gaps } else { 1 };
        let now = GUARDS + registered + OF_A_RUN * self.given_back;
        let more = now.wrapping_sub(self.made);
        // relaxed: a sum that publishes nothing else.
        self.mappings.made.fetch_add(more, Ordering::Relaxed);
        self.made = now;
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        // relaxed: as in `count`.
        self.mappings.made.fetch_sub(self.made, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The mappings of a region, chunk by chunk.
    fn counted(registered: &[bool]) -> u64 {
        let changes = registered.windows(2).filter(|two| two[0] != two[1]).count();
        GUARDS + 1 + changes as u64
    }

    proptest! {
        /// Chunks are registered in any order. The wanted chunk is always registered, no chunk is
        /// registered twice, and the number of mappings stays within its limit.
        #[test]
        fn mappings_are_bounded(
            chunks in 1usize..300,
            max in 5u64..40,
            wanted in proptest::collection::vec(0usize..300, 1..200),
        ) {
            let mappings = Mappings::at_most(Some(max), 1);
            let mut runs = Runs::new(chunks, &mappings, FaultMode::Signal);
            let mut registered = vec![false; chunks];
            for chunk in wanted.into_iter().map(|chunk| chunk % chunks) {
                if registered[chunk] {
                    continue;
                }
                let (block, gap) = (runs.block_of(chunk), runs.gap_of(chunk));
                prop_assert!(block.contains(&chunk) && !registered[block.clone()].contains(&true));
                prop_assert!(gap.start <= block.start && block.end <= gap.end);
                prop_assert!(gap.start == 0 || registered[gap.start - 1]);
                prop_assert!(gap.end == chunks || registered[gap.end]);
                registered[block.clone()].fill(true);
                runs.add(block);
                prop_assert_eq!(mappings.made(), counted(&registered));
                prop_assert!(mappings.made() <= max, "{} of {}", mappings.made(), max);
            }
            drop(runs);
            prop_assert_eq!(mappings.made(), 0);
        }
    }

    #[test]
    fn few_chunks_are_registered_alone_and_many_in_blocks() {
        let mappings = Mappings::at_most(Some(1000), 1);
        let mut runs = Runs::new(10_000, &mappings, FaultMode::Signal);
        assert_eq!(runs.block_of(5000), 5000..5001);
        (0..260).for_each(|n| runs.add(20 * n..20 * n + 1));
        let block = runs.block_of(9000);
        assert!((2..1000).contains(&block.len()), "{block:?} of {mappings:?}");
        runs.gave_back(235);
        assert_eq!(runs.block_of(5), 1..10, "no more than the gap");
        runs.gave_back(500);
        assert_eq!((runs.block_of(9000), runs.has_room()), (5181..10_000, false));
        runs.gave_back(0);
        assert!(runs.has_room());
    }
}
