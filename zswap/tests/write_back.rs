//! Write-back: pages leave memory for the disk, come back unchanged, and stay if they cannot leave.
#![cfg(not(loom))]

mod setting;

use disk::{Disk, Fault, FaultPlan, FaultSpan, FaultyDisk, RamDisk, Verbs};
use ramfold_zswap::{
    Area, Found, GroupId, Incompressible, LoadError, Loaded, Zswap, ZswapConfig, ZswapError,
};
use setting::{PAGE, cache, config, memory, noise, page};
use std::sync::Arc;

const NOBODY: GroupId = GroupId::ROOT;
const MIB: u64 = 1 << 20;

type Flaky = FaultyDisk<RamDisk>;

fn disk(bytes: u64) -> Arc<Flaky> {
    Arc::new(FaultyDisk::new(RamDisk::new(bytes).expect("memory")))
}

/// A cache over a disk, with an area of `pages` pages that are all stored.
fn filled(disk: &Arc<Flaky>, pages: u64) -> (Zswap, Area) {
    filled_as(config(64 * MIB, Some(disk.clone())), pages)
}

fn filled_as(config: ZswapConfig, pages: u64) -> (Zswap, Area) {
    let zswap = Zswap::new(memory(), config).expect("a cache");
    let area = zswap.add_area(pages).expect("room");
    (0..pages).for_each(|at| area.store(at, &content(at), NOBODY).expect("room"));
    (zswap, area)
}

/// Every tenth page does not compress.
fn content(at: u64) -> Vec<u8> {
    if at % 10 == 3 { noise(at) } else { page(at) }
}

#[track_caller]
fn load(area: &Area, at: u64) -> Loaded {
    let mut read = vec![0; PAGE];
    let loaded = area.load(at, &mut read).expect("no fault");
    assert!(loaded == Loaded::Absent || read == content(at), "page {at}, {loaded:?}");
    loaded
}

#[test]
fn pages_leave_and_come_back_once() {
    for compressed in [true, false] {
        let disk = disk(16 * MIB);
        let backing: Arc<dyn Disk> = disk.clone();
        let whole = config(64 * MIB, Some(backing));
        let (zswap, area) =
            filled_as(ZswapConfig { compressed_writeback: compressed, ..whole }, 1500);
        let wrote = zswap.write_back(1000);
        assert_eq!((wrote.pages, wrote.failed), (1000, 0));
        let stat = zswap.stat();
        assert_eq!((stat.stored_pages, stat.disk_pages, stat.zswpwb), (500, 1000, 1000));
        zswap.check().expect("no defect");
        let from_disk = (0..1500).filter(|&at| load(&area, at) == Loaded::Disk).count();
        assert_eq!(from_disk, 1000);
        assert!((0..1500).all(|at| load(&area, at) == Loaded::Absent));
        let stat = zswap.stat();
        assert_eq!((stat.disk_pages, stat.disk_loads, stat.zswpin), (0, 1000, 500));
        assert!(stat.read_ahead_hits > 800, "what left together comes back together: {stat:?}");
        zswap.check().expect("no defect");
    }
}

#[test]
fn writes_are_few_and_large() {
    let disk = disk(16 * MIB);
    let (zswap, _area) = filled(&disk, 1024);
    let before = disk.requests();
    assert_eq!(zswap.write_back(1024).pages, 1024);
    assert_eq!(disk.requests() - before, 4, "one for each batch of 256");
}

#[test]
fn a_page_stays_in_memory_when_the_disk_fails() {
    let disk = disk(16 * MIB);
    let (zswap, area) = filled(&disk, 600);
    disk.arm(FaultPlan {
        after: 0,
        verbs: Verbs::Writes,
        span: FaultSpan::Forever,
        fault: Fault::Backing,
    });
    let wrote = zswap.write_back(600);
    assert!(wrote.pages == 0 && (16..=256).contains(&wrote.failed), "{wrote:?}");
    assert_eq!(zswap.stat().write_back_fail, wrote.failed);
    zswap.check().expect("no defect");
    disk.disarm();
    assert_eq!(zswap.write_back(600).pages, 600, "and can leave later");
    assert!((0..600).all(|at| load(&area, at) == Loaded::Disk));
}

/// The caller's thread writes a batch that is one run. When the disk panicked there, the pages of
/// the batch once stayed in the hand for good. They were in memory and in no ring, so they were
/// never written back. Their sectors stayed claimed.
#[test]
fn a_disk_that_panics_is_one_that_fails() {
    let disk = disk(16 * MIB);
    let policy = Incompressible::Disk;
    let whole = config(64 * MIB, Some(disk.clone()));
    let (zswap, area) = filled_as(ZswapConfig { incompressible: policy, ..whole }, 300);
    let (verbs, span) = (Verbs::Writes, FaultSpan::Forever);
    disk.arm(FaultPlan { after: 0, verbs, span, fault: Fault::Panic });
    let wrote = zswap.write_back(200);
    assert_eq!((wrote.pages, wrote.failed), (0, 200), "one batch, of one run");
    area.store(3, &content(3), NOBODY).expect("what cannot go to the disk is kept");
    zswap.check().expect("no defect");
    disk.disarm();
    assert_eq!(zswap.write_back(300).pages, 300 - 29, "29 pages went to the disk at once");
    zswap.check().expect("no defect");
    assert!((0..300).all(|at| load(&area, at) == Loaded::Disk));
}

#[test]
fn a_full_disk_keeps_what_it_has_and_memory_the_rest() {
    let disk = disk(MIB);
    let (zswap, area) = filled(&disk, 2000);
    let wrote = zswap.write_back(2000);
    assert!(wrote.failed >= 16 && (500..1000).contains(&wrote.pages), "{wrote:?}");
    assert!(zswap.stat().disk_full > 0);
    zswap.check().expect("no defect");
    // Loading pages makes room on the disk.
    let on_disk = (0..2000).filter(|&at| load(&area, at) == Loaded::Disk).count() as u64;
    assert_eq!(on_disk, wrote.pages);
    area.store(1, &content(1), NOBODY).expect("room");
    assert_eq!(zswap.write_back(1).pages, 1);
    zswap.check().expect("no defect");
}

#[test]
fn a_load_that_fails_leaves_the_page_and_says_why() {
    let disk = disk(16 * MIB);
    let (zswap, area) = filled(&disk, 300);
    zswap.write_back(300);
    disk.arm(FaultPlan {
        after: 0,
        verbs: Verbs::Reads,
        span: FaultSpan::Forever,
        fault: Fault::Backing,
    });
    for at in [0, 17, 17, 299] {
        let error = area.load(at, &mut [0; PAGE]).expect_err("the disk fails");
        assert!(matches!(error, LoadError::Backing(_)) && error.errno() == 5);
    }
    assert_eq!(zswap.stat().disk_load_fail, 4);
    disk.disarm();
    assert!((0..300).all(|at| load(&area, at) == Loaded::Disk));
    zswap.check().expect("no defect");
}

#[test]
fn damage_on_the_disk_is_noticed() {
    let disk = disk(16 * MIB);
    let (zswap, area) = filled(&disk, 300);
    zswap.write_back(300);
    let mut window = vec![0; 1 << 15];
    disk.inner().read(1 << 15, &mut window).expect("in range");
    window[700] ^= 0x10;
    disk.inner().write(1 << 15, &window).expect("in range");
    let fails = |at: &u64| {
        let mut read = vec![0; PAGE];
        match area.load(*at, &mut read) {
            Ok(_) => {
                assert!(read == content(*at));
                false
            }
            Err(error) => {
                assert!(matches!(error, LoadError::Corrupt));
                true
            }
        }
    };
    assert_eq!((0..300).filter(fails).count(), 1, "one blob was damaged");
    assert_eq!(zswap.stat().disk_load_fail, 1);
}

#[test]
fn pages_that_do_not_compress_go_where_the_policy_says() {
    for (policy, expected) in [
        (Incompressible::Raw, Loaded::Memory),
        (Incompressible::Disk, Loaded::Disk),
        (Incompressible::Reject, Loaded::Absent),
    ] {
        let whole = config(64 * MIB, Some(disk(16 * MIB)));
        let zswap = Zswap::new(memory(), ZswapConfig { incompressible: policy, ..whole });
        let zswap = zswap.expect("a cache");
        let area = zswap.add_area(10).expect("room");
        let stored = area.store(3, &content(3), NOBODY);
        assert_eq!(stored.is_err(), expected == Loaded::Absent, "{policy}");
        zswap.check().expect("no defect");
        let rejected = u64::from(expected == Loaded::Absent);
        assert_eq!(zswap.stat().reject_compress_poor, rejected);
        assert_eq!(load(&area, 3), expected);
        zswap.check().expect("no defect");
    }
}

#[test]
fn a_disk_that_cannot_be_one_is_refused() {
    let made = |disk: Arc<dyn Disk>| Zswap::new(memory(), config(MIB, Some(disk)));
    let small = made(Arc::new(RamDisk::new(40 << 10).expect("memory"))).expect_err("small");
    assert!(matches!(small, ZswapError::BackingTooSmall { bytes: 40_960 }) && small.errno() == 22);
    let ram = RamDisk::new(MIB).expect("memory");
    let read_only = made(Arc::new(disk::ReadOnly::new(ram))).expect_err("read-only");
    assert!(matches!(read_only, ZswapError::BackingReadOnly) && read_only.errno() == 30);
    let foreign = disk(MIB);
    foreign.write(1080, &[0x53, 0xEF]).expect("in range");
    assert!(matches!(made(foreign), Err(ZswapError::BackingForeign)));
    let gone = disk(MIB);
    gone.arm(FaultPlan {
        after: 0,
        verbs: Verbs::All,
        span: FaultSpan::Forever,
        fault: Fault::Backing,
    });
    assert_eq!(made(gone).expect_err("gone").errno(), 5);
}

#[test]
fn a_disk_is_left_in_order_and_never_read_as_valid() {
    let disk = disk(4 * MIB);
    let (zswap, area) = filled(&disk, 300);
    assert_eq!(zswap.backing_found(), Some(Found::Blank));
    zswap.write_back(300);
    drop((zswap, area));
    let zswap = cache(64 * MIB, Some(disk.clone()));
    assert_eq!(zswap.backing_found(), Some(Found::Left));
    let second = cache(64 * MIB, Some(disk));
    assert!(matches!(second.backing_found(), Some(Found::Stale { .. })));
    let area = second.add_area(300).expect("room");
    assert!((0..300).all(|at| load(&area, at) == Loaded::Absent));
}
