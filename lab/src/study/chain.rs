//! Study `chain`: what the chain size costs and saves (S1).
//!
//! ```text
//!   for every run, --mib and --fill:
//!     half:   a random half of the corpus, the same for every row of the table
//!     whole:  all of it, in order
//!     for every --algorithm, --rule, --chain-order, and the kernel:
//!       store it, read it back, (half: overwrite a tenth,) read the counters (`unsettled_*`),
//!       leave it alone until it is at rest, read it back, read the counters,
//!       compact, read it back, read the counters (`compacted_*`)
//! ```
//!
//! Rows are medians over the runs. What an order saves against order 2 is the mean of the paired
//! differences with Student's 95 % interval: the halves differ, the orders see the same ones.
//!
//! These figures do not show how long a store takes by chain order: `locks` and `alloc` do.

use crate::apparatus::ours;
use crate::frame::{Lab, Report, Study, note};
use crate::ground::LabError;
use crate::kernel::{self, KernelZram};
use crate::pages::{Corpus, PAGE_SIZE};
use crate::rows::Row;
use clap::{ArgMatches, Args, FromArgMatches};
use codec::Codec;
use fields::FIELDS;
use plan::{Fill, Plan};
use zsmalloc::Rule;
use zsmalloc::study::LockDesign;

mod fields;
mod plan;
mod summary;
mod trial;

pub(super) const STUDY: Study = Study {
    name: "chain",
    about: "Density by chain size and class rule, on random halves of a corpus",
    options: Options::augment_args,
    fields: &FIELDS,
    vs_kernel: true,
    run,
};

/// Options of `lab chain`.
#[derive(Args, Debug)]
struct Options {
    /// Chain orders; N means at most 2^N frames per zspage
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', default_value = "2,3,4",
          value_parser = clap::value_parser!(u32).range(0..=4))]
    chain_order: Vec<u32>,
    /// How classes are chosen: used-percent, least-waste, fitted
    #[arg(
        long,
        value_name = "RULE[,RULE]",
        value_delimiter = ',',
        default_value = "used-percent,least-waste"
    )]
    rule: Vec<Rule>,
    /// Algorithms, optionally with a level: zstd:7
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',', default_value = "lz4")]
    algorithm: Vec<Codec>,
    /// Use the first N MiB of the corpus [default: all of it]
    #[arg(long, value_name = "N[,N]", value_delimiter = ',')]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=65536))]
    mib: Vec<u64>,
    /// Store a random half and overwrite a tenth, or the whole corpus once, freshly filled
    #[arg(long, value_name = "FILL[,FILL]", value_delimiter = ',', default_value = "half,whole")]
    fill: Vec<Fill>,
}

/// Bytes of the synthetic mix when `--mib` does not say.
const SYNTHETIC_BYTES: u64 = 64 << 20;
const QUICK_BYTES: u64 = 4 << 20;

fn run(matches: &ArgMatches, lab: &Lab) -> Result<Report, LabError> {
    let options = Options::from_arg_matches(matches).map_err(LabError::usage)?;
    let default = if lab.quick() { QUICK_BYTES } else { SYNTHETIC_BYTES };
    let synthetic = options.mib.iter().max().map_or(default, |mib| mib << 20);
    let corpus = Corpus::open(lab.corpus_file(), synthetic)?;
    let sizes = sizes(&options, &corpus, lab.quick())?;
    let mut notes = Vec::new();
    let peer = lab.kernel_peer(&mut notes);
    let bench = Bench { options: &options, corpus: &corpus, peer };
    let of_size = |&pages: &usize| options.fill.iter().map(move |&fill| (pages, fill));
    let cases: Vec<(usize, Fill)> = sizes.iter().flat_map(of_size).collect();
    let name = |&(pages, fill): &(usize, Fill)| {
        format!("{} MiB, {}", (pages * PAGE_SIZE) >> 20, fill.name())
    };
    let runs = lab.interleaved(&cases, name, |&(pages, fill), run| {
        bench.all_stores(&Plan::new(fill, pages, run), run, &mut notes)
    })?;
    let rows = summary::rows(&runs);
    Ok(Report { corpus: Some(corpus), rows, runs, notes })
}

/// Pages for every `--mib`; all of the corpus without one, its first MiBs in quick runs.
fn sizes(options: &Options, corpus: &Corpus, quick: bool) -> Result<Vec<usize>, LabError> {
    if options.mib.is_empty() {
        let most = if quick { QUICK_BYTES as usize / PAGE_SIZE } else { usize::MAX };
        let pages = corpus.pages().min(most);
        let halves = options.fill.contains(&Fill::Half);
        let enough = !halves || pages >= plan::PAGES_MIN;
        return enough.then(|| vec![pages]).ok_or_else(|| {
            LabError::Usage(format!("a corpus of {pages} pages has no half worth storing"))
        });
    }
    options.mib.iter().map(|&mib| corpus.pages_in(mib)).collect()
}

struct Bench<'a> {
    options: &'a Options,
    corpus: &'a Corpus,
    peer: Option<KernelZram>,
}

impl Bench<'_> {
    /// One run: every store on the same pages.
    fn all_stores(
        &self,
        plan: &Plan,
        run: u32,
        notes: &mut Vec<String>,
    ) -> Result<Vec<Row>, LabError> {
        let mut rows = Vec::new();
        for algorithm in &self.options.algorithm {
            for &rule in &self.options.rule {
                for &chain_order in &self.options.chain_order {
                    let shape = ours::Shape {
                        algorithm: algorithm.clone(),
                        chain_order,
                        rule,
                        slots: plan.slots(),
                        evacuation: true,
                        design: LockDesign::default(),
                    };
                    let mut row = self.key(ours::NAME, algorithm, plan, run);
                    trial::ours(&shape, plan, self.corpus, &mut row)?;
                    rows.push(row);
                }
            }
            rows.extend(self.kernel(algorithm, plan, run, notes)?);
        }
        Ok(rows)
    }

    /// The kernel with the same pages, as long as it is there and has the algorithm.
    fn kernel(
        &self,
        algorithm: &Codec,
        plan: &Plan,
        run: u32,
        notes: &mut Vec<String>,
    ) -> Result<Option<Row>, LabError> {
        let Some(peer) = &self.peer else { return Ok(None) };
        let name = algorithm.algorithm().name();
        if let Err(error) = peer.set_up(name, (plan.slots() * PAGE_SIZE) as u64) {
            note(notes, LabError::missing(kernel::NAME, error).to_string());
            return Ok(None);
        }
        let mut row = self.key(kernel::NAME, algorithm, plan, run);
        trial::kernel(peer, plan, self.corpus, &mut row)?;
        Ok(Some(row))
    }

    fn key(&self, store: &str, algorithm: &Codec, plan: &Plan, run: u32) -> Row {
        let mut row = Row::default();
        row.set("store", store)
            .set("algorithm", algorithm.to_string())
            .set("corpus", self.corpus.name.as_str())
            .set("corpus_bytes", plan.pages * PAGE_SIZE)
            .set("fill", plan.fill.name())
            .set("run", run);
        row
    }
}
