//! Study `cpulists`: what the per-CPU lists before each zone's lock save, or cost, a pool.
//!
//! ```text
//!   every run, mix and number of threads, on a memory with lists and on one without, which of them
//!   first changing from turn to turn:
//!     every thread   stores its objects and reads them back
//!     all together   the mix, as in study locks    <- timed
//! ```
//!
//! The pools are those of default settings. `free-batch` and `alloc` at one thread are work in
//! bulk; `mixed` is threads that come and go, one object at a time. A memory is there for a whole
//! run: its frames are touched once, and each pool finds them so.
//!
//! Rows are medians over the turns of all runs, with minimum and maximum; `ns_per_op_vs_without` is
//! the median of the ratios of a turn with lists to the one without beside it.
//!
//! These figures do not show more than two CPUs.

use crate::apparatus::mix::{Mix, Trial, count, memory_config};
use crate::apparatus::objects::Objects;
use crate::apparatus::ours::Layout;
use crate::apparatus::valgrind;
use crate::frame::{Lab, Report, Setting, Study, note};
use crate::ground::LabError;
use crate::pages::{Corpus, PAGE_SIZE};
use crate::rows::{Field, Format, Row, fields};
use clap::{ArgMatches, Args, FromArgMatches};
use std::sync::Arc;
use zsmalloc::{Memory, PoolConfig};

pub(super) const STUDY: Study = Study {
    name: "cpulists",
    about: "Pools with per-CPU lists of free frames, and without",
    options: Options::augment_args,
    fields: &FIELDS,
    vs_kernel: false,
    run,
};

/// Options of `lab cpulists`.
#[derive(Args, Debug)]
struct Options {
    /// Threads; alloc is measured at one
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', default_value = "1,2",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: Vec<u32>,
    /// What the threads do
    #[arg(
        long,
        value_name = "MIX[,MIX]",
        value_delimiter = ',',
        default_value = "free,free-batch,mixed,alloc"
    )]
    mix: Vec<Mix>,
    /// MiB of pages that the objects stand for [default: 256]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=65536))]
    mib: Option<u64>,
    /// Count instructions per operation at one thread, under valgrind
    #[arg(long)]
    instructions: bool,
}

/// Of the synthetic mix, whose lengths are then repeated.
const SYNTHETIC_BYTES: u64 = 64 << 20;
const DEFAULT_MIB: u64 = 256;
const QUICK_MIB: u64 = 8;
/// Turns of each in a run: a slow moment of the machine meets one pair, of which the median tells.
const TURNS: u32 = 5;
const QUICK_TURNS: u32 = 1;

const WITHOUT: &str = "without";
const WITH: &str = "with";

fn run(matches: &ArgMatches, lab: &Lab) -> Result<Report, LabError> {
    let options = Options::from_arg_matches(matches).map_err(LabError::usage)?;
    let mib = options.mib.unwrap_or(if lab.quick() { QUICK_MIB } else { DEFAULT_MIB });
    let turns = if lab.quick() { QUICK_TURNS } else { TURNS };
    let corpus = Corpus::open(lab.corpus_file(), SYNTHETIC_BYTES.min(mib << 20))?;
    let objects = Objects::of(&corpus, corpus.pages())?;
    let count = (mib << 20) as usize / PAGE_SIZE;
    let lengths = objects.lengths_of(count);
    let steps = options.steps();
    let name = |step: &Step| format!("{}, threads {}", step.mix.name(), step.threads);
    let measure = |memories: &mut Memories, step: &Step, run| {
        let turns = run * turns..(run + 1) * turns;
        let pairs: Result<Vec<[Row; 2]>, LabError> =
            turns.map(|turn| step.measure(memories, &lengths, turn)).collect();
        Ok(pairs?.into_flattened())
    };
    let mut runs = lab.interleaved_in(|| Memories::new(count), &steps, name, measure)?;
    for row in &mut runs {
        row.set("corpus", corpus.name.as_str()).set("corpus_bytes", count * PAGE_SIZE);
    }
    let mut rows = fields::medians(&FIELDS, &runs);
    let mut notes = Vec::new();
    // A mixture has no operation that could be counted.
    let is_asked = |row: &Row| {
        options.instructions && *row.get("threads") == 1 && !row.is("mix", Mix::Mixed.name())
    };
    let count = |row: &Row| instructions(row, &lengths, lab);
    valgrind::add_counts(&mut rows, "instructions_per_op", is_asked, count, lab, &mut notes)?;
    say(&rows, &mut notes);
    Ok(Report { corpus: Some(corpus), rows, runs, notes })
}

/// What is compared.
struct Memories {
    with: Arc<Memory>,
    without: Arc<Memory>,
}

impl Memories {
    fn new(objects: usize) -> Result<Memories, LabError> {
        let config = memory_config(objects);
        let failed = LabError::store("memory");
        let both = Memory::new(config)
            .and_then(|with| Ok((with, Memory::without_cpu_lists(config)?)))
            .map_err(failed);
        both.map(|(with, without)| Memories { with, without })
    }
}

impl Setting for Memories {
    fn check(&self) -> Result<(), LabError> {
        for memory in [&self.with, &self.without] {
            memory.check_zone().map_err(LabError::store("check"))?;
        }
        let listed = self.without.listed_bytes();
        let wrong = || LabError::Wrong(format!("{listed} bytes on lists that are not there"));
        (listed == 0).then_some(()).ok_or_else(wrong)
    }
}

/// One thing measured in every turn.
struct Step {
    mix: Mix,
    threads: u32,
}

impl Options {
    fn steps(&self) -> Vec<Step> {
        let of = |&mix: &Mix| {
            let threads = self.threads.iter().filter(move |&&threads| threads == 1 || mix.scales());
            threads.map(move |&threads| Step { mix, threads })
        };
        self.mix.iter().flat_map(of).collect()
    }
}

impl Step {
    /// Two rows: one turn with lists, one without.
    fn measure(&self, both: &Memories, lengths: &[u16], turn: u32) -> Result<[Row; 2], LabError> {
        const NS_PER_S: f64 = 1e9;
        let &Step { mix, threads } = self;
        let each = lengths.len().div_ceil(threads as usize);
        let shares: Vec<Vec<u16>> = lengths.chunks(each).map(<[u16]>::to_vec).collect();
        let rate = |memory: &Arc<Memory>| {
            let (memories, config) = (std::slice::from_ref(memory), PoolConfig::default());
            Trial { memories, config, mix, shares: &shares, run: turn }.ops_per_s()
        };
        let (with, without) = if turn.is_multiple_of(2) {
            let with = rate(&both.with)?;
            (with, rate(&both.without)?)
        } else {
            let without = rate(&both.without)?;
            (rate(&both.with)?, without)
        };
        let row = |lists: &str, ops: f64| {
            let mut row = Row::default();
            row.set("mix", mix.name()).set("threads", threads).set("lists", lists);
            row.set("run", turn).set("ops_per_s", ops);
            row.set("ns_per_op", f64::from(threads) * NS_PER_S / ops);
            row.set("ns_per_op_vs_without", without / ops);
            row
        };
        Ok([row(WITH, with), row(WITHOUT, without)])
    }
}

/// What valgrind counts of a pool of default settings.
fn instructions(row: &Row, lengths: &[u16], lab: &Lab) -> Result<f64, LabError> {
    let mut pool = row.clone();
    Layout::DEFAULT.name_in(&mut pool);
    pool.set("release", PoolConfig::default().study.release.name());
    count::per_operation(&pool, lengths, lab)
}

fn say(rows: &[Row], notes: &mut Vec<String>) {
    for row in rows.iter().filter(|row| row.is("lists", WITH)) {
        let (mix, threads) = (row.get("mix").as_str().unwrap_or(""), row.get("threads"));
        let Some(ratio) = row.number("ns_per_op_vs_without") else { continue };
        note(notes, format!("{mix}, threads {threads}: with / without lists = {ratio:.3} (time)"));
    }
}

const FIELDS: [Field; 9] = [
    Field::key("mix").shown("mix", Format::Plain),
    Field::key("threads").shown("threads", Format::Plain),
    Field::key("lists").shown("lists", Format::Plain),
    Field::key("corpus"),
    Field::key("corpus_bytes"),
    Field::measured("ops_per_s").shown("ops/s", Format::Fixed(0)),
    Field::measured("ns_per_op").shown("ns/op", Format::Fixed(1)),
    Field::measured("ns_per_op_vs_without").shown("x without", Format::Fixed(3)),
    Field::added("instructions_per_op").shown("instructions/op", Format::Fixed(1)),
];
