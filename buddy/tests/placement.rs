//! Which block a request gets, and where a freed one goes: the rules that the twin leaves open
//! because they depend on the order of the lists, and the kernel's rules by example.
//!
//! ```text
//!    take  <-  [head]  warm, last freed first      [tail]  warm, merge is near
//!    then  <-  [head]  untouched, last freed first [tail]  untouched, merge is near
//! ```

use ramfold_buddy::{
    AllocError, FreedRun, Migratetype, Order, PageblockIndex, Pfn, Published, Warm, Zone,
};

use Migratetype::{Movable, Unmovable};
use Warm::{Resident, Untouched};

#[track_caller]
fn gets(zone: &mut Zone, frames: u32, migratetype: Migratetype, pfn: u32) {
    let found = zone.alloc_run(frames, migratetype);
    assert_eq!(found, Ok(Pfn::new(pfn)), "where {frames} {migratetype} frames are");
}

#[track_caller]
fn refused(zone: &mut Zone, frames: u32, migratetype: Migratetype, expected: AllocError) {
    assert_eq!(zone.alloc_run(frames, migratetype), Err(expected), "{frames} {migratetype} frames");
}

#[track_caller]
fn free(zone: &mut Zone, pfn: u32, frames: u32, warm: Warm) {
    assert_eq!(zone.free_run(Pfn::new(pfn), frames, warm), Ok(()), "freeing {frames} at {pfn}");
    zone.check().expect("sound after a free");
}

/// The heads of the free blocks of one order, in the order in which requests take them.
#[track_caller]
fn list(zone: &Zone, order: Order, expected: &[u32]) {
    let mut heads = Vec::new();
    zone.for_each_free(|pfn, found, _, _| {
        if found == order {
            heads.push(pfn.get());
        }
    });
    assert_eq!(heads, expected, "the list of {order}");
}

/// Free blocks as (head, order, type, warmth), lowest first.
#[track_caller]
fn blocks(zone: &Zone, expected: &[(u32, u8, Migratetype, Warm)]) {
    let mut found = Vec::new();
    zone.for_each_free(|pfn, order, mt, warm| found.push((pfn.get(), order.get(), mt, warm)));
    found.sort_by_key(|block| block.0);
    assert_eq!(found, expected);
}

fn order(order: u8) -> Order {
    Order::new(order).expect("an order of the table")
}

/// One pageblock, every frame a run of its own.
fn frames_all_in_use() -> Zone {
    let mut zone = Zone::new(512);
    for pfn in 0..512 {
        gets(&mut zone, 1, Movable, pfn);
    }
    zone
}

#[test]
fn a_new_zone_has_nothing_online() {
    let zone = Zone::new(4096);
    assert_eq!(zone.online_frames(), 0);
    assert_eq!(zone.largest_free_order(), None);
    assert_eq!(zone.metadata_bytes(), size_of::<Zone>() + size_of::<Published>());
}

#[test]
fn requests_take_the_low_end_and_pageblocks_the_low_index() {
    let mut zone = Zone::new(3 * 512);
    gets(&mut zone, 5, Movable, 0);
    blocks(
        &zone,
        &[
            (5, 0, Movable, Untouched),
            (6, 1, Movable, Untouched),
            (8, 3, Movable, Untouched),
            (16, 4, Movable, Untouched),
            (32, 5, Movable, Untouched),
            (64, 6, Movable, Untouched),
            (128, 7, Movable, Untouched),
            (256, 8, Movable, Untouched),
        ],
    );
    gets(&mut zone, 1, Movable, 5);
    gets(&mut zone, 2, Movable, 6);
    gets(&mut zone, 257, Movable, 512);
    gets(&mut zone, 512, Movable, 1024);
}

#[test]
fn a_last_pageblock_that_is_not_whole_stays_offline() {
    let mut zone = Zone::new(512 + 511);
    gets(&mut zone, 512, Movable, 0);
    refused(&mut zone, 1, Movable, AllocError::NoFreeRun { order: order(0) });
    assert_eq!(zone.frames_max(), 512);
}

#[test]
fn lengths_outside_the_table_are_refused() {
    let mut zone = Zone::new(4096);
    for frames in [0, 1025, u32::MAX] {
        refused(&mut zone, frames, Movable, AllocError::BadLength { frames });
    }
    refused(&mut zone, 1, Migratetype::Isolate, AllocError::Isolated);
    assert_eq!(zone.online_frames(), 0, "a refused request brought memory online");
}

#[test]
fn the_last_block_freed_is_the_first_taken() {
    let mut zone = frames_all_in_use();
    for pfn in [16, 32, 48] {
        free(&mut zone, pfn, 1, Resident);
    }
    list(&zone, order(0), &[48, 32, 16]);
    gets(&mut zone, 1, Movable, 48);
}

/// 2 and 3 are free as a block of order 1, so when 0 is freed only 1 keeps four frames from
/// merging: 0 is worth leaving alone. 16 has no such prospect.
#[test]
fn a_block_about_to_merge_goes_to_the_tail() {
    let mut zone = frames_all_in_use();
    for pfn in [16, 2, 3, 0] {
        free(&mut zone, pfn, 1, Resident);
    }
    list(&zone, order(0), &[16, 0]);
    list(&zone, order(1), &[2]);
}

#[test]
fn a_block_about_to_merge_still_goes_before_untouched_ones() {
    let mut zone = frames_all_in_use();
    for (pfn, warm) in [(16, Untouched), (2, Resident), (3, Resident), (0, Resident)] {
        free(&mut zone, pfn, 1, warm);
    }
    list(&zone, order(0), &[0, 16]);
}

/// 2 is free, but alone: 0 is two merges away from anything larger.
#[test]
fn a_block_whose_merge_is_not_near_goes_to_the_head() {
    let mut zone = frames_all_in_use();
    for pfn in [16, 2, 0] {
        free(&mut zone, pfn, 1, Resident);
    }
    list(&zone, order(0), &[0, 2, 16]);
}

/// Half a pageblock next to a free pageblock may wait; a pageblock may not, for above it only one
/// merge is possible.
#[test]
fn tail_placement_ends_below_the_pageblock() {
    let mut zone = Zone::new(6 * 512);
    for pfn in (0..6 * 512).step_by(256) {
        gets(&mut zone, 256, Movable, pfn);
    }
    for pfn in [2048, 512, 768, 0] {
        free(&mut zone, pfn, 256, Resident);
    }
    list(&zone, order(8), &[2048, 0]);
    for pfn in [2304, 1024, 1280, 1536, 1792] {
        free(&mut zone, pfn, 256, Resident);
    }
    list(&zone, Order::MAX, &[1024]);
    list(&zone, order(9), &[2048, 512]);
    gets(&mut zone, 512, Movable, 2048);
    gets(&mut zone, 512, Movable, 512);
    free(&mut zone, 2048, 512, Resident);
    free(&mut zone, 512, 512, Resident);
    list(&zone, order(9), &[512, 2048]);
}

#[test]
fn warm_blocks_go_first_even_when_larger() {
    let mut zone = frames_all_in_use();
    free(&mut zone, 7, 1, Untouched);
    free(&mut zone, 8, 1, Resident);
    free(&mut zone, 9, 1, Untouched);
    blocks(&zone, &[(7, 0, Movable, Untouched), (8, 1, Movable, Resident)]);
    gets(&mut zone, 1, Movable, 8);
    blocks(&zone, &[(7, 0, Movable, Untouched), (9, 0, Movable, Resident)]);
}

#[test]
fn a_released_block_comes_back_untouched() {
    let mut zone = Zone::new(1024);
    gets(&mut zone, 512, Movable, 0);
    free(&mut zone, 0, 512, Resident);
    assert_eq!(zone.take_largest_warm(order(0)), Some((Pfn::new(0), order(9))));
    assert_eq!(zone.free_frames(), 0, "a block being released is nobody's to allocate");
    free(&mut zone, 0, 512, Untouched);
    assert_eq!(zone.take_largest_warm(order(0)), None, "nothing warm is left");
}

#[test]
fn the_largest_block_comes_online_as_a_pair() {
    let mut zone = Zone::new(6 * 512);
    gets(&mut zone, 1, Movable, 0);
    gets(&mut zone, 1024, Movable, 1024);
    gets(&mut zone, 1024, Movable, 2048);
    refused(&mut zone, 1024, Movable, AllocError::NoFreeRun { order: Order::MAX });
    gets(&mut zone, 512, Movable, 512);
    free(&mut zone, 0, 1, Resident);
    free(&mut zone, 512, 512, Untouched);
    gets(&mut zone, 1024, Movable, 0);
}

/// A pair of which one half is online, free and of another type: it changes sides.
#[test]
fn a_free_half_joins_the_pair() {
    let mut zone = Zone::new(1024);
    gets(&mut zone, 512, Unmovable, 0);
    free(&mut zone, 0, 512, Resident);
    gets(&mut zone, 600, Movable, 0);
    let mut types = Vec::new();
    zone.for_each_free(|_, _, mt, _| types.push(mt));
    types.dedup();
    assert_eq!(types, [Movable], "the types of what is left of the pair");
}

#[test]
fn half_of_the_largest_block_goes_offline_alone() {
    let mut zone = Zone::new(1024);
    gets(&mut zone, 1024, Movable, 0);
    free(&mut zone, 0, 1024, Resident);
    list(&zone, Order::MAX, &[0]);
    assert_eq!(zone.offline(PageblockIndex::new(0)), Ok(()));
    blocks(&zone, &[(512, 9, Movable, Resident)]);
    gets(&mut zone, 1024, Movable, 0);
}

#[test]
fn only_wholly_free_untouched_pageblocks_go_offline() {
    let mut zone = Zone::new(8 * 512);
    let pfns: Vec<Pfn> =
        (0..4).map(|_| zone.alloc_run(512, Migratetype::Movable).expect("room")).collect();
    zone.free_run(pfns[0], 512, Warm::Untouched).expect("allocated");
    zone.free_run(pfns[2], 512, Warm::Resident).expect("allocated");
    zone.free_run(pfns[3], 512, Warm::Untouched).expect("allocated");
    let before = zone.metadata_bytes();
    let gone = zone.offline_untouched();
    zone.check().expect("no defect");
    assert!(gone >= 1, "pageblock 0 is free and untouched");
    assert!(!zone.is_online(pfns[0].pageblock()));
    assert!(zone.is_online(pfns[1].pageblock()), "in use");
    assert!(zone.is_online(pfns[2].pageblock()), "its frames are still to be released");
    assert!(zone.metadata_bytes() < before);
}

#[test]
fn runs_given_before_an_iterator_panics_are_freed() {
    let mut zone = Zone::new(1024);
    let runs: Vec<Pfn> =
        (0..10).map(|_| zone.alloc_run(8, Migratetype::Movable).expect("room")).collect();
    let freed = runs.iter().enumerate().map(|(at, &pfn)| {
        assert!(at < 5, "on purpose");
        FreedRun { pfn, frames: 8, warm: Warm::Resident }
    });
    let freeing = std::panic::AssertUnwindSafe(|| zone.free_runs(freed));
    assert!(std::panic::catch_unwind(freeing).is_err());
    assert_eq!(zone.check().expect("no frame is lost").runs, 5);
}

/// A change that put the rest of a carved block at the tails of the lists passed every test. The
/// rest lies beside what is used next and was free as long, so it goes first. Only what is cut off
/// below the order of the request can meet other blocks: a block of a larger order is cut where
/// the lists between are empty.
#[test]
fn the_rest_of_a_carved_block_is_taken_next() {
    let mut zone = frames_all_in_use();
    free(&mut zone, 100, 1, Resident);
    free(&mut zone, 200, 1, Resident);
    for pfn in 300..304 {
        free(&mut zone, pfn, 1, Resident);
    }
    list(&zone, order(0), &[200, 100]);
    gets(&mut zone, 3, Movable, 300);
    list(&zone, order(0), &[303, 200, 100]);
    gets(&mut zone, 1, Movable, 303);
}
