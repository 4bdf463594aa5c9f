//! What counting costs: a zone that counts, and one that tests list heads, doing the same.
//!
//! ```text
//!   both zones   scattered alike | batches, timed in turns, no lock, no monitor
//!   under valgrind, in a child:
//!     scatter, one batch                  | n instructions
//!     scatter, one batch, N batches more  | m              (m - n) / N / list operations of one
//! ```
//!
//! A list operation adds a block to a list or takes one off. Every split makes one block more: so
//! a batch of `b` blocks that leaves `f1` free blocks where there were `f0` made `b + f1 - f0`
//! splits. It took `b` blocks and added one for each split; freeing adds `b` and takes one for each
//! merge, which are as many.
//!
//! Invariant: both zones give the same blocks.

use super::batches::{Batch, Bench, Samples};
use crate::apparatus::{scattered, valgrind};
use crate::frame::{Inside, Lab};
use crate::ground::LabError;
use crate::rows::Row;
use buddy::study::{Counts, Uncounted};
use buddy::{Order, Zone};
use clap::{ArgMatches, Args, FromArgMatches};
use std::time::Duration;

/// Batches that are compared, of those asked for: the deepest splits, and a usual mixture.
pub(super) const BLOCKS: [usize; 2] = [1, 64];
/// The name of a zone without a lock in rows.
pub(super) const PLAIN: &str = "plain";
/// Zones by what says that a list is empty, in rows.
pub(super) const COUNTS: &str = "counts";
pub(super) const HEADS: &str = "heads";
/// Frames the batches need.
const ROOM: u32 = 16 << 10;
const _: () = assert!(ROOM >= BLOCKS[1] as u32 * buddy::RUN_FRAMES_MAX / 4, "orders up to 8");

/// Options of the child.
#[derive(Args, Debug)]
struct Options {
    #[arg(long)]
    lists: String,
    #[arg(long)]
    order: u8,
    #[arg(long)]
    blocks: usize,
    #[arg(long)]
    batches: usize,
}

/// What runs under valgrind.
pub(crate) const INSIDE: Inside =
    Inside { name: "pagealloc-inside", options: Options::augment_args, run };

/// The child's `main`.
fn run(matches: &ArgMatches) -> Result<(), LabError> {
    let options = Options::from_arg_matches(matches).map_err(LabError::usage)?;
    let order = Order::new(options.order);
    let order = order.ok_or_else(|| LabError::Usage("no such order".into()))?;
    let batch = Batch { order, blocks: options.blocks };
    let frames = scattered::frames(CHILD_FREE_BLOCKS, ROOM);
    match options.lists.as_str() {
        HEADS => repeat(Zone::uncounted(frames), batch, options.batches),
        _ => repeat(Zone::new(frames), batch, options.batches),
    }
}

/// Free blocks of the child's zone.
const CHILD_FREE_BLOCKS: u32 = 1000;

fn repeat<C: Counts>(mut zone: Zone<C>, batch: Batch, batches: usize) -> Result<(), LabError> {
    scattered::scatter(&mut zone, CHILD_FREE_BLOCKS)?;
    let mut bench = Bench::new(zone, batch.blocks);
    for _ in 0..=batches {
        bench.alloc(batch)?;
        bench.free(batch)?;
    }
    Ok(())
}

/// Two zones that differ in what says that a list is empty.
pub(super) struct Pair {
    counts: Bench<Zone>,
    heads: Bench<Zone<Uncounted>>,
}

impl Pair {
    pub(super) fn new(free_blocks: u32) -> Result<Pair, LabError> {
        let frames = scattered::frames(free_blocks, ROOM);
        let (mut counts, mut heads) = (Zone::new(frames), Zone::uncounted(frames));
        scattered::scatter(&mut counts, free_blocks)?;
        scattered::scatter(&mut heads, free_blocks)?;
        let most = BLOCKS[1];
        Ok(Pair { counts: Bench::new(counts, most), heads: Bench::new(heads, most) })
    }

    /// Two rows: counts, heads. Each of `rounds` gives each zone its time.
    pub(super) fn measure(
        &mut self,
        batch: Batch,
        rounds: u32,
        time: Duration,
    ) -> Result<[Row; 2], LabError> {
        let operations = self.list_operations(batch)?;
        let mut samples = [Samples::default(), Samples::default()];
        for _ in 0..rounds {
            self.counts.run(batch, time, &mut samples[0])?;
            self.heads.run(batch, time, &mut samples[1])?;
        }
        let mut rows = [Row::default(), Row::default()];
        for ((row, samples), lists) in rows.iter_mut().zip(samples).zip([COUNTS, HEADS]) {
            row.set("lists", lists).set("list_ops_per_pair", operations);
            samples.report(batch, row);
        }
        Ok(rows)
    }

    /// List operations of an allocation and a free; see the head of this file.
    fn list_operations(&mut self, batch: Batch) -> Result<f64, LabError> {
        let zone = &mut self.counts;
        let free = |zone: &Zone| zone.counts().iter().flatten().sum::<u64>();
        // The first batch may bring pageblocks online.
        zone.alloc(batch)?;
        zone.free(batch)?;
        let before = free(&zone.zone);
        zone.alloc(batch)?;
        let after = free(&zone.zone);
        zone.free(batch)?;
        let blocks = batch.blocks as f64;
        let splits = blocks + after as f64 - before as f64;
        Ok(2.0 * (blocks + splits) / blocks)
    }

    /// Whether the same blocks are free in both.
    pub(super) fn agree(&self) -> Result<(), LabError> {
        let (counts, heads) = (&self.counts.zone, &self.heads.zone);
        let (mut ours, mut others) = (Vec::new(), Vec::new());
        counts.for_each_free(|pfn, order, mt, _| ours.push((pfn, order, mt)));
        heads.for_each_free(|pfn, order, mt, _| others.push((pfn, order, mt)));
        ours.sort_unstable();
        others.sort_unstable();
        let wrong = || LabError::Wrong("without counts the zone has other free blocks".into());
        (ours == others).then_some(()).ok_or_else(wrong)
    }
}

/// Instructions of an allocation and a free, of what `row` is about.
pub(super) fn instructions(row: &Row, lab: &Lab) -> Result<f64, LabError> {
    const OPERATIONS: usize = 16 << 10;
    const QUICK_OPERATIONS: usize = 1 << 10;
    let most = if lab.quick() { QUICK_OPERATIONS } else { OPERATIONS };
    let blocks = row.number("batch").unwrap_or(1.0) as usize;
    let batches = most.div_ceil(blocks);
    let total = |batches: usize| {
        let text = |field| row.get(field).as_str().unwrap_or_default().to_owned();
        let pairs = [
            ("--lists", text("lists")),
            ("--order", row.get("order").to_string()),
            ("--blocks", blocks.to_string()),
            ("--batches", batches.to_string()),
        ];
        let arguments: Vec<String> =
            pairs.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect();
        valgrind::instructions(INSIDE.name, &arguments, &[], lab)
    };
    let (before, after) = (total(0)?, total(batches)?);
    Ok((after as f64 - before as f64) / (batches * blocks) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_operations_are_those_of_the_splits() {
        let mut pair = Pair::new(100).unwrap();
        let mut of = |order, blocks| {
            let order = Order::new(order).unwrap();
            pair.list_operations(Batch { order, blocks }).unwrap()
        };
        assert_eq!(of(0, 1), 2.0, "a scattered block is taken and put back");
        // The room came online as one pageblock of order 9: five halvings to order 4.
        assert_eq!(of(4, 1), 12.0);
        // Order 9 is used up by 32 blocks of order 4, in 31 splits; here two pageblocks.
        assert_eq!(of(4, 64), 2.0 * (64.0 + 62.0) / 64.0);
    }

    #[test]
    fn both_zones_are_timed_on_the_same_work() {
        let mut pair = Pair::new(100).unwrap();
        let batch = Batch { order: Order::new(4).unwrap(), blocks: 64 };
        let rows = pair.measure(batch, 2, Duration::ZERO).unwrap();
        for (row, lists) in rows.iter().zip([COUNTS, HEADS]) {
            assert!(row.is("lists", lists) && row.number("free_ns").is_some(), "{row:?}");
        }
        pair.heads.zone.alloc(Order::ZERO, buddy::Migratetype::Movable).unwrap();
        assert!(pair.agree().is_err(), "a block is missing in one of them");
    }
}
