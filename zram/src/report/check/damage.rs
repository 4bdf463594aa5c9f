//! Each rule of a device's recount, against a device that was damaged on purpose.
//!
//! Claims
//! - A device that nobody damaged has no defect.
//! - If one thing that is counted is wrong, the recount names it, and nothing else comes first.

use std::sync::Arc;
use std::time::Duration;

use codec::same::Same;
use disk::RamDisk;
use host::PAGE_SIZE;
use zsmalloc::{CellGuard, LeafSums, LeafTally};

use crate::cells::flags::{IDLE, PP};
use crate::cells::stored::{put_same, put_unit};
use crate::cells::{Stored, Units, kind};
use crate::{Density, Selection, TiersConfig, WriteBack, Zram, ZramConfig, small};

/// A page whose object is compressed, one that is same-filled by an interned word, one that does
/// not compress, and one on the backing disk.
const BLOB: u64 = 3;
const SAME: u64 = 4;
const HUGE: u64 = 5;
const BACK: u64 = 6;

/// Its halves differ, so a cell has the number of the word and not the word.
const WORD: u64 = 0x1234_5678_9abc_def0;

fn text(seed: usize) -> Vec<u8> {
    (0..PAGE_SIZE).map(|at| (at * at / 97 + seed) as u8 & 15).collect()
}

fn device() -> Zram {
    let mut config = ZramConfig::new("zram0", 1 << 20);
    config.backing = Some(Arc::new(RamDisk::new(1 << 20).expect("a size")));
    let device = Zram::new(small::memory(), config).expect("a device");
    let mut random = 1_u64;
    let noise = (0..PAGE_SIZE).map(|_| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (random >> 56) as u8
    });
    let pages = [
        (BLOB, text(0)),
        (SAME, WORD.to_ne_bytes().repeat(PAGE_SIZE / 8)),
        (HUGE, noise.collect()),
        (BACK, text(1)),
    ];
    for (page, data) in pages {
        device.write_page(page, &data).expect("room");
    }
    let wanted = WriteBack::from(Selection::Pages(vec![BACK..=BACK]));
    assert_eq!(device.write_back(&wanted).expect("room").pages, 1);
    device.memory().flush_deferred();
    device
}

#[track_caller]
fn shows(damage: impl FnOnce(&Zram), finding: &str) {
    let device = device();
    let sound = device.check().expect("sound before the damage");
    assert_eq!((sound.pages_stored, sound.pages_decoded, sound.moved), (4, 2, false));
    damage(&device);
    let defect = device.check().expect_err("damaged").0;
    assert!(defect.contains(finding), "{defect:?} is not about {finding:?}");
}

fn slot(device: &Zram, page: u64) -> CellGuard<'_> {
    device.slots.lock(page).expect("it is there")
}

fn one(kind: usize) -> LeafTally {
    let mut tally = LeafTally::default();
    tally.counts[kind] = 1;
    tally
}

#[test]
fn the_bytes_of_tables() {
    shows(|device| device.generations.miscount(), "tables of pagelz have 0 bytes, counted 1");
}

const NONE: LeafTally = LeafTally { counts: [0; 4], bytes: 0 };
const BYTE: LeafTally = LeafTally { counts: [0; 4], bytes: 1 };

#[test]
fn a_wrong_counter_is_found() {
    let all = [one(kind::BLOB), one(kind::SAME), one(kind::HUGE), one(kind::DISK), BYTE];
    for wrong in all {
        shows(|device| device.counters.replace(NONE, wrong), "slots hold");
        shows(|device| device.counters.replace(wrong, NONE), "slots hold");
    }
}

#[test]
fn a_wrong_word_of_a_leaf_is_found() {
    for wrong in [one(kind::BLOB), one(kind::SAME), one(kind::HUGE), one(kind::DISK), BYTE] {
        let add = |device: &Zram| {
            assert!(LeafSums(slot(device, BLOB).leaf_word()).replace(NONE, wrong));
        };
        shows(add, "leaf 0 holds");
    }
}

#[test]
fn stray_bits_of_slots_are_found() {
    for (page, bits) in [(BLOB, PP), (SAME, PP), (SAME, IDLE), (BACK, PP), (BACK, IDLE)] {
        let set = |device: &Zram| {
            let mut slot = slot(device, page);
            let before = slot.client();
            slot.set_client(before | bits);
        };
        shows(set, &format!("slots have bits {bits:#x}"));
    }
}

#[test]
fn an_object_that_no_slot_names_is_found() {
    let lost = |device: &Zram| {
        let _never_freed = device.slots.pool.alloc(b"nobody's").expect("room");
    };
    shows(lost, "slots name 2 objects, Pending { objects: 0, bytes: 0 }, the pool has 3");
    let pending = |device: &Zram| device.counters.replace_pending(NONE, one(kind::BLOB));
    shows(pending, "slots name 2 objects, Pending { objects: 1, bytes: 0 }, the pool has 2");
}

#[test]
fn a_wrong_use_of_an_interned_word_is_found() {
    let taken = |device: &Zram| assert!(device.values.words.intern(!WORD).is_some());
    shows(taken, "1 slots use interned words, counted 2");
    let released = |device: &Zram| {
        let Stored::Same(same) = device.peek(SAME) else { panic!("it is same-filled") };
        device.values.words.release(same);
    };
    shows(released, "1 slots use interned words, counted 0");
    // The counts of pages stay right.
    let replaced = |device: &Zram| put_same(&mut slot(device, SAME), Same::ZERO);
    shows(replaced, "0 slots use interned words, counted 1");
}

#[test]
fn wrong_blocks_of_the_backing_disk_are_found() {
    let blocks = |device: &Zram, act: fn(&crate::backing::Backing)| {
        act(device.values.backing.as_ref().expect("it has one"));
    };
    let taken = |device: &Zram| blocks(device, |it| assert!(it.blocks.take().is_some()));
    shows(taken, "1 slots use blocks of the backing disk, counted 2");
    let given = |device: &Zram| blocks(device, |it| it.blocks.give(0));
    shows(given, "1 slots use blocks of the backing disk, counted 0");
    let miscounted = |device: &Zram| blocks(device, |it| it.blocks.miscount());
    shows(miscounted, "1 blocks are in use, counted 2");
    let tainted = |device: &Zram| blocks(device, |it| it.blocks.taint(7));
    shows(tainted, "1 blocks are quarantined, counted 0");
}

/// A device of which all pages are in two units.
fn packed() -> Zram {
    let mut config = ZramConfig { track_ages: true, ..ZramConfig::new("zram0", 1 << 17) };
    config.recompression[2] = Some("zstd".parse().expect("a codec"));
    let device = Zram::new(small::memory(), config).expect("a device");
    (0..32).for_each(|page| device.write_page(page, &text(page as usize)).expect("room"));
    let tiers = TiersConfig { age: Duration::ZERO, ..TiersConfig::new(Density::Dense) };
    device.tend(&tiers).expect("memory");
    assert_eq!(device.stat().units.map(|stat| stat.pages), Some(32));
    device.check().expect("sound before the damage");
    device
}

#[test]
fn wrong_units_are_found() {
    let shows = |damage: fn(&Zram, &Units), finding: &str| {
        let device = packed();
        damage(&device, device.values.units.as_ref().expect("it has some"));
        let defect = device.check().expect_err("damaged").0;
        assert!(defect.contains(finding), "{defect:?} is not about {finding:?}");
    };
    shows(|_, units| units.miscount(), "counted (UnitStat { units: 2, pages: 32, dead_pages: 1");
    shows(|_, units| units.retire(20), "page 20: ");
    let of_another = |device: &Zram, _: &Units| put_unit(&mut slot(device, 20), 3, 21);
    shows(of_another, "page 20: ");
    let cleared = |device: &Zram, _: &Units| {
        let mut slot = slot(device, 20);
        let before = Stored::in_cell(&slot);
        slot.clear();
        crate::cells::enter(&device.counters, &slot, before);
    };
    shows(cleared, "slots name 31 objects");
}

#[test]
fn a_page_that_does_not_decode_is_found() {
    let nonsense = |device: &Zram| slot(device, BLOB).put_value(7, 9);
    shows(nonsense, "page 3: ");
    let garbage = |device: &Zram| {
        let object = device.slots.pool.store(&[0xff; 700]).expect("room");
        slot(device, BLOB).put(object);
    };
    shows(garbage, "page 3: ");
}

#[test]
fn a_block_that_changed_on_the_backing_disk_is_found() {
    let device = device();
    assert_eq!(device.check_backing(), Ok(1));
    let backing = device.values.backing.as_ref().expect("it has one");
    let Stored::Disk { at, .. } = device.peek(BACK) else { panic!("it was written back") };
    backing.disk.write(crate::backing::offset_of(at.block), &[9; 64]).expect("in range");
    let defect = device.check_backing().expect_err("damaged").0;
    assert!(defect.contains("page 6"), "{defect}");
}
