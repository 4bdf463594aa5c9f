//! Scenarios of the limit: threads that come to it together.

use super::handles::check;
use super::{config, memory_of, model, pool_on};
use loom::thread;
use ramfold_zsmalloc::{Handle, Pool};
use std::sync::Arc;

/// Of two classes, each with zspages of so many frames.
const LENS: [usize; 2] = [2978, 3640];
const FRAMES: u64 = 8;

fn fill(pool: &Pool, len: usize) -> Vec<Handle> {
    let shape = pool.geometry().shape(pool.geometry().class_of(len).expect("a length"));
    assert_eq!(u64::from(shape.frames), FRAMES);
    (0..shape.objects).map(|_| pool.alloc(&vec![1; len]).expect("room")).collect()
}

/// Frames that were touched before, and come with a new zspage, count before the other thread
/// looks: two threads pass the limit by an object's two frames each, not by a chain of frames.
#[test]
fn allocation_of_touched_frames_against_another_at_the_limit() {
    model(|| {
        let pool = pool_on(&memory_of(64), config(FRAMES as usize, 1));
        let filled = LENS.map(|len| fill(&pool, len));
        pool.free_batch(filled.into_iter().flatten()).expect("ours");
        assert_eq!(pool.memory().free_bytes_held(), 2 * FRAMES * 4096, "touched, and free");
        let limit = FRAMES * 4096;
        pool.set_limit(limit);
        let other = Arc::clone(&pool);
        let thread = thread::spawn(move || other.alloc(&[2; LENS[0]]));
        let ours = pool.alloc(&[3; LENS[1]]);
        let theirs = thread.join().expect("the other allocation");
        let held = pool.stats().object_bytes_resident;
        assert!(held <= limit + 2 * 2 * 4096, "{held} of {limit}");
        assert!(ours.is_ok() || theirs.is_ok(), "there is room for one");
        let stored: Vec<Handle> = ours.into_iter().chain(theirs).collect();
        check(&pool, stored.len() as u64);
        pool.free_batch(stored).expect("ours");
    });
}
