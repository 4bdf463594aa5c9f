//! Scenarios of descriptors: what a migration looks at becomes another zspage's.

use super::handles::{check, move_meanwhile, pfns};
use super::{config, memory, model, pool_on};
use zsmalloc::SIZE_MAX;

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
