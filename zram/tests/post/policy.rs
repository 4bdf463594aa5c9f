//! Holding memory at a target.
//!
//! Claims
//! - Under a workload that shifts, memory stays within a 20th of the target once enough is stored
//!   to fill it. Every page reads as it was written.
//! - The thread brings memory down to the target. It recompresses before it writes back, and then
//!   rests.
//! - If memory cannot be brought down, writes go on, up to the device's own limit. Memory is held
//!   again when the backing disk is back.
//! - Without a policy there is no target. A policy that is not valid is refused.
//! - A target may change. A device that noted no ages begins to when it gets a policy.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use crate::devices::{PAGE, blocks, data_of, memory, read, write};
use disk::{Allocation, Disk, DiskError, Fault, FaultPlan, FaultSpan, FaultyDisk, RamDisk, Verbs};
use ramfold_zram::{HoldStat, Idle, Policy, PolicyConfig, Unreached, Zram, ZramConfig};

const PAGES: u64 = 16384;
const TARGET: u64 = 4 << 20;
const NEVER: Duration = Duration::from_secs(3600);

fn config(backing: Option<Arc<dyn Disk>>) -> ZramConfig {
    let zstd = Some("zstd:1".parse().expect("a codec"));
    ZramConfig {
        backing,
        track_ages: true,
        recompression: [None, zstd, None],
        ..ZramConfig::new("zram0", PAGES * PAGE as u64)
    }
}

fn device(config: ZramConfig) -> Arc<Zram> {
    Arc::new(Zram::new(memory(true), config).expect("a device"))
}

fn backed() -> (Arc<Zram>, Arc<FaultyDisk<RamDisk>>) {
    let disk = blocks(PAGES);
    (device(config(Some(Arc::clone(&disk) as Arc<dyn Disk>))), disk)
}

fn policy(zram: &Arc<Zram>, interval: Duration) -> Policy {
    Policy::start(zram, PolicyConfig { target_bytes: TARGET, interval }).expect("a thread")
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Content of several sizes, none of it same-filled.
fn content(page: u64, version: u64) -> Vec<u8> {
    data_of(page, version | 1, 1 + ((page * 7 + version) % 5) as usize)
}

#[track_caller]
fn expect_held(zram: &Zram) {
    let used = zram.object_bytes_resident();
    assert!(used.abs_diff(TARGET) <= TARGET / 20, "{used} of {TARGET}: {:?}", zram.hold_stat());
}

#[test]
fn memory_is_held_under_a_workload_that_shifts() {
    for compressed_writeback in [false, true] {
        let disk = blocks(PAGES);
        let zram = device(ZramConfig { compressed_writeback, ..config(Some(disk)) });
        let _policy = policy(&zram, NEVER);
        let mut versions = vec![0; PAGES as usize];
        // A window of pages that are written and read moves over the disk, three times.
        for step in 0..3 * PAGES / 16 {
            let start = step * 16 % PAGES;
            for page in (start..start + 64).map(|page| page % PAGES) {
                if page % 3 == step % 3 {
                    versions[page as usize] = step + 1;
                    write(&zram, page, &content(page, step + 1));
                } else if versions[page as usize] > 0 {
                    assert!(read(&zram, page) == content(page, versions[page as usize]));
                }
            }
            assert!(zram.object_bytes_resident() <= TARGET + TARGET / 20);
            if zram.hold_stat().rounds > 0 {
                expect_held(&zram);
            }
        }
        let stat = zram.hold_stat();
        assert!(stat.rounds > 5 && stat.written_back_pages > PAGES / 2, "{stat:?}");
        assert_eq!((stat.target_bytes, stat.lifted), (TARGET, false));
        for (page, &version) in versions.iter().enumerate().filter(|(_, version)| **version > 0) {
            assert!(read(&zram, page as u64) == content(page as u64, version), "page {page}");
        }
        zram.check().expect("no defect");
    }
}

/// Stores about so many times the bytes of the target.
fn fill(zram: &Zram, targets: u64) -> u64 {
    let mut page = 0;
    while zram.compr_data_size() < targets * TARGET {
        write(zram, page, &content(page, 1));
        page += 1;
    }
    page
}

#[test]
fn the_thread_brings_down_what_is_above() {
    let (zram, _) = backed();
    let pages = fill(&zram, 2);
    let policy = policy(&zram, Duration::from_millis(10));
    wait_until("held", || zram.object_bytes_resident() <= TARGET);
    wait_until("the round is over", || zram.hold_stat().written_back_pages > 0);
    expect_held(&zram);
    let stat = zram.hold_stat();
    assert!(stat.recompressed_pages > 0, "recompressed first: {stat:?}");
    drop(policy);
    assert_eq!(zram.hold_stat().target_bytes, 0);
    (0..pages).for_each(|page| assert!(read(&zram, page) == content(page, 1)));
    fill(&zram, 3); // nothing holds it any more
    zram.check().expect("no defect");
}

#[test]
fn without_a_backing_disk_pages_are_recompressed_and_then_the_target_is_lifted() {
    let limit = 2 * TARGET;
    let zram = device(ZramConfig { mem_limit: limit, ..config(None) });
    let _policy = policy(&zram, NEVER);
    let mut stored = 0;
    let refused = loop {
        match zram.write_page(stored, &content(stored, 1)) {
            Ok(()) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, DiskError::NoSpace), "{refused}: by the device's own limit");
    assert_eq!(zram.mm_stat().0[3], limit, "which is what it was");
    let stat = zram.hold_stat();
    assert!(stat.lifted && stat.recompressed_pages > 0, "{stat:?}");
    assert_eq!(stat.unreached, Some(Unreached::NoBacking), "and why");
    assert!(zram.object_bytes_resident() > limit - TARGET / 4, "it was used");
    (0..stored).for_each(|page| assert!(read(&zram, page) == content(page, 1)));
    zram.check().expect("no defect");
}

#[test]
fn a_target_above_everything_limits_nothing() {
    let zram = device(config(None));
    let policy = Policy::start(&zram, PolicyConfig { target_bytes: u64::MAX, interval: NEVER });
    assert_eq!(zram.hold_stat().target_bytes, u64::MAX);
    zram.write(0, &[1; 4096]).expect("room");
    drop(policy);
}

#[test]
fn a_target_that_was_lifted_holds_again_when_the_disk_is_back() {
    let (zram, disk) = backed();
    let (verbs, span, fault) = (Verbs::Writes, FaultSpan::Forever, Fault::Backing);
    disk.arm(FaultPlan { after: 0, verbs, span, fault });
    let _policy = policy(&zram, Duration::from_millis(10));
    let pages = fill(&zram, 2);
    wait_until("lifted", || zram.hold_stat().lifted);
    assert_eq!(zram.hold_stat().unreached, Some(Unreached::BackingFailed));
    assert_eq!(zram.bd_stat().writes, 0);
    disk.disarm();
    // A round that began before may have recompressed and written nothing. That ends the lifting.
    let is_held = || zram.object_bytes_resident() <= TARGET + TARGET / 20;
    wait_until("held", || !zram.hold_stat().lifted && is_held());
    assert_eq!(zram.hold_stat().unreached, None, "there is no reason any more");
    expect_held(&zram);
    (0..pages).for_each(|page| assert!(read(&zram, page) == content(page, 1)));
}

/// `stat` once said only "it cannot be reached", which did not help an operator.
#[test]
fn a_target_that_is_not_reached_has_its_reason_and_a_remedy() {
    let small = || device(config(Some(blocks(16))));
    let limited = || {
        let (zram, _) = backed();
        zram.enable_writeback_limit(true);
        zram.set_writeback_limit(16);
        zram
    };
    let rows = [
        (small(), Unreached::BackingFull, "larger one"),
        (limited(), Unreached::LimitReached, "writeback_limit"),
    ];
    for (zram, expected, remedy) in rows {
        let _policy = policy(&zram, Duration::from_millis(10));
        fill(&zram, 2);
        wait_until("lifted", || zram.hold_stat().lifted);
        assert_eq!(zram.hold_stat().unreached, Some(expected), "{:?}", zram.hold_stat());
        assert!(expected.to_string().contains(remedy), "{expected}");
        assert_eq!(zram.hold_stat().written_back_pages, 16, "until then they went");
    }
}

#[test]
fn what_cannot_be_held_is_refused() {
    let start = |zram: &Arc<Zram>, bytes| {
        Policy::start(zram, PolicyConfig::new(bytes)).map(drop).map_err(|error| error.kind())
    };
    let invalid = Err(std::io::ErrorKind::InvalidInput);
    let (zram, _) = backed();
    assert_eq!(start(&zram, 0), invalid);
    assert_eq!(zram.hold_stat(), HoldStat::default());
    let first = policy(&zram, NEVER);
    assert_eq!(start(&zram, TARGET), invalid, "one at a time");
    drop(first);
    assert_eq!(start(&zram, TARGET), Ok(()));
    let second = policy(&zram, NEVER);
    let refused = second.set_target(0).map_err(|error| error.kind());
    assert_eq!((refused, zram.hold_stat().target_bytes), (invalid, TARGET));
}

/// The thread looks when it begins, and then would not look for an hour.
#[test]
fn a_target_changes_at_once() {
    let (zram, _) = backed();
    let pages = fill(&zram, 2);
    let policy = policy(&zram, NEVER);
    wait_until("held", || zram.object_bytes_resident() <= TARGET);
    let lower = TARGET / 4;
    policy.set_target(lower).expect("a target");
    assert_eq!(zram.hold_stat().target_bytes, lower);
    wait_until("held", || zram.object_bytes_resident() <= lower);
    policy.set_target(u64::MAX).expect("a target");
    assert_eq!(zram.hold_stat().target_bytes, u64::MAX);
    fill(&zram, 3); // nothing is in the way, and nothing goes on to be written
    assert!(zram.compr_data_size() >= 3 * TARGET);
    (0..pages).for_each(|page| assert!(read(&zram, page) == content(page, 1)));
}

/// The disk takes its time. Nobody waits until all that was above the target is there.
#[test]
fn work_for_a_target_ends_when_it_is_raised_or_dropped() {
    for drops in [false, true] {
        let disk = Arc::new(Slow(RamDisk::new(PAGES * PAGE as u64).expect("memory")));
        let zram = device(config(Some(disk as Arc<dyn Disk>)));
        let pages = fill(&zram, 4);
        let policy = Policy::start(&zram, PolicyConfig { target_bytes: 4096, interval: NEVER });
        let policy = policy.expect("a thread");
        wait_until("the first pages", || zram.bd_stat().writes > 0);
        if drops {
            drop(policy);
        } else {
            policy.set_target(u64::MAX).expect("a target");
            drop(policy);
        }
        let written = zram.bd_stat().writes;
        assert!(written < pages / 2, "{written} of {pages} pages, drops: {drops}");
        (0..pages).for_each(|page| assert!(read(&zram, page) == content(page, 1)));
        zram.check().expect("no defect");
    }
}

/// Each write takes 10 ms.
struct Slow(RamDisk);

impl Disk for Slow {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        self.0.read(offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DiskError> {
        std::thread::sleep(Duration::from_millis(10));
        self.0.write(offset, data)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.0.discard(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64, keep: Allocation) -> Result<(), DiskError> {
        self.0.write_zeroes(offset, len, keep)
    }

    fn flush(&self) -> Result<(), DiskError> {
        self.0.flush()
    }
}

/// A target that could not be reached is in force again when another one is set.
#[test]
fn a_target_that_was_lifted_changes() {
    let zram = device(config(None));
    let policy = policy(&zram, NEVER);
    let mut page = fill(&zram, 3);
    wait_until("lifted", || {
        // The thread may have looked before there was much, and say so only now.
        write(&zram, page, &content(page, 1));
        page += 1;
        zram.hold_stat().lifted
    });
    policy.set_target(1 << 40).expect("a target");
    assert_eq!((zram.hold_stat().lifted, zram.hold_stat().target_bytes), (false, 1 << 40));
}

/// What it stored before counts as used when ages began, so what is used later is younger.
#[test]
fn a_device_that_noted_no_ages_begins_to() {
    let disk = blocks(PAGES) as Arc<dyn Disk>;
    let zram = device(ZramConfig { track_ages: false, ..config(Some(disk)) });
    let age = || zram.mark_idle(Idle::OlderThan(Duration::ZERO));
    let pages = fill(&zram, 2);
    assert!(age().is_err(), "none are noted");
    let policy = policy(&zram, Duration::from_millis(10));
    wait_until("held", || zram.object_bytes_resident() <= TARGET);
    expect_held(&zram);
    assert!(age().expect("they are noted") > 0);
    let began = zram.block_states(0..1).next().expect("it is stored").accessed_seconds;
    assert!(began > 0, "page 0 counts as used when ages began");
    drop(policy);
    assert!(age().is_ok(), "they are noted from then on");
    (0..pages).for_each(|page| assert!(read(&zram, page) == content(page, 1)));
    zram.check().expect("no defect");
}

#[test]
fn of_two_policies_that_start_at_once_one_is_refused() {
    let (zram, _) = backed();
    let together = Barrier::new(2);
    for _ in 0..1000 {
        let start = || {
            together.wait();
            Policy::start(&zram, PolicyConfig { target_bytes: TARGET, interval: NEVER })
        };
        let [one, two] = std::thread::scope(|scope| {
            let other = scope.spawn(start);
            [start(), other.join().expect("no panic")]
        });
        assert!(one.is_ok() != two.is_ok());
        // Either of them may have been refused, and is dropped. The target belongs to the other.
        let kept = one.or(two).expect("one of them");
        assert_eq!(zram.hold_stat().target_bytes, TARGET);
        drop(kept);
        assert_eq!(zram.hold_stat().target_bytes, 0);
    }
}

/// Several threads write at once, each to pages of its own, while the policy's thread looks.
#[test]
fn memory_is_held_under_several_writers() {
    const THREADS: u64 = 3;
    let (zram, _) = backed();
    let _policy = policy(&zram, Duration::from_millis(10));
    let work = |thread: u64| {
        for step in 0..PAGES {
            let page = step * 7 % (PAGES / THREADS) * THREADS + thread;
            write(&zram, page, &content(page, step / 4000));
            // Each allocation under way may exceed the line by two frames.
            let line = TARGET + TARGET / 20 + THREADS * 2 * PAGE as u64;
            assert!(zram.object_bytes_resident() <= line, "{:?}", zram.hold_stat());
        }
    };
    std::thread::scope(|scope| {
        (0..THREADS).for_each(|thread| drop(scope.spawn(move || work(thread))));
    });
    wait_until("held", || zram.object_bytes_resident() <= TARGET);
    let last = |page: u64| {
        let steps = (0..PAGES).filter(|step| step * 7 % (PAGES / THREADS) == page / THREADS);
        steps.max().map(|step| step / 4000)
    };
    for page in (0..PAGES / THREADS * THREADS).step_by(97) {
        let version = last(page).expect("every page was written");
        assert!(read(&zram, page) == content(page, version), "page {page}");
    }
    assert!(!zram.hold_stat().lifted);
    zram.check().expect("no defect");
}

#[test]
fn a_policy_survives_its_device() {
    let (zram, _) = backed();
    let policy = policy(&zram, Duration::from_millis(10));
    drop(zram);
    drop(policy);
}
