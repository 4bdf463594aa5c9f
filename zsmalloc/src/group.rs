//! Fullness groups: twelve lists of zspages per class, by share of slots in use.
//!
//! ```text
//!   group   0   1      2       ...  10      11
//!   in use  0   1-9 %  10-19 %      90-99%  100 %       of the slots, in integers
//!   shown       10 %   20 %         99 %    100 %       column of the classes table
//! ```
//!
//! Source: `ZS_INUSE_RATIO_*` of Linux 6.4 and later. Lists are LIFO; a zspage whose group changed
//! goes to the head of its new list.
//!
//! Invariant: a zspage is in the list that `group_of` says, and its descriptor names that group.
//!
//! Lock: the class lock, taken by the caller.

use crate::descriptor::{Descriptor, DescriptorId};
use crate::descriptor_heap::DescriptorHeap;
use crate::geometry::Shape;

/// Number of fullness groups.
pub const GROUPS: usize = 12;
/// The group of full zspages.
pub(crate) const FULL: usize = GROUPS - 1;
/// The group of zspages without objects.
pub(crate) const EMPTY: usize = 0;

/// The fullness group of a zspage with `in_use` of `objects` slots taken.
pub(crate) fn group_of(in_use: usize, objects: usize) -> usize {
    match in_use {
        0 => EMPTY,
        all if all == objects => FULL,
        some => 100 * some / objects / 10 + 1,
    }
}

/// The twelve lists of one class.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    heads: [DescriptorId; GROUPS],
    counts: [u32; GROUPS],
}

impl Groups {
    /// Zspages in a group.
    pub(crate) fn count(&self, group: usize) -> u32 {
        self.counts[group]
    }

    /// The head of a group's list.
    pub(crate) fn head(&self, group: usize) -> Option<DescriptorId> {
        self.heads[group].some()
    }

    /// The head of the fullest group that has free slots.
    pub(crate) fn fullest_with_room(&self) -> Option<DescriptorId> {
        (EMPTY..FULL).rev().find_map(|group| self.head(group))
    }

    /// The head of the emptiest group that has objects and free slots.
    pub(crate) fn emptiest_in_use(&self) -> Option<DescriptorId> {
        (EMPTY + 1..FULL).find_map(|group| self.head(group))
    }

    /// A zspage of the emptiest group that has objects and free slots, other than `but`.
    pub(crate) fn emptiest_but(&self, list: &List<'_>, but: DescriptorId) -> Option<DescriptorId> {
        (EMPTY + 1..FULL).find_map(|group| list.walk(self.head(group)).find(|&id| id != but))
    }

    /// Enters a zspage at the head of the list of its fullness.
    pub(crate) fn insert(&mut self, list: &List<'_>, id: DescriptorId) {
        let zspage = list.get(id);
        let group = group_of(zspage.in_use(), list.shape.objects as usize);
        zspage.set_group(group);
        zspage.set_prev(DescriptorId::NONE);
        zspage.set_next(self.heads[group]);
        if let Some(next) = self.head(group) {
            list.get(next).set_prev(id);
        }
        self.heads[group] = id;
        self.counts[group] += 1;
    }

    /// Takes a zspage off its list.
    pub(crate) fn remove(&mut self, list: &List<'_>, id: DescriptorId) {
        let zspage = list.get(id);
        let (prev, next) = (zspage.prev(), zspage.next());
        match prev.some() {
            Some(prev) => list.get(prev).set_next(next),
            None => self.heads[zspage.group()] = next,
        }
        if let Some(next) = next.some() {
            list.get(next).set_prev(prev);
        }
        self.counts[zspage.group()] -= 1;
    }

    /// Moves a zspage to the list of its fullness, if that changed.
    pub(crate) fn refile(&mut self, list: &List<'_>, id: DescriptorId) {
        let zspage = list.get(id);
        if zspage.group() != group_of(zspage.in_use(), list.shape.objects as usize) {
            self.remove(list, id);
            self.insert(list, id);
        }
    }
}

/// How a class finds its descriptors.
#[derive(Clone, Copy)]
pub(crate) struct List<'a> {
    pub(crate) heap: &'a DescriptorHeap,
    pub(crate) shape: Shape,
}

impl<'a> List<'a> {
    pub(crate) fn get(&self, id: DescriptorId) -> Descriptor<'a> {
        self.heap.get(id, self.shape)
    }

    /// The zspages of a list from `first` on.
    pub(crate) fn walk(
        self,
        first: Option<DescriptorId>,
    ) -> impl Iterator<Item = DescriptorId> + 'a {
        std::iter::successors(first, move |&id| self.get(id).next().some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn expect(in_use: usize, objects: usize, group: usize) {
        assert_eq!(group_of(in_use, objects), group, "{in_use} of {objects}");
    }

    #[test]
    fn groups_are_the_kernels() {
        expect(0, 13, 0);
        expect(1, 13, 1); // 7 %
        expect(2, 13, 2); // 15 %
        expect(12, 13, 10); // 92 %
        expect(13, 13, 11);
        expect(1, 2, 6); // 50 %
        expect(1, 1, 11);
        expect(9, 10, 10);
        expect(1, 256, 1); // 0 %
        expect(255, 256, 10); // 99 %
    }
}
