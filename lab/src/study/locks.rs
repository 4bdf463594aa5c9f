//! Study `locks`: three lock designs, frames released inside or outside the class lock (S0, S4).
//!
//! ```text
//!   every run, mix, release, number of threads and design, each on a pool of its own:
//!     every thread   stores its objects (all at once) and reads them back
//!     all together   the mix, on the objects each thread stored     <- timed
//!     at the end     everything is freed, and a recount finds nothing
//!   and once more with the objects dealt out by class, so that no two threads share a class:
//!   the split ceiling; and, for the spread class design, with a memory for each thread, so that
//!   they share nothing but the machine: apart
//! ```
//!
//! The class design stands here twice. With one shard it is S0 and nothing else, beside designs
//! that have one shard too. Spread, each class has a shard for each CPU, which is our own step.
//! `release_saves_time` is S0's third step: the part of the time with release inside the lock that
//! release outside it does not take.
//!
//! Mixes
//! - `free`: each object alone, in random order, by a pool whose frees lag, which is the default;
//!   `free-at-once`: the same without a lag. `free-batch`: 512 at a time, in the order stored.
//! - `mixed`: a quarter allocations, a quarter frees, half reads, of random objects.
//! - `pin`, at one thread: one object read again and again. `alloc`, at one thread: objects stored
//!   that nobody writes, in a pool that held as many before.
//!
//! An operation is one object. The time is that from the first thread's start to the last one's
//! end; `ns_per_op` is it times threads over operations. Objects have the lengths of the corpus's
//! pages compressed with lz4, repeated where it is shorter than --mib; of their bytes only the
//! first few are written. There is no worker thread: nobody compacts or returns memory meanwhile;
//! all of it is returned before each measurement, so that none finds what another one left.
//!
//! More threads than the machine has cores take turns on them: no row says what more cores do.
//!
//! Rows are medians over the runs, with minimum and maximum; a speed-up is the median of those
//! within each run.
//!
//! These figures do not show more than the CPUs of the machine, and no codec.

use crate::apparatus::mix::{Mix, Trial, count, memory};
use crate::apparatus::objects::Objects;
use crate::apparatus::ours::{Layout, Shards};
use crate::apparatus::valgrind;
use crate::frame::{Lab, Report, Setting, Study};
use crate::ground::LabError;
use crate::pages::{Corpus, PAGE_SIZE};
use crate::rows::{Field, Format, Row, fields};
use clap::{ArgMatches, Args, FromArgMatches};
use std::sync::Arc;
use zsmalloc::study::{LockDesign, Release};
use zsmalloc::{Geometry, Memory, PoolConfig};

mod compare;
mod shares;

pub(super) const STUDY: Study = Study {
    name: "locks",
    about: "Lock designs of a pool under 1 to N threads",
    options: Options::augment_args,
    fields: &FIELDS,
    vs_kernel: false,
    run,
};

/// Options of `lab locks`.
#[derive(Args, Debug)]
struct Options {
    /// Lock designs: hierarchical, pool, class
    #[arg(
        long,
        value_name = "DESIGN[,DESIGN]",
        value_delimiter = ',',
        default_value = "hierarchical,pool,class"
    )]
    design: Vec<LockDesign>,
    /// Shards of a class, in the class design
    #[arg(long, value_name = "HOW[,HOW]", value_delimiter = ',', default_value = "one,spread")]
    shards: Vec<Shards>,
    /// Threads
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', default_value = "1,2,4,8",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: Vec<u32>,
    /// What the threads do; pin and alloc are measured at one thread
    #[arg(
        long,
        value_name = "MIX[,MIX]",
        value_delimiter = ',',
        default_value = "free,free-at-once,free-batch,mixed,pin,alloc"
    )]
    mix: Vec<Mix>,
    /// When the frames of an emptied zspage go back: inside, outside the class lock
    #[arg(
        long,
        value_name = "WHEN[,WHEN]",
        value_delimiter = ',',
        default_value = "inside,outside"
    )]
    release: Vec<Release>,
    /// MiB of pages that the objects stand for [default: 1024]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=65536))]
    mib: Option<u64>,
    /// Count instructions per operation at one thread, under valgrind
    #[arg(long)]
    instructions: bool,
}

/// Of the synthetic mix, whose lengths are then repeated.
const SYNTHETIC_BYTES: u64 = 64 << 20;
const DEFAULT_MIB: u64 = 1024;
const QUICK_MIB: u64 = 8;

fn run(matches: &ArgMatches, lab: &Lab) -> Result<Report, LabError> {
    let options = Options::from_arg_matches(matches).map_err(LabError::usage)?;
    let mib = options.mib.unwrap_or(if lab.quick() { QUICK_MIB } else { DEFAULT_MIB });
    let corpus = Corpus::open(lab.corpus_file(), SYNTHETIC_BYTES.min(mib << 20))?;
    let objects = Objects::of(&corpus, corpus.pages())?;
    let count = (mib << 20) as usize / PAGE_SIZE;
    let lengths = objects.lengths_of(count);
    let mut notes = Vec::new();
    let steps = options.steps();
    let name = |step: &Step| format!("{} threads, {}", step.threads, step.mix.name());
    let measure = |memories: &mut Memories, step: &Step, run| {
        Ok(vec![step.measure(memories, &lengths, run)?])
    };
    let memories = || Memories::new(&options, count);
    let mut runs = lab.interleaved_in(memories, &steps, name, measure)?;
    for row in &mut runs {
        row.set("corpus", corpus.name.as_str()).set("corpus_bytes", count * PAGE_SIZE);
    }
    compare::speedups(&mut runs);
    compare::saved_by_release(&mut runs);
    let mut rows = fields::medians(&FIELDS, &runs);
    // A mixture has no operation that could be counted.
    let is_asked = |row: &Row| {
        let outside = row.is("release", Release::Outside.name());
        let alone = *row.get("threads") == 1 && !row.is("mix", Mix::Mixed.name());
        options.instructions && outside && alone
    };
    let count = |row: &Row| count::per_operation(row, &lengths, lab);
    valgrind::add_counts(&mut rows, "instructions_per_op", is_asked, count, lab, &mut notes)?;
    compare::notes(&rows, &mut notes);
    Ok(Report { corpus: Some(corpus), rows, runs, notes })
}

fn geometry() -> Geometry {
    let config = PoolConfig::default();
    Geometry::new(config.rule, config.chain)
}

/// The memories of a run. Every pool finds them untouched: frames that one before it left touched
/// would be those of its shards' zones, and be taken with their locks.
struct Memories {
    shared: Arc<Memory>,
    /// One for each thread.
    apart: Vec<Arc<Memory>>,
}

impl Memories {
    fn new(options: &Options, objects: usize) -> Result<Memories, LabError> {
        let most = options.threads.iter().copied().max().unwrap_or(1);
        let apart = (0..most).map(|_| memory(objects)).collect::<Result<_, _>>()?;
        Ok(Memories { shared: memory(objects)?, apart })
    }
}

impl Setting for Memories {
    fn check(&self) -> Result<(), LabError> {
        let all = self.apart.iter().chain([&self.shared]);
        all.map(|memory| memory.check_zone())
            .try_for_each(|found| found.map(drop))
            .map_err(LabError::store("check"))
    }
}

/// One thing measured in every run.
struct Step {
    layout: Layout,
    release: Release,
    mix: Mix,
    threads: u32,
}

impl Options {
    /// Layouts change fastest: what is compared is measured one after another.
    fn steps(&self) -> Vec<Step> {
        let layouts = Layout::of(&self.design, &self.shards);
        let mut steps = Vec::new();
        for &mix in &self.mix {
            let releases = if mix.scales() { &self.release[..] } else { &[Release::Outside] };
            for &threads in self.threads.iter().filter(|&&threads| threads == 1 || mix.scales()) {
                for &release in releases {
                    let step = |&layout| Step { layout, release, mix, threads };
                    steps.extend(layouts.iter().map(step));
                }
            }
        }
        steps
    }
}

impl Step {
    fn measure(&self, memories: &Memories, lengths: &[u16], run: u32) -> Result<Row, LabError> {
        const NS_PER_S: f64 = 1e9;
        let &Step { layout, release, mix, threads } = self;
        let config = mix.config(layout, release);
        let rate = |memories: &[Arc<Memory>], shares: &[Vec<u16>]| {
            for memory in memories {
                memory.release(0);
            }
            Trial { memories, config, mix, shares, run }.ops_per_s()
        };
        let shared = std::slice::from_ref(&memories.shared);
        let contiguous = shares::contiguous(lengths, threads);
        let all = rate(shared, &contiguous)?;
        let split = || rate(shared, &shares::by_class(lengths, threads, &geometry()));
        let apart = || rate(&memories.apart[..threads as usize], &contiguous);
        let several = mix.scales() && threads > 1;
        let default = layout == Layout::DEFAULT;
        let mut row = Row::default();
        layout.name_in(&mut row);
        row.set("mix", mix.name())
            .set("release", release.name())
            .set("threads", threads)
            .set("run", run)
            .set("ops_per_s", all)
            .set("ns_per_op", f64::from(threads) * NS_PER_S / all)
            .set("split_ceiling_ops_per_s", several.then(split).transpose()?)
            .set("apart_ops_per_s", (several && default).then(apart).transpose()?);
        Ok(row)
    }
}

const FIELDS: [Field; 14] = [
    Field::key("mix").shown("mix", Format::Plain),
    Field::key("release").shown("release", Format::Plain),
    Field::key("threads").shown("threads", Format::Plain),
    Field::key("design").shown("design", Format::Plain),
    Field::key("shards").shown("shards", Format::Plain),
    Field::key("corpus"),
    Field::key("corpus_bytes"),
    Field::measured("ops_per_s").shown("ops/s", Format::Fixed(0)),
    Field::measured("ns_per_op").shown("ns/op", Format::Fixed(1)),
    Field::measured("speedup_vs_hierarchical").shown("x hierarchical", Format::Fixed(2)),
    Field::measured("release_saves_time").shown("outside saves %", Format::Percent),
    Field::measured("split_ceiling_ops_per_s").shown("split ceiling ops/s", Format::Fixed(0)),
    Field::measured("apart_ops_per_s").shown("apart ops/s", Format::Fixed(0)),
    Field::added("instructions_per_op").shown("instructions/op", Format::Fixed(1)),
];
