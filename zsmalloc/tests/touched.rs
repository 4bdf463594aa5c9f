//! When the frames of a zspage are touched.
//!
//! Claims
//! - a class of few zspages touches a frame when an object reaches into it;
//! - one of many touches a new zspage as a whole, unless the limit has no room for that;
//! - either way the pool counts the frames that are touched, and `check()` finds nothing.
#![cfg(not(loom))]

use std::sync::Arc;

use zsmalloc::{Handle, Memory, MemoryConfig, Pool, PoolConfig, Rule};

const FRAME: u64 = 4096;
/// Bytes of an object of which 18 fill a zspage of 7 frames.
const LEN: usize = 1584;
const OBJECTS: usize = 18;
const FRAMES: u64 = 7;
/// Zspages of a class that is large from the next one on.
const SMALL: u64 = 31;

fn pool() -> Arc<Pool> {
    let config = MemoryConfig {
        arena_frames: 1 << 14,
        entries_max: 1 << 12,
        limit_bytes: 64 << 20,
        worker: false,
    };
    let memory = Memory::new(config).expect("address space");
    let config = PoolConfig { rule: Rule::LeastWaste, ..PoolConfig::default() };
    Pool::new(memory, config).expect("a pool")
}

fn store(pool: &Pool, objects: usize) -> Vec<Handle> {
    (0..objects).map(|at| pool.alloc(&[at as u8; LEN]).expect("room")).collect()
}

fn touched(pool: &Pool) -> u64 {
    pool.check().expect("no defect");
    pool.stats().object_bytes_resident / FRAME
}

#[test]
fn a_class_of_few_zspages_touches_what_it_uses() {
    let pool = pool();
    let one = store(&pool, 1);
    assert_eq!(touched(&pool), 1);
    let full = store(&pool, OBJECTS * SMALL as usize - OBJECTS);
    assert_eq!(touched(&pool), (SMALL - 1) * FRAMES + 1, "the last has its first object");
    drop((one, full));
}

#[test]
fn a_class_of_many_touches_a_new_one_as_a_whole() {
    let pool = pool();
    let full = store(&pool, OBJECTS * SMALL as usize);
    assert_eq!(touched(&pool), SMALL * FRAMES);
    let one = store(&pool, 1);
    assert_eq!(touched(&pool), (SMALL + 1) * FRAMES);
    drop((full, one));
}

#[test]
fn at_the_limit_only_what_is_used_is_touched() {
    let pool = pool();
    let full = store(&pool, OBJECTS * SMALL as usize);
    pool.set_limit((SMALL * FRAMES + 1) * FRAME);
    let one = store(&pool, 1);
    assert_eq!(touched(&pool), SMALL * FRAMES + 1);
    drop((full, one));
}
