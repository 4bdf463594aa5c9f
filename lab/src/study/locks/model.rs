//! A model of what threads on cores of their own do to each other: a closed queueing network.
//!
//! ```text
//!   one core     work ---> common ---> line ---> line ---> lock ---> work ---> ...
//!                                      \__ hierarchical __/   \
//!                                                              one of the classes', or the pool's
//! ```
//!
//! Every core repeats one operation: some work of its own, then a visit to what it shares.
//! - A *lock* serves one core at a time, first come first served, for as long as it is held.
//! - The *common* line stands for all that is shared besides: lists of handles, the zone, counters.
//!   Visiting it takes no time of its own.
//! - A *line* is the word of the pool's readers-writer lock: taking it for reading and giving it
//!   back are two visits of the time of one atomic operation.
//! - A core that comes to a lock or a line that another core had last waits for it to come over.
//!   This *hand-over* is all that sharing costs besides waiting for one's turn.
//!
//! The class is drawn by the share of the objects it has. In `free-batch` a batch of 512 visits the
//! common line and the lock once for each of its classes, for as many objects as are of that class.
//! In `mixed` half the operations are reads, which take the lock in the pool design, the two lines
//! in the hierarchical one, and nothing in the class design.
//!
//! Left out: sleeping on a lock, and the machine's topology; every hand-over costs the same. So it
//! says how the designs compare when there are more cores, not what a machine would do.
//!
//! Invariant: a model is a function of its numbers; the random draws have a fixed seed.

use super::trial::{BATCH, Mix};
use crate::rng::Rng;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use zsmalloc::LockDesign;

/// What an operation costs one core, in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Costs {
    /// Outside the lock.
    pub(super) work: f64,
    /// With the lock held.
    pub(super) hold: f64,
    /// One visit to a line that no other core had.
    pub(super) line: f64,
    /// What is shared besides, coming over from another core.
    pub(super) common_hand_over: f64,
    /// A lock, and what it protects, coming over from another core.
    pub(super) lock_hand_over: f64,
    /// A line coming over.
    pub(super) line_hand_over: f64,
}

/// See the module documentation.
pub(super) struct Model<'a> {
    pub(super) design: LockDesign,
    pub(super) mix: Mix,
    /// The part of the objects that each class has.
    pub(super) weights: &'a [f64],
    pub(super) costs: Costs,
    /// Whether every core has classes of its own.
    pub(super) split: bool,
}

/// Operations simulated, over all cores.
const OPERATIONS: usize = 40_000;
const SEED: u64 = 0x6D_6F64_656C;

/// One thing a core does before it comes to the next.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Work(f64),
    Common,
    Line,
    Lock(usize, f64),
}

/// A lock or a line: when it is free again, and who had it.
#[derive(Clone, Copy, Default)]
struct Shared {
    free_at: f64,
    last: Option<usize>,
}

impl Shared {
    /// Serves `core`, who comes at `now`; gives when it goes on.
    fn serve(&mut self, core: usize, now: f64, time: f64, hand_over: f64) -> f64 {
        let foreign = self.last.is_some_and(|last| last != core);
        let start = now.max(self.free_at);
        self.free_at = start + time + if foreign { hand_over } else { 0.0 };
        self.last = Some(core);
        self.free_at
    }
}

/// A core: what it has still to do of its present operation or batch, last first.
struct Core {
    stages: Vec<Stage>,
    rng: Rng,
}

/// When a core comes to its next stage; nanoseconds as bits order like the numbers.
type Arrival = Reverse<(u64, usize)>;

impl Model<'_> {
    /// Operations of all cores in a second.
    pub(super) fn ops_per_s(&self, cores: usize) -> f64 {
        const NS_PER_S: f64 = 1e9;
        let (mut common, mut line) = (Shared::default(), Shared::default());
        let mut locks = vec![Shared::default(); self.weights.len().max(1) * cores];
        let core = |core| Core { stages: Vec::new(), rng: Rng::new(SEED, core as u64) };
        let mut all: Vec<Core> = (0..cores).map(core).collect();
        let mut arrivals: BinaryHeap<Arrival> = (0..cores).map(|core| arrival(0.0, core)).collect();
        let (mut done, mut end) = (0, 0.0);
        while let Some(Reverse((bits, at))) = arrivals.pop() {
            let now = f64::from_bits(bits);
            if all[at].stages.is_empty() {
                (done, end) = if done < OPERATIONS { (done, end) } else { break };
                let first = if self.split { at * self.weights.len() } else { 0 };
                done += self.next(&mut all[at], first);
            }
            let after = match all[at].stages.pop() {
                None => now,
                Some(Stage::Work(time)) => now + time,
                Some(Stage::Common) => common.serve(at, now, 0.0, self.costs.common_hand_over),
                Some(Stage::Line) => {
                    line.serve(at, now, self.costs.line, self.costs.line_hand_over)
                }
                Some(Stage::Lock(lock, hold)) => {
                    locks[lock].serve(at, now, hold, self.costs.lock_hand_over)
                }
            };
            end = f64::max(end, after);
            arrivals.push(arrival(after, at));
        }
        done as f64 / end * NS_PER_S
    }

    /// Gives a core, whose locks begin with `first`, its next operation or batch; how many.
    fn next(&self, core: &mut Core, first: usize) -> usize {
        if self.mix == Mix::FreeBatch {
            let mut counts = vec![0; self.weights.len()];
            (0..BATCH).for_each(|_| counts[self.class(&mut core.rng)] += 1);
            let visits = counts.iter().enumerate().filter(|(_, count)| **count > 0);
            visits.for_each(|(class, &count)| self.visit(core, first + class, count));
            return BATCH;
        }
        let class = self.class(&mut core.rng);
        let reads = self.mix == Mix::Mixed && core.rng.below(2) == 0;
        match (reads, self.design) {
            (true, LockDesign::Class) => {
                core.stages.push(Stage::Work(self.costs.work + self.costs.hold));
            }
            (true, LockDesign::Hierarchical) => {
                let alone = self.costs.work + self.costs.hold;
                core.stages.extend([Stage::Line, Stage::Line, Stage::Work(alone)]);
            }
            _ => self.visit(core, first + class, 1),
        }
        1
    }

    /// Work for `count` objects of a class, and one visit to its lock; stages last first.
    fn visit(&self, core: &mut Core, class: usize, count: u32) {
        let Costs { work, hold, .. } = self.costs;
        let lock = if self.design == LockDesign::Pool { 0 } else { class };
        core.stages.push(Stage::Lock(lock, hold * f64::from(count)));
        if self.design == LockDesign::Hierarchical {
            core.stages.extend([Stage::Line, Stage::Line]);
        }
        core.stages.extend([Stage::Common, Stage::Work(work * f64::from(count))]);
    }

    fn class(&self, rng: &mut Rng) -> usize {
        let mut left = rng.next() as f64 / u64::MAX as f64;
        let found = self.weights.iter().position(|weight| {
            left -= weight;
            left < 0.0
        });
        found.unwrap_or(0)
    }
}

fn arrival(time: f64, core: usize) -> Arrival {
    Reverse((time.to_bits(), core))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Costs = Costs {
        work: 60.0,
        hold: 40.0,
        line: 0.0,
        common_hand_over: 0.0,
        lock_hand_over: 0.0,
        line_hand_over: 0.0,
    };

    fn model<'a>(design: LockDesign, mix: Mix, costs: Costs, weights: &'a [f64]) -> Model<'a> {
        Model { design, mix, weights, costs, split: false }
    }

    fn near(got: f64, expected: f64) {
        assert!((got / expected - 1.0).abs() < 0.01, "{got:.0} per second, not {expected:.0}");
    }

    #[test]
    fn one_core_waits_for_nobody() {
        for design in LockDesign::ALL {
            for mix in [Mix::Free, Mix::FreeBatch, Mix::Mixed] {
                near(model(design, mix, FREE, &[0.5, 0.5]).ops_per_s(1), 1e7);
            }
        }
    }

    /// The bounds of a closed network: no more than the cores can do, no more than the lock can.
    #[test]
    fn one_lock_serves_no_more_than_its_hold_allows() {
        let pool = model(LockDesign::Pool, Mix::Free, FREE, &[1.0]);
        near(pool.ops_per_s(2), 2e7);
        for cores in [4, 16] {
            near(pool.ops_per_s(cores), 1e9 / 40.0);
        }
        let costs = Costs { lock_hand_over: 60.0, ..FREE };
        near(model(LockDesign::Pool, Mix::Free, costs, &[1.0]).ops_per_s(16), 1e9 / 100.0);
    }

    #[test]
    fn lines_bound_the_hierarchical_design() {
        let costs = Costs { line: 5.0, line_hand_over: 45.0, ..FREE };
        let weights = [0.001; 1000];
        let hierarchical = model(LockDesign::Hierarchical, Mix::Free, costs, &weights);
        near(hierarchical.ops_per_s(16), 1e9 / 100.0);
        let class = model(LockDesign::Class, Mix::Free, costs, &weights).ops_per_s(16);
        assert!(class > 15.0 * 1e7, "{class:.0} per second with nothing shared but rare classes");
    }

    #[test]
    fn split_classes_share_the_common_line_alone() {
        let costs = Costs { common_hand_over: 50.0, lock_hand_over: 500.0, ..FREE };
        let mut class = model(LockDesign::Class, Mix::Free, costs, &[1.0]);
        assert!(class.ops_per_s(4) < 2e6, "one lock, dear to hand over");
        class.split = true;
        near(class.ops_per_s(16), 1e9 / 50.0);
        class.costs.common_hand_over = 0.0;
        near(class.ops_per_s(16), 16.0 * 1e7);
    }

    #[test]
    fn reads_share_nothing_in_the_class_design() {
        let class = |mix| model(LockDesign::Class, mix, FREE, &[1.0]).ops_per_s(16);
        near(class(Mix::Free), 1e9 / 40.0);
        assert!(class(Mix::Mixed) > 1.8 * class(Mix::Free), "half of them do not queue");
    }

    #[test]
    fn a_batch_comes_to_a_lock_once() {
        let costs = Costs { lock_hand_over: 1000.0, ..FREE };
        let of = |mix| model(LockDesign::Class, mix, costs, &[0.25; 4]).ops_per_s(4);
        assert!(of(Mix::FreeBatch) > 5.0 * of(Mix::Free), "hand-overs are per batch and class");
    }
}
