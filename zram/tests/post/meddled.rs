//! A disk that lets things happen while it works.
//!
//! Claims
//! - A page that is used while it is written stays in memory, and one that is only moved does not.
//! - A unit of the limit is taken, the limit is set anew, and then the write fails. The new limit
//!   does not get the unit.
//! - A block that comes back with other content while it is read is not taken for a damaged one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use crate::devices::{PAGE, PAGES, config, data_of, device, everything, read, write};
use crate::ways::{self, Way};
use crate::write_back::{back, expect_blocks};
use disk::{
    Allocation, Disk, DiskError, Extent, Fault, FaultPlan, FaultSpan, FaultyDisk, RamDisk, Verbs,
};
use ramfold_zram::{WriteBackReport, Zram};

type Meddle = Box<dyn Fn() + Send + Sync>;

/// A disk that does something before each write, and something after each read.
struct Meddling {
    disk: FaultyDisk<RamDisk>,
    meddle: OnceLock<Meddle>,
    meddle_late: OnceLock<Meddle>,
}

impl Meddling {
    fn new() -> Arc<Meddling> {
        let disk = RamDisk::new(PAGES * PAGE as u64).expect("a size");
        let disk = FaultyDisk::new(disk);
        let (meddle, meddle_late) = (OnceLock::new(), OnceLock::new());
        Arc::new(Meddling { disk, meddle, meddle_late })
    }
}

impl Disk for Meddling {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        self.disk.read(offset, buf)?;
        if let Some(meddle) = self.meddle_late.get() {
            meddle();
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DiskError> {
        if let Some(meddle) = self.meddle.get() {
            meddle();
        }
        self.disk.write(offset, data)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<(), DiskError> {
        self.disk.discard(offset, len)
    }

    fn write_zeroes(&self, offset: u64, len: u64, keep: Allocation) -> Result<(), DiskError> {
        self.disk.write_zeroes(offset, len, keep)
    }

    fn flush(&self) -> Result<(), DiskError> {
        self.disk.flush()
    }

    fn next_extent(&self, offset: u64, len: u64) -> Result<Extent, DiskError> {
        self.disk.next_extent(offset, len)
    }
}

/// Writes page 3 back while `meddle` uses it. Afterwards it is as `expected`, in memory.
#[track_caller]
fn meddled(
    way: Way,
    meddle: impl Fn(&Zram) + Send + Sync + 'static,
    expected: &[u8],
) -> WriteBackReport {
    let disk = Meddling::new();
    let backing = Some(Arc::clone(&disk) as Arc<dyn Disk>);
    let zram = Arc::new(device(way.of(config(backing))));
    write(&zram, 3, &data_of(3, 1, 2));
    let weak: Weak<Zram> = Arc::downgrade(&zram);
    let meddle = move || weak.upgrade().iter().for_each(|zram| meddle(zram));
    assert!(disk.meddle.set(Box::new(meddle)).is_ok(), "set once");
    let report = back(&zram);
    expect_blocks(&zram, 0);
    assert!(read(&zram, 3) == expected);
    zram.make_room();
    expect_blocks(&zram, 0);
    assert!(read(&zram, 3) == expected);
    assert_eq!((zram.bd_stat().reads, zram.bd_stat().writes), (0, 1));
    report
}

#[test]
fn a_page_that_is_used_while_it_is_written_stays_in_memory() {
    let (old, new) = (data_of(3, 1, 2), data_of(3, 2, 2));
    for way in ways::all() {
        let used = WriteBackReport { used: 1, ..WriteBackReport::default() };
        assert_eq!(meddled(way, |zram| drop(read(zram, 3)), &old), used, "read");
        let overwrite = |zram: &Zram| write(zram, 3, &data_of(3, 2, 2));
        assert_eq!(meddled(way, overwrite, &new), used, "overwritten");
        let discard = |zram: &Zram| zram.discard_pages(3..4).expect("in range");
        assert_eq!(meddled(way, discard, &[0; PAGE]), used, "discarded");
        let discard = |zram: &Zram| zram.discard_pages(0..512).expect("in range");
        assert_eq!(meddled(way, discard, &[0; PAGE]), used, "its leaf discarded");
    }
}

#[test]
fn a_page_that_moves_while_it_is_written_is_written() {
    let disk = Meddling::new();
    let zram = Arc::new(device(config(Some(Arc::clone(&disk) as Arc<dyn Disk>))));
    (0..200).for_each(|page| write(&zram, page, &data_of(page, 1, 2)));
    (0..200).filter(|page| page % 10 > 0).for_each(|page| {
        zram.discard_pages(page..page + 1).expect("in range");
    });
    let moved = Arc::new(Mutex::new(0));
    let (weak, count) = (Arc::downgrade(&zram), Arc::clone(&moved));
    let compact = move || {
        *count.lock().expect("no panic") += weak.upgrade().map_or(0, |zram| zram.compact());
    };
    assert!(disk.meddle.set(Box::new(compact)).is_ok(), "set once");
    assert_eq!(back(&zram), WriteBackReport { pages: 20, used: 0, ..back_bytes(&zram) });
    assert!(*moved.lock().expect("no panic") > 0, "it was compacted meanwhile");
    for page in (0..200).step_by(10) {
        assert!(read(&zram, page) == data_of(page, 1, 2));
    }
    expect_blocks(&zram, 20);
}

#[test]
fn a_limit_that_is_set_while_a_write_fails_stays_as_it_was_set() {
    for units in [0, 5] {
        let disk = Meddling::new();
        let (verbs, span, fault) = (Verbs::Writes, FaultSpan::Forever, Fault::NoSpace);
        disk.disk.arm(FaultPlan { after: 0, verbs, span, fault });
        let zram = Arc::new(device(config(Some(Arc::clone(&disk) as Arc<dyn Disk>))));
        write(&zram, 3, &data_of(3, 1, 2));
        zram.set_writeback_limit(2);
        zram.enable_writeback_limit(true);
        let weak = Arc::downgrade(&zram);
        let set = move || weak.upgrade().iter().for_each(|zram| zram.set_writeback_limit(units));
        assert!(disk.meddle.set(Box::new(set)).is_ok(), "set once");
        zram.write_back(&everything(&zram)).expect_err("the disk fails");
        assert_eq!(zram.writeback_limit(), units, "the unit was taken from another one");
        expect_blocks(&zram, 0);
    }
}

/// The expected report, with the bytes that the pages took. Their memory is free by now.
fn back_bytes(zram: &Zram) -> WriteBackReport {
    let sizes = (0..200).step_by(10).map(|page| {
        let zram = device(config(None));
        write(&zram, page, &data_of(page, 1, 2));
        zram.compr_data_size()
    });
    assert_eq!(zram.compr_data_size(), 0);
    WriteBackReport { bytes: sizes.sum(), ..WriteBackReport::default() }
}

/// The lowest free block is the next one taken, so the page gets the same block each time.
#[test]
fn a_block_that_comes_back_with_other_content_again_and_again_is_not_damaged() {
    for times in 1..=5 {
        let disk = Meddling::new();
        let zram = Arc::new(device(config(Some(Arc::clone(&disk) as Arc<dyn Disk>))));
        write(&zram, 3, &data_of(3, 0, 1));
        back(&zram);
        let (weak, round) = (Arc::downgrade(&zram), AtomicU64::new(0));
        let write_back = move || {
            // relaxed: one thread reads the disk.
            let round = round.fetch_add(1, Ordering::Relaxed) + 1;
            for zram in weak.upgrade().filter(|_| round <= times).iter() {
                write(zram, 3, &data_of(3, 2 * round, 1));
                assert_eq!(back(zram).pages, 1);
            }
        };
        assert!(disk.meddle_late.set(Box::new(write_back)).is_ok(), "set once");
        assert!(read(&zram, 3) == data_of(3, 2 * times, 1), "{times} times");
        assert_eq!(zram.bd_stat().reads, times + 1);
        expect_blocks(&zram, 1);
    }
}
