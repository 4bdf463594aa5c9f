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
//!
//! Lock: a leaf, which the region keeps around its queues.

use std::collections::VecDeque;
use std::ops::Range;

/// The queues of one region.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GROUPS: u32 = 12;

    #[derive(Clone, Debug)]
    enum Step {
        Push(u32),
        Pop,
        PushStaged(u32),
        PopStaged,
        Hasten(Range<usize>),
    }

    fn step() -> impl Strategy<Value = Step> {
        let (group, bound) = (0..GROUPS, 0..=GROUPS as usize);
        prop_oneof![
            6 => group.clone().prop_map(Step::Push),
            3 => Just(Step::Pop),
            2 => group.prop_map(Step::PushStaged),
            2 => Just(Step::PopStaged),
            1 => (bound.clone(), bound).prop_map(|(start, end)| Step::Hasten(start..end)),
        ]
    }

    fn take_first(groups: &mut Vec<u32>) -> Option<u32> {
        (!groups.is_empty()).then(|| groups.remove(0))
    }

    proptest! {
        /// Compares with two vectors, from whose beginnings groups leave.
        #[test]
        fn groups_leave_in_the_order_in_which_they_came(
            steps in prop::collection::vec(step(), 0..300),
        ) {
            let mut queue = Queue::with_room(GROUPS as usize);
            let room = queue.resident.capacity();
            let (mut resident, mut staged) = (Vec::new(), Vec::new());
            for step in steps {
                match step {
                    // The region's `listed` keeps a group from coming twice (Q1).
                    Step::Push(group) if resident.contains(&group) => {}
                    Step::Push(group) => {
                        prop_assert!(queue.push(group), "Q2: there is room for every group");
                        resident.push(group);
                    }
                    Step::Pop => prop_assert_eq!(queue.pop(), take_first(&mut resident)),
                    Step::PushStaged(group) => {
                        queue.push_staged(group);
                        staged.push(group);
                    }
                    Step::PopStaged => prop_assert_eq!(queue.pop_staged(), take_first(&mut staged)),
                    Step::Hasten(early) => {
                        queue.hasten(&early);
                        resident.sort_by_key(|&group| !early.contains(&(group as usize)));
                    }
                }
                prop_assert_eq!(&queue.resident, &resident, "the queue's, the twin's");
                prop_assert_eq!((queue.len(), queue.staged_len()), (resident.len(), staged.len()));
                prop_assert_eq!(queue.steps(), resident.len() + staged.len());
                prop_assert_eq!(queue.resident.capacity(), room, "Q2: nothing was allocated");
            }
        }
    }
}
