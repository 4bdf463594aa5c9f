//! What is there for comparison: counting by walking the lists, and a zone that keeps no counts.
//!
//! Claims
//!
//! 1. At rest a walk finds what is published, whatever was done before.
//! 2. A walk that is cut short says the limit where there is more, and else the truth.
//! 3. A zone without counts does what the zone does: the same answers, and the same free blocks on
//!    the same lists in the same order.

use proptest::prelude::*;
use ramfold_buddy::study::Counts;
use ramfold_buddy::{AllocError, Migratetype, Order, Pfn, SharedZone, Warm, Zone};

const FRAMES: u32 = 6 * 512;
const TYPES: [Migratetype; 4] = [
    Migratetype::Movable,
    Migratetype::Unmovable,
    Migratetype::Reclaimable,
    Migratetype::HighAtomic,
];

#[derive(Clone, Debug)]
enum Operation {
    Alloc(u32, Migratetype),
    Free(usize, Warm),
}

fn operation() -> impl Strategy<Value = Operation> {
    let warm = prop_oneof![Just(Warm::Resident), Just(Warm::Untouched)];
    let alloc = |frames| (frames, prop::sample::select(&TYPES[..]));
    prop_oneof![
        3 => alloc(1..40_u32).prop_map(|(frames, mt)| Operation::Alloc(frames, mt)),
        1 => alloc(200..1025_u32).prop_map(|(frames, mt)| Operation::Alloc(frames, mt)),
        3 => (any::<usize>(), warm).prop_map(|(nth, warm)| Operation::Free(nth, warm)),
    ]
}

/// A zone and the runs in it.
struct Owned<C: Counts> {
    zone: Zone<C>,
    runs: Vec<(Pfn, u32)>,
}

impl<C: Counts> Owned<C> {
    fn apply(&mut self, operation: &Operation) -> Option<Result<Pfn, AllocError>> {
        match *operation {
            Operation::Alloc(frames, mt) => {
                let answer = self.zone.alloc_run(frames, mt);
                self.runs.extend(answer.iter().map(|pfn| (*pfn, frames)));
                Some(answer)
            }
            Operation::Free(..) if self.runs.is_empty() => None,
            Operation::Free(nth, warm) => {
                let (pfn, frames) = self.runs.swap_remove(nth % self.runs.len());
                assert_eq!(self.zone.free_run(pfn, frames, warm), Ok(()));
                None
            }
        }
    }

    fn free(&self) -> Vec<(Pfn, Order, Migratetype, Warm)> {
        let mut free = Vec::new();
        self.zone.for_each_free(|pfn, order, mt, warm| free.push((pfn, order, mt, warm)));
        free
    }
}

proptest! {
    #[test]
    fn counting_changes_nothing_but_the_counts(
        operations in prop::collection::vec(operation(), 1..200),
    ) {
        let mut counted = Owned { zone: Zone::new(FRAMES), runs: Vec::new() };
        let mut uncounted = Owned { zone: Zone::uncounted(FRAMES), runs: Vec::new() };
        for operation in &operations {
            prop_assert_eq!(counted.apply(operation), uncounted.apply(operation));
            prop_assert_eq!(counted.free(), uncounted.free());
            let published = counted.zone.published().read();
            prop_assert_eq!(counted.zone.counts_by_walk(u64::MAX), published);
            let walked = uncounted.zone.counts_by_walk(u64::MAX);
            prop_assert_eq!(walked.free_blocks, published.free_blocks);
        }
        counted.zone.check().expect("a zone that was only used is sound");
    }
}

#[test]
fn a_walk_that_is_cut_short_says_so() {
    let zone = SharedZone::new(512);
    let singles: Vec<Pfn> =
        (0..512).map(|_| zone.alloc(Order::ZERO, Migratetype::Movable).unwrap()).collect();
    for (nth, pfn) in singles.iter().step_by(2).enumerate() {
        let warm = if nth < 100 { Warm::Resident } else { Warm::Untouched };
        zone.free(*pfn, Order::ZERO, warm).unwrap();
    }
    let (movable, published) = (Migratetype::Movable as usize, zone.published().read());
    assert_eq!(published.free_blocks[movable][0], 256);
    for (limit, found) in [(0, 0), (99, 99), (101, 101), (255, 255), (256, 256), (1000, 256)] {
        let walked = zone.counts_by_walk(limit);
        assert_eq!(walked.free_blocks[movable][0], found, "at most {limit}");
        assert_eq!(walked.pageblocks, published.pageblocks, "pageblocks are not walked");
    }
}
