//! Scenarios of descriptors: what a migration looks at becomes another zspage's.

use super::handles::{check, pfns};
use super::{config, memory, model, pool_on};
use loom::thread;
use std::sync::Arc;
use zsmalloc::{MigrateError, SIZE_MAX};

/// While a migration looks at a zspage, that goes and its descriptor becomes one of another pool's,
/// in a shard that the migrating pool does not have.
#[test]
fn migration_against_its_descriptors_next_life_in_another_pool() {
    model(|| {
        let memory = memory();
        let [pool, theirs] = [1, 2].map(|shards| pool_on(&memory, config(1, shards)));
        let one = pool.alloc(&[1; SIZE_MAX]).expect("room");
        let from = pfns(&pool)[0];
        let other = Arc::clone(&pool);
        let mover = thread::spawn(move || {
            let frames = other.memory().frames(1).expect("room");
            drop(other.migrate(from, frames));
        });
        pool.free_handle(one).expect("ours");
        let two = theirs.alloc(&[2; SIZE_MAX - 1]).expect("room");
        mover.join().expect("mover");
        check(&pool, 0);
        assert!(theirs.read(&two).expect("theirs")[..] == [2; SIZE_MAX - 1]);
        check(&theirs, 1);
    });
}

/// The same, and the descriptor becomes one of this pool's: of another class's zspage, longer than
/// the frames that the migration has, and on other frames.
#[test]
fn migration_against_its_descriptors_next_life_in_another_class() {
    model(|| {
        const LEN: usize = 2720; // in two frames
        let pool = pool_on(&memory(), config(2, 1));
        // The second keeps the frame of the first from being part of two.
        let [one, two] = [1, 2].map(|byte| pool.alloc(&[byte; SIZE_MAX]).expect("room"));
        let from = pfns(&pool).into_iter().min().expect("two zspages");
        let other = Arc::clone(&pool);
        let mover = thread::spawn(move || {
            let frames = other.memory().frames(1).expect("room");
            other.migrate(from, frames)
        });
        pool.free_handle(one).expect("ours");
        let three = pool.alloc(&[3; LEN]).expect("room");
        match mover.join().expect("mover") {
            Ok(()) | Err(MigrateError::NoZspage) => {}
            Err(wrong) => panic!("one frame was as much as was there: {wrong}"),
        }
        assert!(pool.read(&three).expect("ours")[..] == [3; LEN]);
        assert!(pool.read(&two).expect("ours")[..] == [2; SIZE_MAX]);
        check(&pool, 2);
    });
}
