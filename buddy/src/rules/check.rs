//! Recounting everything: each frame, each list, each count, each invariant.
//!
//! ```text
//!    directory   D2..D4                                           directory.rs
//!    frames      I1 I2 I3 I4 I5, and a census of the free heads   here, lowest frame first
//!    pageblocks  I6, by the runs in each                          here
//!    lists       L1 L2, each list against the census              here
//!    totals      L3, I1
//! ```
//!
//! The census makes the two walks one proof: a list holds only heads of its kind, none twice, and
//! as many as the frames show, so every free block is on its list.
//!
//! Invariant: a recount only reads. A zone that passes obeys I1 to I6, L1 to L3 and D2 to D4,
//! because each of these rules is compared here or in `directory.rs`.

use crate::lists::FreeBlock;
use crate::numbers::{
    Kind, Migratetype, ORDERS, Order, PAGEBLOCK_FRAMES, PageblockIndex, Pfn, Role, State, Used,
    Warm, Which, ZoneDefect,
};
use crate::zone::Zone;

/// What a sound zone was found to hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ZoneCheck {
    /// Pageblocks that are online.
    pub online_pageblocks: u64,
    /// Free blocks.
    pub free_blocks: u64,
    /// Frames in free blocks.
    pub free_frames: u64,
    /// Runs, taken blocks included.
    pub runs: u64,
    /// Frames in runs.
    pub allocated_frames: u64,
    /// Those of them that are on per-CPU lists, and so in nobody's use.
    pub listed_frames: u64,
}

/// The free heads that the frames show, by the list each belongs on.
#[derive(Default)]
struct Census {
    heads: [[[u32; Warm::ALL.len()]; Migratetype::COUNT]; ORDERS],
    found: ZoneCheck,
}

impl Census {
    fn heads(&mut self, which: Which) -> &mut u32 {
        let Which { order, migratetype, warm } = which;
        &mut self.heads[order.index()][migratetype.index()][warm.index()]
    }
}

impl Zone {
    /// Recounts everything from the frames up, in time linear in the online frames.
    pub fn check(&self) -> Result<ZoneCheck, ZoneDefect> {
        self.directory.check()?;
        let mut census = Census::default();
        self.check_frames(&mut census)?;
        self.directory.iter_online().try_for_each(|index| self.check_pageblock(index))?;
        for which in Which::all() {
            self.check_list(which, *census.heads(which))?;
        }
        let (counted, recorded) = (census.found.free_frames, self.free_frames());
        if counted != recorded {
            return Err(ZoneDefect::FreeFrames { counted, recorded });
        }
        Ok(census.found)
    }

    /// Walks from head to head. What a walk steps over is proven inner, so when it ends every
    /// online frame was seen exactly once.
    fn check_frames(&self, census: &mut Census) -> Result<(), ZoneDefect> {
        let mut at = 0;
        for pageblock in self.directory.iter_online() {
            census.found.online_pageblocks += 1;
            let first = pageblock.get() * PAGEBLOCK_FRAMES;
            at = first.max(at);
            while at < first + PAGEBLOCK_FRAMES {
                at += self.check_head(Pfn::new(at), census)?;
            }
        }
        Ok(())
    }

    /// Checks the block or run that starts at `pfn` and returns its length.
    fn check_head(&self, pfn: Pfn, census: &mut Census) -> Result<u32, ZoneDefect> {
        let frames = match self.directory.role(pfn).ok_or(ZoneDefect::BadState(pfn))? {
            Role::Inner => return Err(ZoneDefect::NoHead(pfn)),
            Role::Free { order, warm } => {
                self.check_free_block(FreeBlock { pfn, order, warm })?;
                let migratetype = self.directory.migratetype(pfn.pageblock());
                *census.heads(Which { order, migratetype, warm }) += 1;
                census.found.free_blocks += 1;
                census.found.free_frames += u64::from(order.frames());
                order.frames()
            }
            Role::Allocated(_) => {
                let frames = self.check_run(pfn)?;
                census.found.runs += 1;
                census.found.allocated_frames += u64::from(frames);
                frames
            }
        };
        self.check_inside(pfn, frames)?;
        Ok(frames)
    }

    fn check_free_block(&self, block: FreeBlock) -> Result<(), ZoneDefect> {
        if !block.pfn.is_aligned(block.order) {
            return Err(ZoneDefect::Misaligned(block.pfn));
        }
        let (head, last) = (block.pfn, block.pfn.plus(block.order.frames() - 1));
        let types = [head, last].map(|pfn| self.type_at(pfn));
        if types[0] != types[1] {
            return Err(if types[1].is_none() {
                ZoneDefect::CutOff(head)
            } else {
                ZoneDefect::MixedTypes(head)
            });
        }
        if self.mergeable_buddy(block).is_some() {
            return Err(ZoneDefect::Unmerged(block.pfn));
        }
        Ok(())
    }

    fn check_run(&self, pfn: Pfn) -> Result<u32, ZoneDefect> {
        let frames = self.directory.run_frames(pfn);
        let single = self.directory.state(pfn).is_some_and(State::is_single);
        let order = Order::holding(frames).filter(|_| single == (frames == 1));
        let order = order.ok_or(ZoneDefect::BadRunLength { pfn, frames })?;
        if !pfn.is_aligned(order) {
            return Err(ZoneDefect::Misaligned(pfn));
        }
        Ok(frames)
    }

    /// The type of the pageblock of a frame, if it is online.
    fn type_at(&self, pfn: Pfn) -> Option<Migratetype> {
        let index = pfn.pageblock();
        self.is_online(index).then(|| self.directory.migratetype(index))
    }

    /// Everything after the head is online and inner.
    fn check_inside(&self, head: Pfn, frames: u32) -> Result<(), ZoneDefect> {
        for frame in (1..frames).map(|offset| head.plus(offset)) {
            let state = self.directory.state(frame).ok_or(ZoneDefect::CutOff(head))?;
            if state != State::INNER {
                return Err(ZoneDefect::Overlap { head, frame });
            }
        }
        Ok(())
    }

    /// Recounts the runs in a pageblock. Their heads are proven.
    fn check_pageblock(&self, index: PageblockIndex) -> Result<(), ZoneDefect> {
        if self.directory.own_type(index) == Migratetype::Isolate {
            return Err(ZoneDefect::LostType(index));
        }
        let mut counted = Used::default();
        if self.free_block_over(index).is_none() {
            self.for_each_run(index, |run| {
                let first = index.get() * PAGEBLOCK_FRAMES;
                let end = (run.pfn.get() + run.frames).min(first + PAGEBLOCK_FRAMES);
                let inside = end - run.pfn.get().max(first);
                counted.add(Kind::of(run.migratetype), inside);
            });
        }
        let recorded = self.directory.used(index);
        if counted != recorded {
            let (counted, recorded) = (counted.free(), recorded.free());
            return Err(ZoneDefect::Occupancy { index, counted, recorded });
        }
        Ok(())
    }

    /// A list holds `heads` blocks, all of its kind, linked the same way in both directions. The
    /// recorded count bounds the walk, so a ring of links ends it too.
    fn check_list(&self, which: Which, heads: u32) -> Result<(), ZoneDefect> {
        let recorded = self.lists.count(which);
        if heads != recorded {
            return Err(which.miscounted(heads, recorded));
        }
        let mut prev = None;
        let [mut at, last] = self.lists.ends(which);
        let mut walked = 0;
        while let Some(pfn) = at {
            walked += 1;
            if walked > recorded {
                return Err(ZoneDefect::BrokenLink(pfn));
            }
            self.check_listed(which, pfn)?;
            if self.lists.prev(&self.directory, pfn) != prev {
                return Err(ZoneDefect::BrokenLink(pfn));
            }
            prev = at;
            at = self.lists.next(&self.directory, pfn);
        }
        if walked != recorded || last != prev {
            return Err(which.miscounted(walked, recorded));
        }
        Ok(())
    }

    fn check_listed(&self, which: Which, pfn: Pfn) -> Result<(), ZoneDefect> {
        let Which { order, migratetype, warm } = which;
        let found = self.free_at(pfn) == Some(FreeBlock { pfn, order, warm })
            && self.directory.migratetype(pfn.pageblock()) == migratetype;
        if found { Ok(()) } else { Err(ZoneDefect::Strayed(pfn)) }
    }
}

impl Which {
    fn miscounted(self, counted: u32, recorded: u32) -> ZoneDefect {
        let Which { order, migratetype, warm } = self;
        ZoneDefect::ListCount { order, migratetype, warm, counted, recorded }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const UNTOUCHED: Warm = Warm::Untouched;
    const MOVABLE: Migratetype = Migratetype::Movable;

    /// Two pageblocks: a run of 5 at 0, one of 4 at 8, and a frame each at 5 and at 512.
    fn sound() -> Zone {
        let mut zone = Zone::new(2 * PAGEBLOCK_FRAMES);
        for (frames, pfn) in [(5, 0), (4, 8), (1, 5), (512, 512)] {
            let found = zone.alloc_run(frames, Migratetype::Movable);
            assert_eq!(found, Ok(Pfn::new(pfn)), "where the run of {frames} is");
        }
        let big = zone.free_run(Pfn::new(512), 512, UNTOUCHED);
        assert_eq!(big, Ok(()));
        zone
    }

    #[track_caller]
    fn shows(damage: impl FnOnce(&mut Zone), expected: ZoneDefect) {
        let mut zone = sound();
        zone.check().expect("sound before the damage");
        damage(&mut zone);
        assert_eq!(zone.check(), Err(expected));
    }

    fn order(order: u8) -> Order {
        Order::new(order).expect("an order of the table")
    }

    #[test]
    fn a_sound_zone_is_counted() {
        let expected = ZoneCheck {
            online_pageblocks: 2,
            free_blocks: 8,
            free_frames: 1024 - 10,
            runs: 3,
            allocated_frames: 10,
            listed_frames: 0,
        };
        assert_eq!(sound().check(), Ok(expected));
    }

    #[test]
    fn damaged_states_are_found() {
        let set = |at, state| move |z: &mut Zone| z.directory.set_state(Pfn::new(at), state);
        shows(set(0, State::INNER), ZoneDefect::NoHead(Pfn::new(0)));
        let overlap = ZoneDefect::Overlap { head: Pfn::new(0), frame: Pfn::new(3) };
        shows(set(3, State::allocated(Migratetype::Movable, 2)), overlap);
        shows(set(5, State::free(order(1), UNTOUCHED)), ZoneDefect::Misaligned(Pfn::new(5)));
        let counted = ZoneDefect::ListCount {
            order: order(9),
            migratetype: Migratetype::Movable,
            warm: Warm::Resident,
            counted: 1,
            recorded: 0,
        };
        shows(set(512, State::free(order(9), Warm::Resident)), counted);
        shows(set(512, State::free(order(10), UNTOUCHED)), ZoneDefect::Misaligned(Pfn::new(512)));
    }

    #[test]
    fn damaged_runs_are_found() {
        let length =
            |at, frames| move |z: &mut Zone| z.directory.links_mut(Pfn::new(at)).prev = frames;
        shows(length(8, 0), ZoneDefect::BadRunLength { pfn: Pfn::new(8), frames: 0 });
        shows(length(8, 1), ZoneDefect::BadRunLength { pfn: Pfn::new(8), frames: 1 });
        shows(length(8, 9), ZoneDefect::Misaligned(Pfn::new(8)));
        shows(length(8, 3), ZoneDefect::NoHead(Pfn::new(11)));
    }

    #[test]
    fn two_free_buddies_are_found() {
        let split = |zone: &mut Zone| {
            let whole = zone.free_at(Pfn::new(512)).expect("the free pageblock");
            zone.lists.take(&mut zone.directory, whole);
            for pfn in [512, 768].map(Pfn::new) {
                let half = FreeBlock { pfn, order: order(8), warm: UNTOUCHED };
                zone.lists.add(&mut zone.directory, half, crate::lists::End::Head);
            }
        };
        shows(split, ZoneDefect::Unmerged(Pfn::new(512)));
    }

    #[test]
    fn damaged_links_are_found() {
        let prev = |zone: &mut Zone| zone.directory.links_mut(Pfn::new(512)).prev = 6;
        shows(prev, ZoneDefect::BrokenLink(Pfn::new(512)));
        let next = |zone: &mut Zone| zone.directory.links_mut(Pfn::new(512)).next = 6;
        shows(next, ZoneDefect::BrokenLink(Pfn::new(6)));
    }

    #[test]
    fn an_empty_list_with_an_end_is_found() {
        let which = Which { order: order(9), migratetype: MOVABLE, warm: Warm::Resident };
        let head = |zone: &mut Zone| zone.lists.set_ends(which, 512, u32::MAX);
        shows(head, ZoneDefect::BrokenLink(Pfn::new(512)));
        let tail = |zone: &mut Zone| zone.lists.set_ends(which, u32::MAX, 512);
        let Which { order, migratetype, warm } = which;
        shows(tail, ZoneDefect::ListCount { order, migratetype, warm, counted: 0, recorded: 0 });
    }

    #[test]
    fn a_type_changed_behind_the_lists_is_found() {
        let change = |zone: &mut Zone| {
            let second = Pfn::new(512).pageblock();
            zone.directory.set_migratetype(second, Migratetype::Unmovable);
        };
        let counted = ZoneDefect::ListCount {
            order: order(9),
            migratetype: Migratetype::Unmovable,
            warm: UNTOUCHED,
            counted: 1,
            recorded: 0,
        };
        shows(change, counted);
    }

    #[test]
    fn a_miscounted_occupancy_is_found() {
        let index = Pfn::new(0).pageblock();
        let lost = |zone: &mut Zone| zone.directory.clear_allocated(Pfn::new(0), 5, MOVABLE);
        let counted = ZoneDefect::Occupancy { index, counted: 502, recorded: 507 };
        let back =
            |zone: &mut Zone| zone.directory.set_state(Pfn::new(0), State::allocated(MOVABLE, 5));
        let forget = |zone: &mut Zone| {
            lost(zone);
            back(zone);
        };
        shows(forget, counted);
        let other = |zone: &mut Zone| {
            zone.directory.set_state(Pfn::new(0), State::allocated(Migratetype::Unmovable, 5));
        };
        shows(other, ZoneDefect::Occupancy { index, counted: 502, recorded: 502 });
    }

    #[test]
    fn a_type_forgotten_in_isolation_is_found() {
        let index = Pfn::new(512).pageblock();
        let twice = |zone: &mut Zone| {
            zone.isolate(index).expect("nothing in it is pinned");
            zone.directory.keep_type(index);
        };
        shows(twice, ZoneDefect::LostType(index));
    }

    #[test]
    fn a_miscounted_type_is_found() {
        let migratetype = Migratetype::Movable;
        let count = |zone: &mut Zone| zone.published().pageblock_added(migratetype);
        shows(count, ZoneDefect::PageblockCount { migratetype, counted: 2, recorded: 3 });
    }

    #[test]
    fn blocks_over_two_pageblocks_are_checked_in_both() {
        let mut zone = Zone::new(2 * PAGEBLOCK_FRAMES);
        let run = zone.alloc_run(1024, Migratetype::Movable).expect("an empty zone has room");
        zone.free_run(run, 1024, UNTOUCHED).expect("it was allocated");
        let second = Pfn::new(512).pageblock();
        zone.directory.set_migratetype(second, Migratetype::Unmovable);
        assert_eq!(zone.check(), Err(ZoneDefect::MixedTypes(Pfn::new(0))));
        zone.directory.remove(second);
        assert_eq!(zone.check(), Err(ZoneDefect::CutOff(Pfn::new(0))));
    }
}
