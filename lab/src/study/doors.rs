//! Study `doors`: random reads of one compressed disk through two doors, NBD and vhost-user.
//!
//! ```text
//!   one zram disk, filled with the corpus
//!     nbd          thread of the connection --- Unix socket ---.
//!     vhost-user   thread of the queue --- shared memory ------+--- one client thread, this one
//! ```
//!
//! The doors take turns in a run, and the first one changes from run to run. 16 reads of 4 KiB are
//! under way. Each page that comes is compared with the corpus, in both clients.
//!
//! Rows are medians over the runs, with minimum and maximum; `vs_nbd` is of the two doors of a run.
//!
//! These figures do not show a guest, whose driver and exits come on top, and they do not show a
//! client on another machine. Client and server share a process.

use crate::frame::{Lab, Report, Study, note};
use crate::ground::stats::{paired, percentile};
use crate::ground::{LabError, PrivateDirectory, Rng};
use crate::pages::{Corpus, PAGE_SIZE};
use crate::rows::{Field, Format, Row, fields};
use ::serve::{Server, ServerConfig, VhostUser, VhostUserConfig};
use clap::{ArgMatches, Args, FromArgMatches};
use client::Client;
use codec::Codec;
use disk::Disk;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use zram::{Memory, MemoryConfig, Zram, ZramConfig};

mod client;
mod machine;
mod socket;

pub(super) const STUDY: Study = Study {
    name: "doors",
    about: "Random reads over vhost-user beside NBD over a Unix socket",
    options: Options::augment_args,
    fields: &FIELDS,
    vs_kernel: false,
    run,
};

/// Options of `lab doors`.
#[derive(Args, Debug)]
struct Options {
    /// Algorithms of the disk, optionally with a level: zstd:7
    #[arg(long, value_name = "NAME[,NAME]", value_delimiter = ',', default_value = "lz4")]
    algorithm: Vec<Codec>,
    /// Reads under way
    #[arg(long, value_name = "N[,N]", value_delimiter = ',', default_value = "16",
          value_parser = clap::value_parser!(u16).range(1..=32))]
    depth: Vec<u16>,
    /// Milliseconds that each door is measured for in a run [default: 3000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=600_000))]
    time: Option<u64>,
}

const SYNTHETIC_BYTES: u64 = 64 << 20;
const QUICK_BYTES: u64 = 2 << 20;
const TIME_MS: u64 = 3000;
const QUICK_TIME_MS: u64 = 100;
const NBD: &str = "nbd";
const VHOST_USER: &str = "vhost-user";
const SEED: u64 = 0x0064_6f6f_7273;

fn run(matches: &ArgMatches, lab: &Lab) -> Result<Report, LabError> {
    let options = Options::from_arg_matches(matches).map_err(LabError::usage)?;
    let bytes = if lab.quick() { QUICK_BYTES } else { SYNTHETIC_BYTES };
    let corpus = Corpus::open(lab.corpus_file(), bytes)?;
    let most = if lab.quick() { QUICK_BYTES as usize } else { usize::MAX };
    let pages = &corpus.bytes()[..corpus.bytes().len().min(most) / PAGE_SIZE * PAGE_SIZE];
    let time = options.time.unwrap_or(if lab.quick() { QUICK_TIME_MS } else { TIME_MS });
    let directory = PrivateDirectory::new(&lab.cleanup)?;
    let houses: Result<Vec<House>, LabError> =
        options.algorithm.iter().map(|codec| House::open(codec, pages, directory.path())).collect();
    let houses = houses?;
    let cases: Vec<(&House, u16)> = houses
        .iter()
        .flat_map(|house| options.depth.iter().map(move |&depth| (house, depth)))
        .collect();
    let name = |(house, depth): &(&House, u16)| format!("{}, depth {depth}", house.codec);
    let measure = |(house, depth): &(&House, u16), run| {
        house.measure(pages, *depth, Duration::from_millis(time), run)
    };
    let mut runs = lab.interleaved(&cases, name, measure)?;
    for row in &mut runs {
        row.set("corpus", corpus.name.as_str()).set("corpus_bytes", pages.len());
    }
    let mut notes = Vec::new();
    say(&runs, &mut notes);
    Ok(Report { rows: fields::medians(&FIELDS, &runs), corpus: Some(corpus), runs, notes })
}

/// A disk and its two doors.
struct House {
    codec: Codec,
    nbd: PathBuf,
    vhost_user: PathBuf,
    _servers: (Server, VhostUser),
}

impl House {
    fn open(codec: &Codec, pages: &[u8], directory: &Path) -> Result<House, LabError> {
        let failed = |why: &dyn std::fmt::Display| LabError::Store {
            what: "the disk".into(),
            why: why.to_string(),
        };
        let size = pages.len() as u64;
        let memory = Memory::new(MemoryConfig::for_disk(size)).map_err(|error| failed(&error))?;
        let mut config = ZramConfig::new("doors", size);
        config.algorithm = codec.clone();
        let disk = Arc::new(Zram::new(memory, config).map_err(|error| failed(&error))?);
        disk.write(0, pages).map_err(|error| failed(&error))?;
        let named = |end: &str| directory.join(format!("{codec}.{end}").replace(':', "-"));
        let (nbd, vhost_user) = (named("nbd"), named("vhost"));
        let mut config = ServerConfig::new("doors");
        config.unix.push(nbd.clone());
        let server =
            Server::start(Arc::clone(&disk) as _, config).map_err(|error| failed(&error))?;
        let machines = VhostUser::start(disk, VhostUserConfig::new("doors", &vhost_user));
        let machines = machines.map_err(|error| failed(&error))?;
        Ok(House { codec: codec.clone(), nbd, vhost_user, _servers: (server, machines) })
    }

    /// Both doors, one after the other.
    fn measure(
        &self,
        pages: &[u8],
        depth: u16,
        time: Duration,
        run: u32,
    ) -> Result<Vec<Row>, LabError> {
        let mut doors = [NBD, VHOST_USER];
        doors.rotate_left(run as usize % 2);
        let mut rows = Vec::new();
        for door in doors {
            let mut row = match door {
                NBD => {
                    read(&mut socket::Reader::connect(&self.nbd, depth)?, pages, (depth, run), time)
                }
                _ => {
                    let mut reader = machine::Reader::connect(&self.vhost_user, depth)?;
                    read(&mut reader, pages, (depth, run), time)
                }
            }?;
            row.set("door", door).set("algorithm", self.codec.to_string()).set("run", run);
            row.set("rw", "randread").set("bs", PAGE_SIZE).set("qd", depth);
            rows.push(row);
        }
        let of = |door: &str| rows.iter().find(|row| row.is("door", door))?.number("iops");
        let ratio = of(VHOST_USER).zip(of(NBD)).map(|(ours, nbd)| ours / nbd);
        rows.iter_mut().filter(|row| row.is("door", VHOST_USER)).for_each(|row| {
            row.set("vs_nbd", ratio);
        });
        Ok(rows)
    }
}

/// Reads random pages for a while, and compares each with what the disk was filled with.
fn read(
    client: &mut impl Client,
    pages: &[u8],
    (depth, run): (u16, u32),
    time: Duration,
) -> Result<Row, LabError> {
    let mut random = Rng::new(SEED, u64::from(run));
    let count = pages.len() / PAGE_SIZE;
    let mut asked = vec![(0, Instant::now()); usize::from(depth)];
    let mut latencies = Vec::new();
    for (place, asked) in asked.iter_mut().enumerate() {
        *asked = (random.next() as usize % count, Instant::now());
        client.ask(place, asked.0)?;
    }
    let begun = Instant::now();
    let mut under_way = asked.len();
    while under_way > 0 {
        let (place, found) = client.answer()?;
        let (page, since) = asked[place];
        latencies.push(u32::try_from(since.elapsed().as_nanos()).unwrap_or(u32::MAX));
        if found != &pages[page * PAGE_SIZE..][..PAGE_SIZE] {
            return Err(LabError::Wrong(format!("page {page} has other bytes")));
        }
        if begun.elapsed() < time {
            asked[place] = (random.next() as usize % count, Instant::now());
            client.ask(place, asked[place].0)?;
        } else {
            under_way -= 1;
        }
    }
    let elapsed = begun.elapsed();
    let iops = latencies.len() as f64 / elapsed.as_secs_f64();
    latencies.sort_unstable();
    let us = |percent| percentile(&latencies, percent).map(|ns| f64::from(ns) / 1000.0);
    let mut row = Row::default();
    row.set("iops", iops).set("lat_us_p50", us(50)).set("lat_us_p99", us(99));
    Ok(row)
}

/// Says how many times as fast the door of machines is, with the interval of its mean.
fn say(runs: &[Row], notes: &mut Vec<String>) {
    let mut keys: Vec<(String, u64)> = Vec::new();
    for row in runs {
        let key = key(row);
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    for of in keys {
        let same = runs.iter().filter(|row| key(row) == of);
        let ratios: Vec<f64> = same.filter_map(|row| row.number("vs_nbd")).collect();
        let Some(found) = paired(&vec![0.0; ratios.len()], &ratios) else { continue };
        let half = found.ci95.map_or(String::new(), |half| format!(" +- {half:.2}"));
        let (algorithm, depth) = of;
        let (ratio, count) = (found.mean, ratios.len());
        let of = format!("{algorithm}, depth {depth}");
        let what = format!("vhost-user / nbd = {ratio:.2}{half} (IOPS, mean of {count} runs)");
        note(notes, format!("{of}: {what}"));
    }
}

fn key(row: &Row) -> (String, u64) {
    let algorithm = row.get("algorithm").as_str().unwrap_or_default().to_owned();
    (algorithm, row.get("qd").as_u64().unwrap_or(0))
}

const FIELDS: [Field; 11] = [
    Field::key("door").shown("door", Format::Plain),
    Field::key("algorithm").shown("algorithm", Format::Plain),
    Field::key("rw").shown("pattern", Format::Plain),
    Field::key("bs"),
    Field::key("qd").shown("depth", Format::Plain),
    Field::key("corpus"),
    Field::key("corpus_bytes"),
    Field::measured("iops").shown("IOPS", Format::Fixed(0)),
    Field::measured("lat_us_p50").shown("p50 us", Format::Fixed(1)),
    Field::measured("lat_us_p99").shown("p99 us", Format::Fixed(1)),
    Field::measured("vs_nbd").shown("vs nbd", Format::Fixed(2)),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that gives back the wrong page.
    struct Liar(Vec<usize>);

    impl Client for Liar {
        fn ask(&mut self, place: usize, _: usize) -> Result<(), LabError> {
            self.0.push(place);
            Ok(())
        }

        fn answer(&mut self) -> Result<(usize, &[u8]), LabError> {
            Ok((self.0.pop().unwrap_or(0), &[0; PAGE_SIZE]))
        }
    }

    #[test]
    fn a_page_of_other_bytes_is_no_measurement() {
        let pages = vec![7; 4 * PAGE_SIZE];
        let outcome = read(&mut Liar(Vec::new()), &pages, (4, 0), Duration::ZERO);
        assert!(matches!(outcome, Err(LabError::Wrong(_))));
    }
}
