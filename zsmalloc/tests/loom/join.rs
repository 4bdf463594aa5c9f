//! Scenarios of objects that join those of a larger class.
//!
//! One object in each of two classes, 8 and 7 to a zspage of one frame: compaction moves the
//! shorter one to the zspage of the longer one's class, and its lock is another one from then on.

use super::{model, pool};
use loom::thread;
use ramfold_zsmalloc::{Handle, Pool};
use std::sync::Arc;

const SHORT: [u8; 512] = [1; 512];
const LONG: [u8; 570] = [2; 570];

fn two_classes(pool: &Pool) -> (Handle, Handle) {
    let short = pool.alloc(&SHORT).expect("room");
    (short, pool.alloc(&LONG).expect("room"))
}

/// Joins them meanwhile.
fn compactor(pool: &Arc<Pool>) -> thread::JoinHandle<u64> {
    let pool = Arc::clone(pool);
    thread::spawn(move || pool.compact())
}

#[track_caller]
fn check(pool: &Pool, objects: u64, frames: u64) {
    assert_eq!(pool.check().expect("no defect").objects, objects);
    assert_eq!(pool.stats().mem_used_total, frames * 4096);
}

#[test]
fn pin_against_joining() {
    model(|| {
        let pool = pool();
        let (short, long) = two_classes(&pool);
        let mover = compactor(&pool);
        // Held while its slot may be given away and written again.
        let guard = pool.read(&short).expect("ours");
        let third = pool.alloc(&[3; 512]).expect("room");
        assert_eq!(guard[..], SHORT);
        drop(guard);
        mover.join().expect("mover");
        assert_eq!(pool.read(&short).expect("ours")[..], SHORT);
        assert_eq!(pool.read(&long).expect("ours")[..], LONG);
        assert_eq!(pool.read(&third).expect("ours")[..], [3; 512]);
        assert_eq!(pool.check().expect("no defect").objects, 3);
    });
}

/// The free has found the lock of the class that the object leaves.
#[test]
fn free_against_joining() {
    model(|| {
        let pool = pool();
        let (short, long) = two_classes(&pool);
        let mover = compactor(&pool);
        pool.free_handle(short).expect("ours");
        mover.join().expect("mover");
        assert_eq!(pool.read(&long).expect("ours")[..], LONG);
        check(&pool, 1, 1);
    });
}

/// The zspage that is joined is emptied, released and another one by turns.
#[test]
fn free_of_the_longer_one_against_joining() {
    model(|| {
        let pool = pool();
        let (short, long) = two_classes(&pool);
        let mover = compactor(&pool);
        pool.free_handle(long).expect("ours");
        let third = pool.alloc(&LONG).expect("room");
        mover.join().expect("mover");
        assert_eq!(pool.read(&short).expect("ours")[..], SHORT);
        assert_eq!(pool.read(&third).expect("ours")[..], LONG);
        pool.compact();
        check(&pool, 2, 1);
    });
}

#[test]
fn batch_free_against_joining() {
    model(|| {
        let pool = pool();
        let (short, long) = two_classes(&pool);
        let mover = compactor(&pool);
        pool.free_batch([short, long]).expect("ours");
        mover.join().expect("mover");
        check(&pool, 0, 0);
    });
}

/// A cell's object: read, and freed, by the thread that holds the cell.
#[test]
fn clear_against_joining() {
    model(|| {
        let pool = pool();
        let leaf = pool.alloc_leaf().expect("room");
        assert!(
            super::put_bytes(&pool, leaf, 0, &SHORT) && super::put_bytes(&pool, leaf, 1, &LONG)
        );
        let mover = compactor(&pool);
        assert_eq!(pool.cell(leaf, 0).expect("ours").bytes(), Some(&SHORT[..]));
        pool.cell(leaf, 0).expect("ours").clear();
        mover.join().expect("mover");
        assert_eq!(pool.cell(leaf, 1).expect("ours").bytes(), Some(&LONG[..]));
        check(&pool, 1, 1);
    });
}

/// What joined is alone in its class with room for more: there it stays.
#[test]
fn joined_objects_are_freed_in_their_new_class() {
    model(|| {
        let pool = pool();
        let (short, long) = two_classes(&pool);
        assert_eq!(pool.compact(), 1, "one frame is enough");
        check(&pool, 2, 1);
        let other = Arc::clone(&pool);
        let thread = thread::spawn(move || other.free_handle(short).expect("ours"));
        pool.free_handle(long).expect("ours");
        thread.join().expect("the other free");
        check(&pool, 0, 0);
    });
}

/// Six of 744 bytes need a second frame for the last, which fits beside four of 818: it joins them,
/// and the other five are packed.
#[test]
fn free_against_the_joining_of_some() {
    model(|| {
        let memory = super::memory_of(24);
        let pool = super::pool_on(&memory, super::config(2, 1));
        let mut short: Vec<Handle> = (0..6).map(|_| pool.alloc(&[1; 744]).expect("room")).collect();
        let long: Vec<Handle> = (0..4).map(|_| pool.alloc(&[2; 818]).expect("room")).collect();
        let mover = compactor(&pool);
        pool.free_handle(short.pop().expect("the last")).expect("ours");
        mover.join().expect("mover");
        short.iter().for_each(|handle| assert_eq!(pool.read(handle).expect("ours")[..], [1; 744]));
        long.iter().for_each(|handle| assert_eq!(pool.read(handle).expect("ours")[..], [2; 818]));
        assert_eq!(pool.check().expect("no defect").objects, 9);
    });
}
