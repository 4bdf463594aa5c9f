//! Scenarios in which the other thread does several things in a row: places, numbers and locks come
//! back between two looks, so that finding the same twice says nothing.

use super::handles::{check, expect, two_sparse};
use super::two_sparse_zspages;
use super::{SIZE, config, expect as expect_cell, memory, memory_of, model, pool, pool_on, put};
use loom::thread;
use ramfold_zsmalloc::{Content, Handle, Pool, StaleHandle};
use std::sync::Arc;

fn alloc(pool: &Pool, byte: u8) -> Handle {
    pool.alloc(&[byte; SIZE]).expect("room")
}

/// Compacts twice, with allocations and frees between; gives what it stored last, which says 6.
fn compact_twice(pool: &Pool, two: Handle) -> Handle {
    pool.shrink(1);
    let [three, four] = [5, 6].map(|byte| alloc(pool, byte));
    pool.free_handle(two).expect("ours");
    pool.free_handle(three).expect("ours");
    pool.shrink(1);
    four
}

/// Both places that the object leaves are no zspage's then, and have the same slot number.
#[test]
fn handle_free_against_two_compactions() {
    model(|| {
        let pool = pool();
        let (one, two) = two_sparse(&pool);
        let other = Arc::clone(&pool);
        let mover = thread::spawn(move || compact_twice(&other, two));
        pool.free_handle(one).expect("ours");
        let four = mover.join().expect("mover");
        expect(&pool, &four, 6);
        check(&pool, 1);
    });
}

#[test]
fn pins_against_two_compactions() {
    model(|| {
        let pool = pool();
        let (one, two) = two_sparse(&pool);
        let other = Arc::clone(&pool);
        let mover = thread::spawn(move || compact_twice(&other, two));
        let guard = pool.read(&one).expect("ours");
        assert_eq!(guard[..], [1; SIZE]);
        let again = pool.read(&one).expect("ours");
        drop(guard);
        assert_eq!(again[..], [1; SIZE]);
        drop(again);
        let four = mover.join().expect("mover");
        expect(&pool, &four, 6);
        expect(&pool, &one, 1);
        check(&pool, 2);
    });
}

#[test]
fn clear_against_compaction_and_its_leafs_next_owner() {
    model(|| {
        let memory = memory();
        let [pool, theirs] = [1, 1].map(|shards| pool_on(&memory, config(1, shards)));
        let (one, two) = two_sparse_zspages(&pool);
        let (mover, next) = (Arc::clone(&pool), Arc::clone(&theirs));
        let mover = thread::spawn(move || {
            mover.shrink(1);
            mover.free_leaf(one, |_| {}).expect("ours");
            let leaf = next.alloc_leaf().expect("room");
            assert!(put(&next, leaf, 0, 7));
            leaf
        });
        if let Ok(mut cell) = pool.cell(one, 0) {
            cell.clear();
        }
        let leaf = mover.join().expect("mover");
        expect_cell(&theirs, leaf, 0, 7);
        expect_cell(&pool, two, 0, 3);
        check(&pool, 1);
        check(&theirs, 1);
    });
}

/// A leaf that comes back to its owner, and goes again with what is stored in it.
#[test]
fn late_write_against_two_lives_of_its_leaf() {
    model(|| {
        let pool = pool_on(&memory(), config(1, 1));
        let leaf = pool.alloc_leaf().expect("room");
        assert!(put(&pool, leaf, 0, 1));
        let other = Arc::clone(&pool);
        let drainer = thread::spawn(move || {
            other.free_leaf(leaf, |_| {}).expect("ours");
            let next = other.alloc_leaf().expect("room");
            other.free_leaf(next, |_| {}).expect("ours");
        });
        // Refused, or gone with one of the leaf's lives.
        put(&pool, leaf, 0, 2);
        drainer.join().expect("drainer");
        check(&pool, 0);
        let next = pool.alloc_leaf().expect("room");
        assert_eq!(pool.peek(next, 0), Some(Content::Empty));
    });
}

#[test]
fn raw_free_against_two_compactions() {
    model(|| {
        let pool = pool_on(&memory_of(16), config(1, 1));
        let raw = |byte| pool.alloc_raw(&[byte; SIZE]).expect("room");
        let [gone, one, two, gone2] = [0, 1, 3, 4].map(raw);
        pool.free_raw(gone).expect("live");
        pool.free_raw(gone2).expect("live");
        let other = Arc::clone(&pool);
        let mover = thread::spawn(move || {
            other.shrink(1);
            let three = other.alloc_raw(&[5; SIZE]).expect("room");
            other.free_raw(two).expect("live");
            other.shrink(1);
            let mut out = [0; SIZE];
            assert_eq!((other.read_raw(three, &mut out), out[0]), (Ok(SIZE), 5));
            three
        });
        pool.free_raw(one).expect("live");
        let three = mover.join().expect("mover");
        let mut out = [0; SIZE];
        assert_eq!((pool.read_raw(three, &mut out), out[0]), (Ok(SIZE), 5));
        assert_eq!(pool.free_raw(one), Err(StaleHandle));
        check(&pool, 1);
    });
}
