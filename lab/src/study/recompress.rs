//! Study `recompress`: what compressing idle pages again saves.
//!
//! ```text
//!   for every run, --algorithm and --to:
//!     store the corpus, read it back, compact, read the counters (`*_before`)
//!     mark everything idle, recompress what is idle, read it back, compact, read the counters
//! ```
//!
//! Times include choosing the pages, decompressing and compressing them, and replacing the objects.
//! All pages are idle here: what a device saves depends on how many of its pages are.
//!
//! These figures do not show when pages become idle.

use crate::apparatus::ours;
use crate::frame::{Lab, Report, Study};
use crate::ground::LabError;
use crate::pages::{Corpus, PAGE_SIZE};
use crate::rows::{Field, Format, Row, fields};
use clap::{ArgMatches, Args, FromArgMatches};
use codec::Codec;
use std::time::Instant;
use zram::{Idle, Recompress, RecompressKind, Zram};
use zsmalloc::Rule;
use zsmalloc::study::LockDesign;

pub(super) const STUDY: Study = Study {
    name: "recompress",
    about: "What recompressing idle pages saves",
    options: Options::augment_args,
    fields: &FIELDS,
    vs_kernel: false,
    run,
};

/// Options of `lab recompress`.
#[derive(Args, Debug)]
struct Options {
    /// Algorithms that pages are stored with, optionally with a level
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',', default_value = "lz4")]
    algorithm: Vec<Codec>,
    /// Algorithms that idle pages are compressed with again
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',', default_value = "zstd")]
    to: Vec<Codec>,
    /// Chain order; N means at most 2^N frames per zspage
    #[arg(long, value_name = "N", default_value = "3",
          value_parser = clap::value_parser!(u32).range(0..=4))]
    chain_order: u32,
}

/// Bytes of the synthetic mix.
const SYNTHETIC_BYTES: u64 = 64 << 20;
const QUICK_BYTES: u64 = 4 << 20;

fn run(matches: &ArgMatches, lab: &Lab) -> Result<Report, LabError> {
    let options = Options::from_arg_matches(matches).map_err(LabError::usage)?;
    let synthetic = if lab.quick() { QUICK_BYTES } else { SYNTHETIC_BYTES };
    let corpus = Corpus::open(lab.corpus_file(), synthetic)?;
    let pairs: Vec<(&Codec, &Codec)> = options
        .algorithm
        .iter()
        .flat_map(|from| options.to.iter().map(move |to| (from, to)))
        .collect();
    let name = |(from, to): &(&Codec, &Codec)| format!("{from} to {to}");
    let runs = lab.interleaved(&pairs, name, |&(from, to), run| {
        let mut row = key(from, to, &corpus);
        row.set("run", run);
        trial(&options, (from, to), &corpus, &mut row)?;
        Ok(vec![row])
    })?;
    let rows = fields::medians(&FIELDS, &runs);
    Ok(Report { corpus: Some(corpus), rows, runs, notes: Vec::new() })
}

fn key(from: &Codec, to: &Codec, corpus: &Corpus) -> Row {
    let mut row = Row::default();
    row.set("store", ours::NAME)
        .set("algorithm", from.to_string())
        .set("to", to.to_string())
        .set("corpus", corpus.name.as_str())
        .set("corpus_bytes", corpus.pages() * PAGE_SIZE);
    row
}

fn trial(
    options: &Options,
    (from, to): (&Codec, &Codec),
    corpus: &Corpus,
    row: &mut Row,
) -> Result<(), LabError> {
    let shape = ours::Shape {
        algorithm: from.clone(),
        chain_order: options.chain_order,
        rule: Rule::LeastWaste,
        slots: corpus.pages(),
        evacuation: true,
        design: LockDesign::default(),
    };
    let disk = ours::recompressing(&shape, to)?;
    (0..corpus.pages()).try_for_each(|slot| ours::write(&disk, slot, corpus.page(slot)))?;
    let (data, objects) = settle(&disk, corpus)?;
    row.set("compr_data_size_before", data).set("object_bytes_resident_before", objects);
    let failed = |error: zram::PostError| LabError::Store {
        what: format!("{}: recompress", ours::NAME),
        why: error.to_string(),
    };
    disk.mark_idle(Idle::All).map_err(failed)?;
    let start = Instant::now();
    let what = Recompress { kind: RecompressKind::Idle, ..Recompress::with(1) };
    let report = disk.recompress(&what).map_err(failed)?;
    let tried = report.pages + report.no_smaller;
    row.set("recompress_ns_per_page", start.elapsed().as_nanos() as f64 / tried.max(1) as f64)
        .set("recompressed_pages", report.pages)
        .set("no_smaller_pages", report.no_smaller);
    let (data_after, objects_after) = settle(&disk, corpus)?;
    row.set("compr_data_size", data_after).set("object_bytes_resident", objects_after);
    row.set("saved_data", saved(data, data_after))
        .set("saved_resident", saved(objects, objects_after));
    Ok(())
}

/// Reads everything back, and gives what it takes at rest: bytes of objects, and of their frames.
fn settle(disk: &Zram, corpus: &Corpus) -> Result<(u64, u64), LabError> {
    let mut page = [0; PAGE_SIZE];
    for slot in 0..corpus.pages() {
        ours::read(disk, slot, &mut page)?;
        if page != corpus.page(slot) {
            return Err(LabError::Store {
                what: format!("{}: read of page {slot}", ours::NAME),
                why: "other bytes than were stored".into(),
            });
        }
    }
    disk.compact();
    let stat = disk.stat();
    Ok((stat.compr_data_size, stat.object_bytes_resident))
}

/// The fraction that is gone.
fn saved(before: u64, after: u64) -> f64 {
    1.0 - after as f64 / before as f64
}

const FIELDS: [Field; 14] = [
    Field::key("store").shown("store", Format::Plain),
    Field::key("algorithm").shown("algorithm", Format::Plain),
    Field::key("to").shown("to", Format::Plain),
    Field::key("corpus"),
    Field::key("corpus_bytes"),
    Field::measured("compr_data_size_before").shown("compressed MiB", Format::Mib),
    Field::measured("compr_data_size").shown("then MiB", Format::Mib),
    Field::measured("saved_data").shown("saved %", Format::Percent),
    Field::measured("object_bytes_resident_before").shown("resident MiB", Format::Mib),
    Field::measured("object_bytes_resident").shown("then MiB", Format::Mib),
    Field::measured("saved_resident").shown("saved %", Format::Percent),
    Field::measured("recompressed_pages").shown("pages", Format::Plain),
    Field::measured("no_smaller_pages").shown("no smaller", Format::Plain),
    Field::measured("recompress_ns_per_page").shown("ns a page", Format::Fixed(0)),
];
