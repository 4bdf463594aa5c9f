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
//!   level     11 = full ...   one less for each group that a zspage of the class can be in
//! ```
//!
//! The groups are the kernel's (`ZS_INUSE_RATIO_*` of Linux 6.4 and later), where each is a linked
//! list and a zspage that changes group writes to up to four neighbours. Here it changes places
//! with the first or the last of its group and the border of the group moves over it: one other
//! header, four of which share a cache line. The fullest with room, from which objects are
//! allocated, keeps its place as it fills. What is fuller than a given share, or
//! emptier, is a slice.
//!
//! Borders are counted by *level*. One object more or less is one level more or less, or none. With
//! 12 slots or more a level is a group. With fewer slots each number of objects has a group and a
//! level of its own, and groups that a zspage is never in have no border.
//!
//! Invariants
//! - I1 `zspages` holds every zspage of the class once, fuller groups first; a header says where
//!   its own number is.
//! - I2 `borders[l]` is where level `l` begins: the number of zspages at higher levels. Levels are
//!   used from that of no objects on, which is the layout's `empty`.
//!
//! Lock: the class lock, taken by the caller.

use std::collections::TryReserveError;

use crate::numbers::{OBJECTS_MAX, Shape};
use crate::zspages::{Descriptor, DescriptorId, Header, Headers, Zspage};

/// Number of fullness groups.
pub const GROUPS: usize = 12;
/// The group of full zspages, and their level.
const FULL: usize = GROUPS - 1;
/// The group of zspages without objects.
const EMPTY: usize = 0;

/// Fractions of a level are counted in units of 2^-16.
const LEVEL_SHIFT: u32 = 16;
const LEVEL: u32 = 1 << LEVEL_SHIFT;
const _: () = assert!(
    OBJECTS_MAX * OBJECTS_MAX <= LEVEL as usize,
    "less than a unit too much for each object is less than the next tenth is away"
);

/// The fullness group of a zspage with `in_use` of `objects` slots taken: the kernel's
/// 100 * in_use / objects / 10 + 1, and group 0 if none is taken.
pub(crate) fn group_of(in_use: usize, objects: usize) -> usize {
    if in_use == 0 { EMPTY } else { 10 * in_use / objects + 1 }
}

/// Objects to level, without a division or a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Levels {
    /// The units of an object, and of a zspage without objects.
    each: u32,
    none: u32,
}

impl Levels {
    /// The levels of zspages with `objects` slots. Where a level is a group, it is a tenth of full,
    /// rounded down, and one more. `each` is a little more than a slot's share of ten levels, and
    /// `none` is a little less than one level. So a zspage without objects is at level 0, and a
    /// whole number of tenths reaches its level. This is exact: all that `each` has too much adds
    /// up to less than 256 / 2^16, and no share of at most 256 slots is closer to the next tenth
    /// than 1 / 256.
    const fn of(objects: u16) -> Levels {
        match FULL.checked_sub(objects as usize) {
            Some(empty) => Levels { each: LEVEL, none: (empty as u32) << LEVEL_SHIFT },
            None => Levels { each: 10 * LEVEL / objects as u32 + 1, none: LEVEL - 1 },
        }
    }

    #[inline]
    const fn at(self, in_use: usize) -> usize {
        (self.units(in_use) >> LEVEL_SHIFT) as usize
    }

    /// The units of one object more, and of so many.
    #[inline]
    const fn down_to(self, in_use: usize) -> (usize, usize) {
        let units = self.units(in_use);
        (((units + self.each) >> LEVEL_SHIFT) as usize, (units >> LEVEL_SHIFT) as usize)
    }

    #[inline]
    const fn units(self, in_use: usize) -> u32 {
        in_use as u32 * self.each + self.none
    }
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Fullness {
    borders: [u32; FULL],
    zspages: Vec<DescriptorId>,
}

impl Fullness {
    /// Zspages of each group.
    pub(crate) fn counts(&self, layout: &Layout) -> [u32; GROUPS] {
        let mut counts = [0; GROUPS];
        for (level, group) in layout.groups() {
            let start = if level == FULL { 0 } else { self.borders[level] };
            // It wraps, because a recount asks before it knows that the borders are in order.
            counts[group] = self.end(layout, level).wrapping_sub(start);
        }
        counts
    }

    /// Every zspage, the fullest first.
    pub(crate) fn zspages(&self) -> &[DescriptorId] {
        &self.zspages
    }

    /// Those with objects and free slots, the fullest first.
    #[inline]
    pub(crate) fn partial(&self, layout: &Layout) -> &[DescriptorId] {
        let end = self.borders[layout.empty()] as usize;
        &self.zspages[self.borders[FULL - 1] as usize..end]
    }

    /// The fullest that has free slots.
    #[inline]
    pub(crate) fn fullest_with_room(&self) -> Option<DescriptorId> {
        self.zspages.get(self.borders[FULL - 1] as usize).copied()
    }

    /// Makes sure that there is room for one more. Returns the bytes that this took.
    pub(crate) fn reserve(&mut self) -> Result<usize, TryReserveError> {
        let (len, before) = (self.zspages.len(), self.zspages.capacity());
        if len == before {
            // It grows by a quarter, because unused room is part of the cost of every object.
            self.zspages.try_reserve_exact((len / 4).max(4))?;
        }
        Ok((self.zspages.capacity() - before) * size_of::<DescriptorId>())
    }

    /// Gives back what a class that has become small no longer needs. Returns its bytes.
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
        let header = of.header(id);
        header.set_position(self.zspages.len() as u32);
        self.zspages.push(id);
        self.regroup(of, Zspage { id, header }, 0, header.in_use());
    }

    /// Forgets a zspage.
    pub(crate) fn leave(&mut self, of: Descriptors<'_>, id: DescriptorId) {
        let header = of.header(id);
        self.regroup(&of, Zspage { id, header }, header.in_use(), 0);
        let last = self.zspages.len() - 1;
        self.fill(&of, header.position(), last as u32);
        self.zspages.pop();
    }

    /// A zspage had `before` objects and has `after`.
    #[inline(always)]
    pub(crate) fn regroup(
        &mut self,
        of: &Descriptors<'_>,
        Zspage { id, header }: Zspage<'_>,
        before: usize,
        after: usize,
    ) {
        let (mut from, to) = (of.layout.level(before), of.layout.level(after));
        if from == to {
            return;
        }
        // The place that is left, on the way to the zspage's own.
        let mut hole = header.position();
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
        header.set_position(hole);
    }

    /// As [`Fullness::regroup`], of a zspage that has one object less: `after`.
    #[inline(always)]
    pub(crate) fn drain_one(
        &mut self,
        of: &Descriptors<'_>,
        Zspage { id, header }: Zspage<'_>,
        after: usize,
    ) {
        let (from, to) = of.layout.levels.down_to(after);
        // It goes to the end of its level, which is then the beginning of the next one. It may be
        // there already. If it stays at its level, it changes places with itself, because no branch
        // could be predicted here.
        self.borders[to] -= (from - to) as u32;
        let hole = header.position();
        let last = if from == to { hole } else { self.borders[to] };
        let moved = std::mem::replace(&mut self.zspages[last as usize], id);
        self.zspages[hole as usize] = moved;
        of.header(moved).set_position(hole);
        header.set_position(last);
    }

    /// The zspage that [`Fullness::fullest_with_room`] gave had `before` objects and has one more.
    /// It is the first with room and stays where it is: the border moves over it.
    #[inline(always)]
    pub(crate) fn fill_fullest(&mut self, of: &Descriptors<'_>, before: usize) {
        let (from, to) = (of.layout.level(before), of.layout.level(before + 1));
        self.borders[from] += (to - from) as u32;
    }

    /// The level that a position is at.
    pub(crate) fn level_at(&self, layout: &Layout, position: usize) -> usize {
        let holds = |&level: &usize| position < self.end(layout, level) as usize;
        (layout.empty()..=FULL).rev().find(holds).unwrap_or(GROUPS)
    }

    fn end(&self, layout: &Layout, level: usize) -> u32 {
        if level == layout.empty() { self.zspages.len() as u32 } else { self.borders[level - 1] }
    }

    /// Moves the zspage at `from` into a hole. Returns `from`, which is a hole then.
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
    pub(crate) headers: Headers<'a>,
    pub(crate) layout: &'a Layout,
}

/// What the zspages of a class have in common.
#[derive(Debug)]
pub(crate) struct Layout {
    pub(crate) shape: Shape,
    levels: Levels,
}

impl Layout {
    pub(crate) fn new(shape: Shape) -> Layout {
        Layout { shape, levels: Levels::of(shape.objects) }
    }

    /// The level of `in_use` objects.
    #[inline]
    pub(crate) fn level(&self, in_use: usize) -> usize {
        self.levels.at(in_use)
    }

    /// The level of none.
    fn empty(&self) -> usize {
        self.level(0)
    }

    /// Every level, with its group.
    fn groups(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let objects = usize::from(self.shape.objects);
        (0..=objects).map(move |in_use| (self.level(in_use), group_of(in_use, objects)))
    }
}

impl<'a> Descriptors<'a> {
    #[inline]
    pub(crate) fn get(&self, id: DescriptorId) -> Descriptor<'a> {
        Descriptor::new(self.header(id), self.layout.shape)
    }

    #[inline]
    pub(crate) fn header(&self, id: DescriptorId) -> Header<'a> {
        self.headers.get(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(not(loom))]
    use crate::numbers::CellNumber;

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
        for objects in 2..=256 {
            for in_use in 1..objects {
                expect(in_use, objects, 100 * in_use / objects / 10 + 1);
            }
            expect(0, objects, 0);
            expect(objects, objects, 11);
        }
    }

    /// Two numbers of objects are at one level where they are in one group, and a level is one
    /// more than the one below, up to that of full ones.
    #[test]
    fn levels_are_the_groups_that_there_are() {
        for objects in 1..=256 {
            let (levels, all) = (Levels::of(objects), usize::from(objects));
            let mut level = levels.at(0);
            for in_use in 1..=all {
                let same = group_of(in_use, all) == group_of(in_use - 1, all);
                level += usize::from(!same);
                assert_eq!(levels.at(in_use), level, "{in_use} of {objects}");
            }
            assert_eq!(level, FULL, "{objects}");
            assert!(objects < 12 || levels.at(0) == EMPTY, "{objects}");
        }
    }

    #[cfg(not(loom))]
    fn pool() -> std::sync::Arc<crate::Pool> {
        let config = crate::MemoryConfig {
            arena_frames: 512,
            entries_max: 512,
            expected_bytes: 0,
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
        for level in class.layout().empty()..FULL {
            class.lock().fullness.borders[level] ^= 1;
            let defect = pool.check().expect_err("a wrong border").0;
            assert!(defect.contains("level") || defect.contains("by fullness"), "{defect}");
            class.lock().fullness.borders[level] ^= 1;
        }
        assert!(pool.check().is_ok());
        pool.free_handle(handle).expect("ours");
    }

    #[cfg(not(loom))]
    proptest::proptest! {
        /// Against a twin that keeps numbers and sorts them.
        #[test]
        fn any_history_keeps_the_order(
            len in proptest::sample::select(&[100_usize, 300, 700, 1500, 3000, 4000][..]),
            steps in proptest::collection::vec((0..6_u8, 0..64_usize, 1..30_usize), 1..300),
        ) {
            let pool = pool();
            let class = pool.class(pool.geometry().class_of(len).expect("a class"));
            let of = pool.descriptors(class);
            let (mut fullness, mut twin) = (Fullness::default(), Vec::new());
            for (what, which, by) in steps {
                if what == 0 || twin.is_empty() {
                    let id = pool.memory.descriptors.alloc(class.shape, 0).expect("room");
                    of.get(id).reset(host::Pfn::new(0), class.number, 1);
                    let by = by.min(usize::from(class.shape.objects));
                    let take = || of.get(id).take_lowest(CellNumber::NONE);
                    (0..by).for_each(|_| assert!(take().is_some()));
                    fullness.reserve().expect("memory");
                    fullness.enter(&of, id);
                    twin.push((id, by));
                } else if what == 1 {
                    let (id, _) = twin.swap_remove(which % twin.len());
                    fullness.leave(of, id);
                    fullness.shrink();
                } else if what == 4 {
                    let fullest = fullness.partial(class.layout()).first().copied();
                    let Some(id) = fullest else { continue };
                    proptest::prop_assert_eq!(fullness.fullest_with_room(), Some(id));
                    fullness.fill_fullest(&of, of.header(id).in_use());
                    assert!(of.get(id).take_lowest(CellNumber::NONE).is_some());
                    twin.iter_mut().filter(|other| other.0 == id).for_each(|it| it.1 += 1);
                } else if what == 5 {
                    let at = which % twin.len();
                    let (id, in_use) = &mut twin[at];
                    let slot = of.get(*id).used_slots().nth(by % (*in_use).max(1));
                    let Some(slot) = slot else { continue };
                    *in_use -= 1;
                    assert_eq!(of.get(*id).give(slot), *in_use);
                    fullness.drain_one(&of, Zspage { id: *id, header: of.header(*id) }, *in_use);
                } else {
                    let at = which % twin.len();
                    let (id, in_use) = &mut twin[at];
                    let before = *in_use;
                    let objects = usize::from(class.shape.objects);
                    if what == 2 {
                        *in_use = (before + by).min(objects);
                        let take = || of.get(*id).take_lowest(CellNumber::NONE);
                        (before..*in_use).for_each(|_| assert!(take().is_some()));
                    } else {
                        *in_use = before.saturating_sub(by);
                        let used: Vec<usize> = of.get(*id).used_slots().collect();
                        used[*in_use..].iter().for_each(|&slot| _ = of.get(*id).give(slot));
                    }
                    let zspage = Zspage { id: *id, header: of.header(*id) };
                    fullness.regroup(&of, zspage, before, *in_use);
                }
                expect_order(&fullness, &of, &twin);
            }
        }
    }

    #[cfg(not(loom))]
    #[track_caller]
    fn expect_order(fullness: &Fullness, of: &Descriptors<'_>, twin: &[(DescriptorId, usize)]) {
        let mut ids: Vec<u32> = fullness.zspages().iter().map(|id| id.0).collect();
        let levels = fullness.zspages().iter().map(|&id| of.layout.level(of.header(id).in_use()));
        assert!(levels.clone().is_sorted_by(|a, b| a >= b), "fuller ones first");
        for (position, (&id, level)) in fullness.zspages().iter().zip(levels).enumerate() {
            assert_eq!(of.header(id).position() as usize, position);
            assert_eq!(fullness.level_at(of.layout, position), level);
        }
        let objects = usize::from(of.layout.shape.objects);
        let mut counts = [0; GROUPS];
        twin.iter().for_each(|&(_, in_use)| counts[group_of(in_use, objects)] += 1);
        assert_eq!(fullness.counts(of.layout), counts);
        let mut expected: Vec<u32> = twin.iter().map(|(id, _)| id.0).collect();
        ids.sort_unstable();
        expected.sort_unstable();
        assert_eq!(ids, expected);
    }
}
