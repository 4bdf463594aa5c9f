//! The zspages of a class, in the order of their fullness.
//!
//! ```text
//!   group     11      10         9              1         0
//!   in use    100 %   90-99 %    80-89 %   ...  1-9 %     none
//!   shown     100%    99%        90%            10%
//!             +-------+----------+---------+----+---------+
//!   zspages   | 5 9 2 | 7 1      |   ...   | 3  |         |     their numbers, in one array
//!             +-------+----------+---------+----+---------+
//!                     ^ borders[10]              ^ borders[1]
//!                                ^ borders[9]         ^ borders[0]
//!                     chosen next
//! ```
//!
//! The groups are the kernel's (`ZS_INUSE_RATIO_*` of Linux 6.4 and later), where each is a linked
//! list and a zspage that changes group writes to up to four neighbours. Here it changes places
//! with the first or the last of its group and the border of the group moves over it: one other
//! header, four of which share a cache line. The fullest with room, from which objects are
//! allocated, keeps its place as it fills. What is fuller than a given share, or
//! emptier, is a slice.
//!
//! Invariants
//! - I1 `zspages` holds every zspage of the class once, fuller groups first; a header says where
//!   its own number is.
//! - I2 `borders[g]` is where group `g` begins: the number of zspages in fuller groups.
//!
//! Lock: the class lock, taken by the caller.

use std::collections::TryReserveError;

use crate::descriptor::{Descriptor, DescriptorId, Header};
use crate::descriptor_heap::DescriptorHeap;
use crate::geometry::Shape;

/// Number of fullness groups.
pub const GROUPS: usize = 12;
/// The group of full zspages.
const FULL: usize = GROUPS - 1;
/// The group of zspages without objects.
const EMPTY: usize = 0;

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

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Fullness {
    borders: [u32; FULL],
    zspages: Vec<DescriptorId>,
}

impl Fullness {
    /// Zspages of a group.
    pub(crate) fn count(&self, group: usize) -> u32 {
        let start = if group == FULL { 0 } else { self.borders[group] };
        // Wrapping, as a recount asks before it knows that the borders are in order.
        self.end(group).wrapping_sub(start)
    }

    /// Every zspage, the fullest first.
    pub(crate) fn zspages(&self) -> &[DescriptorId] {
        &self.zspages
    }

    /// Those with objects and free slots, the fullest first.
    #[inline]
    pub(crate) fn partial(&self) -> &[DescriptorId] {
        &self.zspages[self.borders[FULL - 1] as usize..self.borders[EMPTY] as usize]
    }

    /// The fullest that has free slots.
    #[inline]
    pub(crate) fn fullest_with_room(&self) -> Option<DescriptorId> {
        self.zspages.get(self.borders[FULL - 1] as usize).copied()
    }

    /// Makes sure that there is room for one more; gives the bytes that were taken for that.
    pub(crate) fn reserve(&mut self) -> Result<usize, TryReserveError> {
        let (len, before) = (self.zspages.len(), self.zspages.capacity());
        if len == before {
            // By a quarter, as what is not used is part of the cost of every object.
            self.zspages.try_reserve_exact((len / 4).max(4))?;
        }
        Ok((self.zspages.capacity() - before) * size_of::<DescriptorId>())
    }

    /// Gives back what a class that has become small no longer needs; gives its bytes.
    pub(crate) fn shrink(&mut self) -> usize {
        let before = self.zspages.capacity();
        if self.zspages.len() * 4 < before {
            self.zspages.shrink_to(self.zspages.len() * 2);
        }
        (before - self.zspages.capacity()) * size_of::<DescriptorId>()
    }

    /// Bytes of the array.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.zspages.capacity() * size_of::<DescriptorId>()
    }

    /// Enters a zspage of any fullness; room was reserved.
    pub(crate) fn enter(&mut self, of: &Descriptors<'_>, id: DescriptorId) {
        of.header(id).set_position(self.zspages.len() as u32);
        self.zspages.push(id);
        self.regroup(of, id, 0, of.header(id).in_use());
    }

    /// Forgets a zspage.
    pub(crate) fn leave(&mut self, of: &Descriptors<'_>, id: DescriptorId) {
        self.regroup(of, id, of.header(id).in_use(), 0);
        let last = self.zspages.len() - 1;
        self.fill(of, of.header(id).position(), last as u32);
        self.zspages.pop();
    }

    /// A zspage had `before` objects and has `after`.
    #[inline(always)]
    pub(crate) fn regroup(
        &mut self,
        of: &Descriptors<'_>,
        id: DescriptorId,
        before: usize,
        after: usize,
    ) {
        let (mut from, to) = (of.group_of(before), of.group_of(after));
        if from == to {
            return;
        }
        // The place that is left, on the way to the zspage's own.
        let mut hole = of.header(id).position();
        while from < to {
            hole = self.fill(of, hole, self.borders[from]);
            self.borders[from] += 1;
            from += 1;
        }
        while from > to {
            from -= 1;
            self.borders[from] -= 1;
            hole = self.fill(of, hole, self.borders[from]);
        }
        self.zspages[hole as usize] = id;
        of.header(id).set_position(hole);
    }

    /// The zspage that [`Fullness::fullest_with_room`] gave had `before` objects and has one more.
    /// It is the first with room and stays where it is: the borders move over it.
    #[inline(always)]
    pub(crate) fn fill_fullest(&mut self, of: &Descriptors<'_>, before: usize) {
        let (from, to) = (of.group_of(before), of.group_of(before + 1));
        self.borders[from..to].iter_mut().for_each(|border| *border += 1);
    }

    /// The group that a position is in.
    pub(crate) fn group_at(&self, position: usize) -> usize {
        (EMPTY..GROUPS).rev().find(|&group| position < self.end(group) as usize).unwrap_or(GROUPS)
    }

    fn end(&self, group: usize) -> u32 {
        if group == EMPTY { self.zspages.len() as u32 } else { self.borders[group - 1] }
    }

    /// Puts what is at a position where nothing is; gives the position.
    #[inline]
    fn fill(&mut self, of: &Descriptors<'_>, hole: u32, from: u32) -> u32 {
        if hole != from {
            let moved = self.zspages[from as usize];
            self.zspages[hole as usize] = moved;
            of.header(moved).set_position(hole);
        }
        from
    }
}

/// How a class finds its descriptors.
#[derive(Clone, Copy)]
pub(crate) struct Descriptors<'a> {
    pub(crate) heap: &'a DescriptorHeap,
    pub(crate) layout: &'a Layout,
}

/// What the zspages of a class have in common.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) shape: Shape,
    pub(crate) tenth: Tenth,
}

impl<'a> Descriptors<'a> {
    #[inline]
    pub(crate) fn get(&self, id: DescriptorId) -> Descriptor<'a> {
        self.heap.get(id, self.layout.shape)
    }

    #[inline]
    pub(crate) fn header(&self, id: DescriptorId) -> Header<'a> {
        self.heap.header(id)
    }

    /// The fullness group of `in_use` objects.
    #[inline]
    pub(crate) fn group_of(&self, in_use: usize) -> usize {
        group_of(in_use, usize::from(self.layout.shape.objects), self.layout.tenth)
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

    #[cfg(not(loom))]
    fn pool() -> std::sync::Arc<crate::Pool> {
        let config = crate::MemoryConfig {
            arena_frames: 512,
            entries_max: 512,
            limit_bytes: 0,
            worker: false,
        };
        let memory = crate::Memory::new(config).expect("address space");
        crate::Pool::new(memory, crate::PoolConfig::default()).expect("a pool")
    }

    #[test]
    #[cfg(not(loom))]
    fn a_recount_finds_a_wrong_border() {
        let pool = pool();
        let handle = pool.alloc(&[1; 2000]).expect("room");
        let class = pool.class(pool.geometry().class_of(2000).expect("a class"));
        for group in 0..FULL {
            class.lock().fullness.borders[group] ^= 1;
            let defect = pool.check().expect_err("a wrong border").0;
            assert!(defect.contains("group") || defect.contains("by fullness"), "{defect}");
            class.lock().fullness.borders[group] ^= 1;
        }
        assert!(pool.check().is_ok());
        pool.free_handle(handle).expect("ours");
    }

    #[cfg(not(loom))]
    proptest::proptest! {
        /// Against a twin that keeps numbers and sorts them.
        #[test]
        fn any_history_keeps_the_order(
            steps in proptest::collection::vec((0..4_u8, 0..64_usize, 1..30_usize), 1..300),
        ) {
            let pool = pool();
            let class = pool.class(pool.geometry().class_of(100).expect("a class"));
            let of = pool.descriptors(class);
            let (mut fullness, mut twin) = (Fullness::default(), Vec::new());
            for (what, which, by) in steps {
                if what == 0 || twin.is_empty() {
                    let id = of.heap.alloc(class.shape, 0).expect("room");
                    of.get(id).reset(0, class.number, 1);
                    (0..by).for_each(|_| assert!(of.get(id).take_lowest(0).is_some()));
                    fullness.reserve().expect("memory");
                    fullness.enter(&of, id);
                    twin.push((id, by));
                } else if what == 1 {
                    let (id, _) = twin.swap_remove(which % twin.len());
                    fullness.leave(&of, id);
                    fullness.shrink();
                } else {
                    let at = which % twin.len();
                    let (id, in_use) = &mut twin[at];
                    let before = *in_use;
                    let objects = usize::from(class.shape.objects);
                    if what == 2 {
                        *in_use = (before + by).min(objects);
                        let take = || of.get(*id).take_lowest(0);
                        (before..*in_use).for_each(|_| assert!(take().is_some()));
                    } else {
                        *in_use = before.saturating_sub(by);
                        let used: Vec<usize> = of.get(*id).used_slots().collect();
                        used[*in_use..].iter().for_each(|&slot| of.get(*id).give(slot));
                    }
                    fullness.regroup(&of, *id, before, *in_use);
                }
                expect_order(&fullness, &of, &twin);
            }
        }
    }

    #[cfg(not(loom))]
    #[track_caller]
    fn expect_order(fullness: &Fullness, of: &Descriptors<'_>, twin: &[(DescriptorId, usize)]) {
        let mut ids: Vec<u32> = fullness.zspages().iter().map(|id| id.0).collect();
        let groups = fullness.zspages().iter().map(|&id| of.group_of(of.header(id).in_use()));
        assert!(groups.clone().is_sorted_by(|a, b| a >= b), "fuller groups first");
        for (position, (&id, group)) in fullness.zspages().iter().zip(groups).enumerate() {
            assert_eq!(of.header(id).position() as usize, position);
            assert_eq!(fullness.group_at(position), group);
        }
        let group = |&(_, in_use): &(DescriptorId, usize)| of.group_of(in_use);
        for counted in 0..GROUPS {
            let expected = twin.iter().filter(|zspage| group(zspage) == counted).count();
            assert_eq!(fullness.count(counted) as usize, expected, "group {counted}");
        }
        let mut expected: Vec<u32> = twin.iter().map(|(id, _)| id.0).collect();
        ids.sort_unstable();
        expected.sort_unstable();
        assert_eq!(ids, expected);
    }
}
