//! Study `cache`: what a zswap adds to its codec when it stores a page and when it gives it back.
//!
//! ```text
//!   every run and number of threads, in this order:
//!     fresh    codec stores | zswap, new, stores | codec loads | zswap loads, until it is empty
//!     again    the same, with the same zswap
//! ```
//!
//! Each thread has a part of its own of the pages, in one area. The codec goes over the same pages
//! in the same order, in as many threads:
//!
//! - it *stores* by compressing a page of the corpus with a context that is kept, and copying the
//!   blob behind the last one; a page that does not compress is copied whole;
//! - it *loads* by decompressing a blob from there into one buffer of a page, or copying it;
//! - of a same-filled page it finds the word, or fills the buffer with it.
//!
//! Not in it: seeing that other pages are not same-filled; choosing a place; freeing. `bare` is the
//! codec without the copy. Every page that comes back is compared with its source by a checksum,
//! by the codec's side as well as by the zswap's: its cost is in both. Loads are exclusive: they
//! free. A disk is behind the cache, and nothing goes there. What both write to is fresh memory in
//! the first pass, so that the system's page faults are in both; in the second it was touched, and
//! the zswap's stays so, as its memory has no worker.
//!
//! A time is that from the first thread's start to the last one's end, times threads over pages.
//! Rows are medians over the runs, with minimum and maximum; what relates two times is the median
//! of those within each run. `excess` is what is over 1.15 times the codec's time; `scaling` the
//! zswap's rate over its rate with one thread, over the same of the codec.
//!
//! These figures do not show a disk that is slower than memory, or a cache at its limit.

use crate::frame::{Lab, Report, Study, note};
use crate::ground::LabError;
use crate::pages::{Corpus, PAGE_SIZE};
use crate::rows::{Field, Format, Row, fields};
use clap::{ArgMatches, Args, FromArgMatches};
use codec::Codec;
use pages::{Order, Pages};
use zsmalloc::{ChainSize, Geometry, Rule};

mod checksum;
mod pages;
mod pass;

pub(super) const STUDY: Study = Study {
    name: "cache",
    about: "What a zswap adds to its codec: stores and loads beside compressing alone",
    options: Options::augment_args,
    fields: &FIELDS,
    vs_kernel: false,
    run,
};

/// Options of `lab cache`.
#[derive(Args, Debug)]
struct Options {
    /// MiB of the corpus that are stored [default: 64]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=65536))]
    mib: Option<u64>,
    /// Threads that store and load
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', default_value = "1,2",
          value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: Vec<u32>,
    /// In which order a thread loads its pages
    #[arg(long, value_name = "ORDER[,ORDER]", value_delimiter = ',', default_value = "random")]
    order: Vec<Order>,
    /// Algorithm, optionally with a level: zstd:7
    #[arg(long, value_name = "NAME", default_value = "lz4")]
    algorithm: Codec,
    /// Chain order of the zswap
    #[arg(long, value_name = "N", default_value = "3",
          value_parser = clap::value_parser!(u32).range(0..=4))]
    chain_order: u32,
}

const DEFAULT_MIB: u64 = 64;
const QUICK_MIB: u64 = 4;
/// Times the codec's time: the bound of a store or a load, without a constant.
const ALLOWED: f64 = 1.15;

fn run(matches: &ArgMatches, lab: &Lab) -> Result<Report, LabError> {
    let options = Options::from_arg_matches(matches).map_err(LabError::usage)?;
    let mib = options.mib.unwrap_or(if lab.quick() { QUICK_MIB } else { DEFAULT_MIB });
    let corpus = Corpus::open(lab.corpus_file(), mib << 20)?;
    let used = corpus.pages_in(mib)?;
    let chain = ChainSize::from_order(options.chain_order)
        .ok_or_else(|| LabError::Usage(format!("--chain-order {}", options.chain_order)))?;
    let watermark = Geometry::new(Rule::LeastWaste, chain).huge_watermark();
    let bytes = &corpus.bytes()[..used * PAGE_SIZE];
    let pages = Pages::new(bytes, &options.algorithm, watermark)?;
    let of_order = |&order| options.threads.iter().map(move |&threads| (order, threads));
    let cases: Vec<(Order, u32)> = options.order.iter().flat_map(of_order).collect();
    let name = |&(_, threads): &(Order, u32)| format!("{threads} threads");
    let mut runs = lab.interleaved(&cases, name, |&(order, threads), run| {
        let case = pass::Case { threads, order, run, chain_order: options.chain_order };
        pass::measure(&pages, case)
    })?;
    for row in &mut runs {
        row.set("algorithm", options.algorithm.to_string())
            .set("chain_order", options.chain_order)
            .set("corpus", corpus.name.as_str())
            .set("mib", mib);
        set_excess(row);
    }
    set_scaling(&mut runs);
    let rows = fields::medians(&FIELDS, &runs);
    let mut notes = Vec::new();
    say(&rows, &mut notes);
    Ok(Report { corpus: Some(corpus), rows, runs, notes })
}

/// What a row says of the zswap's time beside the codec's.
fn set_excess(row: &mut Row) {
    let both = row.number("ns_per_page").zip(row.number("codec_ns_per_page"));
    row.set("ratio", both.map(|(ns, codec)| ns / codec));
    row.set("excess_ns_per_page", both.map(|(ns, codec)| ns - ALLOWED * codec));
}

/// Adds to every row of several threads how the rate grew from that of one, in the same run.
fn set_scaling(runs: &mut [Row]) {
    const CASE: [&str; 4] = ["op", "pass", "order", "run"];
    let alone: Vec<Row> = runs.iter().filter(|row| row.get("threads") == 1).cloned().collect();
    for row in runs.iter_mut() {
        let same = |one: &&Row| CASE.iter().all(|&field| one.get(field) == row.get(field));
        let one = alone.iter().find(same).filter(|_| row.get("threads") != 1);
        let threads = row.number("threads");
        let speedup = |field| Some(threads? * one?.number(field)? / row.number(field)?);
        let (ours, codec) = (speedup("ns_per_page"), speedup("codec_ns_per_page"));
        row.set("speedup", ours).set("codec_speedup", codec);
        row.set("scaling", ours.zip(codec).map(|(ours, codec)| ours / codec));
    }
}

/// What is in a row besides its columns.
fn say(rows: &[Row], notes: &mut Vec<String>) {
    let count = |field| rows.first().and_then(|row| row.number(field)).unwrap_or(0.0);
    let [pages, same, huge] = ["pages", "same_pages", "huge_pages"].map(count);
    let sorts = format!("{pages} pages: {same} same-filled, {huge} that do not compress");
    note(notes, sorts);
}

const FIELDS: [Field; 19] = [
    Field::key("op").shown("op", Format::Plain),
    Field::key("pass").shown("pass", Format::Plain),
    Field::key("order").shown("order", Format::Plain),
    Field::key("threads").shown("threads", Format::Plain),
    Field::key("algorithm"),
    Field::key("chain_order"),
    Field::key("corpus"),
    Field::key("mib"),
    Field::measured("pages"),
    Field::measured("same_pages"),
    Field::measured("huge_pages"),
    Field::measured("ns_per_page").shown("ns/page", Format::Fixed(0)),
    Field::measured("codec_ns_per_page").shown("codec ns/page", Format::Fixed(0)),
    Field::measured("bare_ns_per_page").shown("bare ns/page", Format::Fixed(0)),
    Field::measured("ratio").shown("zswap/codec", Format::Fixed(3)),
    Field::measured("excess_ns_per_page").shown("over 1.15x ns", Format::Fixed(0)),
    Field::measured("speedup").shown("speedup", Format::Fixed(2)),
    Field::measured("codec_speedup").shown("codec speedup", Format::Fixed(2)),
    Field::measured("scaling").shown("scaling", Format::Fixed(3)),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn run(threads: u32, run: u32, ns: f64, codec: f64) -> Row {
        let mut row = Row::default();
        row.set("op", "load").set("pass", "fresh").set("threads", threads).set("run", run);
        row.set("ns_per_page", ns).set("codec_ns_per_page", codec);
        set_excess(&mut row);
        row
    }

    #[test]
    fn excess_is_what_is_over_fifteen_percent() {
        let row = run(1, 0, 1300.0, 1000.0);
        assert_eq!(row.number("ratio"), Some(1.3));
        assert!((row.number("excess_ns_per_page").unwrap() - 150.0).abs() < 1e-6);
    }

    #[test]
    fn scaling_is_over_one_thread_of_the_same_run() {
        let mut runs = [run(1, 0, 1000.0, 800.0), run(2, 0, 1250.0, 800.0), run(2, 1, 1.0, 1.0)];
        set_scaling(&mut runs);
        let of =
            |row: usize| ["speedup", "codec_speedup", "scaling"].map(|it| runs[row].number(it));
        assert_eq!(of(0), [None; 3], "one thread is no growth");
        assert_eq!(of(1), [Some(1.6), Some(2.0), Some(0.8)]);
        assert_eq!(of(2), [None; 3], "another run's");
    }
}
