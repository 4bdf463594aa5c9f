//! A disk that does a write after it was given up, as another machine's may.
#![cfg(not(loom))]

mod setting;

use disk::{Disk, DiskError, RamDisk};
use ramfold_zswap::{Area, GroupId, Loaded, Zswap};
use setting::{PAGE, cache, noise, page};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

const NOBODY: GroupId = GroupId::ROOT;
const MIB: u64 = 1 << 20;

/// Keeps the writes that it refuses, and does them later.
struct Late {
    disk: RamDisk,
    gives_up: AtomicBool,
    held: Mutex<Vec<(u64, Vec<u8>)>>,
}

impl Late {
    fn new(bytes: u64) -> Arc<Late> {
        let disk = RamDisk::new(bytes).expect("memory");
        Arc::new(Late { disk, gives_up: AtomicBool::new(false), held: Mutex::default() })
    }

    fn give_up(&self, gives_up: bool) {
        // relaxed: the test has one thread.
        self.gives_up.store(gives_up, Ordering::Relaxed);
    }

    /// Does what was given up.
    fn catch_up(&self) {
        let held = self.held.lock().expect("no thread panics under it");
        held.iter().for_each(|(at, data)| self.disk.write(*at, data).expect("in range"));
    }
}

impl Disk for Late {
    fn size_bytes(&self) -> u64 {
        self.disk.size_bytes()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<(), DiskError> {
        self.disk.read(offset, buf)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DiskError> {
        // relaxed: as above.
        if !self.gives_up.load(Ordering::Relaxed) {
            return self.disk.write(offset, data);
        }
        self.held.lock().expect("no thread panics under it").push((offset, data.to_vec()));
        Err(DiskError::Backing(std::io::ErrorKind::TimedOut.into()))
    }

    fn may_still_change(&self, offset: u64, len: u64) -> bool {
        let held = self.held.lock().expect("no thread panics under it");
        held.iter().any(|(at, data)| *at < offset + len && offset < at + data.len() as u64)
    }
}

fn filled(disk: &Arc<Late>) -> (Zswap, Area) {
    let zswap = cache(64 * MIB, Some(Arc::clone(disk) as Arc<dyn Disk>));
    let area = zswap.add_area(64).expect("room");
    (0..64).for_each(|at| area.store(at, &content(at), NOBODY).expect("room"));
    (zswap, area)
}

/// Some pages take one sector, and some all eight.
fn content(at: u64) -> Vec<u8> {
    if at % 10 == 3 { noise(at) } else { page(at) }
}

/// The write that was given up once came to the sectors of pages that were written after it. They
/// were lost.
#[test]
fn a_write_that_was_given_up_changes_no_other_page() {
    let disk = Late::new(MIB);
    let (zswap, area) = filled(&disk);
    disk.give_up(true);
    assert_eq!(zswap.write_back(16).pages, 0);
    disk.give_up(false);
    let quarantined = zswap.stat().disk_quarantined_bytes;
    assert!(quarantined >= 16 * 512, "{quarantined}");
    zswap.check().expect("no defect");
    assert_eq!(zswap.write_back(64).pages, 64);
    disk.catch_up();
    for at in 0..64 {
        let mut read = vec![0; PAGE];
        let loaded = area.load(at, &mut read).expect("no fault");
        assert!(loaded == Loaded::Disk && read == content(at), "page {at}, {loaded:?}");
    }
    assert_eq!(zswap.stat().disk_quarantined_bytes, quarantined, "no more than before");
    zswap.check().expect("no defect");
}

#[test]
fn a_disk_of_which_no_other_sector_is_left_is_full() {
    // A window for the header, and one.
    let disk = Late::new(64 << 10);
    let (zswap, area) = filled(&disk);
    disk.give_up(true);
    for _ in 0..16 {
        assert_eq!(zswap.write_back(64).pages, 0);
    }
    disk.give_up(false);
    assert!(zswap.stat().disk_full > 0);
    assert_eq!(zswap.write_back(64).pages, 0, "the disk is full");
    disk.catch_up();
    zswap.check().expect("no defect");
    for at in 0..64 {
        let mut read = vec![0; PAGE];
        assert_eq!(area.load(at, &mut read).expect("no fault"), Loaded::Memory);
        assert!(read == content(at), "page {at}");
    }
}
