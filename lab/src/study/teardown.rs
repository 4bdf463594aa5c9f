//! Study `teardown`: memory that is paged out is dropped, ours and the kernel's (S0, S3).
//!
//! ```text
//!   for every run, --mib and --threads, first ours in every --free, then the kernel's:
//!     N regions (ours, a thread each; the kernel's, a process each) of --mib MiB
//!     filled with the corpus, again and again, and paged out         pageout_ns_per_page
//!     a sample paged in, at random and in sequence                   faultin_ns_per_page
//!     every page compared, and everything paged out again
//!     all dropped at the same moment                                 teardown_ms
//!     until the system has the memory back                           release_ms, drain_ms
//! ```
//!
//! All times begin with the first one's start. `teardown_ms` ends when the last one has returned;
//! for the kernel it is `munmap`, which frees everything by itself (`free` is sync). `freed_ms`
//! ends when nothing is pending and the ranges are unmapped; `release_ms` when the system has the
//! frames back, all but 2 % of what the regions took, or the 1 MiB that a memory keeps; `drain_ms`
//! when both are so. Ours keeps free frames for a while before it gives them back, which is most of
//! `drain_ms`.
//!
//! `slots`, `handles` and `entries` are S0's and S3's. One device of ours holds the pages of all
//! threads, as the kernel's does, or one cache has an area for each. Each thread empties its part
//! slot after slot, with a call for each, as the kernel's `munmap` does with swapped pages. A
//! device may have any lock design. `fallbacks` are values that found no room in the queue, and
//! were freed in the call. Before a cache, a client of it queues entries: see `late`. Regions
//! share one cache, as all processes do the kernel's.
//!
//! Paging is timed in each region by itself while the others do the same; the figure is the median
//! of the regions.
//!
//! Rows are medians over the runs, with minimum and maximum; a speed-up is the median of those
//! within each run.
//!
//! These figures do not show a program that goes on while its memory is torn down.

use crate::apparatus::ours::{Backend, Layout, Shards};
use crate::apparatus::paging::Source;
use crate::apparatus::peer::Peer;
use crate::frame::{Lab, Report, Study, present};
use crate::ground::{LabError, size};
use crate::pages::Corpus;
use crate::rows::{Field, Format, Row, fields};
use case::{Case, Free, Shape};
use clap::{ArgMatches, Args, FromArgMatches};
use codec::Codec;
use zsmalloc::study::LockDesign;

mod case;
mod child;
mod compare;
mod crew;
mod held;
mod kernels;
mod late;
mod published;

pub(super) use child::INSIDE;

pub(super) const STUDY: Study = Study {
    name: "teardown",
    about: "Dropping memory that is paged out: how long it takes, and until it is back",
    options: Options::augment_args,
    fields: &FIELDS,
    vs_kernel: true,
    run,
};

/// Options of `lab teardown`.
#[derive(Args, Debug)]
struct Options {
    /// MiB of each region [default: 256]
    #[arg(long, value_name = "N[,N]", value_delimiter = ',',
          value_parser = clap::value_parser!(u64).range(1..=65536))]
    mib: Vec<u64>,
    /// Regions dropped at the same moment
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', default_value = "1,2,4",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: Vec<u32>,
    /// How our memory is freed [default: all ways, except with guards]
    #[arg(long, value_name = "HOW[,HOW]", value_delimiter = ',')]
    free: Vec<Free>,
    /// Bytes of buffers for handles and entries; they are then the only bound of pending pages
    /// [default: room for every page]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    buffer_bytes: Option<u64>,
    /// Algorithm, optionally with a level: zstd:7
    #[arg(long, value_name = "NAME", default_value = "lz4")]
    algorithm: Codec,
    /// Chain order of our stores
    #[arg(long, value_name = "N", default_value = "3",
          value_parser = clap::value_parser!(u32).range(0..=4))]
    chain_order: u32,
    /// The store
    #[arg(long, default_value = "zram")]
    backend: Backend,
    /// Lock designs of a device's pool, with --free slots, handles and entries: hierarchical, pool,
    /// class
    #[arg(long, value_name = "DESIGN[,DESIGN]", value_delimiter = ',', default_value = "class")]
    design: Vec<LockDesign>,
    /// Shards of a class of a device's pool, in the class design
    #[arg(long, value_name = "HOW[,HOW]", value_delimiter = ',', default_value = "spread")]
    shards: Vec<Shards>,
}

const SYNTHETIC_BYTES: u64 = 64 << 20;
const DEFAULT_MIB: u64 = 256;
const QUICK_MIB: u64 = 4;
fn run(matches: &ArgMatches, lab: &Lab) -> Result<Report, LabError> {
    let options = Options::from_arg_matches(matches).map_err(LabError::usage)?.checked()?;
    let cases = options.cases(lab.quick());
    cases.iter().try_for_each(|case| case.refuse_if_too_large())?;
    let largest = cases.iter().map(|case| case.mib << 20).max().unwrap_or(SYNTHETIC_BYTES);
    let corpus = Corpus::open(lab.corpus_file(), SYNTHETIC_BYTES.min(largest))?;
    let mut notes = Vec::new();
    let source = Source::new(&corpus)?;
    let peer = Peer::of(options.backend, lab, &mut notes);
    let bench = Bench { source, peer, options, lab };
    let name = |case: &Case| format!("{} x {} MiB", case.threads, case.mib);
    let mut runs =
        lab.interleaved(&cases, name, |&case, run| bench.all(Case { run, ..case }, &mut notes))?;
    for row in &mut runs {
        row.set("corpus", corpus.name.as_str()).set("corpus_bytes", corpus.bytes().len());
    }
    compare::speedups(&mut runs);
    let mut rows = fields::medians(&FIELDS, &runs);
    compare::beside_published(&mut rows, &mut notes);
    Ok(Report { corpus: Some(corpus), rows, runs, notes })
}

impl Options {
    /// With the usual ways of giving up, if none is named.
    fn checked(mut self) -> Result<Options, LabError> {
        if self.free.is_empty() {
            self.free = Free::USUAL.to_vec();
        }
        let default = self.layouts() == [Layout::DEFAULT];
        if !default && !self.free.iter().any(|free| free.is_of_a_device(self.backend)) {
            let why = "--design and --shards: of devices; add --backend zram --free slots";
            return Err(LabError::Usage(why.into()));
        }
        Ok(self)
    }

    fn layouts(&self) -> Vec<Layout> {
        Layout::of(&self.design, &self.shards)
    }

    /// Regions have pools of their own, and zswap has no other design: both have the default.
    fn layouts_of(&self, free: Free) -> Vec<Layout> {
        if free.is_of_a_device(self.backend) { self.layouts() } else { vec![Layout::DEFAULT] }
    }

    /// Sizes change slowest.
    fn cases(&self, quick: bool) -> Vec<Case> {
        let default = [if quick { QUICK_MIB } else { DEFAULT_MIB }];
        let sizes = if self.mib.is_empty() { &default[..] } else { &self.mib };
        let of_size = |&mib| self.threads.iter().map(move |&threads| Case { mib, threads, run: 0 });
        sizes.iter().flat_map(of_size).collect()
    }
}

struct Bench<'a> {
    options: Options,
    source: Source,
    peer: Option<Peer>,
    lab: &'a Lab,
}

impl Bench<'_> {
    /// Everything compared, one after the other.
    fn all(&self, case: Case, notes: &mut Vec<String>) -> Result<Vec<Row>, LabError> {
        let mut rows = Vec::new();
        for &free in &self.options.free {
            for layout in self.options.layouts_of(free) {
                rows.extend(self.ours(case, free, layout, notes)?);
            }
        }
        rows.extend(self.kernel(case, notes)?);
        Ok(rows)
    }

    /// Ours, where the system has what folded memory needs; a note of what is missing.
    fn ours(
        &self,
        case: Case,
        free: Free,
        layout: Layout,
        notes: &mut Vec<String>,
    ) -> Result<Option<Row>, LabError> {
        let Options { ref algorithm, chain_order, buffer_bytes, backend, .. } = self.options;
        let mut row = self.key(backend.name(), free.name(), case);
        let queued = matches!(free, Free::Handles | Free::Entries);
        row.set("buffer_bytes", buffer_bytes.filter(|_| queued));
        layout.name_in(&mut row);
        let algorithm = algorithm.clone();
        let shape = Shape { backend, algorithm, chain_order, free, layout, buffer_bytes };
        let measured = crew::measure(&shape, case, &self.source, &mut row);
        Ok(present(measured, notes)?.map(|()| row))
    }

    /// The kernel, as long as it is there and has the algorithm.
    fn kernel(&self, case: Case, notes: &mut Vec<String>) -> Result<Option<Row>, LabError> {
        let Some(peer) = &self.peer else { return Ok(None) };
        let mut row = self.key(peer.name(), "sync", case);
        let algorithm = self.options.algorithm.algorithm().name();
        let measured = peer.set_up(algorithm, case.bytes(), notes).and_then(|has| {
            row.set("algorithm", has);
            kernels::measure(peer, case, &self.source, self.lab, &mut row)?;
            peer.swap_off()
        });
        Ok(present(measured, notes)?.map(|()| row))
    }

    fn key(&self, backend: &str, free: &str, case: Case) -> Row {
        let mut row = Row::default();
        row.set("backend", backend)
            .set("free", free)
            .set("mib", case.mib)
            .set("threads", case.threads)
            .set("algorithm", self.options.algorithm.to_string())
            .set("run", case.run);
        row
    }
}

const FIELDS: [Field; 27] = [
    Field::key("backend").shown("backend", Format::Plain),
    Field::key("free").shown("free", Format::Plain),
    Field::key("mib").shown("MiB", Format::Plain),
    Field::key("threads").shown("threads", Format::Plain),
    Field::key("buffer_bytes"),
    Field::key("design").shown("design", Format::Plain),
    Field::key("shards").shown("shards", Format::Plain),
    Field::key("algorithm"),
    Field::key("corpus"),
    Field::key("corpus_bytes"),
    Field::measured("teardown_ms").shown("teardown ms", Format::Fixed(3)),
    Field::measured("freed_ms").shown("freed ms", Format::Fixed(2)),
    Field::measured("release_ms").shown("release ms", Format::Fixed(2)),
    Field::measured("drain_ms").shown("drain ms", Format::Fixed(2)),
    Field::measured("pageout_ns_per_page").shown("out ns/page", Format::Fixed(0)),
    Field::measured("faultin_ns_per_page").shown("in ns/page", Format::Fixed(0)),
    Field::measured("faultin_sequential_ns_per_page").shown("in sequence", Format::Fixed(0)),
    Field::measured("growth_bytes").shown("stored MiB", Format::Mib),
    Field::measured("fallbacks"),
    Field::measured("speedup_vs_kernel").shown("x kernel", Format::Fixed(1)),
    Field::measured("speedup_vs_slots").shown("x slots", Format::Fixed(2)),
    Field::measured("speedup_vs_hierarchical").shown("x hierarchical", Format::Fixed(2)),
    Field::measured("pageout_speedup_vs_kernel"),
    Field::measured("faultin_speedup_vs_kernel"),
    Field::measured("faultin_sequential_speedup_vs_kernel"),
    Field::measured("drain_speedup_vs_kernel").shown("drain x kernel", Format::Fixed(2)),
    Field::added("published_speedup").shown("S3's x", Format::Fixed(2)),
];
