//! The order in which groups leave memory: first in, first out, with a second chance in staging.
//!
//! ```text
//!   arrive --> | resident ... | --> moved out --> | staged ... | --> compressed
//!      ^                                                 |
//!      `------------------ touched again <---------------'
//! ```
//!
//! Source: the segmented FIFO of VMS (Turner and Levy, 1981). Its global list of pages that left
//! their process is the staging here. It needs no reference bits, which a process cannot read.
//!
//! Invariants
//! - Q1 a group is in `resident` exactly once while its `listed` is set.
//! - Q2 pushing never allocates, because there is room for every group of the region.

use std::collections::VecDeque;
use std::ops::Range;

/// The queues of one region. A leaf lock guards them.
#[derive(Debug)]
pub(crate) struct Queue {
    resident: VecDeque<u32>,
    staged: VecDeque<u32>,
}

impl Queue {
    /// Empty queues with room for `groups` groups.
    pub(crate) fn with_room(groups: usize) -> Queue {
        Queue { resident: VecDeque::with_capacity(groups), staged: VecDeque::new() }
    }

    /// Makes some groups leave before all others.
    pub(crate) fn hasten(&mut self, groups: &Range<usize>) {
        let early = |group: &u32| groups.contains(&(*group as usize));
        let (mut first, rest): (Vec<u32>, Vec<u32>) = self.resident.iter().partition(|&g| early(g));
        first.extend(rest);
        // It is cleared in place, so that its room stays.
        self.resident.clear();
        self.resident.extend(first);
    }

    /// A group has pages in memory. False if there is no room for it, which Q2 rules out.
    pub(crate) fn push(&mut self, group: u32) -> bool {
        let room = self.resident.len() < self.resident.capacity();
        debug_assert!(room, "Q2");
        if room {
            self.resident.push_back(group);
        }
        room
    }

    /// The group that came first.
    pub(crate) fn pop(&mut self) -> Option<u32> {
        self.resident.pop_front()
    }

    /// A group was moved to staging.
    pub(crate) fn push_staged(&mut self, group: u32) {
        self.staged.push_back(group);
    }

    /// The group that has been in staging longest.
    pub(crate) fn pop_staged(&mut self) -> Option<u32> {
        self.staged.pop_front()
    }

    /// Groups in staging.
    pub(crate) fn staged_len(&self) -> usize {
        self.staged.len()
    }

    /// Groups in memory or staging.
    pub(crate) fn steps(&self) -> usize {
        self.resident.len() + self.staged.len()
    }

    /// Groups in memory.
    pub(crate) fn len(&self) -> usize {
        self.resident.len()
    }

    /// Bytes of heap.
    pub(crate) fn heap_bytes(&self) -> u64 {
        ((self.resident.capacity() + self.staged.capacity()) * size_of::<u32>()) as u64
    }
}
