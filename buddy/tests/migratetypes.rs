//! The rules of migratetypes by example: who may take whose frames, and what is set aside.
//!
//! Claims, a test or more each: a request takes other types' blocks only when nothing can come
//! online; it claims the pageblock of the largest if that is half free or alike, and steals the
//! smallest block otherwise; mixing is counted; what is isolated, reserved or CMA goes to nobody it
//! is not for; a refused call changes nothing (the twin checks that for every call).

use ramfold_buddy::{
    AllocError, AllocatedRun, IsolateError, Migratetype, Occupancy, Order, PageblockIndex, Pfn,
    ReserveError, SharedZone, Warm, Zone,
};

use Migratetype::{Cma, HighAtomic, Isolate, Movable, Reclaimable, Unmovable};
use Warm::{Resident, Untouched};

#[track_caller]
fn gets(zone: &mut Zone, frames: u32, migratetype: Migratetype, pfn: u32) {
    let found = zone.alloc_run(frames, migratetype);
    assert_eq!(found, Ok(Pfn::new(pfn)), "where {frames} {migratetype} frames are");
    zone.check().expect("sound after a request");
}

#[track_caller]
fn refused(zone: &mut Zone, frames: u32, migratetype: Migratetype) {
    let order = Order::all().find(|order| order.frames() >= frames).expect("at most 1024");
    let expected = Err(AllocError::NoFreeRun { order });
    assert_eq!(zone.alloc_run(frames, migratetype), expected, "{frames} {migratetype} frames");
}

#[track_caller]
fn free(zone: &mut Zone, pfn: u32, frames: u32, warm: Warm) {
    assert_eq!(zone.free_run(Pfn::new(pfn), frames, warm), Ok(()), "freeing {frames} at {pfn}");
    zone.check().expect("sound after a free");
}

/// Free frames by type, as pagetypeinfo has them.
#[track_caller]
fn free_frames(zone: &Zone, expected: &[(Migratetype, u64)]) {
    let counts = zone.published().read();
    let frames = |mt: Migratetype| -> u64 {
        let orders = counts.free_blocks[mt as usize].iter().enumerate();
        orders.map(|(order, blocks)| blocks << order).sum()
    };
    let found: Vec<_> = Migratetype::ALL.into_iter().map(|mt| (mt, frames(mt))).collect();
    let found: Vec<_> = found.into_iter().filter(|(_, frames)| *frames > 0).collect();
    assert_eq!(found, expected, "free frames by type");
}

fn pageblock(index: u32) -> PageblockIndex {
    PageblockIndex::new(index)
}

#[test]
fn a_pageblock_mostly_free_is_claimed() {
    let mut zone = Zone::new(1024);
    gets(&mut zone, 1, Movable, 0);
    gets(&mut zone, 1, Unmovable, 512);
    gets(&mut zone, 1, Reclaimable, 513);
    free_frames(&zone, &[(Movable, 511), (Reclaimable, 510)]);
    gets(&mut zone, 256, Reclaimable, 768);
    assert_eq!(zone.published().mixings(), 0, "unmovable and reclaimable runs do not mix");
}

/// 212 frames are free: less than half, and nothing in use is like the request.
#[test]
fn of_a_pageblock_mostly_in_use_the_smallest_block_is_stolen() {
    let mut zone = Zone::new(512);
    gets(&mut zone, 300, Movable, 0);
    gets(&mut zone, 1, Unmovable, 300);
    free_frames(&zone, &[(Movable, 211)]);
    assert_eq!(zone.published().mixings(), 1, "an unmovable run lies among movable ones");
    gets(&mut zone, 1, Movable, 301);
    assert_eq!(zone.published().mixings(), 1, "a request for the pageblock's type mixes nothing");
}

/// 255 frames are free, one less than half, and one in use is like the request.
#[test]
fn a_pageblock_mostly_free_or_alike_is_claimed() {
    let mut zone = Zone::new(512);
    gets(&mut zone, 1, Unmovable, 0);
    gets(&mut zone, 256, Movable, 256);
    free_frames(&zone, &[(Movable, 255)]);
    gets(&mut zone, 1, Unmovable, 1);
    free_frames(&zone, &[(Unmovable, 254)]);
    gets(&mut zone, 1, Movable, 2);
    free_frames(&zone, &[(Movable, 253)]);
    assert_eq!(zone.published().mixings(), 3, "each lies beside runs of the other mobility");
}

/// As before, but nobody knows what the runs in a pageblock that is not movable are.
#[test]
fn for_an_unmovable_request_only_movable_pageblocks_are_alike() {
    let mut zone = Zone::new(512);
    gets(&mut zone, 300, Unmovable, 0);
    gets(&mut zone, 1, Reclaimable, 300);
    free_frames(&zone, &[(Unmovable, 211)]);
    assert_eq!(zone.published().mixings(), 0, "unmovable and reclaimable runs do not mix");
}

#[test]
fn whole_pageblocks_change_sides_with_their_block() {
    let mut zone = Zone::new(1024);
    gets(&mut zone, 1024, Movable, 0);
    free(&mut zone, 0, 1024, Resident);
    gets(&mut zone, 3, Unmovable, 0);
    free_frames(&zone, &[(Unmovable, 1021)]);
    assert_eq!(zone.published().read().pageblocks, [2, 0, 0, 0, 0, 0]);
}

#[test]
fn types_fall_back_in_the_kernels_order() {
    let mut zone = Zone::new(3 * 512);
    for (mt, pfn) in [(Movable, 0), (Unmovable, 512), (Reclaimable, 1024)] {
        gets(&mut zone, 512, mt, pfn);
    }
    free(&mut zone, 0, 512, Resident);
    free(&mut zone, 1024, 512, Resident);
    gets(&mut zone, 1, Unmovable, 1024);
    free(&mut zone, 1024, 1, Resident);
    free(&mut zone, 512, 512, Resident);
    gets(&mut zone, 1, Reclaimable, 0);
}

#[test]
fn what_is_isolated_goes_to_nobody_and_comes_back() {
    let mut zone = Zone::new(512);
    gets(&mut zone, 100, Movable, 0);
    gets(&mut zone, 4, Reclaimable, 100);
    assert_eq!(zone.isolate(pageblock(0)), Ok(()), "a reclaimable run can be dropped");
    free_frames(&zone, &[(Isolate, 408)]);
    for mt in [Movable, Unmovable, Reclaimable, HighAtomic, Cma] {
        refused(&mut zone, 1, mt);
    }
    free(&mut zone, 0, 100, Resident);
    free_frames(&zone, &[(Isolate, 508)]);
    assert_eq!(zone.take_largest_warm(Order::ZERO), None, "it is left to who isolated it");
    let again = Err(IsolateError::AlreadyIsolated(pageblock(0)));
    assert_eq!(zone.isolate(pageblock(0)), again);
    assert_eq!(zone.undo_isolation(pageblock(0)), Ok(()));
    let never = Err(IsolateError::NotIsolated(pageblock(0)));
    assert_eq!(zone.undo_isolation(pageblock(0)), never);
    free_frames(&zone, &[(Reclaimable, 508)]);
}

#[test]
fn a_pageblock_with_a_run_that_stays_is_not_isolated() {
    let mut zone = Zone::new(4096);
    gets(&mut zone, 700, Unmovable, 0);
    for index in [0, 1] {
        let pinned = IsolateError::Pinned { index: pageblock(index), pfn: Pfn::new(0) };
        assert_eq!(zone.isolate(pageblock(index)), Err(pinned), "the run reaches into both");
    }
    free_frames(&zone, &[(Unmovable, 324)]);
    assert_eq!(zone.isolate(pageblock(2)), Err(IsolateError::Offline(pageblock(2))));
    assert_eq!(zone.isolate(pageblock(8)), Err(IsolateError::OutOfRange(pageblock(8))));
    let beyond = pageblock(u32::MAX);
    assert_eq!(zone.undo_isolation(beyond), Err(IsolateError::OutOfRange(beyond)));
}

/// Each half of a long run is freed to its own pageblock's type, and the halves meet again when the
/// isolation is undone.
#[test]
fn half_of_the_largest_block_is_isolated_alone() {
    let mut zone = Zone::new(1024);
    gets(&mut zone, 1024, Movable, 0);
    assert_eq!(zone.isolate(pageblock(1)), Ok(()));
    free(&mut zone, 0, 1024, Resident);
    free_frames(&zone, &[(Movable, 512), (Isolate, 512)]);
    assert_eq!(zone.isolate(pageblock(0)), Ok(()));
    assert_eq!(zone.largest_free_order(), Some(Order::MAX), "two isolated halves merge");
    assert_eq!(zone.undo_isolation(pageblock(0)), Ok(()));
    free_frames(&zone, &[(Movable, 512), (Isolate, 512)]);
    assert_eq!(zone.undo_isolation(pageblock(1)), Ok(()));
    gets(&mut zone, 1024, Movable, 0);
}

#[test]
fn an_isolated_pageblock_is_emptied_and_goes_offline() {
    let zone = SharedZone::new(1024);
    let run = zone.alloc_run(3, Movable).expect("an empty zone has room");
    zone.alloc_run(512, Unmovable).expect("another pageblock");
    assert_eq!(zone.isolate(pageblock(0)), Ok(()));
    let expected = AllocatedRun { pfn: run, frames: 3, migratetype: Movable };
    assert_eq!(zone.runs_in(pageblock(0)), [expected]);
    zone.free_run(run, 3, Resident).expect("it was allocated");
    assert_eq!(zone.offline_untouched(), 0, "whoever isolated it decides");
    zone.take_free(Pfn::new(0), Order::PAGEBLOCK).expect("all of it is free");
    let taken = Occupancy {
        index: pageblock(0),
        migratetype: Isolate,
        free: 0,
        movable: 0,
        fixed: 0,
        taken: 512,
    };
    assert_eq!(zone.occupancy(pageblock(0)), Some(taken));
    zone.free(Pfn::new(0), Order::PAGEBLOCK, Untouched).expect("it was taken");
    assert_eq!(zone.offline(pageblock(0)), Ok(()));
    assert_eq!(zone.runs_in(pageblock(0)), []);
}

#[test]
fn sparse_pageblocks_are_found_a_few_at_a_time() {
    let zone = SharedZone::new(5 * 512);
    for frames in [512, 100, 512, 30] {
        zone.alloc_run(frames, Movable).expect("room");
    }
    let mut found = Vec::new();
    assert_eq!(zone.occupancies(pageblock(0), 2, &mut found), Some(pageblock(2)));
    assert_eq!(zone.occupancies(pageblock(2), u32::MAX, &mut found), None);
    let movable: Vec<u32> = found.iter().map(|pageblock| pageblock.movable).collect();
    assert_eq!(movable, [512, 130, 512], "frames in use");
    assert_eq!(zone.occupancies(pageblock(u32::MAX), 1, &mut found), None, "past the end");
}

#[test]
fn the_reserve_serves_only_what_must_not_fail() {
    let mut zone = Zone::new(1024);
    zone.set_reserve_max(1);
    assert_eq!(zone.reserve(), Ok(pageblock(0)), "nothing is online: the lowest comes");
    assert_eq!(zone.offline_untouched(), 0, "a reserve stays online");
    assert_eq!(zone.reserve(), Err(ReserveError::AtLimit { pageblocks: 1 }));
    gets(&mut zone, 512, Movable, 512);
    refused(&mut zone, 1, Movable);
    refused(&mut zone, 1, Unmovable);
    gets(&mut zone, 2, HighAtomic, 0);
    free(&mut zone, 0, 2, Resident);
    assert_eq!(zone.take_largest_warm(Order::ZERO), None, "a reserve keeps its memory");
    free(&mut zone, 512, 512, Untouched);
    refused(&mut zone, 1024, Movable);
    assert_eq!(zone.unreserve(Movable, false), Err(ReserveError::LastOne));
    assert_eq!(zone.unreserve(Isolate, true), Err(ReserveError::NotOrdinary(Isolate)));
    assert_eq!(zone.unreserve(Movable, true), Ok(pageblock(0)));
    assert_eq!(zone.unreserve(Movable, true), Err(ReserveError::NothingFree));
    gets(&mut zone, 1024, Movable, 0);
    assert_eq!(zone.reserve(), Err(ReserveError::NoFreePageblock));
}

#[test]
fn a_limit_below_the_reserve_takes_nothing_away() {
    let mut zone = Zone::new(4 * 512);
    zone.set_reserve_max(2);
    assert_eq!([zone.reserve(), zone.reserve()], [0, 1].map(|index| Ok(pageblock(index))));
    gets(&mut zone, 600, HighAtomic, 0);
    zone.set_reserve_max(1);
    assert_eq!(zone.reserve(), Err(ReserveError::AtLimit { pageblocks: 1 }));
    assert_eq!(zone.reserved(), 2, "what is in use stays what it is");
    free_frames(&zone, &[(HighAtomic, 424)]);
    free(&mut zone, 0, 600, Resident);
    assert_eq!(zone.unreserve(Movable, false), Ok(pageblock(0)), "the owner gives it back");
    assert_eq!(zone.reserve(), Err(ReserveError::AtLimit { pageblocks: 1 }));
}

#[test]
fn what_must_not_fail_has_the_ordinary_ways_too() {
    let mut zone = Zone::new(512);
    gets(&mut zone, 1, HighAtomic, 0);
    free_frames(&zone, &[(Unmovable, 511)]);
    assert_eq!(zone.reserve(), Err(ReserveError::AtLimit { pageblocks: 0 }), "a small zone");
}

#[test]
fn a_reserve_prefers_memory_that_is_held() {
    let mut zone = Zone::new(4 * 512);
    zone.set_reserve_max(2);
    gets(&mut zone, 512, Movable, 0);
    gets(&mut zone, 512, Movable, 512);
    free(&mut zone, 512, 512, Resident);
    assert_eq!(zone.reserve(), Ok(pageblock(1)));
    free_frames(&zone, &[(HighAtomic, 512)]);
    assert_eq!(zone.reserve(), Ok(pageblock(2)), "the lowest that is offline");
    assert_eq!(zone.isolate(pageblock(2)), Ok(()));
    let full = Err(ReserveError::AtLimit { pageblocks: 2 });
    assert_eq!(zone.reserve(), full, "an isolated pageblock is still of the reserve");
}

#[test]
fn cma_serves_movable_requests_and_its_own() {
    let mut zone = Zone::new(3 * 512);
    assert_eq!(zone.set_aside_cma(), Ok(pageblock(0)));
    gets(&mut zone, 1, Unmovable, 512);
    gets(&mut zone, 2, Movable, 0);
    // Most of what is free lies in pageblock 1 now.
    gets(&mut zone, 1, Movable, 2);
    gets(&mut zone, 510, Unmovable, 1024);
    free_frames(&zone, &[(Unmovable, 513), (Cma, 509)]);
    gets(&mut zone, 256, Cma, 256);
    gets(&mut zone, 256, Movable, 512 + 256);
    refused(&mut zone, 512, Cma);
}

#[test]
fn a_free_pageblock_is_set_aside_where_none_is_offline() {
    let mut zone = Zone::new(2 * 512);
    gets(&mut zone, 1, Movable, 0);
    gets(&mut zone, 512, Movable, 512);
    free(&mut zone, 512, 512, Resident);
    assert_eq!(zone.set_aside_cma(), Ok(pageblock(1)));
    free_frames(&zone, &[(Movable, 511), (Cma, 512)]);
    free(&mut zone, 0, 1, Resident);
    assert_eq!(zone.set_aside_cma(), Ok(pageblock(0)));
    free_frames(&zone, &[(Cma, 1024)]);
    let order = Order::PAGEBLOCK;
    assert_eq!(zone.set_aside_cma(), Err(AllocError::NoFreeRun { order }), "all of it is CMA");
}

#[test]
fn without_cma_nothing_is_served_as_cma() {
    let mut zone = Zone::new(512);
    refused(&mut zone, 1, Cma);
    assert_eq!(zone.online_frames(), 0, "a refused request brought memory online");
    gets(&mut zone, 1, Movable, 0);
    let order = Order::PAGEBLOCK;
    assert_eq!(
        zone.set_aside_cma(),
        Err(AllocError::NoFreeRun { order }),
        "none is offline or free"
    );
}
