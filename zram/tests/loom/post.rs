//! Pages that are used while they are written back.
//!
//! Claims
//! - A thread that uses the page between the copy and the completion clears the mark of the
//!   write-back. A thread that comes later does not.
//! - A block is in use exactly if a page is there.

use std::sync::Arc;

use disk::{Disk, RamDisk};
use loom::thread;
use ramfold_zram::{Selection, Zram, ZramConfig};
use zsmalloc::{LEAF_CELLS, Memory, MemoryConfig};

use crate::free::noise;
use crate::{LEAF, PAGE, byte_at, model};

/// It has no worker, so the thread that discards a leaf drains it, at the same time as the
/// write-back.
fn device() -> Arc<Zram> {
    let config =
        MemoryConfig { arena_frames: 512, entries_max: 6, expected_bytes: 1 << 30, worker: false };
    let memory = Memory::new(config).expect("small tables");
    let backing = Arc::new(RamDisk::new(3 * PAGE).expect("a size"));
    let config = ZramConfig { backing: Some(backing), ..ZramConfig::new("zram0", LEAF) };
    Arc::new(Zram::new(memory, config).expect("a device"))
}

fn write_back(zram: &Zram) -> u64 {
    let all = Selection::Pages(vec![0..=LEAF_CELLS as u64 - 1]);
    zram.write_back(&all.into()).expect("room on the backing disk").pages
}

fn is_back(zram: &Zram) -> bool {
    zram.block_states(0..1).any(|state| state.written_back)
}

/// `disturb` comes at any moment of a write-back of page 0, which holds 1 before.
fn against(disturb: fn(&Zram), expected: fn(u8) -> bool) {
    model(move || {
        let zram = device();
        zram.write(0, &noise(1)).expect("room");
        let other = Arc::clone(&zram);
        let thread = thread::spawn(move || disturb(&other));
        write_back(&zram);
        thread.join().expect("the other");
        assert_eq!(zram.bd_stat().count, u64::from(is_back(&zram)));
        zram.check().expect("no defect");
        assert!(expected(byte_at(&zram, 0)), "{}", byte_at(&zram, 0));
    });
}

#[test]
fn read_against_write_back() {
    against(|zram| assert_eq!(byte_at(zram, 0), 1), |byte| byte == 1);
}

#[test]
fn overwrite_against_write_back() {
    against(|zram| zram.write(0, &noise(2)).expect("room"), |byte| byte == 2);
}

#[test]
fn discard_of_the_leaf_against_write_back() {
    against(|zram| zram.discard(0, LEAF).expect("in range"), |byte| byte == 0);
}

/// The page is read from a block that becomes another page's meanwhile.
#[test]
fn read_of_a_block_against_its_next_page() {
    model(|| {
        let zram = device();
        zram.write(0, &noise(1)).expect("room");
        assert_eq!(write_back(&zram), 1);
        let other = Arc::clone(&zram);
        let thread = thread::spawn(move || {
            other.write(0, &noise(2)).expect("room");
            other.write(PAGE, &noise(3)).expect("room");
            assert!(write_back(&other) > 0, "page 1, and page 0 unless it is read");
        });
        assert!(matches!(byte_at(&zram, 0), 1 | 2), "as it was, or is");
        thread.join().expect("the other");
        assert_eq!(byte_at(&zram, 0), 2);
        zram.check().expect("no defect");
    });
}
