//! The promises of a region, one promise a test.

mod setting;

use ramfold_region::{
    Algorithm, Codec, FaultMode, PageOut, Pager, PagerConfig, Refusal, Region, RegionConfig,
    RegionError, RegionVec, Teardown,
};
use std::sync::Arc;

const PAGE: usize = 4096;

/// A pager in signal mode, if the system allows one.
fn signal() -> Option<Arc<Pager>> {
    setting::pager(&PagerConfig::default())
}

fn region(pager: &Arc<Pager>, pages: usize) -> Region {
    Region::map(pager, pages * PAGE, &RegionConfig::default()).expect("a region")
}

/// Fills page `n` with content of its own that compresses.
fn write_pages(region: &mut Region) {
    for (number, page) in region.as_mut_slice().chunks_mut(PAGE).enumerate() {
        page[..8].copy_from_slice(&(number as u64 + 1).to_le_bytes());
        page[100] = number as u8;
    }
}

fn assert_pages(region: &Region) {
    for (number, page) in region.as_slice().chunks(PAGE).enumerate() {
        assert_eq!(page[..8], (number as u64 + 1).to_le_bytes(), "page {number}");
        assert_eq!(page[100], number as u8, "page {number}");
    }
}

#[test]
fn pages_go_out_and_come_back() {
    let Some(pager) = signal() else { return };
    let mut region = region(&pager, 300);
    write_pages(&mut region);
    let control = region.control();
    let out = control.page_out(0..300 * PAGE).expect("out");
    assert_eq!(out, PageOut { stored: 300, ..PageOut::default() });
    let stats = region.stats();
    assert_eq!((stats.resident_pages, stats.staged_pages, stats.stored_pages), (0, 0, 300));
    assert!(stats.compr_data_size > 0);
    assert_pages(&region);
    let stats = region.stats();
    assert_eq!((stats.resident_pages, stats.stored_pages, stats.pages_in), (300, 0, 300));
    assert!(stats.faults < 36, "a walk brings pages in around each fault: {}", stats.faults);
    assert_eq!(stats.pages_around, 300 - stats.faults);
    assert!(stats.stall_ns > 0);
    assert_eq!(control.check().expect("there"), [""; 0]);
}

/// In a walk over new pages, too, stretches come in. The walk goes on where one ended.
#[test]
fn a_walk_over_new_pages_goes_on() {
    const PAGES: usize = 4096;
    let Some(pager) = signal() else { return };
    let config = RegionConfig { resident_limit: Some(2 * PAGES * PAGE), ..Default::default() };
    let mut region = Region::map(&pager, PAGES * PAGE, &config).expect("a region");
    write_pages(&mut region);
    let stats = region.stats();
    assert_eq!((stats.resident_pages, stats.pages_in), (PAGES as u64, 0));
    assert!(stats.first_touches < 400, "16 at a fault: {stats:?}");
}

/// The thread that serves a walk brings in nothing more once the walking thread has its page.
#[test]
fn what_is_paged_out_after_a_walk_stays_out() {
    for fault_mode in FaultMode::ALL {
        let config = PagerConfig { fault_mode: Some(fault_mode), ..PagerConfig::default() };
        let Some(pager) = setting::pager(&config) else { continue };
        let mut region = region(&pager, 64);
        write_pages(&mut region);
        let control = region.control();
        control.page_out(0..64 * PAGE).expect("out");
        for round in 0..200 {
            // Up to the fault from which on a walk should bring more pages than one call does.
            (0..32).for_each(|page| assert_eq!(region.as_slice()[page * PAGE + 100], page as u8));
            control.page_out(0..64 * PAGE).expect("out");
            assert_eq!(region.stats().resident_pages, 0, "{fault_mode:?}, round {round}");
        }
        assert_eq!(control.check().expect("there"), [""; 0]);
    }
}

#[test]
fn a_page_touched_at_random_comes_alone() {
    let Some(pager) = signal() else { return };
    let mut region = region(&pager, 256);
    write_pages(&mut region);
    region.control().page_out(0..256 * PAGE).expect("out");
    (0..256)
        .step_by(5)
        .for_each(|page| assert_eq!(region.as_slice()[page * PAGE + 100], page as u8));
    let stats = region.stats();
    assert_eq!((stats.faults, stats.pages_in), (52, 52));
}

#[test]
fn what_nobody_touched_is_zeros_and_stays_untouched() {
    let Some(pager) = signal() else { return };
    let mut region = region(&pager, 512);
    region.as_mut_slice()[0] = 1;
    let control = region.control();
    assert_eq!(control.page_out(0..512 * PAGE).expect("out").stored, 1);
    assert_eq!(region.as_slice()[300 * PAGE], 0);
    let stats = region.stats();
    assert_eq!((stats.first_touches, stats.resident_pages), (1, 1));
    control.prefetch(0..512 * PAGE).expect("in");
    assert_eq!(region.stats().resident_pages, 2, "prefetching brings back, and makes nothing");
}

#[test]
fn forgotten_pages_are_zeros_wherever_they_were() {
    let Some(pager) = signal() else { return };
    let mut region = region(&pager, 192);
    write_pages(&mut region);
    region.control().page_out(0..100 * PAGE).expect("out");
    region.discard(50 * PAGE..150 * PAGE).expect("forgotten");
    assert!(region.as_slice()[50 * PAGE..150 * PAGE].iter().all(|&byte| byte == 0));
    assert_eq!(region.as_slice()[49 * PAGE + 100], 49);
    assert_eq!(region.as_slice()[150 * PAGE + 100], 150);
    assert_eq!(region.control().check().expect("there"), [""; 0]);
}

#[test]
fn a_range_given_back_is_refused_and_its_neighbours_stay() {
    let Some(pager) = signal() else { return };
    let mut region = region(&pager, 640);
    write_pages(&mut region);
    region.control().page_out(0..640 * PAGE).expect("out");
    region.unmap(10 * PAGE..600 * PAGE).expect("given back");
    assert_eq!(region.stats().stored_pages, 50);
    assert!(matches!(region.bytes(9 * PAGE..10 * PAGE + 1), Err(RegionError::Unmapped { .. })));
    assert!(matches!(region.bytes(599 * PAGE..600 * PAGE), Err(RegionError::Unmapped { .. })));
    assert!(matches!(region.unmap(0..20 * PAGE), Err(RegionError::Unmapped { .. })));
    assert!(matches!(region.discard(20 * PAGE..21 * PAGE), Err(RegionError::Unmapped { .. })));
    assert!(matches!(region.pin(20 * PAGE..21 * PAGE), Err(RegionError::Unmapped { .. })));
    assert_eq!(region.bytes(9 * PAGE..10 * PAGE).expect("there")[100], 9);
    assert_eq!(region.bytes(600 * PAGE..601 * PAGE).expect("there")[100], 600u16 as u8);
    // Paging out and in skips what is gone.
    region.control().page_out(0..640 * PAGE).expect("out");
    region.control().prefetch(0..640 * PAGE).expect("in");
    assert_eq!(region.stats().resident_pages, 50);
}

#[test]
fn ranges_that_cannot_be_are_refused() {
    let Some(pager) = signal() else { return };
    let none = Region::map(&pager, 0, &RegionConfig::default());
    assert!(matches!(none, Err(RegionError::Empty)));
    let small =
        RegionConfig { resident_limit: Some(ramfold_region::LIMIT_MIN - 1), ..Default::default() };
    let small = Region::map(&pager, PAGE, &small);
    assert!(matches!(small, Err(RegionError::LimitTooSmall { .. })));
    let mut region = region(&pager, 4);
    let control = region.control();
    assert!(matches!(control.page_out(1..PAGE), Err(RegionError::Unaligned { byte: 1 })));
    assert!(matches!(control.page_out(0..5 * PAGE), Err(RegionError::OutOfRange { .. })));
    assert!(matches!(control.prefetch(0..usize::MAX), Err(RegionError::OutOfRange { .. })));
    assert!(matches!(region.discard(0..100), Err(RegionError::Unaligned { byte: 100 })));
    assert!(matches!(region.bytes(0..4 * PAGE + 1), Err(RegionError::OutOfRange { .. })));
    assert!(matches!(region.set_resident_limit(Some(1)), Err(RegionError::LimitTooSmall { .. })));
    assert_eq!(control.page_out(PAGE..PAGE).expect("nothing to do"), PageOut::default());
    drop(region);
    assert!(matches!(control.page_out(0..0), Err(RegionError::Gone)));
}

#[test]
fn a_limit_is_kept_while_more_is_written() {
    let Some(pager) = signal() else { return };
    let limit = 4 << 20;
    let config = RegionConfig { resident_limit: Some(limit), ..RegionConfig::default() };
    let mut region = Region::map(&pager, 32 << 20, &config).expect("a region");
    let control = region.control();
    let slack = limit as u64 / 16 + (2 * 64 + 16) * PAGE as u64;
    let mut most = 0;
    for (number, page) in region.as_mut_slice().chunks_mut(PAGE).enumerate() {
        page[..8].copy_from_slice(&(number as u64 + 1).to_le_bytes());
        page[100] = number as u8;
        if number % 64 == 0 {
            let stats = control.stats().expect("there");
            most = most.max((stats.resident_pages + stats.staged_pages) * PAGE as u64);
        }
    }
    assert!(most > limit as u64 / 2, "most of the limit is used: {most}");
    assert!(most <= limit as u64 + slack, "{most} of {limit} and {slack}");
    assert_pages(&region);
    assert!(region.stats().refaults() > 0);
    assert_eq!(control.check().expect("there"), [""; 0]);
}

#[test]
fn the_coldest_leave_first() {
    let Some(pager) = signal() else { return };
    let mut region = region(&pager, 1024);
    let control = region.control();
    write_pages(&mut region);
    // Pages arrived in the order of addresses, except that 512..576 is hastened.
    control.cold(512 * PAGE..576 * PAGE).expect("hastened");
    control.page_out_coldest(128).expect("out");
    let before = region.stats().faults;
    assert_eq!(region.as_slice()[512 * PAGE + 100], 512u16 as u8);
    assert_eq!(region.as_slice()[10 * PAGE + 100], 10);
    assert_eq!(region.stats().faults - before, 2, "both were out");
    assert_eq!(region.as_slice()[1000 * PAGE + 100], 1000u16 as u8);
    assert_eq!(region.as_slice()[64 * PAGE + 100], 64);
    assert_eq!(region.stats().faults - before, 2, "the others were not");
}

#[test]
fn pinned_pages_stay() {
    let Some(pager) = signal() else { return };
    let mut region = region(&pager, 256);
    write_pages(&mut region);
    let control = region.control();
    control.page_out(0..256 * PAGE).expect("out");
    let mut pinned = region.pin_mut(70 * PAGE + 5..80 * PAGE).expect("pinned");
    let out = control.page_out(0..256 * PAGE).expect("out");
    assert_eq!((out.stored, out.busy), (0, 10));
    pinned[0] = 77;
    drop(pinned);
    assert_eq!(control.page_out(0..256 * PAGE).expect("out").stored, 10);
    assert_eq!(region.as_slice()[70 * PAGE + 5], 77);
}

#[test]
fn a_full_store_leaves_pages_in_memory() {
    let Some(pager) = signal() else { return };
    let config = RegionConfig { store_limit: 64 << 10, ..RegionConfig::default() };
    let mut region = Region::map(&pager, 256 * PAGE, &config).expect("a region");
    let mut noise = 1u64;
    for byte in region.as_mut_slice() {
        noise = noise.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        *byte = (noise >> 56) as u8;
    }
    let before = region.as_slice().to_vec();
    let out = region.control().page_out(0..256 * PAGE).expect("tried");
    assert!(out.stored > 0 && out.refused > 0, "{out:?}");
    assert_eq!(out.stored + out.refused, 256);
    assert_eq!(out.refusal, Some(Refusal::StoreLimit), "{out:?}");
    let stats = region.stats();
    assert_eq!((stats.staged_pages, stats.refused), (0, out.refused));
    assert!(region.as_slice() == before, "nothing is lost");
    assert_eq!(region.control().check().expect("there"), [""; 0]);
}

#[test]
fn a_codec_with_contexts_builds_none_in_a_fault() {
    let Some(pager) = signal() else { return };
    let algorithm = Codec::new(Algorithm::Zstd);
    let config = RegionConfig { algorithm, ..RegionConfig::default() };
    let mut region = Region::map(&pager, 256 * PAGE, &config).expect("a region");
    write_pages(&mut region);
    let contexts = |region: &Region| region.store_stat().expect("its own").metadata.codec_contexts;
    let before = contexts(&region);
    assert!(before > 0);
    region.control().page_out(0..256 * PAGE).expect("out");
    assert_pages(&region);
    assert_eq!(contexts(&region), before);
}

#[test]
fn everything_is_free_after_a_synchronous_teardown() {
    let Some(pager) = signal() else { return };
    for teardown in [Teardown::Sync, Teardown::Range] {
        let mut region = region(&pager, 2048);
        write_pages(&mut region);
        region.control().page_out(0..2000 * PAGE).expect("out");
        let allocated = |pager: &Pager| {
            let zone = pager.memory().check_zone().expect("the zone is whole");
            zone.allocated_frames - zone.listed_frames
        };
        assert!(allocated(&pager) > 0);
        let control = region.control();
        region.teardown(teardown);
        assert!(control.stats().is_err());
        if teardown == Teardown::Range {
            pager.memory().flush_deferred();
        }
        assert_eq!((allocated(&pager), pager.memory().pending_bytes()), (0, 0), "{teardown:?}");
    }
}

#[test]
fn threads_that_fault_on_the_same_pages_see_the_same() {
    for fault_mode in FaultMode::ALL {
        let Some(pager) =
            setting::pager(&PagerConfig { fault_mode: Some(fault_mode), ..Default::default() })
        else {
            continue;
        };
        let mut region = region(&pager, 512);
        write_pages(&mut region);
        let control = region.control();
        for _ in 0..5 {
            control.page_out(0..512 * PAGE).expect("out");
            std::thread::scope(|scope| {
                (0..4).for_each(|_| drop(scope.spawn(|| assert_pages(&region))));
            });
        }
        assert_eq!(control.check().expect("there"), [""; 0]);
    }
}

#[test]
fn a_vector_grows_to_its_room_and_no_further() {
    let Some(pager) = signal() else { return };
    let mut vector = RegionVec::<u64>::with_room(&pager, 3000, &RegionConfig::default()).unwrap();
    (0..3000).for_each(|n| vector.push(n * 7).expect("there is room"));
    let refused = vector.push(1).expect_err("it is full");
    assert_eq!((refused.to_string().contains("room for 3000"), refused.into_value()), (true, 1));
    vector.control().page_out(0..24576).expect("out");
    assert_eq!(vector.iter().copied().sum::<u64>(), 7 * 2999 * 3000 / 2);
    assert_eq!(vector.pop(), Some(2999 * 7));
    vector.truncate(10);
    vector.reverse();
    assert_eq!(vector[..3], [63, 56, 49]);
    assert!(vector.stats().stored_faults > 0);
}
