//! Study `faultin`: what touching a page costs that is out, by one thread or several.
//!
//! ```text
//!   every run, mode, order and number of threads:
//!     region   --mib MiB of the corpus paged out, touched by all threads together, verified;
//!              one with quads where they pay, and one without, either of them first
//!     copy     a handler that puts the same page everywhere: what no store can beat by pages
//! ```
//!
//! All threads touch pages of one region: each its share of a random order of all pages, or a part
//! of its own in sequence. The time is that from the first thread's start to the last one's end;
//! `faultin_ns_per_page` is it times threads over pages. In sequence a region brings in up to 16
//! pages a fault, and with `around: on` up to 4 elsewhere, the copying handler one. The first case
//! of a run finds a new region, which has yet to learn that all of its pages are wanted. Modes:
//! `signal` serves a fault in the thread that touched, `thread` in another one, which needs
//! privilege.
//!
//! Rows are medians over the runs, with minimum and maximum; `rate_vs_copy` is the median of those
//! within each run.

use super::ours::Backend;
use super::paging::Source;
use super::{Lab, Report, Study, note};
use crate::corpus::{Corpus, PAGE_SIZE};
use crate::error::LabError;
use crate::rng::Rng;
use crate::row::{self, Row};
use crate::table::{Column, Format};
use clap::{ArgMatches, Args, FromArgMatches};
use codec::Codec;
use region::{FaultMode, Quads};
use touching::Order;

mod copying;
mod folded;
mod touching;

pub(super) const STUDY: Study = Study {
    name: "faultin",
    about: "Touching pages that are out: signal and thread mode, 1 to N threads",
    options: Options::augment_args,
    run,
};

/// Options of `lab faultin`.
#[derive(Args, Debug)]
struct Options {
    /// MiB of the region [default: 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=65536))]
    mib: Option<u64>,
    /// Threads that touch
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', default_value = "1,2",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: Vec<u32>,
    /// Who serves a fault: signal, thread
    #[arg(
        long,
        value_name = "MODE[,MODE]",
        value_delimiter = ',',
        default_value = "signal,thread"
    )]
    mode: Vec<Mode>,
    /// In which order pages are touched: random, sequential
    #[arg(
        long,
        value_name = "ORDER[,ORDER]",
        value_delimiter = ',',
        default_value = "random,sequential"
    )]
    order: Vec<Order>,
    /// Whether a fault may bring in the quad around its page, where that pays: on, off
    #[arg(long, value_name = "WHETHER[,WHETHER]", value_delimiter = ',', default_value = "on,off")]
    around: Vec<Around>,
    /// Algorithm, with a level where wanted: zstd:7
    #[arg(long, value_name = "NAME", default_value = "lz4")]
    algorithm: Codec,
    /// The store
    #[arg(long, default_value = "zram")]
    backend: Backend,
}

/// Who serves a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    Signal,
    Thread,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Signal => "signal",
            Mode::Thread => "thread",
        }
    }

    fn fault_mode(self) -> FaultMode {
        match self {
            Mode::Signal => FaultMode::Signal,
            Mode::Thread => FaultMode::Thread,
        }
    }
}

/// Whether a fault may bring in its quad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Around {
    On,
    Off,
}

impl Around {
    fn name(self) -> &'static str {
        match self {
            Around::On => "on",
            Around::Off => "off",
        }
    }

    fn quads(self) -> Quads {
        match self {
            Around::On => Quads::Measured,
            Around::Off => Quads::Never,
        }
    }
}

const SYNTHETIC_BYTES: u64 = 64 << 20;
const SEED: u64 = 0x4172_6F75;
const DEFAULT_MIB: u64 = 64;
const QUICK_MIB: u64 = 4;

fn run(matches: &ArgMatches, lab: &Lab) -> Result<Report, LabError> {
    let options = Options::from_arg_matches(matches).map_err(crate::usage)?;
    let mib = options.mib.unwrap_or(if lab.quick() { QUICK_MIB } else { DEFAULT_MIB });
    let corpus = Corpus::open(lab.corpus_file(), SYNTHETIC_BYTES.min(mib << 20))?;
    let source = Source::new(&corpus)?;
    let pages = (mib << 20) as usize / PAGE_SIZE;
    let (mut runs, mut notes) = (Vec::new(), Vec::new());
    let bar = lab.progress(lab.runs() as usize * options.mode.len());
    for run in 0..lab.runs() {
        for &mode in &options.mode {
            bar.set_message(format!("run {run}, mode {}", mode.name()));
            match bench(&options, mode, pages, &source, run) {
                Ok(rows) => runs.extend(rows),
                Err(error @ LabError::Missing { .. }) => note(&mut notes, error.to_string()),
                Err(error) => return Err(error),
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    for row in &mut runs {
        row.set("backend", options.backend.name())
            .set("algorithm", options.algorithm.to_string())
            .set("corpus", corpus.name.as_str())
            .set("mib", mib);
    }
    against_copies(&mut runs);
    let rows = row::medians(&runs, &KEY, &MEASURED);
    Ok(Report { corpus: Some(corpus), columns: &COLUMNS, rows, runs, notes })
}

/// One run of one mode: regions and the copying handler, one after the other in every case.
fn bench(
    options: &Options,
    mode: Mode,
    pages: usize,
    source: &Source,
    run: u32,
) -> Result<Vec<Row>, LabError> {
    let store = (options.backend, &options.algorithm);
    let mut regions = Vec::new();
    let order = Rng::new(SEED, u64::from(run)).permutation(options.around.len());
    for around in order.into_iter().map(|at| options.around[at as usize]) {
        let setup = folded::Setup { mode: mode.fault_mode(), quads: around.quads(), pages };
        regions.push((around, folded::Folded::new(store, &setup, source)?));
    }
    let mut copying = copying::Copying::new(mode.fault_mode(), pages)?;
    let mut rows = Vec::new();
    for &threads in &options.threads {
        for &order in &options.order {
            let case = touching::Case { pages, threads, order, run };
            for (around, folded) in &mut regions {
                let ns = touching::measure(folded, case)?;
                let mut row = row("region", mode, case, ns);
                row.set("around", around.name());
                rows.push(row);
            }
            let ns = touching::measure(&mut copying, case)?;
            rows.push(row("copy", mode, case, ns));
        }
    }
    Ok(rows)
}

fn row(handler: &str, mode: Mode, case: touching::Case, ns: f64) -> Row {
    const NS_PER_S: f64 = 1e9;
    let pages = case.pages as f64;
    let mut row = Row::default();
    row.set("handler", handler)
        .set("mode", mode.name())
        .set("order", case.order.name())
        .set("threads", case.threads)
        .set("run", case.run)
        .set("faultin_ns_per_page", f64::from(case.threads) * ns / pages)
        .set("pages_per_s", pages / ns * NS_PER_S);
    row
}

/// Adds to every row of a region its rate over that of the copying handler in the same run.
fn against_copies(runs: &mut [Row]) {
    const CASE: [&str; 4] = ["mode", "order", "threads", "run"];
    let copies: Vec<Row> = runs.iter().filter(|row| row.is("handler", "copy")).cloned().collect();
    for row in runs.iter_mut().filter(|row| row.is("handler", "region")) {
        let same = |copy: &&Row| CASE.iter().all(|&field| copy.get(field) == row.get(field));
        let copy = copies.iter().find(same).and_then(|copy| copy.number("pages_per_s"));
        let ratio = row.number("pages_per_s").zip(copy).map(|(ours, copy)| ours / copy);
        row.set("rate_vs_copy", ratio);
    }
}

const KEY: [&str; 9] =
    ["handler", "around", "backend", "mode", "order", "threads", "algorithm", "corpus", "mib"];
const MEASURED: [&str; 3] = ["faultin_ns_per_page", "pages_per_s", "rate_vs_copy"];

const COLUMNS: [Column; 8] = [
    Column::new("mode", "mode", Format::Plain),
    Column::new("order", "order", Format::Plain),
    Column::new("threads", "threads", Format::Plain),
    Column::new("handler", "handler", Format::Plain),
    Column::new("around", "around", Format::Plain),
    Column::new("faultin_ns_per_page", "ns/page", Format::Fixed(0)),
    Column::new("pages_per_s", "pages/s", Format::Fixed(0)),
    Column::new("rate_vs_copy", "x copy", Format::Fixed(3)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_over_the_copies_of_the_same_run_and_case() {
        let case = |order, run| touching::Case { pages: 100, threads: 2, order, run };
        let mut runs = [
            row("region", Mode::Signal, case(Order::Random, 0), 500.0),
            row("copy", Mode::Signal, case(Order::Random, 0), 400.0),
            row("copy", Mode::Signal, case(Order::Random, 1), 100.0),
            row("copy", Mode::Signal, case(Order::Sequential, 0), 100.0),
        ];
        against_copies(&mut runs);
        assert_eq!(runs[0].number("rate_vs_copy"), Some(0.8));
        assert_eq!(runs[0].number("faultin_ns_per_page"), Some(10.0));
        assert_eq!(runs[1].number("rate_vs_copy"), None);
    }
}
