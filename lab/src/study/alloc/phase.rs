//! The phases, as one thread goes through them on its share of the slots.
//!
//! ```text
//!   held    | handle | -      | handle | ...     one per slot, all touched before the baseline
//!   object  | 17     | 4      | 231    | ...     which object the slot holds, or held last
//! ```
//!
//! Invariant: what a thread does depends on the run, its number and the objects alone, never on
//! the holder; so every holder gets the same objects in the same order.

use super::holder::Holder;
use super::plan::Plan;
use crate::apparatus::objects::Objects;
use crate::ground::{LabError, Rng};
use std::hint::black_box;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Operations between two looks at the clock.
const BATCH: usize = 512;
/// Replacements per slot.
const CHURN: usize = 10;
const SEED: u64 = 0x61_6C6C_6F63;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Fill,
    Churn,
    ChurnCompact,
    Half,
    Compact,
    Refill,
}

impl Phase {
    pub(super) const ALL: [Phase; 6] = [
        Phase::Fill,
        Phase::Churn,
        Phase::ChurnCompact,
        Phase::Half,
        Phase::Compact,
        Phase::Refill,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Phase::Fill => "fill",
            Phase::Churn => "churn",
            Phase::ChurnCompact => "churn_compact",
            Phase::Half => "half",
            Phase::Compact => "compact",
            Phase::Refill => "refill",
        }
    }
}

/// What was done in a phase, and how long it took.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Times {
    pub(super) alloc: Duration,
    pub(super) allocs: u64,
    pub(super) free: Duration,
    pub(super) frees: u64,
    /// Of the thread that compacts.
    pub(super) compact: Option<Duration>,
}

impl Times {
    pub(super) fn add(&mut self, other: &Times) {
        self.alloc += other.alloc;
        self.allocs += other.allocs;
        self.free += other.free;
        self.frees += other.frees;
        self.compact = self.compact.or(other.compact);
    }
}

/// The objects that are stored, as the threads that stored them count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Live {
    pub(super) objects: u64,
    pub(super) bytes: u64,
}

/// The slots of one thread.
pub(super) struct Share<H> {
    thread: usize,
    held: Vec<Option<H>>,
    object: Vec<u32>,
    /// The slots that `half` frees, in its order.
    half: Vec<u32>,
    /// The batch a slot was last part of, so that none is twice in one.
    batch_of: Vec<u32>,
    batches: u32,
    batch: Vec<u32>,
    rng: Rng,
    times: Times,
}

impl<H> Share<H> {
    /// The slots that begin with the objects of `range`. Every page of every table is touched.
    pub(super) fn new(thread: usize, range: Range<u32>, run: u32) -> Share<H> {
        let slots = range.len();
        let mut held = Vec::with_capacity(slots);
        // Zeros that are asked for together with the memory would be zeros nobody has touched.
        black_box(&mut held);
        held.extend(std::iter::repeat_with(|| None).take(slots));
        let mut batch_of = Vec::with_capacity(slots);
        black_box(&mut batch_of);
        batch_of.resize(slots, 0);
        let mut rng = Rng::new(SEED + u64::from(run), thread as u64);
        let mut half = rng.permutation(slots);
        half.truncate(slots / 2);
        let (object, batch) = (range.collect(), Vec::with_capacity(BATCH));
        let times = Times::default();
        Share { thread, held, object, half, batch_of, batches: 0, batch, rng, times }
    }

    /// Goes through `phase`.
    pub(super) fn run<A: Holder<Held = H>>(
        &mut self,
        phase: Phase,
        holder: &A,
        objects: &Objects,
        plan: &Plan,
    ) -> Result<Times, LabError> {
        self.times = Times::default();
        match phase {
            Phase::Fill => self.fill(holder, objects)?,
            Phase::Churn => self.churn(holder, objects)?,
            Phase::Half => self.over_half(|share| share.free_batch(holder))?,
            Phase::Refill => self.over_half(|share| share.alloc_batch(holder, objects))?,
            Phase::ChurnCompact | Phase::Compact => {
                let start = Instant::now();
                let counts = holder.compact(self.thread, plan, objects)?;
                self.times.compact = counts.then(|| start.elapsed());
            }
        }
        Ok(self.times)
    }

    fn fill<A: Holder<Held = H>>(&mut self, holder: &A, objects: &Objects) -> Result<(), LabError> {
        let slots = self.held.len() as u32;
        for first in (0..slots).step_by(BATCH) {
            self.batch.clear();
            self.batch.extend(first..slots.min(first + BATCH as u32));
            self.alloc_batch(holder, objects)?;
        }
        Ok(())
    }

    fn churn<A: Holder<Held = H>>(
        &mut self,
        holder: &A,
        objects: &Objects,
    ) -> Result<(), LabError> {
        let mut left = CHURN * self.held.len();
        while left > 0 {
            // Half the slots at most, so that they are soon found.
            self.draw_batch(left.min(BATCH).min(self.held.len().div_ceil(2)));
            self.free_batch(holder)?;
            for &slot in &self.batch {
                self.object[slot as usize] = self.rng.below(objects.count()) as u32;
            }
            self.alloc_batch(holder, objects)?;
            left -= self.batch.len();
        }
        Ok(())
    }

    /// Draws `count` different slots.
    fn draw_batch(&mut self, count: usize) {
        self.batches += 1;
        self.batch.clear();
        while self.batch.len() < count {
            let slot = self.rng.below(self.held.len());
            if self.batch_of[slot] != self.batches {
                self.batch_of[slot] = self.batches;
                self.batch.push(slot as u32);
            }
        }
    }

    fn over_half(
        &mut self,
        mut work: impl FnMut(&mut Share<H>) -> Result<(), LabError>,
    ) -> Result<(), LabError> {
        for first in (0..self.half.len()).step_by(BATCH) {
            let last = self.half.len().min(first + BATCH);
            self.batch.clear();
            self.batch.extend_from_slice(&self.half[first..last]);
            work(self)?;
        }
        Ok(())
    }

    fn alloc_batch<A: Holder<Held = H>>(
        &mut self,
        holder: &A,
        objects: &Objects,
    ) -> Result<(), LabError> {
        let start = Instant::now();
        for &slot in &self.batch {
            let object = objects.get(self.object[slot as usize]);
            self.held[slot as usize] = Some(holder.alloc(object)?);
        }
        self.times.alloc += start.elapsed();
        self.times.allocs += self.batch.len() as u64;
        Ok(())
    }

    fn free_batch<A: Holder<Held = H>>(&mut self, holder: &A) -> Result<(), LabError> {
        let start = Instant::now();
        for &slot in &self.batch {
            if let Some(held) = self.held[slot as usize].take() {
                holder.free(held)?;
            }
        }
        self.times.free += start.elapsed();
        self.times.frees += self.batch.len() as u64;
        Ok(())
    }

    /// Compares every object with what was stored, and counts them.
    pub(super) fn verify<A: Holder<Held = H>>(
        &self,
        holder: &A,
        objects: &Objects,
    ) -> Result<Live, LabError> {
        let mut live = Live::default();
        for (slot, (held, &index)) in self.held.iter().zip(&self.object).enumerate() {
            let (Some(held), object) = (held, objects.get(index)) else { continue };
            if !holder.equals(held, object)? {
                let what = format!("slot {slot} does not hold object {index}");
                return Err(LabError::Wrong(what));
            }
            live.objects += 1;
            live.bytes += object.len() as u64;
        }
        Ok(live)
    }
}

#[cfg(test)]
mod tests {
    use super::super::parts::Parts;
    use super::*;
    use crate::pages::Corpus;
    use std::sync::Mutex;

    /// Keeps copies, and damages the one object that it is told to, whenever it is allocated after
    /// the first `spare` times.
    struct Plain {
        allocs: Mutex<usize>,
        damaged: usize,
    }

    impl Holder for Plain {
        type Held = Vec<u8>;

        fn alloc(&self, object: &[u8]) -> Result<Vec<u8>, LabError> {
            let mut allocs = self.allocs.lock().unwrap();
            let mut held = object.to_vec();
            held[0] ^= u8::from(*allocs == self.damaged);
            *allocs += 1;
            Ok(held)
        }
        fn free(&self, _held: Vec<u8>) -> Result<(), LabError> {
            Ok(())
        }
        fn equals(&self, held: &Vec<u8>, object: &[u8]) -> Result<bool, LabError> {
            Ok(held == object)
        }
        fn compact(&self, _: usize, _: &Plan, _: &Objects) -> Result<bool, LabError> {
            Ok(true)
        }
        fn accounted(&self) -> Option<Parts> {
            None
        }
        fn check(&self, _objects: u64) -> Result<(), LabError> {
            Ok(())
        }
    }

    fn through_all(damaged: usize) -> Vec<Result<(Times, Live), LabError>> {
        let corpus = Corpus::open(None, 300 * 4096).unwrap();
        let objects = Objects::of(&corpus, 300).unwrap();
        let rule = zsmalloc::Rule::Fitted;
        let plan = Plan { threads: 1, run: 0, chain_order: 3, rule, rest: Duration::ZERO };
        let holder = Plain { allocs: Mutex::new(0), damaged };
        let mut share = Share::new(0, 0..200, 0);
        let mut phase = |phase| {
            let times = share.run(phase, &holder, &objects, &plan)?;
            Ok((times, share.verify(&holder, &objects)?))
        };
        Phase::ALL.map(&mut phase).into_iter().collect()
    }

    #[test]
    fn every_phase_does_as_much_as_it_says() {
        let done: Vec<(Times, Live)> =
            through_all(usize::MAX).into_iter().collect::<Result<_, _>>().unwrap();
        let counts = done.iter().map(|(times, live)| (times.allocs, times.frees, live.objects));
        let expected = [
            (200, 0, 200),
            (2000, 2000, 200),
            (0, 0, 200),
            (0, 100, 100),
            (0, 0, 100),
            (100, 0, 200),
        ];
        assert_eq!(counts.collect::<Vec<_>>(), expected);
        assert_ne!(done[0].1.bytes, done[1].1.bytes, "churn stores other objects");
        assert_eq!(done[2].1.bytes, done[5].1.bytes, "the half comes back as it was");
    }

    #[test]
    fn a_damaged_object_is_found_out_in_its_phase() {
        for (damaged, phase) in [(7, 0), (2199, 1), (2250, 5)] {
            let done = through_all(damaged);
            let error = done[phase].as_ref().expect_err("damage must not go unseen").to_string();
            assert!(error.starts_with("wrong answer: slot "), "{error}");
            assert!(done[..phase].iter().all(Result::is_ok), "found before it was done");
        }
    }
}
