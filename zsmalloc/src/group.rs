//! Fullness groups: lists of zspages per class, by share of slots in use.
//!
//! ```text
//!   group   0   1      2       ...  10      11       unsorted      none
//!   in use  0   1-9 %  10-19 %      90-99%  100 %    lost objects  active
//!   shown       10 %   20 %         99 %    100 %    since filed   zspage
//! ```
//!
//! Source: `ZS_INUSE_RATIO_*` of Linux 6.4 and later. There each allocation and free moves its
//! zspage to the list of its new fullness, which touches up to three neighbours. Here the first
//! free moves it to the unsorted list, where it stays however many objects it loses; allocation and
//! the mover file what is there, a few at a time, before they choose. How many zspages there are of
//! each fullness is counted at every step. Lists are LIFO.
//!
//! Invariants
//! - I1 a zspage is in the list that `group_of` says, or unsorted with objects and free slots, or
//!   in no list and active; its descriptor says which.
//! - I2 `filled` has the bits of the lists that have zspages.
//! - I3 `counts` is the number of zspages by fullness, whichever list they are in.
//!
//! Lock: the class lock, taken by the caller.

use crate::descriptor::{Descriptor, DescriptorId, Header};
use crate::descriptor_heap::DescriptorHeap;
use crate::geometry::Shape;

/// Number of fullness groups.
pub const GROUPS: usize = 12;
/// The group of full zspages.
pub(crate) const FULL: usize = GROUPS - 1;
/// The group of zspages without objects.
pub(crate) const EMPTY: usize = 0;
/// The list of zspages that lost objects since they were filed.
const UNSORTED: usize = GROUPS;
/// Lists, the unsorted one included.
pub(crate) const LISTS: usize = GROUPS + 1;
const _: () = assert!(FULL < LISTS && LISTS <= u16::BITS as usize, "a bit for every list");
/// What a descriptor says that is in no list.
const NO_LIST: usize = 15;

/// Ten divided by a number of objects, so that a fullness costs no division.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tenth(u32); // in units of 2^-16

impl Tenth {
    /// Of zspages with `objects` slots. Rounded up, which is exact: the error of `in_use` times
    /// this is below 256 / 2^16, and the next tenth of 256 slots at most is 1 / 256 away.
    pub(crate) const fn of(objects: u16) -> Tenth {
        Tenth((10_u32 << 16).div_ceil(objects as u32))
    }
}

/// The fullness group of a zspage with `in_use` of `objects` slots taken: the kernel's
/// 100 * in_use / objects / 10 + 1, but for none and all.
#[inline]
pub(crate) fn group_of(in_use: usize, objects: usize, tenth: Tenth) -> usize {
    let partial = ((in_use as u32 * tenth.0) >> 16) as usize + 1;
    match in_use {
        0 => EMPTY,
        all if all == objects => FULL,
        _ => partial,
    }
}

/// The lists of one class.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    heads: [DescriptorId; LISTS],
    /// One bit per list that has zspages.
    filled: u16,
    /// Zspages by fullness.
    counts: [u32; GROUPS],
}

/// The groups whose zspages have free slots.
const WITH_ROOM: u16 = (1 << FULL) - 1;
/// The groups whose zspages have free slots and objects.
const PARTIAL: u16 = WITH_ROOM & !(1 << EMPTY);

impl Groups {
    /// Zspages of a group's fullness.
    pub(crate) fn count(&self, group: usize) -> u32 {
        self.counts[group]
    }

    /// The head of a list.
    pub(crate) fn head(&self, list: usize) -> Option<DescriptorId> {
        self.heads[list].some()
    }

    /// Whether a list is said to have zspages.
    pub(crate) fn is_filled(&self, list: usize) -> bool {
        self.filled >> list & 1 == 1
    }

    /// The head of the fullest group that has free slots.
    #[inline]
    pub(crate) fn fullest_with_room(&self) -> Option<DescriptorId> {
        let group = (self.filled & WITH_ROOM).checked_ilog2()?;
        self.head(group as usize)
    }

    /// The head of the emptiest group that has objects and free slots.
    pub(crate) fn emptiest_in_use(&self) -> Option<DescriptorId> {
        let partial = self.filled & PARTIAL;
        if partial == 0 { None } else { self.head(partial.trailing_zeros() as usize) }
    }

    /// A zspage of the emptiest group that has objects and free slots, other than a few.
    pub(crate) fn emptiest_but(
        &self,
        list: &List<'_>,
        target: DescriptorId,
        stuck: &[DescriptorId],
    ) -> Option<DescriptorId> {
        let other = |id: &DescriptorId| *id != target && !stuck.contains(id);
        (EMPTY + 1..FULL).find_map(|group| list.walk(self.head(group)).find(other))
    }

    /// Counts a new zspage, which has no objects and is in no list.
    pub(crate) fn enter(&mut self, list: &List<'_>, id: DescriptorId) {
        list.header(id).set_links(NO_LIST, DescriptorId::NONE, DescriptorId::NONE);
        self.counts[EMPTY] += 1;
    }

    /// Forgets a zspage that lost its last object, in whichever list it is.
    pub(crate) fn leave(&mut self, list: &List<'_>, id: DescriptorId) {
        self.unlink(list, list.header(id));
        self.counts[EMPTY] -= 1;
    }

    /// A zspage had `before` objects and has `after`.
    #[inline(always)]
    pub(crate) fn recount(&mut self, list: &List<'_>, before: usize, after: usize) {
        let (from, to) = (list.group_of(before), list.group_of(after));
        self.counts[from] -= 1;
        self.counts[to] += 1;
    }

    /// Counts a zspage of `in_use` objects that came from another shard.
    pub(crate) fn count_in(&mut self, list: &List<'_>, in_use: usize) {
        self.counts[list.group_of(in_use)] += 1;
    }

    /// Forgets a zspage of `in_use` objects that goes to another shard.
    pub(crate) fn count_out(&mut self, list: &List<'_>, in_use: usize) {
        self.counts[list.group_of(in_use)] -= 1;
    }

    /// Files a zspage that is in no list under its fullness.
    pub(crate) fn file(&mut self, list: &List<'_>, id: DescriptorId) {
        let zspage = list.header(id);
        self.link(list, id, zspage, list.group_of(zspage.in_use()));
    }

    /// Takes a zspage off its list.
    pub(crate) fn unfile(&mut self, list: &List<'_>, id: DescriptorId) {
        let zspage = list.header(id);
        self.unlink(list, zspage);
        zspage.set_links(NO_LIST, DescriptorId::NONE, DescriptorId::NONE);
    }

    /// Notes that a zspage lost objects.
    #[inline(always)]
    pub(crate) fn unsort(&mut self, list: &List<'_>, id: DescriptorId) {
        let zspage = list.header(id);
        if zspage.group() != UNSORTED {
            self.unlink(list, zspage);
            self.link(list, id, zspage, UNSORTED);
        }
    }

    /// Files unsorted zspages, at most `zspages_max`; false when some are left.
    pub(crate) fn sort(&mut self, list: &List<'_>, zspages_max: usize) -> bool {
        for _ in 0..zspages_max {
            let Some(id) = self.head(UNSORTED) else { return true };
            self.unlink(list, list.header(id));
            self.file(list, id);
        }
        self.head(UNSORTED).is_none()
    }

    /// True when a zspage of `in_use` objects belongs in a list.
    pub(crate) fn belongs(list: &List<'_>, to: usize, in_use: usize) -> bool {
        let group = list.group_of(in_use);
        group == to || to == UNSORTED && group != EMPTY && group != FULL
    }

    fn link(&mut self, list: &List<'_>, id: DescriptorId, zspage: Header<'_>, to: usize) {
        let next = self.heads[to];
        zspage.set_links(to, DescriptorId::NONE, next);
        if let Some(next) = next.some() {
            list.header(next).set_prev(id);
        }
        self.heads[to] = id;
        self.filled |= 1 << to;
    }

    fn unlink(&mut self, list: &List<'_>, zspage: Header<'_>) {
        let (from, prev, next) = (zspage.group(), zspage.prev(), zspage.next());
        if from == NO_LIST {
            return;
        }
        if let Some(next) = next.some() {
            list.header(next).set_prev(prev);
        }
        match prev.some() {
            Some(prev) => list.header(prev).set_next(next),
            None => {
                self.heads[from] = next;
                self.filled &= !(u16::from(next == DescriptorId::NONE) << from);
            }
        }
    }
}

/// How a class finds its descriptors.
#[derive(Clone, Copy)]
pub(crate) struct List<'a> {
    pub(crate) heap: &'a DescriptorHeap,
    pub(crate) shape: Shape,
    /// Words of each descriptor's body.
    pub(crate) words: usize,
    pub(crate) tenth: Tenth,
}

impl<'a> List<'a> {
    #[inline]
    pub(crate) fn get(&self, id: DescriptorId) -> Descriptor<'a> {
        self.heap.get(id, self.shape, self.words)
    }

    #[inline]
    pub(crate) fn header(&self, id: DescriptorId) -> Header<'a> {
        self.heap.header(id)
    }

    /// The fullness group of `in_use` objects.
    #[inline]
    pub(crate) fn group_of(&self, in_use: usize) -> usize {
        group_of(in_use, usize::from(self.shape.objects), self.tenth)
    }

    /// The zspages of a list from `first` on.
    pub(crate) fn walk(
        self,
        first: Option<DescriptorId>,
    ) -> impl Iterator<Item = DescriptorId> + 'a {
        std::iter::successors(first, move |&id| self.header(id).next().some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn expect(in_use: usize, objects: usize, group: usize) {
        let tenth = Tenth::of(objects as u16);
        assert_eq!(group_of(in_use, objects, tenth), group, "{in_use} of {objects}");
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
        for objects in 2..=256 {
            for in_use in 1..objects {
                expect(in_use, objects, 100 * in_use / objects / 10 + 1);
            }
        }
    }
    #[test]
    #[cfg(not(loom))]
    fn a_recount_finds_a_wrong_bit() {
        use crate::{Memory, MemoryConfig, Pool, PoolConfig};
        let config =
            MemoryConfig { arena_frames: 512, entries_max: 512, limit_bytes: 0, worker: false };
        let memory = Memory::new(config).expect("address space");
        let pool = Pool::new(memory, PoolConfig::default()).expect("a pool");
        for list in 0..LISTS {
            pool.classes()[0].lock().groups.filled ^= 1 << list;
            let defect = pool.check().expect_err("a wrong bit").0;
            assert_eq!(defect, format!("list {list} has zspages: counted false, kept true"));
            pool.classes()[0].lock().groups.filled ^= 1 << list;
        }
        assert!(pool.check().is_ok());
    }
}
