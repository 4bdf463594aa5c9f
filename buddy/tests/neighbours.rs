//! Runs that are freed together against the same runs freed one by one.
//!
//! Claim: in whatever order they come, the zone ends with the same free blocks; a run that is
//! refused is named, and the others are freed.

use proptest::prelude::*;
use ramfold_buddy::{FreeError, FreedRun, Migratetype, Pfn, Warm, Zone};

fn warm() -> impl Strategy<Value = Warm> {
    prop_oneof![3 => Just(Warm::Resident), 1 => Just(Warm::Untouched)]
}

proptest! {
    #[test]
    fn runs_freed_together_are_freed(
        runs in prop::collection::vec((1..40_u32, warm(), any::<bool>()), 1..300),
        sorted in any::<bool>(),
        wrong in prop::option::of(0..300_usize),
    ) {
        let (mut together, mut single) = (Zone::new(8192), Zone::new(8192));
        let mut freed = Vec::new();
        for (frames, warm, free) in runs {
            let Ok(pfn) = together.alloc_run(frames, Migratetype::Movable) else { break };
            prop_assert_eq!(single.alloc_run(frames, Migratetype::Movable), Ok(pfn));
            if free {
                freed.push(FreedRun { pfn, frames, warm });
            }
        }
        if sorted {
            freed.sort_by_key(|run| run.pfn);
        }
        let mut expected = Ok(());
        for run in &freed {
            prop_assert_eq!(single.free_run(run.pfn, run.frames, run.warm), Ok(()));
        }
        if let Some(wrong) = wrong {
            let nowhere = FreedRun { pfn: Pfn::new(1 << 20), frames: 1, warm: Warm::Resident };
            freed.insert(wrong.min(freed.len()), nowhere);
            expected = Err(FreeError::OutOfRange(nowhere.pfn));
        }
        prop_assert_eq!(together.free_runs(freed.into_iter()), expected);
        prop_assert_eq!(together.counts(), single.counts());
        prop_assert_eq!(together.free_frames(), single.free_frames());
        let found = together.check();
        prop_assert!(found.is_ok(), "{:?}", found);
    }
}

/// A change that gave the last refusal passed every test, because each had one refusal only.
#[test]
fn the_first_refusal_is_given_and_the_others_are_freed() {
    let mut zone = Zone::new(512);
    let runs: Vec<Pfn> =
        (0..3).map(|_| zone.alloc_run(1, Migratetype::Movable).expect("a frame")).collect();
    let run = |pfn, frames| FreedRun { pfn, frames, warm: Warm::Resident };
    let nowhere = |number| run(Pfn::new(number), 1);
    let freed = [run(runs[0], 1), nowhere(1000), run(runs[1], 7), nowhere(2000), run(runs[2], 1)];
    let refused = zone.free_runs(freed.into_iter());
    let first = Err(FreeError::OutOfRange(Pfn::new(1000)));
    assert_eq!(refused, first, "the refusal that is given, of three");
    assert_eq!(zone.free_frames(), 511, "free frames: the two runs that were right are freed");
    zone.check().expect("sound after refusals");
}
