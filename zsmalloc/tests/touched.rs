//! When the frames of a zspage are touched.
//!
//! Claims
//! - a class of few zspages touches a frame when an object reaches into it;
//! - one of many touches a new zspage as a whole, unless the limit is near;
//! - the system is asked for those at once;
//! - either way the pool counts the frames that are touched, and `check()` finds nothing.
#![cfg(not(loom))]

use std::sync::Arc;

use ramfold_zsmalloc::{ChainSize, Handle, Memory, MemoryConfig, Pool, PoolConfig, Rule};

const FRAME: u64 = 4096;
/// Bytes of an object of which 18 fill a zspage of 7 frames.
const LEN: usize = 1584;
const OBJECTS: usize = 18;
const FRAMES: u64 = 7;
/// Zspages of a class that is large from the next one on.
const SMALL: u64 = 31;

fn pool() -> Arc<Pool> {
    let config = MemoryConfig { worker: false, ..MemoryConfig::for_disk(64 << 20) };
    let memory = Memory::new(config).expect("address space");
    let chain = ChainSize::from_order(3).expect("order 3 is a chain size");
    let config = PoolConfig { chain, rule: Rule::LeastWaste, ..PoolConfig::default() };
    Pool::new(memory, config).expect("a pool")
}

fn store(pool: &Pool, objects: usize) -> Vec<Handle> {
    (0..objects).map(|at| pool.alloc(&[at as u8; LEN]).expect("room")).collect()
}

fn touched(pool: &Pool) -> u64 {
    pool.check().expect("no defect");
    pool.stats().object_bytes_resident / FRAME
}

/// Whether frames can be had before they are written to.
fn knows_populate() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
    let mut numbers = release.split('.').map(|part| part.parse().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(5), Some(14))
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
    let by_system = || pool.memory().resident_bytes(&[]).expect("smaps") / FRAME;
    let before = by_system();
    let one = store(&pool, 1);
    assert_eq!(touched(&pool), (SMALL + 1) * FRAMES);
    if knows_populate() {
        assert!(by_system() - before >= FRAMES, "the system was not asked for them");
    } else {
        eprintln!("skipped: needs MADV_POPULATE_WRITE, Linux 5.14");
    }
    drop((full, one));
}

#[test]
fn near_the_limit_only_what_is_used_is_touched() {
    let near = 64 * FRAMES; // as many zspages as may be touched at the same moment
    for (left, as_a_whole) in [(1, false), (near - 1, false), (near, true)] {
        let pool = pool();
        let full = store(&pool, OBJECTS * SMALL as usize);
        pool.set_limit((SMALL * FRAMES + left) * FRAME);
        let one = store(&pool, 1);
        let expected = if as_a_whole { FRAMES } else { 1 };
        assert_eq!(touched(&pool) - SMALL * FRAMES, expected, "with {left} frames left");
        drop((full, one));
    }
}
