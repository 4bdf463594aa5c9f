//! Areas: what is stored comes back once, what is invalidated does not, and bad input is refused.
#![cfg(not(loom))]

mod setting;

use ramfold_zswap::{FreeWhen, GroupId, LoadError, Loaded, StoreError, ZswapError};
use setting::{PAGE, cache, noise, page};

const NOBODY: GroupId = GroupId::ROOT;
const MIB: u64 = 1 << 20;

#[track_caller]
fn expect(area: &ramfold_zswap::Area, at: u64, expected: Option<&[u8]>) {
    let mut read = vec![0xA5; PAGE];
    let loaded = area.peek(at, &mut read).expect("no fault");
    match expected {
        Some(bytes) => assert!(loaded != Loaded::Absent && read == bytes, "page {at}: {loaded:?}"),
        None => assert!(loaded == Loaded::Absent && read == [0xA5; PAGE], "page {at}"),
    }
}

#[test]
fn a_load_takes_the_page_out_and_a_peek_leaves_it() {
    let zswap = cache(64 * MIB, None);
    let area = zswap.add_area(2000).expect("room");
    let kinds =
        [page(1), noise(2), vec![0; PAGE], vec![7; PAGE], [1, 2, 3, 4, 5, 6, 7, 8].repeat(512)];
    for (at, data) in kinds.iter().enumerate() {
        area.store(at as u64 * 300, data, NOBODY).expect("room");
    }
    let stat = zswap.stat();
    assert_eq!((stat.stored_pages, stat.same_filled_pages, stat.zswpout), (5, 3, 5));
    assert_eq!(stat.stored_incompressible_pages, 1);
    zswap.check().expect("no defect");
    for (at, data) in kinds.iter().enumerate() {
        let at = at as u64 * 300;
        expect(&area, at, Some(data));
        let mut read = vec![0; PAGE];
        assert_eq!(area.load(at, &mut read).expect("stored"), Loaded::Memory);
        assert!(&read == data);
        expect(&area, at, None);
        zswap.check().expect("no defect");
    }
    let stat = zswap.stat();
    assert_eq!((stat.stored_pages, stat.compr_data_size, stat.zswpin), (0, 0, 5));
    assert_eq!(stat.pool_total_size, 0);
}

#[test]
fn an_area_that_is_private_is_nobody_elses() {
    let zswap = cache(64 * MIB, None);
    let area = zswap.add_private_area(10).expect("room");
    area.store(3, &page(1), NOBODY).expect("room");
    let unknown = |id| matches!(id, Err(ZswapError::UnknownArea { .. }));
    assert!(unknown(zswap.area(area.id()).map(drop)));
    assert!(unknown(zswap.remove_area(area.id())));
    expect(&area, 3, Some(&page(1)));
    assert_eq!(zswap.check().expect("no defect").entries, 1, "checks see it");
}

#[test]
fn a_group_of_another_cache_is_refused() {
    let (zswap, other) = (cache(64 * MIB, None), cache(64 * MIB, None));
    let theirs = other.add_group(None, true).expect("the first");
    let area = zswap.add_area(10).expect("room");
    for refused in [area.store(0, &page(1), theirs), area.store_if_room(0, &page(1), theirs)] {
        assert!(matches!(refused, Err(StoreError::UnknownGroup)), "{refused:?}");
    }
    let ours = zswap.add_group(Some(MIB), true).expect("the first");
    area.store(0, &page(1), ours).expect("room");
    area.invalidate(0);
    assert_eq!(zswap.group(ours).expect("there").current, 0);
    zswap.check().expect("no defect");
}

#[test]
fn a_row_past_the_last_number_is_out_of_range() {
    let zswap = cache(64 * MIB, None);
    let area = zswap.add_area(10).expect("room");
    area.store(0, &page(1), NOBODY).expect("room");
    let (mut read, mut found) = (vec![0; 2 * PAGE], Vec::new());
    area.load_pages(u64::MAX, &mut read, |at, loaded| found.push((at, loaded.is_err())));
    assert_eq!(found, [(u64::MAX, true); 2]);
    expect(&area, 0, Some(&page(1)));
}

#[test]
fn a_later_store_replaces_an_earlier_one() {
    let zswap = cache(64 * MIB, None);
    let area = zswap.add_area(10).expect("room");
    for version in [page(1), vec![3; PAGE], noise(3), page(4), noise(5)] {
        area.store(3, &version, NOBODY).expect("room");
        expect(&area, 3, Some(&version));
        zswap.check().expect("no defect");
    }
    assert_eq!(zswap.stat().stored_pages, 1);
}

#[test]
fn ranges_are_forgotten_by_leaf_and_by_page() {
    for free in [FreeWhen::Soon, FreeWhen::Now] {
        let zswap = cache(64 * MIB, None);
        let area = zswap.add_area(2000).expect("room");
        (0..2000).for_each(|at| area.store(at, &page(at), NOBODY).expect("room"));
        area.invalidate_pages(100..1700, free);
        zswap.check().expect("no defect");
        assert_eq!(zswap.stat().stored_pages, 400);
        for at in 0..2000 {
            let stays = !(100..1700).contains(&at);
            expect(&area, at, stays.then(|| page(at)).as_deref());
        }
        area.store(1024, &page(7), NOBODY).expect("room");
        expect(&area, 1024, Some(&page(7)));
        area.invalidate(1024);
        expect(&area, 1024, None);
        area.invalidate_pages(0..u64::MAX, free);
        assert_eq!(zswap.stat().stored_pages, 0);
        zswap.memory().flush_deferred();
        let stat = zswap.stat();
        assert_eq!((stat.pool_total_size, stat.pending_bytes), (0, 0));
        zswap.check().expect("no defect");
    }
}

#[test]
fn pages_in_a_row_are_stored_and_loaded_each_by_itself() {
    let zswap = cache(64 * MIB, None);
    let area = zswap.add_area(600).expect("room");
    let data: Vec<u8> = (0..5).flat_map(page).collect();
    let (stored, refused) = area.store_pages(597, &data, NOBODY);
    assert!(stored == 3 && matches!(refused, Err(StoreError::OutOfRange { page: 600, .. })));
    let (stored, refused) = area.store_pages(10, &data[..2 * PAGE + 7], NOBODY);
    assert!(stored == 2 && matches!(refused, Err(StoreError::BadLength { len: 7 })));
    let (mut read, mut found) = (vec![0; 4 * PAGE], Vec::new());
    area.load_pages(9, &mut read, |at, loaded| found.push((at, loaded.expect("in range"))));
    let [absent, memory] = [Loaded::Absent, Loaded::Memory];
    assert_eq!(found, [(9, absent), (10, memory), (11, memory), (12, absent)]);
    assert!(read[PAGE..3 * PAGE] == data[..2 * PAGE]);
    assert_eq!(zswap.stat().stored_pages, 3);
    zswap.check().expect("no defect");
}

#[test]
fn areas_share_a_pool_and_go_one_by_one() {
    let zswap = cache(64 * MIB, None);
    let (one, two) = (zswap.add_area(600).expect("room"), zswap.add_area(600).expect("room"));
    for at in 0..600 {
        one.store(at, &page(at), NOBODY).expect("room");
        two.store(at, &page(at + 1000), NOBODY).expect("room");
    }
    expect(&one, 5, Some(&page(5)));
    expect(&two, 5, Some(&page(1005)));
    let (first, second) = (one.id(), two.id());
    drop(one);
    assert!(matches!(zswap.area(first), Err(ZswapError::UnknownArea { .. })));
    assert_eq!(zswap.stat().stored_pages, 600);
    zswap.check().expect("no defect");
    let again = zswap.area(second).expect("there");
    zswap.remove_area(second).expect("there");
    expect(&two, 5, None);
    assert!(matches!(again.store(1, &page(1), NOBODY), Err(StoreError::AreaRemoved)));
    assert_eq!(zswap.remove_area(second).expect_err("gone").errno(), 2);
    assert_eq!(zswap.stat().pool_total_size, 0);
    zswap.check().expect("no defect");
}

#[test]
fn what_is_no_page_of_the_area_is_refused() {
    let zswap = cache(64 * MIB, None);
    assert!(matches!(zswap.add_area(0), Err(ZswapError::BadArea { pages: 0 })));
    let area = zswap.add_area(10).expect("room");
    let mut data = page(1);
    for at in [10, 11, u64::MAX] {
        let error = area.store(at, &data, NOBODY).expect_err("out of range");
        assert!(matches!(error, StoreError::OutOfRange { pages: 10, .. }) && error.errno() == 22);
        let error = area.load(at, &mut data).expect_err("out of range");
        assert!(matches!(error, LoadError::OutOfRange { pages: 10, .. }) && error.errno() == 22);
        area.invalidate(at);
    }
    let short = area.store(1, &data[1..], NOBODY).expect_err("short");
    assert!(matches!(short, StoreError::BadLength { len: 4095 }));
    let short = area.load(1, &mut data[1..]).expect_err("short");
    assert!(matches!(short, LoadError::BadLength { len: 4095 }));
    area.store(9, &data, NOBODY).expect("the last page");
    zswap.check().expect("no defect");
}

#[test]
fn counters_have_the_kernels_names_one_to_a_line() {
    let zswap = cache(64 * MIB, None);
    let area = zswap.add_area(10).expect("room");
    area.store(1, &noise(1), NOBODY).expect("room");
    let text = zswap.stat().to_string();
    for name in [
        "pool_limit_hit",
        "reject_reclaim_fail",
        "reject_alloc_fail",
        "reject_kmemcache_fail",
        "reject_compress_fail",
        "reject_compress_poor",
        "decompress_fail",
        "written_back_pages",
        "pool_total_size",
        "stored_pages",
        "stored_incompressible_pages",
        "zswpin",
        "zswpout",
        "zswpwb",
    ] {
        assert!(text.lines().any(|line| line.starts_with(&format!("{name} "))), "{name}");
    }
    assert!(text.contains("stored_incompressible_pages 1\n"));
    assert_eq!(text.lines().count(), zswap.stat().named().len());
}
