//! A disk on another machine that does a write after it was given up, or does it twice.
//!
//! Claims
//! - Such a write never changes the block of another page.
//! - Blocks that are left alone for that are counted, and a disk without other blocks is full.

use std::sync::{Arc, Mutex};

use crate::devices::{blocks, config, data_of, device, everything, read, write};
use crate::write_back::{back, expect_blocks};
use disk::{Disk, DiskError, FaultyDisk, RamDisk};
use ramfold_zram::{PostError, Zram};

/// What becomes of writes.
#[derive(Clone, Copy, PartialEq)]
enum Mode {
    Done,
    /// They fail, and may be done later.
    GivenUp,
    /// They are done, and may be done again later.
    Repeated,
}

/// A disk whose server may still have writes that had no reply.
struct Late {
    disk: Arc<FaultyDisk<RamDisk>>,
    mode: Mutex<Mode>,
    held: Mutex<Vec<(u64, Vec<u8>)>>,
}

impl Late {
    fn set(&self, mode: Mode) {
        *self.mode.lock().expect("no thread panics under it") = mode;
    }

    /// The server does what it still has.
    fn catch_up(&self) {
        for (offset, data) in self.held.lock().expect("no thread panics under it").iter() {
            self.disk.write(*offset, data).expect("in range");
        }
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
        let mode = *self.mode.lock().expect("no thread panics under it");
        if mode != Mode::Done {
            self.held.lock().expect("no thread panics under it").push((offset, data.to_vec()));
        }
        if mode == Mode::GivenUp {
            return Err(DiskError::Backing(std::io::ErrorKind::TimedOut.into()));
        }
        self.disk.write(offset, data)
    }

    fn may_still_change(&self, offset: u64, len: u64) -> bool {
        let held = self.held.lock().expect("no thread panics under it");
        held.iter().any(|(at, data)| *at < offset + len && offset < at + data.len() as u64)
    }
}

fn late(count: u64) -> (Zram, Arc<Late>) {
    let (mode, held) = (Mutex::new(Mode::Done), Mutex::default());
    let disk = Arc::new(Late { disk: blocks(count), mode, held });
    (device(config(Some(Arc::clone(&disk) as Arc<dyn Disk>))), disk)
}

/// The given-up write once came to the block of the page that was written back next. That page was
/// lost.
#[test]
fn a_write_that_was_given_up_changes_no_other_page() {
    let (zram, disk) = late(100);
    write(&zram, 3, &data_of(3, 1, 2));
    disk.set(Mode::GivenUp);
    let failed = zram.write_back(&everything(&zram));
    assert!(matches!(failed, Err(PostError::Backing(_))), "{failed:?}");
    assert!(read(&zram, 3) == data_of(3, 1, 2), "it stays in memory");
    disk.set(Mode::Done);
    zram.discard_pages(3..4).expect("in range");
    write(&zram, 7, &data_of(7, 1, 2));
    assert_eq!(back(&zram).pages, 1);
    disk.catch_up();
    assert!(read(&zram, 7) == data_of(7, 1, 2));
    assert_eq!(zram.bd_stat().quarantined, 1);
    expect_blocks(&zram, 1);
}

#[test]
fn a_write_that_was_repeated_changes_no_other_page() {
    let (zram, disk) = late(100);
    write(&zram, 3, &data_of(3, 1, 2));
    disk.set(Mode::Repeated);
    assert_eq!(back(&zram).pages, 1);
    disk.catch_up();
    assert!(read(&zram, 3) == data_of(3, 1, 2), "the same bytes at the same place");
    assert_eq!(zram.bd_stat().quarantined, 0, "it has a page");
    expect_blocks(&zram, 1);
    disk.set(Mode::Done);
    zram.discard_pages(3..4).expect("in range");
    zram.memory().flush_deferred();
    assert_eq!((zram.bd_stat().quarantined, zram.bd_stat().pending), (1, 0));
    write(&zram, 7, &data_of(7, 1, 2));
    assert_eq!(back(&zram).pages, 1);
    disk.catch_up();
    assert!(read(&zram, 7) == data_of(7, 1, 2));
    expect_blocks(&zram, 1);
}

#[test]
fn a_disk_of_which_no_other_block_is_left_is_full() {
    let (zram, disk) = late(4);
    (0..3).for_each(|page| write(&zram, page, &data_of(page, 1, 2)));
    disk.set(Mode::GivenUp);
    zram.write_back(&everything(&zram)).expect_err("it is given up");
    disk.set(Mode::Done);
    let ended = zram.write_back(&everything(&zram));
    assert!(matches!(ended, Err(PostError::NoSpace)), "{ended:?}");
    assert_eq!(zram.bd_stat().quarantined, 3);
    expect_blocks(&zram, 1);
    disk.catch_up();
    (0..3).for_each(|page| assert!(read(&zram, page) == data_of(page, 1, 2)));
}
