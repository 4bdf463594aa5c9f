//! Scenarios of descriptors: what a migration, or a free, looks at becomes another zspage's.

use super::handles::{check, move_meanwhile, pfns, two_sparse};
use super::{config, memory, model, pool_on, put_bytes};
use loom::thread;
use ramfold_zsmalloc::SIZE_MAX;
use std::sync::Arc;

/// While a migration looks at a zspage, that goes and its descriptor becomes one of another pool's,
/// in a shard that the migrating pool does not have.
#[test]
fn migration_against_its_descriptors_next_life_in_another_pool() {
    model(|| {
        let memory = memory();
        let [pool, theirs] = [1, 2].map(|shards| pool_on(&memory, config(1, shards)));
        let one = pool.alloc(&[1; SIZE_MAX]).expect("room");
        let mover = move_meanwhile(&pool, pfns(&pool)[0]);
        pool.free_handle(one).expect("ours");
        let two = theirs.alloc(&[2; SIZE_MAX - 1]).expect("room");
        assert!(mover.join().expect("mover"), "each is one frame");
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
        let mover = move_meanwhile(&pool, from);
        pool.free_handle(one).expect("ours");
        let three = pool.alloc(&[3; LEN]).expect("room");
        assert!(mover.join().expect("mover"), "one frame is as much as was there");
        assert!(pool.read(&three).expect("ours")[..] == [3; LEN]);
        assert!(pool.read(&two).expect("ours")[..] == [2; SIZE_MAX]);
        check(&pool, 2);
    });
}

/// The free of an object that moves meanwhile, and the descriptor of its old zspage becomes one of
/// another pool's. Its lock is then one that the thread which moved the object has not had since.
/// So a thread that sees the lock in the header must see the move counted by that alone. One of two
/// objects moves: each is freed, in a model of its own.
#[test]
fn free_against_its_headers_next_life_in_another_pool() {
    for first in [true, false] {
        model(move || {
            let memory = memory();
            let [pool, theirs] = [1, 1].map(|shards| pool_on(&memory, config(1, shards)));
            let (one, two) = two_sparse(&pool);
            let (freed, leaf) = (if first { one } else { two }, theirs.alloc_leaf().expect("room"));
            let (mover, next) = (Arc::clone(&pool), Arc::clone(&theirs));
            let mover = thread::spawn(move || {
                mover.shrink(1);
                assert!(put_bytes(&next, leaf, 0, &[7; 1024]));
            });
            pool.free_handle(freed).expect("ours");
            mover.join().expect("mover");
            assert!(theirs.cell(leaf, 0).expect("theirs").bytes() == Some(&[7; 1024]));
            check(&pool, 1);
            check(&theirs, 1);
        });
    }
}
