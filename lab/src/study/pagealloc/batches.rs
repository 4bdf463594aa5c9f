//! Batches of allocations and frees, timed.
//!
//! ```text
//!   sample   | alloc x batch | free x batch |  as often as makes 16 operations or more
//!            t0              t1             t2    allocations: sum of t1 - t0; frees: of t2 - t1
//! ```
//!
//! Invariants
//!
//! * B1: a sample's times are those of `operations` allocations, and of as many frees, the clock
//!   read once for each batch.
//! * B2: blocks are freed in the order in which they were allocated.
//! * B3: the first batch is not timed: its blocks are compared, and no two may overlap.

use crate::apparatus::scattered::Blocks;
use crate::ground::{LabError, stats};
use crate::rows::Row;
use buddy::{Migratetype, Order, Pfn};
use std::time::{Duration, Instant};

/// Operations that a sample has at least.
const OPERATIONS_MIN: usize = 16;

/// What is allocated and freed together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) order: Order,
    pub(super) blocks: usize,
}

impl Batch {
    /// Batches of a sample.
    fn repeats(self) -> usize {
        OPERATIONS_MIN.div_ceil(self.blocks)
    }
}

/// Nanoseconds of the samples.
#[derive(Default)]
pub(super) struct Samples {
    pub(super) alloc: Vec<u32>,
    pub(super) free: Vec<u32>,
}

/// A zone that blocks are taken from and given back to.
pub(super) struct Bench<Z> {
    pub(super) zone: Z,
    blocks: Vec<Pfn>,
}

impl<Z: Blocks> Bench<Z> {
    pub(super) fn new(zone: Z, blocks_max: usize) -> Bench<Z> {
        Bench { zone, blocks: Vec::with_capacity(blocks_max) }
    }

    /// Samples for so long, one at least.
    pub(super) fn run(
        &mut self,
        batch: Batch,
        time: Duration,
        samples: &mut Samples,
    ) -> Result<(), LabError> {
        self.alloc(batch)?;
        disjoint(&self.blocks, batch.order)?;
        self.free(batch)?;
        let begin = Instant::now();
        loop {
            let (alloc, free) = self.sample(batch)?;
            samples.alloc.push(nanoseconds(alloc));
            samples.free.push(nanoseconds(free));
            if begin.elapsed() >= time {
                return Ok(());
            }
        }
    }

    fn sample(&mut self, batch: Batch) -> Result<(Duration, Duration), LabError> {
        let (mut alloc, mut free) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..batch.repeats() {
            let start = Instant::now();
            self.alloc(batch)?;
            let middle = Instant::now();
            self.free(batch)?;
            let end = Instant::now();
            alloc += middle - start;
            free += end - middle;
        }
        Ok((alloc, free))
    }

    pub(super) fn alloc(&mut self, batch: Batch) -> Result<(), LabError> {
        for _ in 0..batch.blocks {
            let block = self.zone.alloc(batch.order, Migratetype::Movable);
            // Made when it is needed: in advance it would be part of every operation's time.
            self.blocks.push(block.map_err(|error| LabError::store("alloc")(error))?);
        }
        Ok(())
    }

    pub(super) fn free(&mut self, batch: Batch) -> Result<(), LabError> {
        for block in self.blocks.drain(..) {
            let freed = self.zone.free(block, batch.order);
            freed.map_err(|error| LabError::store("free")(error))?;
        }
        Ok(())
    }
}

/// Whether blocks are aligned and no two are the same.
fn disjoint(blocks: &[Pfn], order: Order) -> Result<(), LabError> {
    let mut sorted: Vec<u32> = blocks.iter().map(|pfn| pfn.get()).collect();
    sorted.sort_unstable();
    let apart = sorted.windows(2).all(|pair| pair[0] != pair[1]);
    let aligned = sorted.iter().all(|pfn| pfn % order.frames() == 0);
    let wrong = || LabError::Wrong(format!("two blocks of order {} overlap", order.get()));
    (apart && aligned).then_some(()).ok_or_else(wrong)
}

fn nanoseconds(time: Duration) -> u32 {
    u32::try_from(time.as_nanos()).unwrap_or(u32::MAX)
}

impl Samples {
    /// Sets median, mean, 99th percentile and standard deviation, an operation each.
    pub(super) fn report(mut self, batch: Batch, row: &mut Row) {
        let operations = (batch.blocks * batch.repeats()) as f64;
        for (what, ns) in [("alloc", &mut self.alloc), ("free", &mut self.free)] {
            ns.sort_unstable();
            let at = |percent| Some(f64::from(stats::percentile(ns, percent)?) / operations);
            let (mean, sd) = stats::mean_and_sd(ns).unzip();
            row.set(&format!("{what}_ns"), at(50))
                .set(&format!("{what}_ns_mean"), mean.map(|ns| ns / operations))
                .set(&format!("{what}_ns_p99"), at(99))
                .set(&format!("{what}_sd"), sd.map(|ns| ns / operations));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apparatus::scattered;

    fn batch(order: u8, blocks: usize) -> Batch {
        Batch { order: Order::new(order).unwrap(), blocks }
    }

    #[test]
    fn samples_are_of_sixteen_operations_or_more() {
        let repeats = [1, 4, 15, 16, 64].map(|blocks| batch(0, blocks).repeats());
        assert_eq!(repeats, [16, 4, 2, 1, 1]);
    }

    #[test]
    fn a_zone_is_left_as_it_was() {
        let zone = scattered::shared(100, 4096).unwrap();
        let mut bench = Bench::new(&zone, 64);
        let mut samples = Samples::default();
        for order in 0..=4 {
            bench.run(batch(order, 64), Duration::ZERO, &mut samples).unwrap();
        }
        assert_eq!((samples.alloc.len(), samples.free.len()), (5, 5));
        scattered::is_scattered(&zone, 100).unwrap();
    }

    /// Gives the same block to everybody.
    struct Careless;

    impl Blocks for Careless {
        fn alloc(&mut self, _: Order, _: Migratetype) -> Result<Pfn, buddy::AllocError> {
            Ok(Pfn::new(16))
        }
        fn free(&mut self, _: Pfn, _: Order) -> Result<(), buddy::FreeError> {
            Ok(())
        }
    }

    #[test]
    fn a_block_that_is_given_twice_is_found_out() {
        let run = |blocks| {
            let mut samples = Samples::default();
            Bench::new(Careless, 2).run(batch(4, blocks), Duration::ZERO, &mut samples)
        };
        run(1).expect("one block is nobody else's");
        let error = run(2).expect_err("it was given twice").to_string();
        assert_eq!(error, "wrong answer: two blocks of order 4 overlap");
    }

    #[test]
    fn figures_are_of_one_operation() {
        let mut row = Row::default();
        let samples = Samples { alloc: vec![3200, 1600, 1600], free: vec![64] };
        samples.report(batch(0, 4), &mut row);
        let fields = ["alloc_ns", "alloc_ns_p99", "free_ns", "free_ns_mean", "free_sd"];
        let found = fields.map(|field| row.number(field).unwrap());
        assert_eq!(found, [100.0, 200.0, 4.0, 4.0, 0.0]);
        assert!((row.number("alloc_ns_mean").unwrap() - 400.0 / 3.0).abs() < 1e-9);
    }
}
