//! Study `pagealloc`: what a monitor of the free counts costs threads that allocate (S2).
//!
//! ```text
//!   every run, on one zone with --free-blocks free blocks that cannot merge, for every --order and
//!   --batch, some rounds of:
//!     for every --monitor:  one thread allocates a batch, frees it, and again   <- timed
//!                           the monitor reads pagetypeinfo every 10 ms
//!   and on two zones without lock or monitor, one of which keeps no counts: the same batches, and
//!   with --instructions what valgrind counts
//! ```
//!
//! A sample is a batch, or as many batches as make 16 operations: of a batch below 16 the clock's
//! own time is part, once for each batch and half. `alloc_ns` is the median of a run's samples,
//! beside it their mean, 99th percentile and standard deviation, each of one operation. Requests
//! are movable. Those of one frame are served from the scattered blocks, all others by halving
//! larger ones. Up to order 3 the same batches go through the per-CPU lists of another such zone,
//! one block at a time, in turn with the monitors.
//!
//! The monitor `list-walk` counts every block of every list under the zone lock. So did the kernel,
//! up to 100000 blocks of a list, which is the default of --free-blocks; but it let others go
//! between two lists. How long a reading took stands in `monitor_read_us`. It begins 10 ms after
//! the one before began, or at once if that took longer.
//!
//! Rows are medians over the runs, with minimum and maximum; a ratio to no monitor is the median of
//! those within each run. `zone` is `shared` (the lock is taken for each operation), `per-cpu`
//! (with lists before it) or `plain`; `lists` says what tells that a list is empty.
//!
//! These figures do not show requests of a kernel, whose orders and lifetimes differ.

use crate::apparatus::{reader, scattered, valgrind};
use crate::frame::{Lab, Report, Setting, Study};
use crate::ground::LabError;
use crate::rows::{Field, Format, Row, fields};
use batches::{Batch, Bench, Samples};
use buddy::{Order, SharedZone};
use clap::{ArgMatches, Args, FromArgMatches};
use lists::PLAIN;
use monitor::{Monitor, SHARED};
use per_cpu::{PER_CPU, PerCpu};
use std::time::Duration;

mod batches;
mod compare;
mod lists;
mod monitor;
mod per_cpu;

pub(super) use lists::INSIDE;

pub(super) const STUDY: Study = Study {
    name: "pagealloc",
    about: "Allocating and freeing runs of frames while another thread reads the counts",
    options: Options::augment_args,
    fields: &FIELDS,
    vs_kernel: false,
    run,
};

/// Options of `lab pagealloc`.
#[derive(Args, Debug)]
struct Options {
    /// Orders; N means 2^N frames
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', default_value = "0,1,2,3,4",
          value_parser = clap::value_parser!(u8).range(0..=4))]
    order: Vec<u8>,
    /// Blocks allocated before they are freed; a batch over 128 MiB is left out [default: powers
    /// of 4 to 16384]
    #[arg(long, value_name = "N[,N]", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=16384))]
    batch: Vec<u32>,
    /// How another thread reads the counts meanwhile
    #[arg(
        long,
        value_name = "MONITOR[,MONITOR]",
        value_delimiter = ',',
        default_value = "none,counts,list-walk"
    )]
    monitor: Vec<Monitor>,
    /// Further free blocks, which a list walk counts [default: 100000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    free_blocks: Option<u32>,
    /// Count instructions per list operation, with and without counts, under valgrind
    #[arg(long)]
    instructions: bool,
}

/// Frames of a batch at most: 128 MiB.
const BATCH_FRAMES_MAX: usize = 1 << 15;
const BATCHES: [u32; 8] = [1, 4, 16, 64, 256, 1024, 4096, 16384];
const QUICK_BATCHES: [u32; 3] = [1, 64, 1024];
/// A walk over so many takes about as long as the kernel's own, which counts no more of a list.
const FREE_BLOCKS: u32 = 100_000;
const QUICK_FREE_BLOCKS: u32 = 10_000;

/// How often and how long each of what is compared is measured in a run.
#[derive(Clone, Copy)]
struct Pace {
    rounds: u32,
    time: Duration,
}

/// Many short turns, so that a slow moment of the machine meets all of them alike.
const PACE: Pace = Pace { rounds: 6, time: Duration::from_millis(25) };
const LISTS_PACE: Pace = Pace { rounds: 6, time: Duration::from_millis(10) };
const QUICK_PACE: Pace = Pace { rounds: 1, time: Duration::from_millis(20) };

fn run(matches: &ArgMatches, lab: &Lab) -> Result<Report, LabError> {
    let options = Options::from_arg_matches(matches).map_err(LabError::usage)?;
    let batches = options.batches(lab.quick())?;
    let default = if lab.quick() { QUICK_FREE_BLOCKS } else { FREE_BLOCKS };
    let free_blocks = options.free_blocks.unwrap_or(default);
    let (pace, lists_pace) =
        if lab.quick() { (QUICK_PACE, QUICK_PACE) } else { (PACE, LISTS_PACE) };
    let mut notes = Vec::new();
    lab.no_pages(&mut notes);
    let name = |batch: &Batch| format!("order {}, batch {}", batch.order.get(), batch.blocks);
    let measure = |zones: &mut Zones, &batch: &Batch, run| {
        let (order, blocks) = (batch.order.get(), batch.blocks);
        let mut found =
            monitored(&zones.shared, &zones.per_cpu, batch, &options.monitor, run, &pace)?;
        if lists::BLOCKS.contains(&blocks) {
            found.extend(zones.plain.measure(batch, lists_pace.rounds, lists_pace.time)?.map(
                |mut row| row.set("zone", PLAIN).set("monitor", Monitor::None.name()).clone(),
            ));
        }
        for row in &mut found {
            row.set("order", order).set("batch", blocks).set("free_blocks", free_blocks);
            row.set("run", run);
        }
        Ok(found)
    };
    let zones = || Zones::new(free_blocks);
    let mut runs = lab.interleaved_in(zones, &batches, name, measure)?;
    compare::ratios(&mut runs);
    let mut rows = fields::medians(&FIELDS, &runs);
    let is_asked = |row: &Row| options.instructions && row.is("zone", PLAIN);
    let count = |row: &Row| lists::instructions(row, lab);
    valgrind::add_counts(&mut rows, "instructions_per_pair", is_asked, count, lab, &mut notes)?;
    compare::counting(&mut rows, &mut notes);
    compare::notes(&rows, &mut notes);
    Ok(Report { corpus: None, rows, runs, notes })
}

/// The zones of a run.
struct Zones {
    shared: SharedZone,
    per_cpu: PerCpu,
    plain: lists::Pair,
    free_blocks: u32,
}

impl Zones {
    fn new(free_blocks: u32) -> Result<Zones, LabError> {
        const ROOM: u32 = 2 * BATCH_FRAMES_MAX as u32;
        Ok(Zones {
            shared: scattered::shared(free_blocks, ROOM)?,
            per_cpu: PerCpu::new(free_blocks, ROOM)?,
            plain: lists::Pair::new(free_blocks)?,
            free_blocks,
        })
    }
}

impl Setting for Zones {
    fn check(&self) -> Result<(), LabError> {
        scattered::is_scattered(&self.shared, self.free_blocks)?;
        reader::agree(&self.shared)?;
        self.per_cpu.agrees(self.free_blocks)?;
        self.shared.check().map_err(LabError::store("check"))?;
        self.plain.agree()
    }
}

impl Options {
    /// Every order with every batch that is not too large for it.
    fn batches(&self, quick: bool) -> Result<Vec<Batch>, LabError> {
        let default = if quick { &QUICK_BATCHES[..] } else { &BATCHES };
        let blocks = if self.batch.is_empty() { default } else { &self.batch };
        let orders = self.order.iter().filter_map(|&order| Order::new(order));
        let all = orders.flat_map(|order| {
            blocks.iter().map(move |&blocks| Batch { order, blocks: blocks as usize })
        });
        let fits = |batch: &Batch| batch.blocks * batch.order.frames() as usize <= BATCH_FRAMES_MAX;
        let batches: Vec<Batch> = all.filter(fits).collect();
        let none = || LabError::Usage("every batch is more than 128 MiB".into());
        (!batches.is_empty()).then_some(batches).ok_or_else(none)
    }
}

/// One row for each monitor, and one for per-CPU lists. The first one changes from round to round.
fn monitored(
    zone: &SharedZone,
    per_cpu: &PerCpu,
    batch: Batch,
    monitors: &[Monitor],
    run: u32,
    pace: &Pace,
) -> Result<Vec<Row>, LabError> {
    let (mut bench, mut listed) =
        (Bench::new(zone, batch.blocks), Bench::new(per_cpu, batch.blocks));
    let turns = monitors.len() + usize::from(batch.order.get() <= per_cpu::ORDER_MAX);
    let mut found: Vec<(Samples, Vec<Duration>)> = Vec::new();
    found.resize_with(turns, Default::default);
    for round in 0..pace.rounds {
        for turn in 0..turns {
            let nth = (turn + (round + run) as usize) % turns;
            let (samples, readings) = &mut found[nth];
            let Some(monitor) = monitors.get(nth) else {
                listed.run(batch, pace.time, samples)?;
                continue;
            };
            let work = || bench.run(batch, pace.time, samples);
            let (done, took) = monitor.beside(zone, work)?;
            done?;
            readings.extend(took);
        }
    }
    let shared = monitors.iter().map(|monitor| (SHARED, *monitor));
    let all = shared.chain([(PER_CPU, Monitor::None)]);
    Ok(all.zip(found).map(|(what, found)| row_of(what, found, batch)).collect())
}

fn row_of(
    (zone, monitor): (&str, Monitor),
    (samples, readings): (Samples, Vec<Duration>),
    batch: Batch,
) -> Row {
    let mut row = Row::default();
    row.set("monitor", monitor.name()).set("zone", zone).set("lists", lists::COUNTS);
    samples.report(batch, &mut row);
    let us = readings.iter().sum::<Duration>().as_secs_f64() * 1e6;
    let reads = (monitor != Monitor::None).then_some(readings.len());
    row.set("monitor_reads", reads);
    row.set("monitor_read_us", reads.map(|reads| us / reads as f64));
    row
}

const FIELDS: [Field; 28] = [
    Field::key("order").shown("order", Format::Plain),
    Field::key("batch").shown("batch", Format::Plain),
    Field::key("monitor").shown("monitor", Format::Plain),
    Field::key("zone").shown("zone", Format::Plain),
    Field::key("lists").shown("lists", Format::Plain),
    Field::key("free_blocks"),
    Field::measured("alloc_ns").shown("alloc ns", Format::Fixed(1)),
    Field::measured("alloc_ns_vs_none").shown("x none", Format::Fixed(3)),
    Field::measured("alloc_ns_mean").shown("mean", Format::Fixed(1)),
    Field::measured("alloc_ns_p99").shown("p99", Format::Fixed(1)),
    Field::measured("alloc_ns_p99_vs_none").shown("x none", Format::Fixed(2)),
    Field::measured("alloc_sd").shown("sd", Format::Fixed(1)),
    Field::measured("free_ns").shown("free ns", Format::Fixed(1)),
    Field::measured("free_ns_vs_none").shown("x none", Format::Fixed(3)),
    Field::measured("free_ns_mean").shown("mean", Format::Fixed(1)),
    Field::measured("free_ns_p99").shown("p99", Format::Fixed(1)),
    Field::measured("alloc_ns_mean_vs_none"),
    Field::measured("free_ns_mean_vs_none"),
    Field::measured("free_ns_p99_vs_none").shown("x none", Format::Fixed(2)),
    Field::measured("free_sd").shown("sd", Format::Fixed(1)),
    Field::measured("alloc_sd_vs_none"),
    Field::measured("free_sd_vs_none"),
    Field::measured("monitor_reads"),
    Field::measured("monitor_read_us").shown("monitor us", Format::Fixed(1)),
    Field::measured("list_ops_per_pair").shown("list ops", Format::Fixed(1)),
    Field::added("instructions_per_pair").shown("instructions", Format::Fixed(1)),
    Field::added("instructions_per_list_op").shown("per list op", Format::Fixed(1)),
    Field::added("counting_per_list_op").shown("counting", Format::Fixed(2)),
];
