//! Study `tiers`: what a device holds that keeps unused pages denser, and how long its reads take.
//!
//! ```text
//!   for every run and corpus, with a device for each --density:
//!     store the corpus; for so long as ages and tiers need, read by Zipf's law now and then
//!     stop the tiers, compact, return what is free, read the counters
//!     time reads by Zipf's law, some hundreds of each device in turn; then reads of any page
//!     compare every page
//! ```
//!
//! `fast` is lz4 without ages. It waits and reads as the others do. The thread of the tiers has its
//! usual share of a CPU unless `--cpu` gives it more. It is stopped before reads are timed. So what
//! is timed is reading alone, and the devices can take turns. The speed of a virtual machine
//! changes within seconds by more than the densities differ. Which page has which rank is random,
//! and the same in all runs.
//!
//! These figures do not show a fault or a socket, beside which a codec is a part of the time.

mod reads;

use crate::frame::{Lab, Report, Study};
use crate::ground::{LabError, Rng, clock};
use crate::pages::{Corpus, PAGE_SIZE};
use crate::rows::{Field, Format, Row, fields};
use clap::{ArgMatches, Args, FromArgMatches};
use reads::{Zipf, timed_in_turn};
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
    let name = |(name, _): &(String, Corpus)| name.clone();
    let mut runs = lab.interleaved(&corpora, name, |(name, corpus), run| {
        let mut rows = trial(corpus, &options.density, (wait, options.cpu))?;
        for row in &mut rows {
            row.set("corpus", name.as_str()).set("pages", corpus.pages()).set("run", run);
        }
        Ok(rows)
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

/// The rows of one corpus, one for each density.
fn trial(
    corpus: &Corpus,
    densities: &[Density],
    (wait, cpu_percent): (u32, u32),
) -> Result<Vec<Row>, LabError> {
    let disks: Result<Vec<Arc<Zram>>, LabError> =
        densities.iter().map(|&density| filled(corpus, density)).collect();
    let disks = disks?;
    let mut rng = Rng::new(57, 0);
    let zipf = Zipf::new(corpus.pages(), EXPONENT, &mut rng);
    {
        let with_tiers = disks.iter().zip(densities).filter(|(_, it)| **it != Density::Fast);
        let tiers: Result<Vec<Tiers>, _> = with_tiers
            .map(|(disk, &density)| {
                let config = TiersConfig { age: AGE, cpu_percent, ..TiersConfig::new(density) };
                Tiers::start(disk, config)
            })
            .collect();
        let _tiers = tiers.map_err(LabError::store("tiers"))?;
        age(&disks, wait, || zipf.page(&mut rng))?;
    }
    let mut rows: Vec<Row> =
        disks.iter().zip(densities).map(|(disk, &density)| taken(disk, density)).collect();
    let mut rng = Rng::new(57, 1);
    let by_zipf: Vec<usize> = (0..READS).map(|_| zipf.page(&mut rng)).collect();
    let of_any: Vec<usize> = (0..READS).map(|_| rng.below(corpus.pages())).collect();
    for (kind, pages) in [("zipf", by_zipf), ("uniform", of_any)] {
        for (times, row) in timed_in_turn(&disks, corpus, &pages)?.into_iter().zip(&mut rows) {
            times.name_in(kind, row);
        }
    }
    for disk in &disks {
        reads::compare(disk, corpus)?;
        disk.check().map_err(LabError::store("a recount"))?;
    }
    Ok(rows)
}

/// A device that holds a corpus.
fn filled(corpus: &Corpus, density: Density) -> Result<Arc<Zram>, LabError> {
    let disk = device(corpus.pages(), density)?;
    for page in 0..corpus.pages() {
        disk.write_page(page as u64, corpus.page(page)).map_err(LabError::store("a write"))?;
    }
    Ok(disk)
}

/// What a device has taken by now, compacted and without what is free.
fn taken(disk: &Zram, density: Density) -> Row {
    disk.compact();
    // The memory's worker would do that within a second. Reads would have to pause meanwhile.
    disk.memory().release(FREE_KEPT);
    let (stat, tiers) = (disk.stat(), disk.tier_stat());
    let mut row = Row::default();
    row.set("density", density.name())
        .set("accounted_bytes", stat.accounted_bytes())
        .set("metadata_bytes", stat.metadata_bytes())
        .set("compr_data_size", stat.compr_data_size)
        .set("denser_pages", tiers.as_ref().map_or(0, |stat| stat.denser))
        .set("cpu_seconds", tiers.map_or(0, |stat| stat.cpu_us) as f64 / 1e6);
    row
}

/// Reads some pages in each second that pages age, the same ones of every device.
fn age(disks: &[Arc<Zram>], seconds: u32, mut page: impl FnMut() -> usize) -> Result<(), LabError> {
    let start = clock::now_ns();
    let mut data = [0; PAGE_SIZE];
    for read in 0..u64::from(seconds) * READS_WHILE_AGEING {
        clock::sleep_until(start + read * (1_000_000_000 / READS_WHILE_AGEING));
        let page = page() as u64;
        for disk in disks {
            disk.read_page(page, &mut data).map_err(LabError::store("a read"))?;
        }
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
