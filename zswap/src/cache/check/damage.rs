//! Each rule of a cache's recount, against a cache that was damaged on purpose.
//!
//! Claims
//! - A cache that nobody damaged has no defect.
//! - If one thing that is counted is wrong, the recount names it, and nothing else comes first.

use std::sync::Arc;

use codec::same::Same;
use disk::RamDisk;
use host::PAGE_SIZE;
use zsmalloc::{CellGuard, LeafSums, LeafTally, Memory, MemoryConfig};

use crate::areas::Area;
use crate::backing::{Next, OnDisk};
use crate::cells::{Pending, Stored, kind, stored};
use crate::shared::Core;
use crate::terms::{GroupId, ZswapConfig};
use crate::{Limit, Zswap};

/// Two pages whose objects are compressed, the second one a group's; one that is same-filled by an
/// interned word; and one on the disk.
const BLOB: u64 = 3;
const GROUPED: u64 = 4;
const SAME: u64 = 5;
const BACK: u64 = 6;
const NOTHING: u64 = 7;

/// Its halves differ, so a cell has the number of the word and not the word.
const WORD: u64 = 0x1234_5678_9abc_def0;

struct Damaged {
    cache: Zswap,
    area: Area,
    group: GroupId,
}

impl Damaged {
    fn sound() -> Damaged {
        let memory = Memory::new(MemoryConfig::for_disk(16 << 20)).expect("a memory");
        let disk: Arc<dyn disk::Disk> = Arc::new(RamDisk::new(1 << 20).expect("a size"));
        let mut config = ZswapConfig { backing: Some(disk), ..ZswapConfig::new("cache") };
        (config.worker, config.limit) = (false, Limit::None);
        let cache = Zswap::new(memory, config).expect("a cache");
        let area = cache.add_area(512).expect("room");
        let group = cache.add_group(None, true).expect("a few");
        let text = |seed: usize| -> Vec<u8> {
            (0..PAGE_SIZE).map(|at| (at * at / 97 + seed) as u8 & 15).collect()
        };
        area.store(BACK, &text(0), GroupId::ROOT).expect("room");
        assert_eq!(cache.write_back(1).pages, 1);
        area.store(BLOB, &text(1), GroupId::ROOT).expect("room");
        area.store(GROUPED, &text(2), group).expect("room");
        area.store(SAME, &WORD.to_ne_bytes().repeat(PAGE_SIZE / 8), group).expect("room");
        Damaged { cache, area, group }
    }

    fn core(&self) -> &Core {
        &self.cache.core
    }

    fn slot(&self, page: u64) -> CellGuard<'_> {
        self.area.inner.slots.lock(page).expect("its leaf is there")
    }

    fn place(&self) -> OnDisk {
        let Stored::Disk { at, .. } = Stored::in_cell(&self.slot(BACK)) else {
            panic!("it was written back")
        };
        at
    }
}

#[track_caller]
fn shows(damage: impl FnOnce(&Damaged), finding: &str) {
    let it = Damaged::sound();
    let sound = it.cache.check().expect("sound before the damage");
    assert_eq!((sound.entries, sound.pages_decoded, sound.moved), (4, 2, false));
    damage(&it);
    let defect = it.cache.check().expect_err("damaged").0;
    assert!(defect.contains(finding), "{defect:?} is not about {finding:?}");
}

fn one(kind: usize) -> LeafTally {
    let mut tally = LeafTally::default();
    tally.counts[kind] = 1;
    tally
}

const NONE: LeafTally = LeafTally { counts: [0; 4], bytes: 0 };
const BYTE: LeafTally = LeafTally { counts: [0; 4], bytes: 1 };

#[test]
fn a_wrong_counter_is_found() {
    for wrong in [one(kind::BLOB), one(kind::SAME), one(kind::HUGE), one(kind::DISK), BYTE] {
        shows(|it| it.core().counters.here().replace(NONE, wrong), "cells hold");
        shows(|it| it.core().counters.here().replace(wrong, NONE), "cells hold");
    }
}

#[test]
fn a_wrong_word_of_a_leaf_is_found() {
    for wrong in [one(kind::BLOB), one(kind::SAME), one(kind::HUGE), one(kind::DISK), BYTE] {
        let add = |it: &Damaged| {
            assert!(LeafSums(it.slot(BLOB).leaf_word()).replace(NONE, wrong));
        };
        shows(add, "its word says");
    }
}

#[test]
fn an_object_of_no_entry_is_found() {
    let lost = |it: &Damaged| {
        let _never_freed = it.core().pool.alloc(b"nobody's").expect("room");
    };
    shows(lost, "cells name 2 objects, Pending { objects: 0, bytes: 0 }");
    let wrong = Pending { objects: 1, bytes: 0 };
    let pending = |it: &Damaged| it.core().counters.replace_pending(Pending::default(), wrong);
    shows(pending, "cells name 2 objects, Pending { objects: 1, bytes: 0 }");
}

#[test]
fn an_entry_without_its_token_is_found() {
    let dropped = |it: &Damaged| {
        it.core().orders.remove(it.slot(BLOB).number());
    };
    shows(dropped, "in memory, None");
    let added = |it: &Damaged| {
        let cell = it.slot(NOTHING).number();
        assert!(it.core().orders.push(cell, GroupId::ROOT).is_ok());
    };
    shows(added, "is not in memory, yet at");
    let other = |it: &Damaged| {
        let cell = it.slot(BLOB).number();
        assert!(it.core().orders.push(cell, it.group).is_ok());
    };
    shows(other, "GroupId(0) in memory, Some(Place { group: GroupId(1)");
    let in_hand = |it: &Damaged| {
        let mut victims = Vec::new();
        it.core().orders.next_victims(1, |_| true, &mut victims);
        assert_eq!(victims.len(), 1);
    };
    shows(in_hand, "in hands are 1 entries");
}

#[test]
fn wrong_counts_of_algorithms_and_groups_are_found() {
    for index in [0, 1] {
        let came = |it: &Damaged| it.core().counters.here().algorithm(index, true);
        shows(came, "entries by algorithm");
    }
    let charged = |it: &Damaged| {
        let slot = it.slot(GROUPED);
        it.core().groups.charge(slot.number(), it.group, 100);
    };
    shows(charged, "GroupStat { id: GroupId(1)");
}

#[test]
fn a_wrong_use_of_an_interned_word_is_found() {
    let taken = |it: &Damaged| assert!(it.core().words.intern(!WORD).is_some());
    shows(taken, "1 cells use interned words, counted 2");
    // The counts of entries stay right.
    let replaced = |it: &Damaged| stored::put_same(&mut it.slot(SAME), Same::ZERO);
    shows(replaced, "0 cells use interned words, counted 1");
}

#[test]
fn wrong_sectors_of_the_disk_are_found() {
    let claimed = |it: &Damaged| {
        let backing = it.core().backing.as_ref().expect("it has one");
        assert!(backing.claim(&mut Next::default(), 1).is_some());
    };
    let sectors = Damaged::sound().place().sectors();
    shows(claimed, &format!("{sectors} sectors, {} counted, {0} bits set", sectors + 1));
    let miscounted = |it: &Damaged| it.core().backing.as_ref().expect("it has one").miscount();
    shows(miscounted, &format!("{sectors} sectors, {} counted, {sectors} bits set", sectors + 1));
    let gone = |it: &Damaged| it.core().backing.as_ref().expect("it has one").quarantine(2);
    let less = format!("{} counted, {sectors} bits set; 2 are quarantined", sectors - 2);
    shows(gone, &less);
    let freed = |it: &Damaged| it.core().backing.as_ref().expect("it has one").free(it.place());
    shows(freed, "claimed false, for itself true");
    let twice = |it: &Damaged| {
        let place = it.place();
        stored::put_disk(&mut it.slot(NOTHING), 0, place);
    };
    shows(twice, "claimed true, for itself false");
}

#[test]
fn an_entry_that_does_not_decode_is_found() {
    let nonsense = |it: &Damaged| it.slot(BLOB).put_value(7, 9);
    shows(nonsense, "page 3: a value that means nothing");
    let garbage = |it: &Damaged| {
        let object = it.core().pool.store(&[0xff; 700]).expect("room");
        it.slot(BLOB).put(object);
    };
    shows(garbage, "area 1, page 3: ");
}
