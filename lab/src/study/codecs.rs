//! Study `codecs`: what every algorithm makes of pages, and how long it takes.
//!
//! ```text
//!   corpus   | 64 judged | 64 sampled | 64 judged | 64 sampled | ..
//!                            `--> dictionaries and tables "own"
//!
//!   for every run, corpus and case:
//!     compress all judged pages, in order               compress_us
//!     decompress them in random order                   decompress_us
//!     decompress them again and compare
//! ```
//!
//! The figure that counts is the class cost: what a store pays for a blob, with metadata, and a
//! whole frame for a page that does not compress ([`cost`]). A unit of several pages pays whole
//! frames and a class for the rest. `shuffle` is the size of the elements by which a codec orders
//! the bytes of a page before; 0 is as they are. Times are per page, and a page that is stored as
//! it is takes the time of a copy. Of each 64 units the quickest of five passes counts, because a
//! machine has other work too. The ratios compare with lz4 of single pages in the same run.
//!
//! These figures do not show what a fault costs besides its codec, or pages that are cold in the
//! caches of the processor.

use crate::frame::{Lab, Report, Study, note};
use crate::ground::LabError;
use crate::rows::{Field, Format, fields};
use cases::{Case, Kind};
use clap::{ArgMatches, Args, FromArgMatches};
use sample::Sample;
use std::path::PathBuf;
use std::process::Command;

mod cases;
mod cost;
mod packers;
mod picture;
mod ratios;
mod sample;
mod trial;

pub(super) const STUDY: Study = Study {
    name: "codecs",
    about: "Class cost and times of every algorithm, level, dictionary and unit",
    options: Options::augment_args,
    fields: &FIELDS,
    vs_kernel: false,
    run,
};

/// Options of `lab codecs`.
#[derive(Args, Debug)]
struct Options {
    /// Directory with corpus-NAME.bin, as lab/corpus/make.py writes them [default: --corpus]
    #[arg(long, value_name = "DIR")]
    corpora: Option<PathBuf>,
    /// Make the corpora in that directory first
    #[arg(long, requires = "corpora")]
    make: bool,
    /// Pages of each corpus that are judged
    #[arg(long, value_name = "N", default_value = "4096",
          value_parser = clap::value_parser!(u32).range(64..))]
    pages: u32,
    /// Only these algorithms, with levels, and lz4 [default: all, at the levels that matter]
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',')]
    algorithm: Vec<codec::Codec>,
    /// Pages in a unit
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', default_value = "1,4,16",
          value_parser = clap::value_parser!(u32).range(1..=16))]
    unit: Vec<u32>,
    /// Shuffle by elements of so many bytes too, one page at a time
    #[arg(long, value_name = "BYTES[,BYTES]", value_delimiter = ',',
          value_parser = ["2", "4", "8"])]
    shuffle: Vec<String>,
    /// Draw cost against time into this file
    #[arg(long, value_name = "SVG")]
    picture: Option<PathBuf>,
}

/// The script that makes corpora.
const MAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/make.py");
/// Pages of the short form.
const QUICK_PAGES: u32 = 192;

fn run(matches: &ArgMatches, lab: &Lab) -> Result<Report, LabError> {
    let options = Options::from_arg_matches(matches).map_err(LabError::usage)?;
    if let Some(directory) = options.corpora.as_ref().filter(|_| options.make) {
        make(directory)?;
    }
    let pages = if lab.quick() { options.pages.min(QUICK_PAGES) } else { options.pages };
    let samples = match &options.corpora {
        Some(directory) => Sample::of_directory(directory, pages as usize)?,
        None => vec![Sample::of_one(lab.corpus_file(), pages as usize)?],
    };
    let mut notes = Vec::new();
    if lab.corpus_file().is_some() && options.corpora.is_some() {
        note(&mut notes, "--corpora was given: --corpus changes nothing".into());
    }
    let elements: Vec<usize> =
        options.shuffle.iter().filter_map(|text| text.parse().ok()).collect();
    let mut cases = cases::all(&options.algorithm, &options.unit);
    cases.extend(cases::shuffled(&cases, &elements)?);
    let mut pairs = Vec::new();
    for sample in &samples {
        let of_sample: Vec<(Kind, &Sample)> = cases
            .iter()
            .map(|case| Ok((case.ready(sample)?, sample)))
            .collect::<Result<_, LabError>>()?;
        pairs.extend(cases.iter().zip(of_sample));
    }
    let name = |(case, (_, sample)): &(&Case, (Kind, &Sample))| format!("{}: {case}", sample.name);
    let mut runs = lab.interleaved(&pairs, name, |(case, (kind, sample)), run| {
        let mut row = case.key(sample);
        row.set("run", run);
        trial::measure(case, kind, sample, &mut row)?;
        Ok(vec![row])
    })?;
    ratios::add(&mut runs);
    let rows = fields::medians(&FIELDS, &runs);
    notes.extend(ratios::notes(&rows));
    if let Some(path) = &options.picture {
        picture::write(path, &rows)?;
        note(&mut notes, format!("picture: {}", path.display()));
    }
    Ok(Report { corpus: None, rows, runs, notes })
}

/// Runs the script that makes corpora; what it says goes to this program's errors.
fn make(directory: &std::path::Path) -> Result<(), LabError> {
    let mut script = Command::new("python3");
    script.arg(MAKE).arg(directory).args(["--mib", "256"]);
    let said = script.output().map_err(|error| LabError::missing("python3", error))?;
    eprint!("{}", String::from_utf8_lossy(&said.stdout));
    said.status.success().then_some(()).ok_or_else(|| LabError::Store {
        what: MAKE.to_owned(),
        why: String::from_utf8_lossy(&said.stderr).into_owned(),
    })
}

const FIELDS: [Field; 14] = [
    Field::key("corpus").shown("corpus", Format::Plain),
    Field::key("codec").shown("codec", Format::Plain),
    Field::key("unit_kib").shown("KiB", Format::Plain),
    Field::key("dictionary").shown("dictionary", Format::Plain),
    Field::key("shuffle").shown("shuffle", Format::Plain),
    Field::key("pages"),
    Field::measured("bytes_per_page").shown("bytes", Format::Fixed(0)),
    Field::measured("class_cost").shown("class cost", Format::Fixed(0)),
    Field::measured("raw_share").shown("raw %", Format::Percent),
    Field::measured("compress_us").shown("compress us", Format::Fixed(2)),
    Field::measured("decompress_us").shown("decompress us", Format::Fixed(2)),
    Field::measured("cost_ratio").shown("cost / lz4", Format::Fixed(3)),
    Field::measured("compress_ratio").shown("compress / lz4", Format::Fixed(2)),
    Field::measured("decompress_ratio").shown("decompress / lz4", Format::Fixed(2)),
];
