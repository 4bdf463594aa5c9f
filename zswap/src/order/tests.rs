//! The order against a naive one, compared after every step.
//!
//! Claims
//! - Victims are those of the twin, in its order. The twin has vectors, from which a page that is
//!   gone is removed.
//! - After every operation a recount finds one live token for each page in memory, and none for any
//!   other. The counts of groups and leaves are the twin's.
//! - That holds across groups and their turns, detached leaves, leaves given to others, hands and
//!   compaction.
//! - A page costs 12 bytes at most, however its tokens went stale.
//!
//! Blocks have 16 tokens here, so that short tests cross many of them.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::blocks::{self, Blocks, Ring, Want};
use super::evict::Victim;
use super::orders::{Orders, cells_of};
use super::word::{self, State, Which};
use crate::terms::{EvictionOrder, GroupId};
use zsmalloc::{CellNumber, LEAF_CELLS, LeafId};

mod bounds;
mod crowd;
mod hands;
mod turns;

/// Cells of the memory. Leaf 0 is never used.
const CELLS: u64 = 4 * LEAF_CELLS as u64;
const GROUPS: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Item {
    cell: u32,
    used: u32,
    loaded: bool,
}

impl Item {
    /// What is remembered of a page that was loaded when its token is dropped.
    fn dropped(&self, stamp: u32, which: Which) -> Outside {
        let used = if which == Which::Main { self.used - 1 } else { 0 };
        Outside::Ghost { stamp, used }
    }
}

/// What happened to a page that is in no ring.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Outside {
    Hand { group: usize, which: Which, used: u32 },
    Ghost { stamp: u32, used: u32 },
}

#[derive(Default)]
struct Twin {
    kind: EvictionOrder,
    queues: [[Vec<Item>; 2]; GROUPS],
    evictions: [u32; GROUPS],
    outside: BTreeMap<u32, Outside>,
    /// Groups that stored, and those with lower numbers; and the group whose turn it is to give up
    /// pages.
    groups: usize,
    turn: usize,
}

impl Twin {
    fn find(&mut self, cell: u32) -> Option<(usize, Which, usize)> {
        let places = (0..GROUPS).flat_map(|group| Which::BOTH.map(|which| (group, which)));
        places
            .filter_map(|(group, which)| {
                let queue = &self.queues[group][which as usize];
                Some((group, which, queue.iter().position(|item| item.cell == cell)?))
            })
            .next()
    }

    fn pages(&self, group: usize) -> [u64; 2] {
        let in_hand = |which| {
            let held = |outside: &&Outside| {
                matches!(outside, Outside::Hand { group: of, which: from, .. }
                    if *of == group && *from == which)
            };
            self.outside.values().filter(held).count()
        };
        let queued =
            |which| self.queues[group][which as usize].iter().filter(|item| !item.loaded).count();
        Which::BOTH.map(|which| (queued(which) + in_hand(which)) as u64)
    }

    fn in_memory(&self) -> BTreeMap<u32, GroupId> {
        let id = |group: usize| GroupId(group as u8);
        let queued = self.queues.iter().enumerate().flat_map(|(group, queues)| {
            let live = queues.iter().flatten().filter(|item| !item.loaded);
            live.map(move |item| (item.cell, id(group)))
        });
        let hands = self.outside.iter().filter_map(|(cell, outside)| match outside {
            Outside::Hand { group, .. } => Some((*cell, id(*group))),
            Outside::Ghost { .. } => None,
        });
        queued.chain(hands).collect()
    }

    fn push(&mut self, cell: u32, group: usize) {
        self.groups = self.groups.max(group + 1);
        if let Some(Outside::Hand { group: of, used, .. }) = self.outside.get_mut(&cell) {
            if *of == group {
                *used = (*used + 1).min(3);
                return;
            }
            self.outside.remove(&cell);
        }
        if let Some((of, which, index)) = self.find(cell) {
            let item = &mut self.queues[of][which as usize][index];
            if of == group {
                item.used = (item.used + u32::from(!item.loaded)).min(3);
                item.loaded = false;
                return;
            }
            self.queues[of][which as usize].remove(index);
        }
        let (which, used) = match (self.kind, self.outside.remove(&cell)) {
            (EvictionOrder::Kernel, _) => (Which::Main, 1),
            (_, Some(Outside::Ghost { stamp, used })) if self.is_recent(stamp, group) => {
                (Which::Main, used)
            }
            _ => (Which::Small, 0),
        };
        self.queues[group][which as usize].push(Item { cell, used, loaded: false });
    }

    fn is_recent(&self, stamp: u32, group: usize) -> bool {
        let pages: u64 = self.pages(group).iter().sum();
        // A stamp of another group's clock may be ahead of this one's.
        let since = self.evictions[group].wrapping_sub(stamp) % word::STAMPS;
        u64::from(since) <= pages - pages / 10
    }

    fn load(&mut self, cell: u32) -> Option<usize> {
        if let Some(Outside::Hand { group, .. }) = self.outside.get(&cell).copied() {
            self.outside.remove(&cell);
            if self.kind == EvictionOrder::S3Fifo {
                let stamp = self.evictions[group];
                self.outside.insert(cell, Outside::Ghost { stamp, used: 0 });
            }
            return Some(group);
        }
        let (group, which, index) = self.find(cell)?;
        let queue = &mut self.queues[group][which as usize];
        if queue[index].loaded {
            return None;
        }
        if self.kind == EvictionOrder::Kernel {
            queue.remove(index);
        } else {
            let used = (queue[index].used + 1).min(3);
            queue[index] = Item { cell, used, loaded: true };
        }
        Some(group)
    }

    fn remove(&mut self, cell: u32) -> Option<usize> {
        if let Some(Outside::Hand { group, .. }) = self.outside.remove(&cell) {
            return Some(group);
        }
        let (group, which, index) = self.find(cell)?;
        let item = self.queues[group][which as usize].remove(index);
        (!item.loaded).then_some(group)
    }

    fn touch(&mut self, cell: u32) {
        if let Some(Outside::Hand { used, .. }) = self.outside.get_mut(&cell) {
            *used = (*used + 1).min(3);
        } else if let Some((group, which, index)) = self.find(cell) {
            let item = &mut self.queues[group][which as usize][index];
            item.used = (item.used + u32::from(!item.loaded)).min(3);
        }
    }

    /// The next victim: the textbook's loop.
    fn victim(&mut self, group: usize) -> Option<u32> {
        loop {
            let [small, main] = self.pages(group);
            let queues = &mut self.queues[group];
            let full = small * 10 >= small + main;
            let which = match (queues[0].is_empty(), queues[1].is_empty()) {
                (true, true) => return None,
                (true, _) => Which::Main,
                (_, true) => Which::Small,
                _ if full => Which::Small,
                _ => Which::Main,
            };
            let item = queues[which as usize].remove(0);
            if item.loaded {
                let stamp = self.evictions[group];
                self.outside.insert(item.cell, item.dropped(stamp, which));
                continue;
            }
            let kept = match (self.kind, which) {
                (EvictionOrder::S3Fifo, Which::Small) => (item.used > 1).then_some(0),
                (EvictionOrder::S3Fifo, Which::Main) => item.used.checked_sub(1),
                (EvictionOrder::Kernel, _) => (item.used > 0).then_some(0),
            };
            match kept {
                Some(used) => queues[1].push(Item { used, ..item }),
                None => {
                    let hand = Outside::Hand { group, which, used: item.used };
                    self.outside.insert(item.cell, hand);
                    return Some(item.cell);
                }
            }
        }
    }

    /// Victims of several groups. Each in its turn gives up to 32, and the next call begins with
    /// the next group.
    fn next_victims(&mut self, count: usize, allows: impl Fn(usize) -> bool) -> Vec<u32> {
        let (groups, first) = (self.groups, self.turn);
        self.turn = (first + 1) % groups.max(1);
        let turn = (0..groups).map(|turn| (first + turn) % groups);
        let allowed: Vec<usize> = turn.filter(|&group| allows(group)).collect();
        let each = if allowed.len() > 1 { 32 } else { count };
        let (mut victims, mut before) = (Vec::new(), usize::MAX);
        while victims.len() < count && victims.len() != before {
            before = victims.len();
            for &group in &allowed {
                let wanted = each.min(count - victims.len());
                victims.extend((0..wanted).map_while(|_| self.victim(group)));
            }
        }
        victims
    }

    /// The page in the hand was written, or is kept.
    fn resolve(&mut self, cell: u32, written: bool) {
        let Some(Outside::Hand { group, which, used }) = self.outside.remove(&cell) else { return };
        if !written {
            self.queues[group][which as usize].push(Item { cell, used, loaded: false });
        } else if self.kind == EvictionOrder::S3Fifo && which == Which::Small {
            self.outside.insert(cell, Outside::Ghost { stamp: self.evictions[group], used: 0 });
            self.evictions[group] += 1;
        }
    }

    /// Tokens of loaded pages that the order dropped by compacting are ghosts from then on.
    fn follow_compaction(&mut self, orders: &Orders) {
        for group in 0..GROUPS {
            let stamp = self.evictions[group];
            for which in Which::BOTH {
                let queue = &mut self.queues[group][which as usize];
                let dropped = |item: &Item| {
                    let word = orders.word(CellNumber::new(item.cell));
                    item.loaded && word.state() == State::Evicted
                };
                for item in queue.iter().filter(|item| dropped(item)) {
                    self.outside.insert(item.cell, item.dropped(stamp, which));
                }
                queue.retain(|item| !dropped(item));
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Push {
        cell: u32,
        group: usize,
    },
    Load(u32),
    LoadAndPush(u32),
    Remove(u32),
    Touch(u32),
    /// Takes victims of a group: how many, and which are written, kept, or stay in the hand.
    Evict {
        group: usize,
        count: usize,
        written: u8,
        kept: u8,
    },
    /// Takes victims of the groups whose bit is set, each in its turn.
    EvictNext {
        allowed: u8,
        count: usize,
        written: u8,
        kept: u8,
    },
    Resolve {
        written: bool,
    },
    Detach {
        leaf: u32,
    },
    Compact,
}

/// A cell of two leaves, close together so that each is met often.
fn cell() -> impl Strategy<Value = u32> {
    (1u32..3, 0u32..60).prop_map(|(leaf, index)| leaf * LEAF_CELLS as u32 + index)
}

fn op() -> impl Strategy<Value = Op> {
    let group = || prop_oneof![4 => Just(0), 1 => Just(1)];
    prop_oneof![
        10 => (cell(), group()).prop_map(|(cell, group)| Op::Push { cell, group }),
        4 => cell().prop_map(Op::Load),
        8 => cell().prop_map(Op::LoadAndPush),
        3 => cell().prop_map(Op::Remove),
        3 => cell().prop_map(Op::Touch),
        4 => (group(), 1usize..6, any::<u8>(), any::<u8>())
            .prop_map(|(group, count, written, kept)| Op::Evict { group, count, written, kept }),
        4 => (1u8..4, 1usize..80, any::<u8>(), any::<u8>()).prop_map(
            |(allowed, count, written, kept)| Op::EvictNext { allowed, count, written, kept }
        ),
        2 => any::<bool>().prop_map(|written| Op::Resolve { written }),
        1 => (1u32..3).prop_map(|leaf| Op::Detach { leaf }),
        1 => Just(Op::Compact),
    ]
}

/// Both orders, driven together.
struct Pair {
    orders: Orders,
    twin: Twin,
    hands: Vec<Victim>,
    groups: usize,
}

impl Pair {
    fn new(kind: EvictionOrder, groups: usize) -> Pair {
        let orders = Orders::new(kind, CELLS).expect("small");
        Pair { orders, twin: Twin { kind, ..Twin::default() }, hands: Vec::new(), groups }
    }

    fn apply(&mut self, op: &Op) {
        let number = CellNumber::new;
        let index = |group: Option<GroupId>| group.map(GroupId::index);
        match *op {
            Op::Push { cell, group } => self.push(cell, group % self.groups),
            Op::Load(cell) => {
                assert_eq!(index(self.orders.load(number(cell))), self.twin.load(cell), "load");
            }
            Op::LoadAndPush(cell) => {
                let loaded = self.orders.load(number(cell));
                assert_eq!(index(loaded), self.twin.load(cell), "load");
                self.push(cell, loaded.map_or(0, GroupId::index));
            }
            Op::Remove(cell) => {
                let removed = self.orders.remove(number(cell));
                assert_eq!(index(removed), self.twin.remove(cell), "remove");
            }
            Op::Touch(cell) => {
                self.orders.touch(number(cell));
                self.twin.touch(cell);
            }
            Op::Evict { group, count, written, kept } => {
                self.evict(group % self.groups, count, written, kept);
            }
            Op::EvictNext { allowed, count, written, kept } => {
                self.evict_next(allowed, count, written, kept);
            }
            Op::Resolve { written } => {
                if let Some(victim) = self.hands.pop() {
                    self.resolve(victim, written);
                }
            }
            Op::Detach { leaf } => self.detach(leaf),
            Op::Compact => self.orders.compact(),
        }
        self.twin.follow_compaction(&self.orders);
    }

    fn push(&mut self, cell: u32, group: usize) {
        self.orders.push(CellNumber::new(cell), GroupId(group as u8)).expect("there is room");
        self.twin.push(cell, group);
    }

    fn evict(&mut self, group: usize, count: usize, written: u8, kept: u8) {
        let mut victims = Vec::new();
        self.orders.victims(GroupId(group as u8), count, &mut victims);
        let expected: Vec<u32> = (0..count).map_while(|_| self.twin.victim(group)).collect();
        assert_eq!(cells(&victims), expected, "victims of group {group}");
        self.resolve_some(victims, written, kept);
    }

    fn evict_next(&mut self, allowed: u8, count: usize, written: u8, kept: u8) {
        let (mut victims, turn) = (Vec::new(), self.twin.turn);
        let allows = |group: usize| allowed >> group & 1 == 1;
        self.orders.next_victims(count, |group| allows(group.index()), &mut victims);
        let expected = self.twin.next_victims(count, allows);
        assert_eq!(cells(&victims), expected, "victims of all groups, the turn of group {turn}");
        self.resolve_some(victims, written, kept);
    }

    fn resolve_some(&mut self, victims: Vec<Victim>, written: u8, kept: u8) {
        // The search for victims dropped these tokens before any of the victims counts as an
        // eviction.
        self.twin.follow_compaction(&self.orders);
        for (index, victim) in victims.into_iter().enumerate() {
            let bit = index as u32 % u8::BITS;
            match (written >> bit & 1, kept >> bit & 1) {
                (1, _) => self.resolve(victim, true),
                (_, 1) => self.resolve(victim, false),
                _ => self.hands.push(victim),
            }
        }
    }

    fn resolve(&mut self, victim: Victim, written: bool) {
        let hand = self.twin.outside.get(&victim.cell.get());
        let held = matches!(hand, Some(Outside::Hand { group, .. })
            if *group == victim.group.index());
        assert_eq!(self.orders.in_hand(&victim), held, "{victim:?}");
        let told = match written {
            true => self.orders.evicted(&victim),
            false => self.orders.keep(&victim),
        };
        assert_eq!(told, held, "{victim:?}");
        if held {
            self.twin.resolve(victim.cell.get(), written);
        }
    }

    fn detach(&mut self, leaf: u32) {
        let leaf_id = LeafId::new(leaf).expect("not 0");
        self.orders.detach(leaf_id);
        for victim in self.hands.iter().filter(|it| it.cell.leaf() == Some(leaf_id)) {
            assert!(!self.orders.in_hand(victim), "{victim:?}: its leaf was detached");
        }
        for cell in cells_of(leaf as usize) {
            self.twin.remove(cell.get());
        }
        self.check();
        self.orders.forget(leaf_id);
    }

    fn check(&self) {
        let expected = self.twin.in_memory();
        let pages = expected.iter().map(|(cell, group)| (CellNumber::new(*cell), *group));
        let recount = self.orders.check(pages).expect("as the twin");
        let hands = self.twin.outside.values().filter(|at| matches!(at, Outside::Hand { .. }));
        assert_eq!(recount.in_hand, hands.count() as u64, "pages in hands: counted, the twin's");
        let pages = recount.pages + recount.in_hand;
        assert_eq!(pages, expected.len() as u64, "pages in memory: counted, the twin's");
        for group in 0..self.groups {
            let counted = self.orders.pages(GroupId(group as u8));
            let twins = self.twin.pages(group);
            assert_eq!(counted, twins, "pages in the small and main ring of group {group}");
        }
    }
}

fn cells(victims: &[Victim]) -> Vec<u32> {
    victims.iter().map(|victim| victim.cell.get()).collect()
}

fn run(kind: EvictionOrder, groups: usize, ops: &[Op]) {
    let mut pair = Pair::new(kind, groups);
    for op in ops {
        pair.apply(op);
        pair.check();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn s3_fifo_is_its_twin(ops in prop::collection::vec(op(), 1..400)) {
        run(EvictionOrder::S3Fifo, 1, &ops);
    }

    #[test]
    fn the_kernels_order_is_its_twin(ops in prop::collection::vec(op(), 1..400)) {
        run(EvictionOrder::Kernel, 1, &ops);
    }

    #[test]
    fn groups_are_kept_apart(ops in prop::collection::vec(op(), 1..400), kernel in any::<bool>()) {
        run(if kernel { EvictionOrder::Kernel } else { EvictionOrder::S3Fifo }, GROUPS, &ops);
    }
}
