//! Per-CPU lists beside a naive model of them over the zone's twin.
//!
//! ```text
//!    the zone with lists      a vector of runs for each CPU and length, by the rules of percpu.rs
//!            |                                     |
//!       compared after                  calls of a zone without lists,
//!         every call                       itself beside its twin
//! ```
//!
//! Claims, checked after every call (C1 to C5 and C7 of percpu.rs, W1, W2 are among them):
//!
//! 1. The runs handed out are those that the model names: the last put, else one from the zone.
//! 2. A refill takes warm runs, as many as there is room for and 30 at most, and no others.
//! 3. Lists hold short runs freed as `Resident`, few at a time, and no more frames than their
//!    capacity; what has no room pushes the oldest out.
//! 4. A request, of any type, a reserve, CMA and an offline are refused only if the zone with all
//!    lists empty would refuse them; and nothing is put back for what no frames could change.
//! 5. Frees of what is not allocated are refused, unchanged, with the error that names it. (With
//!    debug assertions; without them such calls are not made.)
//! 6. Zone, lists and the published number of frames on them are the model's, and check passes.
//!
//! And at the end: drained, the zone is as if there had never been lists.
#![cfg(not(any(miri, loom)))]

mod twin;

use proptest::prelude::*;
use ramfold_buddy::{FreeError, FreedRun, Migratetype, OfflineError, Order, PageblockIndex, Pfn};
use ramfold_buddy::{ReserveError, SharedZone, Warm};
use twin::{Op, Pair};

const PAGEBLOCKS: u32 = 3;
const CPUS: usize = 2;
const LENGTHS: usize = 8;
const RUNS_MAX: usize = 62;
const FEW: usize = 8;
const MOVABLE: Migratetype = Migratetype::Movable;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Warm,
    Alone,
    OfAll,
}

#[derive(Clone, Debug)]
enum Action {
    Alloc { cpu: usize, frames: u32, how: How },
    Free { cpu: usize, nth: usize, runs: usize, warm: Warm },
    FreeAny { cpu: usize, pfn: u32, frames: u32 },
    FreeOther { cpu: usize, nth: usize },
    Unmovable { frames: u32 },
    Isolate { index: u32 },
    UndoIsolation { index: u32 },
    TakeLargest,
    Take { nth: usize },
    Reserve,
    Unreserve { force: bool },
    SetAside,
    Offline { index: u32 },
    OfflineUntouched,
    Drain,
}

fn action() -> impl Strategy<Value = Action> {
    let cpu = || 0..=CPUS;
    let frames = || prop_oneof![8 => 1..=9u32, 1 => 1..=300u32, 1 => Just(0)];
    let how = prop::sample::select(vec![How::Warm, How::Alone, How::OfAll]);
    let warm = prop_oneof![4 => Just(Warm::Resident), 1 => Just(Warm::Untouched)];
    prop_oneof![
        12 => (cpu(), frames(), how)
            .prop_map(|(cpu, frames, how)| Action::Alloc { cpu, frames, how }),
        8 => (cpu(), any::<usize>(), 1..12usize, warm)
            .prop_map(|(cpu, nth, runs, warm)| Action::Free { cpu, nth, runs, warm }),
        1 => (cpu(), 0..PAGEBLOCKS * 512 + 9, 0..10u32)
            .prop_map(|(cpu, pfn, frames)| Action::FreeAny { cpu, pfn, frames }),
        1 => (cpu(), any::<usize>()).prop_map(|(cpu, nth)| Action::FreeOther { cpu, nth }),
        1 => frames().prop_map(|frames| Action::Unmovable { frames }),
        1 => (0..PAGEBLOCKS).prop_map(|index| Action::Isolate { index }),
        2 => (0..PAGEBLOCKS).prop_map(|index| Action::UndoIsolation { index }),
        1 => Just(Action::TakeLargest),
        1 => any::<usize>().prop_map(|nth| Action::Take { nth }),
        1 => Just(Action::Reserve),
        1 => any::<bool>().prop_map(|force| Action::Unreserve { force }),
        1 => Just(Action::SetAside),
        1 => (0..PAGEBLOCKS).prop_map(|index| Action::Offline { index }),
        1 => Just(Action::OfflineUntouched),
        1 => Just(Action::Drain),
    ]
}

struct Model {
    zone: SharedZone,
    pair: Pair,
    /// Oldest first.
    lists: [[Vec<u32>; LENGTHS]; CPUS],
    capacity: usize,
    /// Movable runs that were handed out and not freed: head and length.
    used: Vec<(u32, u32)>,
}

impl Model {
    fn new(capacity: usize) -> Model {
        let pair = Pair::new(PAGEBLOCKS * 512);
        let zone = SharedZone::with_lists(PAGEBLOCKS * 512, CPUS, capacity as u32);
        zone.set_reserve_max(2);
        Model { zone, pair, lists: Default::default(), capacity, used: Vec::new() }
    }

    fn listed(&self, cpu: usize) -> usize {
        self.lists[cpu].iter().zip(1..).map(|(runs, frames)| runs.len() * frames).sum()
    }

    fn room(&self, cpu: usize, frames: usize) -> usize {
        let left = (self.capacity - self.listed(cpu)) / frames;
        left.min(RUNS_MAX - self.lists[cpu][frames - 1].len())
    }

    fn lists_length(&self, frames: u32) -> bool {
        (1..=LENGTHS.min(self.capacity)).contains(&(frames as usize))
    }

    fn is_listed(&self, pfn: u32) -> bool {
        self.lists.iter().flatten().flatten().any(|head| *head == pfn)
    }

    /// An allocation of the zone: the run that is new in the twin.
    fn zone_alloc(&mut self, op: Op) -> Option<u32> {
        let before = self.pair.twin.runs.clone();
        let done = self.pair.step(op);
        done.then(|| {
            let mut heads = self.pair.twin.runs.keys();
            *heads.find(|head| !before.contains_key(head)).expect("a run more")
        })
    }

    fn zone_free(&mut self, pfn: u32, frames: usize) {
        let warm = Warm::Resident;
        assert!(self.pair.step(Op::Free { pfn, frames: frames as u32, warm }), "{frames} at {pfn}");
    }

    fn alloc(&mut self, cpu: usize, frames: u32, how: How) {
        let expected = self.expect_alloc(cpu % CPUS, frames, how);
        let found = match how {
            How::Warm => self.zone.alloc_warm_movable(cpu, frames),
            How::Alone => self.zone.try_alloc_movable(cpu, frames),
            How::OfAll => self.zone.alloc_movable(cpu, frames),
        };
        assert_eq!(found.ok().map(Pfn::get), expected, "{frames} frames for CPU {cpu}");
        self.used.extend(expected.map(|pfn| (pfn, frames)));
    }

    fn expect_alloc(&mut self, cpu: usize, frames: u32, how: How) -> Option<u32> {
        let (migratetype, listed) = (MOVABLE, self.lists_length(frames));
        let op = match how {
            How::Warm => Op::AllocWarm { frames, migratetype },
            How::Alone | How::OfAll => Op::Alloc { frames, migratetype },
        };
        if listed && let Some(last) = self.lists[cpu][frames as usize - 1].pop() {
            return Some(last);
        }
        let found = self.zone_alloc(op);
        if found.is_some() && listed {
            self.refill(cpu, frames);
        }
        if found.is_none() && how == How::OfAll && frames > 0 {
            self.drain();
            return self.zone_alloc(op);
        }
        found
    }

    /// A call that is repeated with the lists empty where it is refused for want of frames.
    fn of_all(&mut self, op: Op) -> bool {
        let want = match op {
            Op::Reserve => self.pair.twin.expect_reserve() == Err(ReserveError::NoFreePageblock),
            Op::Offline { index } => {
                let in_use = OfflineError::InUse(PageblockIndex::new(index));
                self.pair.twin.expect_offline(index) == Err(in_use)
            }
            _ => true,
        };
        let done = self.pair.step(op);
        if done || !want {
            return done;
        }
        self.drain();
        self.pair.step(op)
    }

    fn refill(&mut self, cpu: usize, frames: u32) {
        let batch = self.room(cpu, frames as usize).min(30);
        let batch = batch.min(self.capacity / 2 / frames as usize);
        for _ in 0..batch {
            let op = Op::AllocWarm { frames, migratetype: MOVABLE };
            let Some(pfn) = self.zone_alloc(op) else { break };
            self.lists[cpu][frames as usize - 1].insert(0, pfn);
        }
    }

    fn free(&mut self, cpu: usize, nth: usize, runs: usize, warm: Warm) {
        let mut freed = Vec::new();
        let runs = runs.min(self.used.len());
        for _ in 0..runs {
            let (pfn, frames) = self.used.swap_remove(nth % self.used.len());
            freed.push(FreedRun { pfn: Pfn::new(pfn), frames, warm });
            if runs <= FEW {
                self.expect_free(cpu % CPUS, pfn, frames, warm);
            } else {
                assert!(self.pair.step(Op::Free { pfn, frames, warm }), "{frames} at {pfn}");
            }
        }
        assert_eq!(self.zone.free_movable(cpu, freed.iter().copied()), Ok(()), "{freed:?}");
    }

    fn expect_free(&mut self, cpu: usize, pfn: u32, frames: u32, warm: Warm) {
        let isolating = self.pair.twin.online_types().any(|mt| mt == Migratetype::Isolate);
        if isolating || warm == Warm::Untouched || !self.lists_length(frames) {
            assert!(self.pair.step(Op::Free { pfn, frames, warm }), "{frames} at {pfn}");
            return;
        }
        while self.room(cpu, frames as usize) == 0 {
            let full = self.lists[cpu][frames as usize - 1].len() == RUNS_MAX;
            let longest = (1..=LENGTHS).max_by_key(|len| self.lists[cpu][len - 1].len() * len);
            let out = if full { frames as usize } else { longest.expect("there are lists") };
            let oldest = self.lists[cpu][out - 1].len().div_ceil(2).min(31);
            for pfn in self.lists[cpu][out - 1].drain(..oldest).collect::<Vec<_>>() {
                self.zone_free(pfn, out);
            }
        }
        self.lists[cpu][frames as usize - 1].push(pfn);
    }

    fn misfree(&mut self, cpu: usize, pfn: u32, frames: u32) {
        let refused = match self.is_listed(pfn) {
            true => FreeError::AlreadyFree(Pfn::new(pfn)),
            false => match self.pair.twin.expect_free(pfn, frames) {
                Ok(()) if self.used.contains(&(pfn, frames)) => return,
                Ok(()) => FreeError::NotMovable(Pfn::new(pfn)),
                Err(refused) => refused,
            },
        };
        let run = FreedRun { pfn: Pfn::new(pfn), frames, warm: Warm::Resident };
        if cfg!(debug_assertions) {
            assert_eq!(self.zone.free_movable(cpu, [run].into_iter()), Err(refused), "{run:?}");
        }
    }

    /// Frees what the zone says is allocated, but on a list, or not movable.
    fn free_other(&mut self, cpu: usize, nth: usize) {
        let runs = self.pair.twin.runs.iter().map(|(pfn, frames)| (*pfn, *frames));
        let others: Vec<_> = runs.filter(|run| !self.used.contains(run)).collect();
        if let Some(nth) = nth.checked_rem(others.len()) {
            self.misfree(cpu, others[nth].0, others[nth].1);
        }
    }

    fn drain(&mut self) {
        for (cpu, frames) in (0..CPUS).flat_map(|cpu| (1..=LENGTHS).map(move |len| (cpu, len))) {
            for pfn in std::mem::take(&mut self.lists[cpu][frames - 1]) {
                self.zone_free(pfn, frames);
            }
        }
    }

    fn isolate(&mut self, index: u32) {
        let done = self.pair.step(Op::Isolate { index });
        assert_eq!(self.zone.isolate(PageblockIndex::new(index)).is_ok(), done);
        if done {
            self.drain();
        }
    }

    fn step(&mut self, action: Action) {
        match action {
            Action::Alloc { cpu, frames, how } => self.alloc(cpu, frames, how),
            Action::Free { cpu, nth, runs, warm } => self.free(cpu, nth, runs, warm),
            Action::FreeAny { cpu, pfn, frames } => self.misfree(cpu, pfn, frames),
            Action::FreeOther { cpu, nth } => self.free_other(cpu, nth),
            Action::Unmovable { frames } => {
                let migratetype = Migratetype::Unmovable;
                let op = Op::Alloc { frames, migratetype };
                let expected = self.zone_alloc(op).or_else(|| {
                    (frames > 0).then(|| self.drain())?;
                    self.zone_alloc(op)
                });
                let found = self.zone.alloc_run(frames, migratetype);
                assert_eq!(found.ok().map(Pfn::get), expected);
            }
            Action::Isolate { index } => self.isolate(index),
            Action::UndoIsolation { index } => {
                let done = self.pair.step(Op::UndoIsolation { index });
                assert_eq!(self.zone.undo_isolation(PageblockIndex::new(index)).is_ok(), done);
            }
            Action::TakeLargest => self.take_largest(),
            Action::Take { nth } => self.take(nth),
            Action::Reserve => {
                let done = self.of_all(Op::Reserve);
                assert_eq!(self.zone.reserve().is_ok(), done);
            }
            Action::Unreserve { force } => {
                let done = self.pair.step(Op::Unreserve { to: MOVABLE, force });
                assert_eq!(self.zone.unreserve(MOVABLE, force).is_ok(), done);
            }
            Action::SetAside => {
                let done = self.of_all(Op::SetAside);
                assert_eq!(self.zone.set_aside_cma().is_ok(), done);
            }
            Action::Offline { index } => {
                let done = self.of_all(Op::Offline { index });
                assert_eq!(self.zone.offline(PageblockIndex::new(index)).is_ok(), done);
            }
            Action::OfflineUntouched => {
                let offline: Vec<u32> = (0..PAGEBLOCKS).filter(|i| self.is_untouched(*i)).collect();
                offline.iter().for_each(|&index| assert!(self.pair.step(Op::Offline { index })));
                assert_eq!(self.zone.offline_untouched(), offline.len() as u32);
            }
            Action::Drain => {
                self.drain();
                self.zone.drain();
            }
        }
    }

    /// What a release does: a block is taken and put back untouched.
    fn take_largest(&mut self) {
        let expected = self.zone_alloc(Op::TakeLargest { min: Order::ZERO });
        let found = self.zone.take_largest_warm(Order::ZERO);
        assert_eq!(found.map(|(pfn, _)| pfn.get()), expected);
        found.into_iter().for_each(|(pfn, order)| self.put_back(pfn, order));
    }

    fn take(&mut self, nth: usize) {
        let blocks = self.pair.twin.blocks();
        let Some(block) = nth.checked_rem(blocks.len()).map(|nth| blocks[nth]) else { return };
        let (pfn, order) = (Pfn::new(block.pfn), block.order);
        assert!(self.pair.step(Op::Take { pfn: block.pfn, order }), "{block:?}");
        assert_eq!(self.zone.take_free(pfn, order), Ok(()));
        self.put_back(pfn, order);
    }

    fn put_back(&mut self, pfn: Pfn, order: Order) {
        let (frames, warm) = (order.frames(), Warm::Untouched);
        assert!(self.pair.step(Op::Free { pfn: pfn.get(), frames, warm }), "{order} at {pfn}");
        assert_eq!(self.zone.free_run(pfn, frames, warm), Ok(()));
    }

    fn is_untouched(&self, index: u32) -> bool {
        let blocks = self.pair.twin.blocks();
        let over = |block: &&twin::Block| {
            let end = block.pfn + block.order.frames();
            (block.pfn..end).contains(&(index * 512)) && block.order >= Order::PAGEBLOCK
        };
        let kept = [Migratetype::HighAtomic, Migratetype::Cma, Migratetype::Isolate];
        let block = blocks.iter().find(over);
        block.is_some_and(|b| b.warm == Warm::Untouched && !kept.contains(&b.migratetype))
    }

    /// Claim 6.
    fn compare(&self, action: &Action) {
        let mut listed = 0;
        for cpu in 0..CPUS {
            assert!(self.listed(cpu) <= self.capacity, "CPU {cpu} after {action:?}");
            listed += self.listed(cpu) as u64;
        }
        assert_eq!(self.zone.listed_frames(), listed, "frames on lists after {action:?}");
        assert_eq!(self.zone.counts(), self.pair.zone.counts(), "free blocks after {action:?}");
        let found = self.zone.check().unwrap_or_else(|defect| panic!("{defect}: {action:?}"));
        let expected = self.pair.zone.check().expect("it was compared with the twin");
        assert_eq!(found, ramfold_buddy::ZoneCheck { listed_frames: listed, ..expected });
        for index in (0..PAGEBLOCKS).map(PageblockIndex::new) {
            let mut runs = Vec::new();
            self.pair.zone.runs_in(index, &mut runs);
            assert_eq!(self.zone.runs_in(index), runs, "runs of {index} after {action:?}");
        }
    }
}

/// A zone of one pageblock, of which one frame is on a list and the others are free.
fn all_but_one_free() -> SharedZone {
    let zone = SharedZone::with_lists(512, CPUS, 64);
    zone.set_reserve_max(1);
    let pfn = zone.alloc_movable(1, 1).expect("an empty zone has room");
    let run = FreedRun { pfn, frames: 1, warm: Warm::Resident };
    assert_eq!(zone.free_movable(1, [run].into_iter()), Ok(()));
    assert_eq!((zone.listed_frames(), zone.free_frames()), (1, 511));
    zone
}

#[test]
fn nothing_is_refused_for_a_frame_on_a_list() {
    let asks: [fn(&SharedZone) -> bool; 7] = [
        |zone| zone.alloc_movable(0, 512).is_ok(),
        |zone| zone.alloc_run(512, Migratetype::Unmovable).is_ok(),
        |zone| zone.alloc_run(512, Migratetype::HighAtomic).is_ok(),
        |zone| zone.alloc(Order::PAGEBLOCK, MOVABLE).is_ok(),
        |zone| zone.reserve().is_ok(),
        |zone| zone.set_aside_cma().is_ok(),
        |zone| zone.offline(PageblockIndex::new(0)).is_ok(),
    ];
    for (nth, ask) in asks.into_iter().enumerate() {
        let zone = all_but_one_free();
        assert!(ask(&zone), "{nth} is refused for a frame that nobody uses");
        let listed = zone.check().expect("no defect").listed_frames;
        assert_eq!(listed, 0, "{nth}: the lists were emptied");
    }
}

#[test]
fn what_no_frame_could_change_leaves_the_lists_alone() {
    let asks: [fn(&SharedZone) -> bool; 6] = [
        |zone| zone.alloc_movable(0, 0).is_ok(),
        |zone| zone.alloc_movable(0, 1025).is_ok(),
        |zone| zone.alloc_run(0, Migratetype::Unmovable).is_ok(),
        |zone| zone.alloc_run(1, Migratetype::Isolate).is_ok(),
        |zone| zone.offline(PageblockIndex::new(1)).is_ok(),
        |zone| {
            zone.set_reserve_max(0);
            zone.reserve().is_ok()
        },
    ];
    for (nth, ask) in asks.into_iter().enumerate() {
        let zone = all_but_one_free();
        assert!(!ask(&zone), "{nth} is impossible");
        assert_eq!(zone.listed_frames(), 1, "{nth}: the frame is where it was");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn the_lists_are_their_model(
        actions in prop::collection::vec(action(), 1..160),
        capacity in prop_oneof![3 => 1..=40usize, 1 => 40..=300usize],
        full in 0..=PAGEBLOCKS,
    ) {
        let mut model = Model::new(capacity);
        // All but twelve frames of some pageblocks.
        (0..full).for_each(|_| model.alloc(0, 500, How::Alone));
        for action in actions {
            model.step(action.clone());
            model.compare(&action);
        }
        model.drain();
        model.zone.drain();
        model.compare(&Action::Drain);
        prop_assert_eq!(model.zone.listed_frames(), 0);
    }
}
