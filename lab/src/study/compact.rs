//! Study `compact`: what compaction gives back and how soon, the kernel's and ours.
//!
//! ```text
//!   for every run, --discard and store:
//!     write the corpus, discard a random share of its pages, one page or more at a time,
//!     read the counters, compact with the clock running, read the counters,
//!     read every page back: those left as written, those discarded as zeros
//!   ours also with --busy threads: they read and write random pages of those left,
//!     before ------ compaction ------ a while without it ------ stop
//!                   latencies         latencies
//! ```
//!
//! `compact_ms` ends when the frames are free: the kernel's are then its page allocator's, ours the
//! zone's. `returned_ms` is when the system has ours back, from the worker, which evacuates sparse
//! pageblocks first (`evacuation`); `returned_gb_per_s` is all that the system has back, in that
//! time. `used_over` is resident object bytes over compressed bytes, less one; all frames of the
//! kernel's zspages are resident. `held_over` is the same with free frames that are still resident,
//! when the memory is back: the arena's resident bytes.
//! `compaction_yields` counts how often a compaction gave the lock of a class up early, because a
//! thread slept until it did (study S4).
//! The pages left are the same for every store of a run, and a write puts a page drawn from them
//! into one of them: their number never changes, their compressed bytes hardly.
//!
//! Rows are medians over the runs, with minimum and maximum.
//!
//! These figures do not show what a compaction saves in a program that writes on: `fs` does.

use crate::apparatus::ours;
use crate::apparatus::store::{self, Kernel};
use crate::frame::{Lab, Report, Study, note};
use crate::ground::LabError;
use crate::kernel::{self, KernelZram};
use crate::pages::{Corpus, PAGE_SIZE};
use crate::rows::{Field, Format, Row, fields};
use clap::{ArgMatches, Args, FromArgMatches};
use codec::Codec;
use plan::Plan;
use std::time::Duration;
use zsmalloc::Rule;
use zsmalloc::study::LockDesign;

mod busy;
mod plan;
mod round;

pub(super) const STUDY: Study = Study {
    name: "compact",
    about: "What compaction gives back, how soon, and how it disturbs readers and writers",
    options: Options::augment_args,
    fields: &FIELDS,
    vs_kernel: true,
    run,
};

/// Options of `lab compact`.
#[derive(Args, Debug)]
struct Options {
    /// Percent of the pages that are discarded
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', default_value = "50,90",
          value_parser = clap::value_parser!(u32).range(1..=99))]
    discard: Vec<u32>,
    /// Threads that read and write meanwhile; ours only
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', default_value = "0,2",
          value_parser = clap::value_parser!(u32).range(0..=64))]
    busy: Vec<u32>,
    /// Requests per second of all busy threads together [default: as many as they can]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pace: Option<u32>,
    /// Whether compaction evacuates sparse pageblocks: on, off; ours only
    #[arg(long, value_name = "WHETHER[,WHETHER]", value_delimiter = ',', default_value = "on")]
    evacuation: Vec<Switch>,
    /// Locks of our disk's pool: hierarchical, pool, class
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',', default_value = "class")]
    design: Vec<LockDesign>,
    /// Chain order of our disk
    #[arg(long, value_name = "N", default_value = "3",
          value_parser = clap::value_parser!(u32).range(0..=4))]
    chain_order: u32,
    /// Algorithm, optionally with a level: zstd:7
    #[arg(long, value_name = "NAME", default_value = "lz4")]
    algorithm: Codec,
    /// Use the first N MiB of the corpus [default: all of it]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=65536))]
    mib: Option<u64>,
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Switch {
    On,
    Off,
}

impl Switch {
    fn name(self) -> &'static str {
        match self {
            Switch::On => "on",
            Switch::Off => "off",
        }
    }
}

const SYNTHETIC_BYTES: u64 = 256 << 20;
const QUICK_BYTES: u64 = 4 << 20;
/// How long busy threads go on after the compaction: long enough for a p99.
const WITHOUT: Duration = Duration::from_millis(300);
const QUICK_WITHOUT: Duration = Duration::from_millis(20);

fn run(matches: &ArgMatches, lab: &Lab) -> Result<Report, LabError> {
    let options = Options::from_arg_matches(matches).map_err(LabError::usage)?;
    let default = if lab.quick() { QUICK_BYTES } else { SYNTHETIC_BYTES };
    let synthetic = options.mib.map_or(default, |mib| mib << 20);
    let corpus = Corpus::open(lab.corpus_file(), synthetic)?;
    let most = if lab.quick() { QUICK_BYTES as usize / PAGE_SIZE } else { usize::MAX };
    let pages = options.mib.map_or(Ok(corpus.pages().min(most)), |mib| corpus.pages_in(mib))?;
    let mut notes = Vec::new();
    let peer = lab.kernel_peer(&mut notes);
    let bench = Bench { options: &options, corpus: &corpus, peer, quick: lab.quick() };
    let name = |percent: &u32| format!("{percent} % discarded");
    let runs = lab.interleaved(&options.discard, name, |&percent, run| {
        bench.all_stores(&Plan::new(pages, percent, run)?, run, &mut notes)
    })?;
    let rows = fields::medians(&FIELDS, &runs);
    compare(&rows, &mut notes);
    Ok(Report { corpus: Some(corpus), rows, runs, notes })
}

impl Options {
    /// What is measured of ours.
    fn ours(&self) -> impl Iterator<Item = Ours> {
        let mut all = Vec::new();
        for &design in &self.design {
            for &threads in &self.busy {
                let with = |&evacuation: &Switch| Ours { design, threads, evacuation };
                all.extend(self.evacuation.iter().map(with));
            }
        }
        all.into_iter()
    }
}

/// One of the things that are measured of ours.
#[derive(Clone, Copy)]
struct Ours {
    design: LockDesign,
    threads: u32,
    evacuation: Switch,
}

struct Bench<'a> {
    options: &'a Options,
    corpus: &'a Corpus,
    peer: Option<KernelZram>,
    quick: bool,
}

impl Bench<'_> {
    /// One run: every store left with the same pages.
    fn all_stores(
        &self,
        plan: &Plan,
        run: u32,
        notes: &mut Vec<String>,
    ) -> Result<Vec<Row>, LabError> {
        let mut rows = Vec::new();
        for ours in self.options.ours() {
            let mut row = self.key(ours::NAME, plan, ours.threads, run);
            row.set("chain_order", self.options.chain_order)
                .set("evacuation", ours.evacuation.name())
                .set("design", ours.design.name());
            self.ours(plan, ours, &mut row)?;
            rows.push(row);
        }
        rows.extend(self.kernel(plan, run, notes)?);
        Ok(rows)
    }

    fn ours(&self, plan: &Plan, ours: Ours, row: &mut Row) -> Result<(), LabError> {
        let shape = ours::Shape {
            algorithm: self.options.algorithm.clone(),
            chain_order: self.options.chain_order,
            rule: Rule::LeastWaste,
            slots: plan.pages,
            evacuation: ours.evacuation == Switch::On,
            design: ours.design,
        };
        // Its worker compacts what was at rest for half a second: not between discards and clock.
        let mut store = store::Ours::new(ours::disk(&shape)?);
        if ours.threads == 0 {
            round::alone(&mut store, plan, self.corpus, row)?;
        } else {
            let without = if self.quick { QUICK_WITHOUT } else { WITHOUT };
            let load = busy::Load { threads: ours.threads, pace: self.options.pace, without };
            round::beside(&mut store, plan, self.corpus, load, row)?;
        }
        store.disk.check().map_err(LabError::store("check")).map(drop)
    }

    /// The kernel, as long as it is there and has the algorithm. Its chain is what it was built
    /// with; nothing tells which.
    fn kernel(
        &self,
        plan: &Plan,
        run: u32,
        notes: &mut Vec<String>,
    ) -> Result<Option<Row>, LabError> {
        let Some(peer) = &self.peer else { return Ok(None) };
        let algorithm = self.options.algorithm.algorithm().name();
        if let Err(error) = peer.set_up(algorithm, (plan.pages * PAGE_SIZE) as u64) {
            note(notes, LabError::missing(kernel::NAME, error).to_string());
            return Ok(None);
        }
        let mut row = self.key(kernel::NAME, plan, 0, run);
        round::alone(&mut Kernel::new(peer, plan.pages), plan, self.corpus, &mut row)?;
        Ok(Some(row))
    }

    fn key(&self, store: &str, plan: &Plan, threads: u32, run: u32) -> Row {
        let mut row = Row::default();
        row.set("store", store)
            .set("algorithm", self.options.algorithm.to_string())
            .set("corpus", self.corpus.name.as_str())
            .set("corpus_bytes", plan.pages * PAGE_SIZE)
            .set("discard", plan.percent)
            .set("busy", threads)
            .set("pace", self.options.pace)
            .set("run", run);
        row
    }
}

/// Says how ours compares with the kernel's, and a busy pool with one left alone.
fn compare(rows: &[Row], notes: &mut Vec<String>) {
    const ALIKE: [&str; 2] = ["evacuation", "design"];
    for row in rows.iter().filter(|row| row.is("store", ours::NAME)) {
        let (percent, threads) = (row.get("discard"), row.get("busy"));
        let alike = |other: &Row| {
            let alike = ALIKE.iter().all(|field| other.get(field) == row.get(field));
            other.is("store", kernel::NAME) || alike
        };
        let design = row.get("design").as_str().filter(|&design| design != "class");
        let of_design = design.map(|design| format!(" ({design})")).unwrap_or_default();
        let same = |other: &&Row| other.get("discard") == percent && alike(other);
        let alone = |other: &&Row| other.number("busy") == Some(0.0) && same(other);
        let mut ratio = |what: String, field: &str, of: Option<f64>, to: Option<f64>| {
            let Some((a, b)) = of.zip(to) else { return };
            let ratio = a / b;
            note(notes, format!("{percent} % discarded, {what} = {ratio:.3} ({field})"));
        };
        if threads == 0 {
            let peer = rows.iter().filter(same).find(|other| other.is("store", kernel::NAME));
            for field in ["compact_ms_per_mib", "used_over", "freed_bytes"] {
                let peer = peer.and_then(|peer| peer.number(field));
                ratio(
                    format!("zram{of_design} / {}", kernel::NAME),
                    field,
                    row.number(field),
                    peer,
                );
            }
            continue;
        }
        let quiet = rows.iter().filter(alone).find(|other| other.is("store", ours::NAME));
        let quiet = quiet.and_then(|quiet| quiet.number("freed_bytes"));
        ratio(
            format!("{threads} busy / 0 busy{of_design}"),
            "freed_bytes",
            row.number("freed_bytes"),
            quiet,
        );
        let (with, without) = (row.number("compacting_op_us_p99"), row.number("op_us_p99"));
        ratio(
            format!("{threads} busy, with / without compaction{of_design}"),
            "op_us_p99",
            with,
            without,
        );
    }
}

const FIELDS: [Field; 34] = [
    Field::key("store").shown("store", Format::Plain),
    Field::key("algorithm").shown("algorithm", Format::Plain),
    Field::key("corpus"),
    Field::key("corpus_bytes"),
    Field::key("chain_order").shown("order", Format::Plain),
    Field::key("discard").shown("discarded %", Format::Plain),
    Field::key("busy").shown("busy", Format::Plain),
    Field::key("pace"),
    Field::key("evacuation").shown("evacuation", Format::Plain),
    Field::key("design").shown("design", Format::Plain),
    Field::measured("compr_data_size").shown("compressed MiB", Format::Mib),
    Field::measured("mem_used_before").shown("used before MiB", Format::Mib),
    Field::measured("mem_used_after").shown("after MiB", Format::Mib),
    Field::measured("freed_bytes"),
    Field::measured("resident_before"),
    Field::measured("resident_after"),
    Field::measured("accounted_after"),
    Field::measured("pages_compacted"),
    Field::measured("compaction_yields").shown("yields", Format::Plain),
    Field::measured("compact_ms").shown("ms", Format::Fixed(2)),
    Field::measured("compact_ms_per_mib").shown("ms/MiB freed", Format::Fixed(3)),
    Field::measured("returned_ms").shown("returned ms", Format::Fixed(2)),
    Field::measured("returned_bytes"),
    Field::measured("returned_gb_per_s").shown("GB/s", Format::Fixed(2)),
    Field::measured("used_over").shown("used over %", Format::Percent),
    Field::measured("used_over_before"),
    Field::measured("held_over").shown("held over %", Format::Percent),
    Field::measured("overhead_all_in").shown("all-in over %", Format::Percent),
    Field::measured("ops"),
    Field::measured("op_us_p50").shown("op p50 us", Format::Fixed(2)),
    Field::measured("op_us_p99").shown("p99 us", Format::Fixed(2)),
    Field::measured("compacting_ops"),
    Field::measured("compacting_op_us_p50").shown("compacting p50 us", Format::Fixed(2)),
    Field::measured("compacting_op_us_p99").shown("p99 us", Format::Fixed(2)),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn row(store: &str, busy: u32, freed: u64, over: f64) -> Row {
        let mut row = Row::default();
        row.set("store", store).set("discard", 50).set("busy", busy);
        row.set("freed_bytes", freed).set("used_over", over);
        row
    }

    /// A design is compared with itself, and named where it is not the default.
    #[test]
    fn a_busy_pool_is_compared_with_a_quiet_one_of_its_design() {
        let design = |busy, freed, design: &str| {
            let mut row = row("zram", busy, freed, 0.1);
            row.set("design", design);
            row
        };
        let rows = [design(0, 50, "class"), design(0, 100, "pool"), design(2, 90, "pool")];
        let mut notes = Vec::new();
        compare(&rows, &mut notes);
        let busy = "50 % discarded, 2 busy / 0 busy (pool) = 0.900 (freed_bytes)";
        assert_eq!(notes, [busy]);
    }

    #[test]
    fn ours_is_compared_with_the_kernel_and_busy_with_quiet() {
        let mut busy = row("zram", 2, 90, 0.04);
        busy.set("op_us_p99", 2.0).set("compacting_op_us_p99", 5.0);
        let rows = [row("zram", 0, 100, 0.02), busy, row("kernel-zram", 0, 80, 0.05)];
        let mut notes = Vec::new();
        compare(&rows, &mut notes);
        let expected = [
            "50 % discarded, zram / kernel-zram = 0.400 (used_over)",
            "50 % discarded, zram / kernel-zram = 1.250 (freed_bytes)",
            "50 % discarded, 2 busy / 0 busy = 0.900 (freed_bytes)",
            "50 % discarded, 2 busy, with / without compaction = 2.500 (op_us_p99)",
        ];
        assert_eq!(notes, expected);
    }
}
