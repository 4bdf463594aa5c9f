//! Long random sequences of calls on a zone of several pageblocks, beside the naive twin.
//!
//! Claims, checked after every call (Invariants I1..I5, L1..L3, D1..D4 and W1, W2 are among them):
//!
//! 1. No frame is in two runs.
//! 2. The free blocks are the maximal aligned blocks of the free frames, with the types and the
//!    warmth that the rules give them; all counts and totals follow.
//! 3. A request is served from a block that the rules name: warm before untouched, then the
//!    smallest; else the lowest pageblock that can come online; else the other types.
//! 4. It is refused only if no aligned block of its order is free in what is online or can be
//!    brought online, and then as many frames are in use as the bound of zone.rs says.
//! 5. Freeing or taking what is not there is refused with the error that names it, unchanged.
//! 6. The zone's own check passes and counts what the twin counts.
//!
//! And at the end of every sequence:
//!
//! 7. With everything freed, only whole pageblocks are left, and all of them can go offline.
//! 8. With everything offline, the metadata is gone except for the directory's pointers.
//!
//! Not covered: the process having no memory for metadata. Left out under Miri, which is some
//! thousand times slower and finds no unsafe code here.
#![cfg(not(miri))]

mod twin;

use proptest::prelude::*;
use ramfold_buddy::{Migratetype, Order, Published, Warm, Zone};
use twin::{Op, Pair};

const PAGEBLOCKS: u32 = 5;

/// A call, where `nth` chooses among what is there when its turn comes.
#[derive(Clone, Debug)]
enum Action {
    Alloc { frames: u32, migratetype: Migratetype },
    AllocWarm { frames: u32, migratetype: Migratetype },
    FreeRun { nth: usize, warm: Warm },
    FreeAny { pfn: u32, frames: u32 },
    TakeBlock { nth: usize },
    TakeAny { pfn: u32, order: Order },
    TakeLargest { min: Order },
    Offline { index: u32 },
    Isolate { index: u32 },
    UndoIsolation { index: u32 },
    Reserve,
    Unreserve { to: Migratetype, force: bool },
    SetAside,
}

fn action() -> impl Strategy<Value = Action> {
    let frames = || prop_oneof![6 => 1..=16u32, 4 => 1..=1024u32, 1 => 500..=1030u32, 1 => Just(0)];
    let pfn = || 0..=PAGEBLOCKS * 512 + 600;
    prop_oneof![
        12 => (frames(), migratetype())
            .prop_map(|(frames, migratetype)| Action::Alloc { frames, migratetype }),
        3 => (frames(), migratetype())
            .prop_map(|(frames, migratetype)| Action::AllocWarm { frames, migratetype }),
        10 => (any::<usize>(), warm()).prop_map(|(nth, warm)| Action::FreeRun { nth, warm }),
        2 => (pfn(), 0..=1025u32).prop_map(|(pfn, frames)| Action::FreeAny { pfn, frames }),
        2 => any::<usize>().prop_map(|nth| Action::TakeBlock { nth }),
        2 => (pfn(), order()).prop_map(|(pfn, order)| Action::TakeAny { pfn, order }),
        1 => order().prop_map(|min| Action::TakeLargest { min }),
        2 => (0..=PAGEBLOCKS).prop_map(|index| Action::Offline { index }),
        3 => (0..=PAGEBLOCKS).prop_map(|index| Action::Isolate { index }),
        3 => (0..=PAGEBLOCKS).prop_map(|index| Action::UndoIsolation { index }),
        1 => Just(Action::Reserve),
        1 => (migratetype(), any::<bool>())
            .prop_map(|(to, force)| Action::Unreserve { to, force }),
        1 => Just(Action::SetAside),
    ]
}

fn migratetype() -> impl Strategy<Value = Migratetype> {
    use Migratetype::*;
    prop_oneof![
        6 => Just(Movable),
        4 => Just(Unmovable),
        2 => Just(Reclaimable),
        1 => prop::sample::select(vec![HighAtomic, Cma, Isolate]),
    ]
}

fn warm() -> impl Strategy<Value = Warm> {
    prop::sample::select(vec![Warm::Resident, Warm::Untouched])
}

fn order() -> impl Strategy<Value = Order> {
    (0..=10u8).prop_map(|order| Order::new(order).expect("an order of the table"))
}

/// The call that an action means now: none if there is nothing for it to choose from.
fn op(pair: &Pair, action: Action) -> Option<Op> {
    Some(match action {
        Action::Alloc { frames, migratetype } => Op::Alloc { frames, migratetype },
        Action::AllocWarm { frames, migratetype } => Op::AllocWarm { frames, migratetype },
        Action::FreeRun { nth, warm } => {
            let runs = &pair.twin.runs;
            let (pfn, frames) = runs.iter().nth(nth.checked_rem(runs.len())?)?;
            Op::Free { pfn: *pfn, frames: *frames, warm }
        }
        Action::FreeAny { pfn, frames } => Op::Free { pfn, frames, warm: Warm::Resident },
        Action::TakeBlock { nth } => {
            let blocks = pair.twin.blocks();
            let block = blocks[nth.checked_rem(blocks.len())?];
            Op::Take { pfn: block.pfn, order: block.order }
        }
        Action::TakeAny { pfn, order } => Op::Take { pfn, order },
        Action::TakeLargest { min } => Op::TakeLargest { min },
        Action::Offline { index } => Op::Offline { index },
        Action::Isolate { index } => Op::Isolate { index },
        Action::UndoIsolation { index } => Op::UndoIsolation { index },
        Action::Reserve => Op::Reserve,
        Action::Unreserve { to, force } => Op::Unreserve { to, force },
        Action::SetAside => Op::SetAside,
    })
}

/// Claims 7 and 8.
fn wind_up(pair: &mut Pair) {
    for (pfn, frames) in pair.twin.runs.clone() {
        assert!(pair.step(Op::Free { pfn, frames, warm: Warm::Resident }), "the run at {pfn}");
    }
    for (pfn, order, ..) in pair.listing() {
        assert!(order >= Order::PAGEBLOCK, "{pfn} is a free block of only {order}");
    }
    for index in 0..PAGEBLOCKS {
        pair.step(Op::Offline { index });
    }
    assert_eq!(pair.zone.online_frames(), 0, "a wholly free pageblock did not go offline");
    let left = pair.zone.metadata_bytes() - size_of::<Zone>() - size_of::<Published>();
    let pointers = 2 * PAGEBLOCKS as usize * size_of::<usize>();
    assert!(left <= pointers, "{left} bytes of metadata with nothing online");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn the_zone_is_its_twin(
        actions in prop::collection::vec(action(), 1..160),
        spare in 0..512u32,
    ) {
        let mut pair = Pair::new(PAGEBLOCKS * 512 + spare);
        for action in actions {
            if let Some(op) = op(&pair, action) {
                pair.step(op);
            }
        }
        wind_up(&mut pair);
    }
}
