//! Each rule of a pool's recount, against a pool that was damaged on purpose.
//!
//! Claims
//! - A pool that nobody damaged has no defect.
//! - If one thing that is counted is wrong, the recount names it, and nothing else comes first.
//!
//! Chains of entries have such tests in `class::entries`, and the order by fullness in
//! `class::fullness`.

use std::sync::Arc;

use host::LockGuard;
use host::sync::atomic::{AtomicU64, Ordering};

use crate::class::{Class, State};
use crate::leaves::LeafUse;
use crate::names::Handle;
use crate::zspages::Descriptor;
use crate::{CellNumber, LeafId, Memory, MemoryConfig, Pool, PoolConfig};

/// Bytes of the objects of handles, and of the object that is in a cell.
const LEN: usize = 100;
const CELL_LEN: usize = 300;

struct Damaged {
    pool: Arc<Pool>,
    /// Two objects in one zspage; of a third one only the slot is left.
    handles: Vec<Handle>,
    leaf: LeafId,
}

impl Damaged {
    fn sound() -> Damaged {
        let config = MemoryConfig {
            arena_frames: 1 << 12,
            entries_max: 4096,
            expected_bytes: 0,
            worker: false,
        };
        let memory = Memory::new(config).expect("address space");
        let config = PoolConfig { shards: Some(1), ..PoolConfig::default() };
        let pool = Pool::new(memory, config).expect("a pool");
        let mut handles: Vec<_> = (0..3).map(|_| pool.alloc(&[1; LEN]).expect("room")).collect();
        pool.free_handle(handles.remove(1)).expect("ours");
        let leaf = pool.alloc_leaf().expect("room");
        let object = pool.store(&[2; CELL_LEN]).expect("room");
        pool.cell(leaf, 0).expect("ours").put(object);
        Damaged { pool, handles, leaf }
    }

    fn class(&self, len: usize) -> &Class {
        self.pool.class(self.pool.geometry().class_of(len).expect("a class"))
    }

    fn state(&self, len: usize) -> LockGuard<'_, State> {
        self.class(len).lock()
    }

    /// The zspage of the class for a length; it has one.
    fn zspage(&self, len: usize) -> Descriptor<'_> {
        let id = self.state(len).fullness.zspages()[0];
        self.pool.descriptors(self.class(len)).get(id)
    }
}

#[track_caller]
fn shows(damage: impl FnOnce(&Damaged), finding: &str) {
    let it = Damaged::sound();
    let sound = it.pool.check().expect("sound before the damage");
    assert_eq!((sound.objects, sound.zspages, sound.moved, sound.in_flight), (3, 2, 0, 0));
    assert_eq!(it.handles.len(), 2);
    damage(&it);
    let defect = it.pool.check().expect_err("damaged").0;
    assert!(defect.contains(finding), "{defect:?} is not about {finding:?}");
    // What is damaged cannot be torn down.
    std::mem::forget(it);
}

fn add(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed); // relaxed: one thread
}

#[test]
fn a_wrong_total_is_found() {
    shows(|it| add(&it.pool.counters.frames), "mem_used_total");
    shows(|it| add(&it.pool.counters.resident), "object_bytes_resident");
    shows(|it| add(&it.pool.counters.position_bytes), "bytes of positions");
}

#[test]
fn a_wrong_count_of_a_class_is_found() {
    shows(|it| it.state(LEN).objects += 1, "objects");
    shows(|it| it.state(LEN).objects -= 1, "objects");
    shows(|it| it.state(LEN).handles += 1, "handles");
}

#[test]
fn a_wrong_header_of_a_zspage_is_found() {
    shows(|it| it.zspage(LEN).set_position(7), "position: counted 0, kept 7");
    shows(|it| it.zspage(LEN).set_lock(1), "lock");
    shows(|it| it.zspage(LEN).set_pool(it.pool.id + 1), "pool");
    let given = |it: &Damaged| {
        it.zspage(LEN).give(0);
    };
    shows(given, "class ");
    // The bits of the slots say one thing, and the count that the header keeps another.
    let counted = |it: &Damaged| it.zspage(LEN).miscount();
    shows(counted, "objects: counted 2, kept 3");
}

#[test]
fn an_object_that_its_cell_does_not_name_is_found() {
    let other = |it: &Damaged| {
        let zspage = it.zspage(LEN);
        zspage.publish(0, zspage.owner(2));
    };
    shows(other, "slot 0, as cell");
    let none = |it: &Damaged| it.zspage(LEN).publish(0, CellNumber::new(u32::MAX));
    shows(none, "no cell 4294967295");
    // Without a queue of freed objects, no cell may name anything else than its object.
    let of_cell = |it: &Damaged| {
        let mut cell = it.pool.cell(it.leaf, 0).expect("ours");
        let object = it.pool.store(&[3; CELL_LEN]).expect("room");
        let zspage = it.zspage(CELL_LEN);
        let owner = zspage.owner(0);
        std::mem::forget(object);
        zspage.publish(1, owner);
        cell.set_client(1);
    };
    shows(of_cell, "slot 1, as cell");
}

#[test]
fn frames_of_another_zspage_are_found() {
    let moved = |it: &Damaged| {
        let pfn = it.zspage(CELL_LEN).pfn();
        it.zspage(LEN).set_pfn(pfn);
    };
    shows(moved, "descriptor of its frames");
}

#[test]
fn a_zspage_that_is_called_touched_and_is_not_is_found() {
    let wrong = |it: &Damaged| it.zspage(CELL_LEN).set_touched(true);
    shows(wrong, "touched frames");
}

#[test]
fn an_entry_that_is_lost_is_found() {
    let lost = |it: &Damaged| {
        let leaves = &it.pool.memory.leaves;
        let mut state = it.state(LEN);
        assert_ne!(state.take_entry(LeafUse::Handles, leaves), CellNumber::NONE);
        state.handles -= 1;
    };
    shows(lost, "entries of handles");
}

#[test]
fn free_frames_that_are_not_resident_as_counted_are_found() {
    let it = Damaged::sound();
    let memory = it.pool.memory();
    memory.check_free_held().expect("sound before the damage");
    add(&memory.free_held.0);
    let defect = memory.check_free_held().expect_err("damaged").0;
    assert!(defect.contains("resident free frames"), "{defect}");
    std::mem::forget(it);
}
