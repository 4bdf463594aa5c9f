//! Every sequence of calls on small zones, as deep as time allows.
//!
//! Claims, checked after each call of each sequence against the twin:
//!
//! 1. No frame is in two runs; free blocks, counts and totals are exactly the twin's.
//! 2. A request takes a block that the zone's rules name, and is refused only if there is none.
//! 3. Every wrong free gets the error that names it, and changes nothing.
//! 4. The zone's own check agrees.
//! 5. Pageblocks are claimed, isolated, put back, reserved and given back exactly when the rules
//!    say; their types, their occupancy and the runs in them are the twin's.
//!
//! ```text
//!    frames 0 .. 7     8 .. 15   16 .. 31   ...   256 .. 511
//!    [ the small zone ][              in use               ]
//! ```
//!
//! Two scales. A pageblock of which all but eight frames are in use is a zone of eight frames:
//! there the orders 0 to 3 are exhausted. Three pageblocks and requests of the size of pageblocks
//! exhaust going online and offline, types, and blocks of the largest order; two and requests of
//! a part of one exhaust falling back from one type to another.
//!
//! Left out under Miri, which is some thousand times slower and finds no unsafe code here.
#![cfg(not(miri))]

mod twin;

use ramfold_buddy::{Migratetype, Order, PageblockIndex, Pfn, Warm, Zone};
use twin::{Op, Pair, Twin};

const WARMTHS: [Warm; 2] = [Warm::Resident, Warm::Untouched];

/// Visits every sequence of at most `depth` more calls; returns how many there are. A call that
/// is refused is checked and not pursued: it leaves the zone as another sequence has it.
fn explore(
    frames_max: u32,
    history: &mut Vec<Op>,
    twin: &Twin,
    moves: &dyn Fn(&Twin) -> Vec<Op>,
    depth: u32,
) -> u64 {
    let mut visited = 0;
    for op in moves(twin) {
        let mut pair = Pair { twin: twin.clone(), ..Pair::new(frames_max) };
        history.iter().for_each(|past| replay(*past, &mut pair.zone));
        let done = pair.step(op);
        visited += 1;
        if done && depth > 1 {
            history.push(op);
            visited += explore(frames_max, history, &pair.twin, moves, depth - 1);
            history.pop();
        }
    }
    visited
}

/// Makes a call that an earlier sequence has checked.
fn replay(op: Op, zone: &mut Zone) {
    let done = match op {
        Op::Alloc { frames, migratetype } => zone.alloc_run(frames, migratetype).is_ok(),
        Op::Free { pfn, frames, warm } => zone.free_run(Pfn::new(pfn), frames, warm).is_ok(),
        Op::Take { pfn, order } => zone.take_free(Pfn::new(pfn), order).is_ok(),
        Op::TakeLargest { min } => zone.take_largest_warm(min).is_some(),
        Op::Offline { index } => zone.offline(PageblockIndex::new(index)).is_ok(),
        Op::Isolate { index } => zone.isolate(PageblockIndex::new(index)).is_ok(),
        Op::UndoIsolation { index } => zone.undo_isolation(PageblockIndex::new(index)).is_ok(),
        Op::Reserve => zone.reserve().is_ok(),
        Op::Unreserve { to, force } => zone.unreserve(to, force).is_ok(),
        Op::AllocWarm { frames, migratetype } => zone.alloc_warm(frames, migratetype).is_ok(),
        Op::SetAside => zone.set_aside_cma().is_ok(),
    };
    assert!(done, "{op:?} was refused when repeated");
}

fn frees(twin: &Twin, below: u32) -> Vec<Op> {
    let runs = twin.runs.range(..below);
    let each = |(pfn, frames): (&u32, &u32)| {
        let (pfn, frames) = (*pfn, *frames);
        WARMTHS.map(|warm| Op::Free { pfn, frames, warm })
    };
    runs.flat_map(each).collect()
}

/// Uses up one pageblock except for its first eight frames.
fn eight_frames() -> Vec<Op> {
    let blocks = [8, 8, 16, 32, 64, 128, 256];
    let alloc = |frames| Op::Alloc { frames, migratetype: Migratetype::Movable };
    let mut ops: Vec<Op> = blocks.into_iter().map(alloc).collect();
    ops.push(Op::Free { pfn: 0, frames: 8, warm: Warm::Untouched });
    ops
}

fn moves_on_eight_frames(twin: &Twin) -> Vec<Op> {
    let mut ops = frees(twin, 8);
    for frames in [1, 2, 3, 5, 8] {
        ops.push(Op::Alloc { frames, migratetype: Migratetype::Movable });
    }
    let heads = twin.blocks().into_iter().filter(|block| block.pfn > 0);
    ops.extend(heads.map(|block| Op::Take { pfn: block.pfn, order: block.order }));
    ops.push(Op::TakeLargest { min: Order::ZERO });
    ops
}

#[test]
fn every_sequence_on_eight_frames() {
    let mut pair = Pair::new(512);
    let mut history = eight_frames();
    for op in &history {
        assert!(pair.step(*op), "{op:?} prepares the zone");
    }
    let visited = explore(512, &mut history, &pair.twin, &moves_on_eight_frames, 6);
    assert!(visited > 150_000, "only {visited} sequences were visited");
}

/// Every possible free of the eight frames in every state that three calls reach.
#[test]
fn every_wrong_free_on_eight_frames() {
    let moves = |twin: &Twin| {
        let mut ops = moves_on_eight_frames(twin);
        ops.push(Op::AllocWarm { frames: 3, migratetype: Migratetype::Movable });
        for pfn in (0..10).chain([511, 512, u32::MAX]) {
            for frames in (0..10).chain([512, 1024, 1025, u32::MAX]) {
                ops.push(Op::Free { pfn, frames, warm: Warm::Resident });
            }
            ops.extend(Order::all().map(|order| Op::Take { pfn, order }));
        }
        // The blocks that use up the rest of the pageblock must stay.
        ops.retain(|op| !matches!(op, Op::Free { pfn: 8.., frames: 8.., .. }));
        ops
    };
    let mut pair = Pair::new(512);
    let mut history = eight_frames();
    for op in &history {
        assert!(pair.step(*op), "{op:?} prepares the zone");
    }
    let visited = explore(512, &mut history, &pair.twin, &moves, 3);
    assert!(visited > 15_000, "only {visited} sequences were visited");
}

fn moves_on_pageblocks(twin: &Twin) -> Vec<Op> {
    let mut ops = frees(twin, u32::MAX);
    for (frames, migratetype) in [
        (100, Migratetype::Movable),
        (512, Migratetype::Unmovable),
        (512, Migratetype::HighAtomic),
        (513, Migratetype::Reclaimable),
        (1024, Migratetype::Movable),
    ] {
        ops.push(Op::Alloc { frames, migratetype });
    }
    ops.push(Op::TakeLargest { min: Order::PAGEBLOCK });
    ops.extend((0..4).map(|index| Op::Offline { index }));
    ops
}

#[test]
fn every_sequence_on_three_pageblocks() {
    let frames_max = 3 * 512 + 511;
    let twin = Pair::new(frames_max).twin;
    let visited = explore(frames_max, &mut Vec::new(), &twin, &moves_on_pageblocks, 5);
    assert!(visited > 5_000, "only {visited} sequences were visited");
}

/// What a pageblock can go through, as a whole.
fn moves_of_pageblocks(twin: &Twin) -> Vec<Op> {
    let mut ops = frees(twin, u32::MAX);
    ops.retain(|op| matches!(op, Op::Free { warm: Warm::Resident, .. }));
    for (frames, migratetype) in [
        (1, Migratetype::Movable),
        (1, Migratetype::HighAtomic),
        (512, Migratetype::Unmovable),
        (1024, Migratetype::Movable),
    ] {
        ops.push(Op::Alloc { frames, migratetype });
    }
    for index in 0..3 {
        ops.push(Op::Isolate { index });
        ops.push(Op::UndoIsolation { index });
    }
    ops.push(Op::Offline { index: 1 });
    ops.push(Op::TakeLargest { min: Order::PAGEBLOCK });
    ops.extend([Op::Reserve, Op::SetAside]);
    ops.extend([true, false].map(|force| Op::Unreserve { to: Migratetype::Movable, force }));
    ops.push(Op::Unreserve { to: Migratetype::Cma, force: true });
    ops
}

#[test]
fn every_sequence_of_types_on_three_pageblocks() {
    let twin = Pair::new(3 * 512).twin;
    let visited = explore(3 * 512, &mut Vec::new(), &twin, &moves_of_pageblocks, 5);
    assert!(visited > 40_000, "only {visited} sequences were visited");
}

fn moves_between_types(twin: &Twin) -> Vec<Op> {
    let mut ops = frees(twin, u32::MAX);
    ops.retain(|op| matches!(op, Op::Free { warm: Warm::Resident, .. }));
    for migratetype in [Migratetype::Unmovable, Migratetype::Movable, Migratetype::Reclaimable] {
        ops.extend([1, 100, 300].map(|frames| Op::Alloc { frames, migratetype }));
    }
    ops.push(Op::Isolate { index: 0 });
    ops.push(Op::UndoIsolation { index: 0 });
    ops
}

#[test]
fn every_fallback_on_two_pageblocks() {
    let twin = Pair::new(2 * 512).twin;
    let visited = explore(2 * 512, &mut Vec::new(), &twin, &moves_between_types, 5);
    assert!(visited > 50_000, "only {visited} sequences were visited");
}
