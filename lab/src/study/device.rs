//! Study `device`: compressed disks as their clients see them, and what a store adds to its codec.
//!
//! ```text
//!   client fio          fio --nbd--> ramfold serve, nbdkit memory (malloc, zstd); the kernel's
//!                       zram through libaio; all filled with the corpus, interleaved rounds
//!   with it lab         the same disks, random writes of the corpus's own pages, all read back
//!   client tree         fio on the disk of a mounted tree: /dev/fuse beside io_uring
//!   client in-process   read and write calls on a zram, beside the codec alone on the same pages
//! ```
//!
//! Each of our disks has a peer of its algorithm: zstd beside nbdkit's zstd. `stored_bytes` is all
//! anonymous memory of a server once it was filled, page tables apart. Nothing was freed until
//! then, and no server has a call by which others have its heap trimmed.
//!
//! Rows are medians over the rounds, with minimum and maximum.
//!
//! These figures do not show a file system or a page cache on top: `fs` does.

use crate::apparatus::served;
use crate::frame::{Lab, Report, Study, note};
use crate::ground::LabError;
use crate::pages::{Corpus, PAGE_SIZE};
use crate::rows::{Field, Format, Row, fields};
use bench::{Bench, Client, Options, Peer};
use clap::{ArgMatches, Args, FromArgMatches};

mod bench;
mod client;
mod fio;
mod inside;
mod pages;
mod passes;
mod target;
mod tree;
mod workload;

pub(super) const STUDY: Study = Study {
    name: "device",
    about: "Speed of compressed disks: over NBD beside nbdkit, in process beside the codec alone",
    options: Options::augment_args,
    fields: &FIELDS,
    vs_kernel: true,
    run,
};

const SYNTHETIC_BYTES: u64 = 64 << 20;
const QUICK_BYTES: u64 = 2 << 20;

fn run(matches: &ArgMatches, lab: &Lab) -> Result<Report, LabError> {
    let options = Options::from_arg_matches(matches).map_err(LabError::usage)?;
    let default = if lab.quick() { QUICK_BYTES } else { SYNTHETIC_BYTES };
    let synthetic = options.mib.map_or(default, |mib| mib << 20);
    let corpus = Corpus::open(lab.corpus_file(), synthetic)?;
    let most = if lab.quick() { QUICK_BYTES as usize / PAGE_SIZE } else { usize::MAX };
    let used = options.mib.map_or(Ok(corpus.pages().min(most)), |mib| corpus.pages_in(mib))?;
    let kernel = lab.vs_kernel() || options.peers.contains(&Peer::Kernel);
    if kernel && !options.client.contains(&Client::Fio) {
        let why = "the kernel's zram is measured by fio alone: add --client fio";
        return Err(LabError::Usage(format!("--vs-kernel or --peers kernel: {why}")));
    }
    let pages = &corpus.bytes()[..used * PAGE_SIZE];
    let bench = Bench { options: &options, lab, pages, kernel };
    let (mut runs, mut notes) = (Vec::new(), Vec::new());
    if options.client.contains(&Client::InProcess) {
        for algorithm in &options.algorithm {
            runs.extend(inside::run(&bench, algorithm)?);
        }
    }
    if options.client.contains(&Client::Fio) {
        fio::run(&bench, &mut runs, &mut notes)?;
    }
    if options.client.contains(&Client::Tree) {
        tree::run(&bench, &mut runs, &mut notes)?;
    }
    for row in &mut runs {
        row.set("corpus", corpus.name.as_str()).set("corpus_bytes", pages.len());
    }
    let rows = fields::medians(&FIELDS, &runs);
    ratios(&rows, &mut notes);
    Ok(Report { corpus: Some(corpus), rows, runs, notes })
}

/// Says how our server compares with every other, pattern by pattern.
fn ratios(rows: &[Row], notes: &mut Vec<String>) {
    let ours = rows.iter().filter(|row| row.is("device", served::RAMFOLD));
    for row in ours {
        let same =
            |other: &&Row| other.get("rw") == row.get("rw") && !other.is("device", served::RAMFOLD);
        let others = rows.iter().filter(same).filter(|other| !other.is("client", inside::CLIENT));
        for other in others {
            let Some((a, b)) = row.number("iops").zip(other.number("iops")) else { continue };
            let text = |row: &Row, field| row.get(field).as_str().unwrap_or("").to_owned();
            let (device, rw) = (text(other, "device"), text(other, "rw"));
            let (ours, theirs) = (text(row, "algorithm"), text(other, "algorithm"));
            let ratio = a / b;
            note(notes, format!("{rw}: ramfold {ours} / {device} {theirs} = {ratio:.2} (IOPS)"));
        }
    }
}

const FIELDS: [Field; 19] = [
    Field::key("device").shown("device", Format::Plain),
    Field::key("client").shown("client", Format::Plain),
    Field::key("algorithm").shown("algorithm", Format::Plain),
    Field::key("rw").shown("pattern", Format::Plain),
    Field::key("bs"),
    Field::key("qd").shown("depth", Format::Plain),
    Field::key("corpus"),
    Field::key("corpus_bytes"),
    Field::measured("iops").shown("IOPS", Format::Fixed(0)),
    Field::measured("mib_per_s").shown("MiB/s", Format::Fixed(1)),
    Field::measured("lat_us_p50").shown("p50 us", Format::Fixed(1)),
    Field::measured("lat_us_p99").shown("p99 us", Format::Fixed(1)),
    Field::measured("stored_bytes").shown("stored MiB", Format::Mib),
    Field::measured("page_table_bytes").shown("page tables MiB", Format::Mib),
    Field::measured("ns_per_page").shown("ns/page", Format::Fixed(0)),
    Field::measured("codec_ns_per_page").shown("codec ns/page", Format::Fixed(0)),
    Field::measured("ratio").shown("store/codec", Format::Fixed(3)),
    Field::measured("stored_pages"),
    Field::measured("huge_pages"),
];

#[cfg(test)]
mod tests {
    use super::bench::set_rate;
    use super::*;

    fn run(device: &str, algorithm: &str, iops: f64) -> Row {
        let mut row = Row::default();
        row.set("device", device).set("algorithm", algorithm).set("rw", "randread");
        set_rate(&mut row, iops);
        row
    }

    #[test]
    fn ratios_are_of_medians_and_name_the_peer() {
        let runs = [
            run("ramfold", "lz4", 100.0),
            run("nbdkit", "zstd", 20.0),
            run("ramfold", "lz4", 120.0),
            run("nbdkit", "zstd", 24.0),
            run("ramfold", "lz4", 90.0),
            run("kernel-zram", "lz4", f64::NAN),
            run("nbdkit", "zstd", 25.0),
        ];
        let rows = fields::medians(&FIELDS, &runs);
        let mut notes = Vec::new();
        ratios(&rows, &mut notes);
        assert_eq!(notes, ["randread: ramfold lz4 / nbdkit zstd = 4.17 (IOPS)"]);
        assert_eq!(rows[0].number("iops_max"), Some(120.0));
    }
}
