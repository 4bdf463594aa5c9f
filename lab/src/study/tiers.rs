//! Study `tiers`: what a device holds that keeps unused pages denser, and how long its reads take.
//!
//! ```text
//!   for every run, corpus and --density:
//!     store the corpus; for so long as ages and tiers need, read by Zipf's law now and then
//!     compact, return what is free, read the counters
//!     time reads by Zipf's law, and then reads of any page; compare every page
//! ```
//!
//! `fast` is lz4 without ages. It waits and reads as the others do. The thread of the tiers has its
//! usual share of a CPU unless `--cpu` gives it more, and works while reads are timed. Which page
//! has which rank is random, and the same in all runs.
//!
//! These figures do not show a fault or a socket, beside which a codec is a part of the time.

mod reads;

use crate::frame::{Lab, Report, Study};
use crate::ground::{LabError, Rng, clock};
use crate::pages::{Corpus, PAGE_SIZE};
use crate::rows::{Field, Format, Row, fields};
use clap::{ArgMatches, Args, FromArgMatches};
use reads::{Zipf, timed};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use zram::{Density, Tiers, TiersConfig, Zram, ZramConfig};
use zsmalloc::{Memory, MemoryConfig};

pub(super) const STUDY: Study = Study {
    name: "tiers",
    about: "What pages take that go to tiers by age, and how long their reads take",
    options: Options::augment_args,
    fields: &FIELDS,
    vs_kernel: false,
    run,
};

/// Options of `lab tiers`.
#[derive(Args, Debug)]
struct Options {
    /// Directory of corpora, `corpus-NAME.bin`, as lab/corpus/make.py makes them; without it there
    /// is the one of --corpus, or the synthetic mix
    #[arg(long, value_name = "DIRECTORY")]
    corpora: Option<PathBuf>,
    /// Densities
    #[arg(
        long,
        value_name = "NAME[,NAME]",
        value_delimiter = ',',
        default_value = "fast,balanced,dense"
    )]
    density: Vec<Density>,
    /// Seconds that pages age, at ages of one second
    #[arg(long, value_name = "SECONDS", default_value = "12")]
    wait: u32,
    /// Percent of a CPU that the thread of the tiers has. Ages are a thirtieth of the usual ones,
    /// so it may need more than usual to be done in time
    #[arg(long, value_name = "PERCENT", default_value = "10",
          value_parser = clap::value_parser!(u32).range(1..=100))]
    cpu: u32,
}

/// Bytes of the synthetic mix.
const SYNTHETIC_BYTES: u64 = 32 << 20;
const QUICK_BYTES: u64 = 8 << 20;
/// Reads of each kind that are timed.
const READS: usize = 60_000;
/// Reads in a second while pages age.
const READS_WHILE_AGEING: u64 = 500;
const EXPONENT: f64 = 0.99;
/// Bytes of free frames that a memory keeps, whatever it holds.
const FREE_KEPT: u64 = 1 << 20;
const AGE: Duration = Duration::from_secs(1);

fn run(matches: &ArgMatches, lab: &Lab) -> Result<Report, LabError> {
    let options = Options::from_arg_matches(matches).map_err(LabError::usage)?;
    let corpora = match &options.corpora {
        Some(directory) => of_directory(directory)?,
        None => {
            let synthetic = if lab.quick() { QUICK_BYTES } else { SYNTHETIC_BYTES };
            let corpus = Corpus::open(lab.corpus_file(), synthetic)?;
            vec![(corpus.name.clone(), corpus)]
        }
    };
    let wait = if lab.quick() { 4 } else { options.wait };
    let pairs: Vec<(&(String, Corpus), Density)> = corpora
        .iter()
        .flat_map(|corpus| options.density.iter().map(move |&density| (corpus, density)))
        .collect();
    let name =
        |(corpus, density): &(&(String, Corpus), Density)| format!("{}: {density}", corpus.0);
    let mut runs = lab.interleaved(&pairs, name, |&((name, corpus), density), run| {
        let mut row = Row::default();
        row.set("corpus", name.as_str())
            .set("density", density.name())
            .set("pages", corpus.pages())
            .set("run", run);
        trial(corpus, density, (wait, options.cpu), &mut row)?;
        Ok(vec![row])
    })?;
    reads::add_ratios(&mut runs);
    let rows = fields::medians(&FIELDS, &runs);
    Ok(Report { corpus: None, notes: reads::means(&rows), rows, runs })
}

/// Every `corpus-NAME.bin` in a directory, by name.
fn of_directory(directory: &Path) -> Result<Vec<(String, Corpus)>, LabError> {
    let mut corpora = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(LabError::io(directory.display()))? {
        let path = entry.map_err(LabError::io(directory.display()))?.path();
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(name) = file.strip_prefix("corpus-").and_then(|it| it.strip_suffix(".bin")) {
            corpora.push((name.to_owned(), Corpus::open(Some(&path), 0)?));
        }
    }
    corpora.sort_by(|one, other| one.0.cmp(&other.0));
    let none = || LabError::Usage(format!("{}: no corpus-NAME.bin", directory.display()));
    (!corpora.is_empty()).then_some(corpora).ok_or_else(none)
}

fn device(pages: usize, density: Density) -> Result<Arc<Zram>, LabError> {
    let bytes = (pages * PAGE_SIZE) as u64;
    let failed = LabError::store::<zsmalloc::MemoryError>;
    let memory = Memory::new(MemoryConfig::for_disk(bytes)).map_err(failed("zram"))?;
    let config = ZramConfig::new("lab", bytes).with_tiers(density);
    Zram::new(memory, config).map(Arc::new).map_err(LabError::store("zram"))
}

fn trial(
    corpus: &Corpus,
    density: Density,
    (wait, cpu_percent): (u32, u32),
    row: &mut Row,
) -> Result<(), LabError> {
    let disk = device(corpus.pages(), density)?;
    for page in 0..corpus.pages() {
        disk.write_page(page as u64, corpus.page(page)).map_err(LabError::store("a write"))?;
    }
    let config = TiersConfig { age: AGE, cpu_percent, ..TiersConfig::new(density) };
    let tiers = (density != Density::Fast).then(|| Tiers::start(&disk, config)).transpose();
    let tiers = tiers.map_err(LabError::store("tiers"))?;
    let mut rng = Rng::new(57, 0);
    let zipf = Zipf::new(corpus.pages(), EXPONENT, &mut rng);
    age(&disk, wait, || zipf.page(&mut rng))?;
    disk.compact();
    // The memory's worker would do that within a second. Reads would have to pause meanwhile.
    disk.memory().release(FREE_KEPT);
    let stat = disk.stat();
    row.set("accounted_bytes", stat.accounted_bytes())
        .set("metadata_bytes", stat.metadata_bytes())
        .set("compr_data_size", stat.compr_data_size);
    let dense = disk.tier_stat().map_or(0, |stat| stat.denser);
    let cpu = disk.tier_stat().map_or(0, |stat| stat.cpu_us);
    row.set("denser_pages", dense).set("cpu_seconds", cpu as f64 / 1e6);
    let mut rng = Rng::new(57, 1);
    timed(&disk, corpus, READS, || zipf.page(&mut rng))?.name_in("zipf", row);
    timed(&disk, corpus, READS, || rng.below(corpus.pages()))?.name_in("uniform", row);
    drop(tiers);
    reads::compare(&disk, corpus)?;
    disk.check().map_err(LabError::store("a recount"))?;
    Ok(())
}

/// Reads some pages in each second that pages age.
fn age(disk: &Zram, seconds: u32, mut page: impl FnMut() -> usize) -> Result<(), LabError> {
    let start = clock::now_ns();
    let mut data = [0; PAGE_SIZE];
    for read in 0..u64::from(seconds) * READS_WHILE_AGEING {
        clock::sleep_until(start + read * (1_000_000_000 / READS_WHILE_AGEING));
        disk.read_page(page() as u64, &mut data).map_err(LabError::store("a read"))?;
    }
    Ok(())
}

const FIELDS: [Field; 18] = [
    Field::key("corpus").shown("corpus", Format::Plain),
    Field::key("density").shown("density", Format::Plain),
    Field::key("pages"),
    Field::measured("accounted_bytes").shown("accounted MiB", Format::Mib),
    Field::measured("metadata_bytes"),
    Field::measured("compr_data_size"),
    Field::measured("saved").shown("saved %", Format::Percent),
    Field::measured("denser_pages").shown("denser pages", Format::Plain),
    Field::measured("cpu_seconds").shown("CPU s", Format::Fixed(2)),
    Field::measured("zipf_mean_ns").shown("Zipf mean ns", Format::Fixed(0)),
    Field::measured("zipf_p99_ns").shown("p99 ns", Format::Fixed(0)),
    Field::measured("zipf_mean_ratio").shown("mean / lz4", Format::Fixed(2)),
    Field::measured("zipf_p99_ratio").shown("p99 / lz4", Format::Fixed(2)),
    Field::measured("uniform_mean_ns").shown("uniform mean ns", Format::Fixed(0)),
    Field::measured("uniform_p99_ns").shown("p99 ns", Format::Fixed(0)),
    Field::measured("uniform_mean_ratio").shown("mean / lz4", Format::Fixed(2)),
    Field::measured("uniform_p99_ratio").shown("p99 / lz4", Format::Fixed(2)),
    Field::measured("reads"),
];
