//! Limits, groups and algorithms: the kernel's selftest scenarios (`test_zswap.c`) restated.
#![cfg(not(loom))]

mod setting;

use disk::{Disk, RamDisk};
use ramfold_zswap::{
    AlgorithmError, Area, Codec, GroupId, Incompressible, Limit, Loaded, StoreError, Zswap,
};
use ramfold_zswap::{ZswapConfig, ZswapError};
use setting::{PAGE, cache, config, memory, noise, page};
use std::sync::Arc;

const NOBODY: GroupId = GroupId::ROOT;
const MIB: u64 = 1 << 20;

fn ram(bytes: u64) -> Option<Arc<dyn Disk>> {
    Some(Arc::new(RamDisk::new(bytes).expect("memory")))
}

#[track_caller]
fn expect(area: &Area, at: u64, data: &[u8]) -> Loaded {
    let mut read = vec![0; PAGE];
    let loaded = area.load(at, &mut read).expect("no fault");
    assert!(loaded != Loaded::Absent && read == data, "page {at}: {loaded:?}");
    loaded
}

#[track_caller]
fn came_back(area: &Area, at: u64, data: &[u8]) {
    expect(area, at, data);
}

/// `test_zswap_usage`: a page that is paged out is in the cache.
#[test]
fn usage() {
    let zswap = cache(64 * MIB, None);
    let area = zswap.add_area(1024).expect("room");
    (0..1024).for_each(|at| area.store(at, &page(at), NOBODY).expect("room"));
    assert_eq!(zswap.stat().zswpout, 1024);
}

/// `test_swapin_nozswap`: with a limit of zero nothing is stored, not even zeros.
#[test]
fn a_limit_of_zero_stores_nothing() {
    let zswap = cache(0, ram(16 * MIB));
    let group = cache(64 * MIB, ram(16 * MIB));
    let nothing = group.add_group(Some(0), true).expect("few groups");
    for (zswap, group) in [(&zswap, NOBODY), (&group, nothing)] {
        let area = zswap.add_area(100).expect("room");
        let error = area.store(1, &page(1), group).expect_err("nothing may be stored");
        assert_eq!(error.errno(), 28);
        let stat = zswap.stat();
        assert_eq!((stat.zswpout, stat.stored_pages, stat.reject_reclaim_fail), (0, 0, 1));
        assert_eq!(area.load(1, &mut [0; PAGE]).expect("no fault"), Loaded::Absent);
        zswap.check().expect("no defect");
    }
    let area = zswap.add_area(1).expect("room");
    // The halves of the second word differ, so it is counted in a table while a page has it.
    for word in [0, 0x1234_5678_9abc_def0_u64] {
        let same = word.to_ne_bytes().repeat(PAGE / 8);
        assert!(matches!(area.store(0, &same, NOBODY), Err(StoreError::OverLimit)));
    }
    zswap.check().expect("no word is left counted");
}

/// `test_zswapin`: pages that do not fit go to the disk, and every page comes back.
#[test]
fn what_does_not_fit_goes_to_the_disk() {
    let zswap = cache(2 * MIB, ram(64 * MIB));
    let area = zswap.add_area(8192).expect("room");
    for at in 0..8192 {
        area.store(at, &page(at), NOBODY).expect("the disk takes what does not fit");
        let resident = zswap.stat().object_bytes_resident;
        assert!(resident <= 2 * MIB, "page {at}: {resident} bytes");
    }
    let stat = zswap.stat();
    assert!(
        stat.zswpwb > 5000 && stat.pool_limit_hit > 0 && stat.reject_reclaim_fail == 0,
        "{stat:?}"
    );
    zswap.check().expect("no defect");
    let from_disk = (0..8192).filter(|&at| expect(&area, at, &page(at)) == Loaded::Disk).count();
    assert!(from_disk > 5000, "{from_disk}");
    zswap.check().expect("no defect");
}

/// `test_zswap_writeback_enabled` and `_disabled`.
#[test]
fn a_group_at_its_limit_writes_back_if_it_may() {
    for allowed in [true, false] {
        let zswap = cache(64 * MIB, ram(64 * MIB));
        let area = zswap.add_area(1024).expect("room");
        let group = zswap.add_group(None, allowed).expect("few groups");
        (0..512).for_each(|at| area.store(at, &page(at), group).expect("room"));
        let usage = zswap.group(group).expect("there").current;
        zswap.set_group_limit(group, Some(usage / 4));
        let stored = (512..1024).filter(|&at| area.store(at, &page(at), group).is_ok()).count();
        let stat = zswap.stat();
        if allowed {
            assert!(stored == 512 && stat.zswpwb > 0, "{stat:?}");
        } else {
            assert_eq!((stored, stat.zswpwb, stat.reject_reclaim_fail), (0, 0, 512));
            assert_eq!(zswap.write_back(1000).pages, 0, "not for the cache's limit either");
        }
        zswap.check().expect("no defect");
    }
}

/// `test_no_invasive_cgroup_shrink`.
#[test]
fn a_group_at_its_limit_writes_back_only_its_own() {
    let zswap = cache(64 * MIB, ram(64 * MIB));
    let area = zswap.add_area(4096).expect("room");
    let control = zswap.add_group(None, true).expect("few groups");
    let limited = zswap.add_group(Some(64 << 10), true).expect("few groups");
    (0..1000).for_each(|at| area.store(at, &page(at), control).expect("room"));
    let before = zswap.group(control).expect("there");
    (1000..2000).for_each(|at| area.store(at, &page(at), limited).expect("room"));
    let (after, limited) = (zswap.group(control), zswap.group(limited).expect("there"));
    assert_eq!(after, Some(before), "nothing of the other's was touched");
    assert!(
        limited.written_back_pages > 500 && limited.current <= (64 << 10) + 4096,
        "{limited:?}"
    );
    (0..1000).for_each(|at| assert_eq!(expect(&area, at, &page(at)), Loaded::Memory));
    zswap.check().expect("no defect");
}

/// `test_zswap_incompressible`.
#[test]
fn incompressible_pages_are_counted() {
    let zswap = cache(64 * MIB, ram(16 * MIB));
    let area = zswap.add_area(1024).expect("room");
    (0..1024).for_each(|at| area.store(at, &noise(at), NOBODY).expect("room"));
    assert_eq!(zswap.stat().stored_incompressible_pages, 1024);
    (0..1024).for_each(|at| came_back(&area, at, &noise(at)));
    assert_eq!(zswap.stat().stored_incompressible_pages, 0);
}

#[test]
fn a_full_cache_takes_nothing_until_its_accept_threshold() {
    let zswap = cache(MIB, None);
    let area = zswap.add_area(4096).expect("room");
    let data = page(9);
    let full = (0..4096).find(|&at| area.store_if_room(at, &data, NOBODY).is_err());
    let full = full.expect("a limit");
    assert!(full > 900, "{full}");
    let mut at = 0;
    while area.store_if_room(full, &data, NOBODY).is_err() {
        came_back(&area, at, &data);
        zswap.compact();
        at += 1;
    }
    let stat = zswap.stat();
    assert!(stat.object_bytes_resident <= MIB * 9 / 10 + 8192, "{stat:?}");
    assert!(stat.reject_reclaim_fail >= at && stat.pool_limit_hit >= 1, "{stat:?}");
    // A store that may make room does so, and the threshold does not stop it.
    let zswap = cache(MIB, None);
    let area = zswap.add_area(4096).expect("room");
    let full = (0..4096).find(|&at| area.store(at, &data, NOBODY).is_err()).expect("a limit");
    came_back(&area, 0, &data);
    area.store(full, &data, NOBODY).expect("as much as left");
    zswap.check().expect("no defect");
}

/// Stores as a caller that may wait does, or as one that makes room when it is refused.
#[track_caller]
fn store_as(waits: bool, zswap: &Zswap, area: &Area, at: u64, data: &[u8]) {
    let if_room = || {
        area.store_if_room(at, data, NOBODY).or_else(|_| {
            zswap.make_room(NOBODY);
            area.store_if_room(at, data, NOBODY)
        })
    };
    let stored = if waits { area.store(at, data, NOBODY) } else { if_room() };
    stored.unwrap_or_else(|error| panic!("page {at}: {error}, {:?}", zswap.stat()));
}

/// A cache as dense as it gets, at its limit or a frame below it. Its accept threshold leaves no
/// room for a page.
#[test]
fn a_threshold_near_the_limit_leaves_room_for_a_page() {
    for (frames, percent) in [(256, 100), (256, 99), (8, 90), (3, 100), (2, 100), (1, 100)] {
        for waits in [true, false] {
            let config = config(frames * PAGE as u64, ram(64 * MIB));
            let config = ZswapConfig { accept_threshold_percent: percent, ..config };
            let zswap = Zswap::new(memory(), config).expect("a cache");
            let area = zswap.add_area(2000).expect("room");
            for at in 0..2000 {
                let data = if at % 10 == 3 { noise(at) } else { page(at) };
                store_as(waits, &zswap, &area, at, &data);
            }
            let resident = zswap.stat().object_bytes_resident;
            assert!(resident <= frames * PAGE as u64, "{resident} bytes in {frames} frames");
            zswap.check().expect("no defect");
        }
    }
}

#[test]
fn a_store_that_fails_changes_nothing() {
    let reject = ZswapConfig { incompressible: Incompressible::Reject, ..config(64 * MIB, None) };
    let zswap = Zswap::new(memory(), reject).expect("a cache");
    let area = zswap.add_area(10).expect("room");
    area.store(1, &page(1), NOBODY).expect("room");
    assert!(matches!(area.store(1, &noise(1), NOBODY), Err(StoreError::Incompressible)));
    zswap.set_limit(Limit::Bytes(0)).expect("a limit");
    assert!(matches!(area.store(1, &page(2), NOBODY), Err(StoreError::OverLimit)));
    zswap.check().expect("no defect");
    came_back(&area, 1, &page(1));
}

#[test]
fn an_algorithm_is_switched_while_entries_of_others_are_stored() {
    let zswap = cache(64 * MIB, ram(64 * MIB));
    let area = zswap.add_area(4000).expect("room");
    let names = ["lz4", "zstd", "zstd:7", "lz4:9"];
    for (turn, name) in names.iter().enumerate() {
        zswap.set_algorithm(name).expect("it exists");
        let first = turn as u64 * 1000;
        (first..first + 1000).for_each(|at| area.store(at, &page(at), NOBODY).expect("room"));
    }
    let live: Vec<(String, u64)> =
        zswap.algorithms().into_iter().map(|(codec, count)| (codec.to_string(), count)).collect();
    assert_eq!(live[0], ("lz4:9".into(), 1000), "the current one first");
    assert_eq!(live.len(), 4);
    assert!(matches!(zswap.set_algorithm("zstd:3"), Ok(()) | Err(AlgorithmError::TooMany)));
    assert!(matches!(zswap.set_algorithm("zstd:5"), Err(AlgorithmError::TooMany)));
    zswap.set_algorithm("zstd:7").expect("one that is stored is there already");
    zswap.write_back(2000);
    zswap.check().expect("no defect");
    (0..4000).for_each(|at| came_back(&area, at, &page(at)));
    assert_eq!(zswap.algorithms(), [("zstd:7".parse::<Codec>().expect("a codec"), 0)]);
    zswap.set_algorithm("zstd:5").expect("the others are gone");
    let unknown = zswap.set_algorithm("lzma").expect_err("unknown");
    assert!(matches!(unknown, AlgorithmError::Unknown(_)) && unknown.errno() == 2);
    assert!(zswap.set_algorithm("zstd:99").is_err());
    assert_eq!(zswap.algorithms()[0].0.to_string(), "zstd:5");
}

/// This holds for a page that did not compress, in memory or on the disk, and for one that was
/// written whole.
#[test]
fn raw_pages_have_no_algorithm() {
    let lz4 = || "lz4".parse::<Codec>().expect("a codec");
    for incompressible in [Incompressible::Raw, Incompressible::Disk] {
        let config = config(64 * MIB, ram(16 * MIB));
        let config = ZswapConfig { incompressible, compressed_writeback: false, ..config };
        let zswap = Zswap::new(memory(), config).expect("a cache");
        let area = zswap.add_area(10).expect("room");
        area.store(1, &noise(1), NOBODY).expect("room");
        area.store(2, &page(2), NOBODY).expect("room");
        assert_eq!(zswap.algorithms(), [(lz4(), 1)], "{incompressible}");
        assert!(zswap.write_back(2).pages > 0);
        assert_eq!(zswap.algorithms(), [(lz4(), 0)], "{incompressible}");
        zswap.check().expect("no defect");
        let names = ["zstd", "zstd:7", "lz4:9", "zstd:5", "zstd:9"];
        names.iter().for_each(|name| zswap.set_algorithm(name).expect("a free index"));
        assert_eq!(expect(&area, 1, &noise(1)), Loaded::Disk);
        assert_eq!(expect(&area, 2, &page(2)), Loaded::Disk);
        zswap.check().expect("no defect");
    }
}

#[test]
fn an_algorithm_too_many_is_refused_for_what_it_is() {
    let zswap = cache(MIB, None);
    // The one it begins with is lz4:1.
    (2..=64).for_each(|level| zswap.set_algorithm(&format!("lz4:{level}")).expect("a new one"));
    let refused = zswap.set_algorithm("lz4:65").expect_err("the 65th");
    assert!(matches!(refused, AlgorithmError::TooManyKnown) && refused.errno() == 28);
    assert!(refused.to_string().contains("64 algorithms"), "{refused}");
    assert_eq!(zswap.algorithms()[0].0.to_string(), "lz4:64", "it goes on with what it has");
    zswap.set_algorithm("lz4").expect("one that it knows");
}

#[test]
fn the_shrinker_offers_what_compression_gained_and_protects_what_comes_back() {
    let on = ZswapConfig { shrinker_enabled: true, ..config(64 * MIB, ram(64 * MIB)) };
    let zswap = Zswap::new(memory(), on).expect("a cache");
    let area = zswap.add_area(1000).expect("room");
    assert_eq!(zswap.shrinker_count(), 0);
    (0..1000).for_each(|at| area.store(at, &page(at), NOBODY).expect("room"));
    let offered = zswap.shrinker_count();
    assert!((200..400).contains(&offered), "a thousand pages of a quarter: {offered}");
    assert_eq!(zswap.shrinker_scan(100), 100);
    for at in 0..1000 {
        let mut read = vec![0; PAGE];
        if area.peek(at, &mut read).expect("no fault") == Loaded::Disk {
            came_back(&area, at, &page(at));
            area.store(at, &page(at), NOBODY).expect("room");
        }
    }
    assert!(zswap.shrinker_count() < offered, "a hundred came back");
    let off = cache(64 * MIB, ram(64 * MIB));
    let area = off.add_area(10).expect("room");
    area.store(1, &page(1), NOBODY).expect("room");
    assert_eq!((off.shrinker_count(), off.shrinker_scan(10)), (0, 0));
}

#[test]
fn the_limit_is_what_was_set_in_whole_pages() {
    let zswap = cache(MIB, None);
    let (page, none) = (PAGE as u64, u64::MAX);
    let limits = [(0, 0), (1, 0), (page, page), (2 * page - 1, page), (none, none - (page - 1))];
    for (bytes, expected) in limits {
        zswap.set_limit(Limit::Bytes(bytes)).expect("a limit");
        assert_eq!(zswap.stat().limit_bytes, expected, "{bytes}");
    }
    zswap.set_limit(Limit::None).expect("a limit");
    assert_eq!(zswap.stat().limit_bytes, none);
}

#[test]
fn limits_that_cannot_be_are_refused() {
    let zswap = cache(MIB, None);
    let error = zswap.set_limit(Limit::Percent(101)).expect_err("beyond all");
    assert!(matches!(error, ZswapError::BadPercent { percent: 101 }) && error.errno() == 22);
    zswap.set_limit(Limit::Percent(20)).expect("the kernel's default");
    assert!(zswap.stat().limit_bytes > MIB);
    for percent in [0, 101] {
        let wrong = ZswapConfig { accept_threshold_percent: percent, ..config(MIB, None) };
        assert!(matches!(Zswap::new(memory(), wrong), Err(ZswapError::BadPercent { .. })));
    }
    let groups = (0..).take_while(|_| zswap.add_group(None, true).is_ok()).count();
    assert_eq!(groups, 255);
    assert_eq!(zswap.add_group(None, true).expect_err("too many").errno(), 28);
}
