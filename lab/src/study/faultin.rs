//! Study `faultin`: what touching a page costs that is out, by one thread or several.
//!
//! ```text
//!   every run, mode, order and number of threads:
//!     region   --mib MiB of the corpus paged out, touched by all threads together, verified;
//!              one with neighbours where they pay, and one without
//!     copy     a handler that puts the same page everywhere: what no store can beat by pages
//!     kernel   the same pages in the kernel's swap, touched and verified alike (--vs-kernel)
//! ```
//!
//! Whose turn it is first is drawn for every case. All threads touch pages of one region: each its
//! share of a random order of all pages, or a part of its own in sequence. The time is that from
//! the first thread's start to the last one's end; `faultin_ns_per_page` is it times threads over
//! pages. In sequence a region brings in up to 64 pages a fault, by messages 16, and with `around:
//! on` up to 16 elsewhere, the copying handler one. The first case of a run finds everything new: a
//! region has yet to learn that all of its pages are wanted, and the kernel's memory was never out;
//! the first of `--order` and `--threads` is that case. Modes: `signal` serves a fault in the
//! thread that touched, `thread` in another one, which needs privilege.
//!
//! The kernel's swap is its zram, or with `--backend zswap` its zswap before a file; with the same
//! algorithm, or zswap with its own, and a note, where it lacks that. The memory is of this
//! process, so that the same threads touch it. A time counts only if no page was resident, all were
//! in the swap and none went to the file. A fault of the kernel's brings in one page:
//! `page_cluster`, the power of two that is read ahead, is 0 here as in study `teardown`. For zram
//! it could be anything: the kernel reads no neighbours from a device that answers at once. For
//! zswap it reads them, 8 pages by default; 0 is what compares with a page of ours. The kernel has
//! no modes: it is measured beside each, and its one row, `mode` null, is of all of them.
//!
//! Rows are medians over the runs, with minimum and maximum. `rate_vs_copy` and `time_vs_kernel`
//! are medians of those within each run and mode; below 1, `time_vs_kernel` says that the region is
//! faster. `fault_overhead_ns`, `fault_page_ns` and `fault_page_out_ns` are what a region has
//! measured, and brings in neighbours by (`region::FaultCosts`), when the case ends.
//!
//! These figures do not show a program at work: pages are touched once, and nothing leaves.

use crate::apparatus::ours::Backend;
use crate::apparatus::paging::{self, Source};
use crate::apparatus::peer::Peer;
use crate::frame::{Lab, Report, Study, present};
use crate::ground::{LabError, Rng};
use crate::kernel;
use crate::pages::{Corpus, PAGE_SIZE};
use crate::rows::{Field, Format, Row, fields};
use clap::{ArgMatches, Args, FromArgMatches};
use codec::Codec;
use region::{FaultCosts, FaultMode, Quads};
use std::time::Duration;
use touching::{Memory, Order};

mod copying;
mod folded;
mod swapped;
mod touching;

pub(super) const STUDY: Study = Study {
    name: "faultin",
    about: "Touching pages that are out: all ways to serve a fault, 1 to N threads",
    options: Options::augment_args,
    fields: &FIELDS,
    vs_kernel: true,
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
    /// How a fault is served: signal, thread, protection, guards (Linux 6.15)
    #[arg(
        long,
        value_name = "MODE[,MODE]",
        value_delimiter = ',',
        default_value = "signal,thread,protection"
    )]
    mode: Vec<Mode>,
    /// The order in which pages are touched: random, sequential
    #[arg(
        long,
        value_name = "ORDER[,ORDER]",
        value_delimiter = ',',
        default_value = "random,sequential"
    )]
    order: Vec<Order>,
    /// Whether a fault may bring in the pages around its own if that pays: on, off
    #[arg(long, value_name = "WHETHER[,WHETHER]", value_delimiter = ',', default_value = "on,off")]
    around: Vec<Around>,
    /// Algorithm, optionally with a level: zstd:7
    #[arg(long, value_name = "NAME", default_value = "lz4")]
    algorithm: Codec,
    /// The store
    #[arg(long, default_value = "zram")]
    backend: Backend,
}

/// How a fault is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    Signal,
    Thread,
    Protection,
    Guards,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Signal => "signal",
            Mode::Thread => "thread",
            Mode::Protection => "protection",
            Mode::Guards => "guards",
        }
    }

    fn fault_mode(self) -> FaultMode {
        match self {
            Mode::Signal => FaultMode::Signal,
            Mode::Thread => FaultMode::Thread,
            Mode::Protection => FaultMode::Protection,
            Mode::Guards => FaultMode::Guards,
        }
    }
}

/// Whether a fault may bring in the pages around its own.
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
    let options = Options::from_arg_matches(matches).map_err(LabError::usage)?;
    let mib = options.mib.unwrap_or(if lab.quick() { QUICK_MIB } else { DEFAULT_MIB });
    let memories = options.around.len() as u64 + 1 + u64::from(lab.vs_kernel());
    paging::refuse_if_too_large(memories * (mib << 20), &format!("{memories} x --mib {mib}"))?;
    let corpus = Corpus::open(lab.corpus_file(), SYNTHETIC_BYTES.min(mib << 20))?;
    let mut notes = Vec::new();
    let bench = Bench {
        source: Source::new(&corpus)?,
        peer: Peer::of(options.backend, lab, &mut notes),
        pages: (mib << 20) as usize / PAGE_SIZE,
        options,
    };
    let name = |mode: &Mode| format!("mode {}", mode.name());
    let mut runs = lab.interleaved(&bench.options.mode, name, |&mode, run| {
        let rows = bench.measure(mode, run, &mut notes);
        Ok(present(rows, &mut notes)?.unwrap_or_default())
    })?;
    for row in &mut runs {
        row.set("corpus", corpus.name.as_str()).set("mib", mib);
    }
    let rows = fields::medians(&FIELDS, &runs);
    Ok(Report { corpus: Some(corpus), rows, runs, notes })
}

struct Bench {
    options: Options,
    source: Source,
    peer: Option<Peer>,
    pages: usize,
}

/// Memory whose pages are brought in, and how the rows about it begin.
struct Handler<'a> {
    key: Row,
    memory: Box<dyn Memory + 'a>,
}

impl Bench {
    /// One run of one mode: everybody, one after the other in every case, in an order of its own.
    fn measure(&self, mode: Mode, run: u32, notes: &mut Vec<String>) -> Result<Vec<Row>, LabError> {
        let mut handlers = self.regions(mode)?;
        handlers.push(self.copying(mode)?);
        // Last: where a mode is missing, nothing is left swapped on.
        let swapped = self.swapped(notes)?;
        let swapped_on = self.peer.as_ref().filter(|_| swapped.is_some());
        handlers.extend(swapped);
        let mut rows = Vec::new();
        let mut turns = Rng::new(SEED, u64::from(run));
        for &threads in &self.options.threads {
            for &order in &self.options.order {
                let case = touching::Case { pages: self.pages, threads, order, run };
                let mut measured = Vec::new();
                for at in turns.permutation(handlers.len()) {
                    let Handler { key, memory } = &mut handlers[at as usize];
                    let ns = touching::measure(memory.as_mut(), case)?;
                    let mut row = row(key, case, ns);
                    set_costs(&mut row, memory.costs());
                    measured.push((at, row));
                }
                measured.sort_by_key(|(at, _)| *at);
                rows.extend(measured.into_iter().map(|(_, row)| row));
            }
        }
        drop(handlers);
        swapped_on.map_or(Ok(()), Peer::swap_off)?;
        beside(&mut rows);
        Ok(rows)
    }

    /// With neighbours and without.
    fn regions(&self, mode: Mode) -> Result<Vec<Handler<'_>>, LabError> {
        let Options { around, backend, algorithm, .. } = &self.options;
        let region = |around: Around| {
            let mode = mode.fault_mode();
            let setup = folded::Setup { mode, quads: around.quads(), pages: self.pages };
            folded::Folded::new((*backend, algorithm), &setup, &self.source)
        };
        let handler = |around: &Around| {
            let mut key = self.key(REGION, mode);
            key.set("around", around.name());
            Ok(Handler { key, memory: Box::new(region(*around)?) })
        };
        around.iter().map(handler).collect()
    }

    fn copying(&self, mode: Mode) -> Result<Handler<'_>, LabError> {
        let memory = copying::Copying::new(mode.fault_mode(), self.pages)?;
        Ok(Handler { key: self.key(COPY, mode), memory: Box::new(memory) })
    }

    fn key(&self, handler: &str, mode: Mode) -> Row {
        let mut key = Row::default();
        key.set("handler", handler)
            .set("mode", mode.name())
            .set("backend", self.options.backend.name())
            .set("algorithm", self.options.algorithm.to_string());
        key
    }

    /// The kernel, as long as it is there and has the algorithm.
    fn swapped(&self, notes: &mut Vec<String>) -> Result<Option<Handler<'_>>, LabError> {
        let Some(peer) = &self.peer else { return Ok(None) };
        let wanted = self.options.algorithm.algorithm().name();
        let has = peer.set_up(wanted, (self.pages * PAGE_SIZE) as u64, notes);
        let Some(algorithm) = present(has, notes)? else { return Ok(None) };
        let mut key = Row::default();
        key.set("handler", KERNEL)
            .set("backend", peer.name())
            .set("algorithm", algorithm)
            .set("page_cluster", kernel::page_cluster()?);
        let memory = swapped::Swapped::new(peer, self.pages, &self.source)?;
        Ok(Some(Handler { key, memory: Box::new(memory) }))
    }
}

fn row(key: &Row, case: touching::Case, ns: f64) -> Row {
    const NS_PER_S: f64 = 1e9;
    let pages = case.pages as f64;
    let mut row = key.clone();
    row.set("order", case.order.name())
        .set("threads", case.threads)
        .set("run", case.run)
        .set("faultin_ns_per_page", f64::from(case.threads) * ns / pages)
        .set("pages_per_s", pages / ns * NS_PER_S);
    row
}

/// What a region took a fault to cost when the case ended, and so brought in pages by.
fn set_costs(row: &mut Row, costs: Option<FaultCosts>) {
    let ns = |time: Duration| time.as_nanos() as f64;
    let Some(FaultCosts { overhead, page, page_out }) = costs else { return };
    row.set("fault_overhead_ns", ns(overhead))
        .set("fault_page_ns", ns(page))
        .set("fault_page_out_ns", ns(page_out));
}

/// Adds to every row of a region what it is to the others, whose rows stand beside it.
fn beside(rows: &mut [Row]) {
    let is_region = |row: &Row| row.is("handler", REGION);
    let others: Vec<Row> = rows.iter().filter(|row| !is_region(row)).cloned().collect();
    for row in rows.iter_mut().filter(|row| is_region(row)) {
        let same = |other: &&Row| CASE.iter().all(|&field| other.get(field) == row.get(field));
        let over = |handler: &str, field: &str| {
            let mut of_case = others.iter().filter(same);
            let other = of_case.find(|other| other.is("handler", handler))?;
            Some(row.number(field)? / other.number(field)?)
        };
        let rate = over(COPY, "pages_per_s");
        let time = over(KERNEL, "faultin_ns_per_page");
        row.set("rate_vs_copy", rate).set("time_vs_kernel", time);
    }
}

/// Rows of one run and mode are compared where these agree.
const CASE: [&str; 3] = ["order", "threads", "run"];
const REGION: &str = "region";
const COPY: &str = "copy";
const KERNEL: &str = "kernel";

const FIELDS: [Field; 17] = [
    Field::key("mode").shown("mode", Format::Plain),
    Field::key("order").shown("order", Format::Plain),
    Field::key("backend"),
    Field::key("threads").shown("threads", Format::Plain),
    Field::key("handler").shown("handler", Format::Plain),
    Field::key("around").shown("around", Format::Plain),
    Field::key("algorithm"),
    Field::key("page_cluster"),
    Field::key("corpus"),
    Field::key("mib"),
    Field::measured("faultin_ns_per_page").shown("ns/page", Format::Fixed(0)),
    Field::measured("pages_per_s").shown("pages/s", Format::Fixed(0)),
    Field::measured("rate_vs_copy").shown("x copy", Format::Fixed(3)),
    Field::measured("time_vs_kernel").shown("time / kernel", Format::Fixed(3)),
    Field::measured("fault_overhead_ns").shown("overhead ns", Format::Fixed(0)),
    Field::measured("fault_page_ns").shown("a page ns", Format::Fixed(0)),
    Field::measured("fault_page_out_ns"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(handler: &str, order: Order, run: u32, ns: f64) -> Row {
        let mut key = Row::default();
        key.set("handler", handler);
        row(&key, touching::Case { pages: 100, threads: 2, order, run }, ns)
    }

    #[test]
    fn a_region_is_compared_with_the_others_of_the_same_run_and_case() {
        let mut rows = [
            measured(KERNEL, Order::Sequential, 0, 100.0),
            measured(COPY, Order::Sequential, 0, 100.0),
            measured(REGION, Order::Random, 0, 500.0),
            measured(COPY, Order::Random, 0, 400.0),
            measured(KERNEL, Order::Random, 1, 100.0),
            measured(COPY, Order::Random, 1, 100.0),
            measured(KERNEL, Order::Random, 0, 250.0),
            measured(REGION, Order::Random, 1, 150.0),
        ];
        beside(&mut rows);
        assert_eq!(rows[2].number("faultin_ns_per_page"), Some(10.0));
        let ratios = |field| rows.each_ref().map(|row| row.number(field)).to_vec();
        let none = [None; 2];
        let of_regions = |first, second| [&none[..], &[first], &none, &none, &[second]].concat();
        assert_eq!(ratios("rate_vs_copy"), of_regions(Some(0.8), Some(100.0 / 150.0)));
        assert_eq!(ratios("time_vs_kernel"), of_regions(Some(2.0), Some(1.5)));
    }

    #[test]
    fn without_the_kernel_nothing_is_said_of_it() {
        let mut rows = [REGION, COPY].map(|of| measured(of, Order::Random, 0, 500.0));
        beside(&mut rows);
        assert_eq!(rows[0].number("rate_vs_copy"), Some(1.0));
        assert_eq!(rows[0].number("time_vs_kernel"), None);
    }
}
