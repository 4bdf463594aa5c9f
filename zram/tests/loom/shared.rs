//! Objects that several pages share come and go at once.
//!
//! Claims
//! - A thread that finds an equal page gets its object while the object lives, or stores one of its
//!   own. The object that it got is not freed before its page is gone.
//! - A page that gets its first twin while it is discarded is shared or gone, and never both.

use std::sync::Arc;

use loom::thread;
use ramfold_zram::{Zram, ZramConfig};
use zsmalloc::{LEAF_CELLS, Memory, MemoryConfig};

use crate::{LEAF, blob, byte_at, model};

const BYTE: u8 = 0x31;
const LEAF_PAGES: u64 = LEAF_CELLS as u64;

/// It has no worker, so the thread that discards a leaf drains it.
fn device() -> Arc<Zram> {
    let config =
        MemoryConfig { arena_frames: 512, entries_max: 6, expected_bytes: 1 << 30, worker: false };
    let memory = Memory::new(config).expect("small tables");
    let config = ZramConfig { share_equal_pages: true, ..ZramConfig::new("zram0", 2 * LEAF) };
    Arc::new(Zram::new(memory, config).expect("a device"))
}

fn write(zram: &Zram, page: u64) {
    zram.write_page(page, &blob(BYTE)).expect("room");
}

/// Page 2 is written with the bytes of the pages of the first leaf, of which so many are written,
/// while the first of them are discarded.
fn against_discard(written: u64, discarded: u64) {
    model(move || {
        let zram = device();
        (0..written).for_each(|page| write(&zram, page));
        let other = Arc::clone(&zram);
        let discards = thread::spawn(move || other.discard_pages(0..discarded).expect("in range"));
        write(&zram, LEAF_PAGES);
        discards.join().expect("the other");
        assert_eq!((byte_at(&zram, 0), byte_at(&zram, LEAF_PAGES)), (0, BYTE));
        zram.check().expect("no defect");
    });
}

#[test]
fn the_last_users_of_an_object_go_while_a_page_finds_it() {
    against_discard(LEAF_PAGES, LEAF_PAGES);
}

#[test]
fn a_page_goes_while_its_first_twin_comes() {
    against_discard(1, 1);
}
