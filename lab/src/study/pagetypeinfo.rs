//! Study `pagetypeinfo`: what it costs to read how many blocks are free (S2).
//!
//! ```text
//!   every run, for every --free-blocks, on a zone with so many free blocks that cannot merge:
//!     the writer alone
//!     for every --mode:   one thread reads over and over, the writer allocates and frees
//!   and the kernel's own /proc/pagetypeinfo, read over and over
//! ```
//!
//! A read takes the counts and renders the kernel's text into a buffer that is used again. `counts`
//! takes no lock. `list-walk` counts every block of every list under the zone lock.
//! `list-walk-capped` does the same, up to 100000 blocks of a list. The kernel's file stays open
//! and is read from its start to its end.
//!
//! At rest, before and after, the three modes must give the same text; the kernel's must be read
//! and written again byte for byte. The writer has up to 256 runs of 1 to 16 frames, a quarter of
//! them unmovable, and frees and allocates at random; `writer_vs_alone` is its rate over that with
//! nobody reading.
//!
//! `free_pageblock_frames` is what a reader makes of a text: frames in free blocks of a pageblock
//! or more, as the kernel's `nr_free_pages_blocks` has them.
//!
//! Rows are medians over the runs, with minimum and maximum: `read_us_max` is the median of the
//! slowest read of each run. `free_blocks` of the kernel is the sum of what its text says, in
//! which a cell is 100000 at most.
//!
//! These figures do not show how often a system reads that file.

use crate::apparatus::reader::Mode;
use crate::frame::{Lab, Report, Study, note, present};
use crate::ground::LabError;
use crate::rows::{Field, Format, Row, column, fields};
use clap::{ArgMatches, Args, FromArgMatches};
use std::time::Duration;
use trial::{KERNEL_MODE, Ours};

mod trial;
mod writer;

pub(super) const STUDY: Study = Study {
    name: "pagetypeinfo",
    about: "Reading the free counts: published, by walking the lists, and the kernel's",
    options: Options::augment_args,
    fields: &FIELDS,
    vs_kernel: false,
    run,
};

/// Options of `lab pagetypeinfo`.
#[derive(Args, Debug)]
struct Options {
    /// Where the counts come from
    #[arg(
        long,
        value_name = "MODE[,MODE]",
        value_delimiter = ',',
        default_value = "counts,list-walk,list-walk-capped"
    )]
    mode: Vec<Mode>,
    /// Free blocks of the zone [default: 1000,10000,100000,1000000]
    #[arg(long, value_name = "N[,N]", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=FREE_BLOCKS_MAX))]
    free_blocks: Vec<u32>,
}

/// 80 GiB of frames, 180 MiB of metadata.
const FREE_BLOCKS_MAX: i64 = 10_000_000;
const FREE_BLOCKS: [u32; 4] = [1000, 10_000, 100_000, 1_000_000];
const QUICK_FREE_BLOCKS: [u32; 2] = [1000, 10_000];
const TIME: Duration = Duration::from_millis(300);
const QUICK_TIME: Duration = Duration::from_millis(20);

fn run(matches: &ArgMatches, lab: &Lab) -> Result<Report, LabError> {
    let options = Options::from_arg_matches(matches).map_err(LabError::usage)?;
    let time = if lab.quick() { QUICK_TIME } else { TIME };
    let default = if lab.quick() { &QUICK_FREE_BLOCKS[..] } else { &FREE_BLOCKS };
    let sizes = if options.free_blocks.is_empty() { default } else { &options.free_blocks };
    let mut notes = Vec::new();
    lab.no_pages(&mut notes);
    let cases: Vec<Text> =
        sizes.iter().map(|&size| Text::Ours(size)).chain([Text::Kernel]).collect();
    let runs = lab.interleaved(&cases, Text::name, |case, run| match *case {
        Text::Ours(free_blocks) => ours(free_blocks, &options.mode, run, time),
        Text::Kernel => Ok(present(trial::kernel(run, time), &mut notes)?.into_iter().collect()),
    })?;
    let rows = summary(&runs);
    compare(&rows, &mut notes);
    Ok(Report { corpus: None, rows, runs, notes })
}

/// What is read in every run.
enum Text {
    /// That of a zone with so many free blocks.
    Ours(u32),
    Kernel,
}

impl Text {
    fn name(&self) -> String {
        match self {
            Text::Ours(free_blocks) => format!("{free_blocks} free blocks"),
            Text::Kernel => KERNEL_MODE.to_owned(),
        }
    }
}

/// A row for each mode. Which is first changes from run to run.
fn ours(free_blocks: u32, modes: &[Mode], run: u32, time: Duration) -> Result<Vec<Row>, LabError> {
    let ours = Ours::new(free_blocks, run, time)?;
    let turns = (0..modes.len()).map(|turn| modes[(turn + run as usize) % modes.len()]);
    turns.map(|mode| ours.measure(mode, time)).collect()
}

/// Medians, and the kernel's free blocks among them: they are not the same in every run.
fn summary(runs: &[Row]) -> Vec<Row> {
    let (kernel, ours): (Vec<Row>, Vec<Row>) =
        runs.iter().cloned().partition(|row| row.is("mode", KERNEL_MODE));
    let mut rows = fields::medians(&FIELDS, &ours);
    if !kernel.is_empty() {
        let mut median = Row::default();
        median.spread("free_blocks", &column(&kernel, "free_blocks"));
        let blocks = median.get("free_blocks").clone();
        let alike =
            kernel.into_iter().map(|mut row| row.set("free_blocks", blocks.clone()).clone());
        rows.extend(fields::medians(&FIELDS, &alike.collect::<Vec<Row>>()));
    }
    rows
}

/// Says how each mode grows with the lists, beside what was published.
fn compare(rows: &[Row], notes: &mut Vec<String>) {
    for mode in Mode::ALL.map(Mode::name) {
        let of_mode = |row: &&Row| row.is("mode", mode) && row.number("read_us_mean").is_some();
        let few = rows.iter().filter(of_mode).min_by_key(|row| row.get("free_blocks").as_u64());
        let many = rows.iter().filter(of_mode).max_by_key(|row| row.get("free_blocks").as_u64());
        let Some((few, many)) = few.zip(many).filter(|(few, many)| few != many) else { continue };
        let ratio = |field| Some(many.number(field)? / few.number(field)?);
        let Some((mean, median)) = ratio("read_us_mean").zip(ratio("read_us_p50")) else {
            continue;
        };
        let (few, many) = (few.get("free_blocks"), many.get("free_blocks"));
        note(
            notes,
            format!(
                "{mode}: {many} free blocks / {few} = {mean:.2} (read_us_mean), {median:.2} \
                 (read_us_p50)"
            ),
        );
    }
    notes.extend(PUBLISHED.map(str::to_owned));
}

/// Study S2.
const PUBLISHED: [&str; 2] = [
    "published (S2; i7-12700, 16 GB, one node, mean of 10000 reads), list walk: 700.9 us after \
     boot, 28700 us after building a kernel",
    "published (S2, the same), counts: 268.6 us after boot, 269.8 us after building a kernel",
];

const FIELDS: [Field; 10] = [
    Field::key("mode").shown("mode", Format::Plain),
    Field::key("free_blocks").shown("free blocks", Format::Plain),
    Field::measured("reads").shown("reads", Format::Fixed(0)),
    Field::measured("read_us_mean").shown("read us", Format::Fixed(2)),
    Field::measured("read_us_p50").shown("p50", Format::Fixed(2)),
    Field::measured("read_us_p99").shown("p99", Format::Fixed(2)),
    Field::measured("read_us_max").shown("max", Format::Fixed(1)),
    Field::measured("free_pageblock_frames").shown("frames in free pageblocks", Format::Fixed(0)),
    Field::measured("writer_ops_per_s").shown("writer ops/s", Format::Fixed(0)),
    Field::measured("writer_vs_alone").shown("x alone", Format::Fixed(2)),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn row(mode: &str, free_blocks: u32, us: f64) -> Row {
        let mut row = Row::default();
        row.set("mode", mode).set("free_blocks", free_blocks);
        row.set("read_us_mean", us).set("read_us_p50", us / 2.0);
        row
    }

    #[test]
    fn the_kernels_runs_are_one_row_whatever_is_free_there() {
        let runs = [row("counts", 10, 1.0), row(KERNEL_MODE, 70, 5.0), row(KERNEL_MODE, 90, 7.0)];
        let rows = summary(&runs);
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[1].number("free_blocks"), Some(80.0));
        assert_eq!(
            (rows[1].number("runs"), rows[1].number("read_us_mean")),
            (Some(2.0), Some(6.0))
        );
    }

    #[test]
    fn sentences_say_how_reading_grows_and_what_was_published() {
        let rows = [row("counts", 100, 2.0), row("counts", 10, 1.0), row("list-walk", 10, 4.0)];
        let mut notes = Vec::new();
        compare(&rows, &mut notes);
        let growth = "counts: 100 free blocks / 10 = 2.00 (read_us_mean), 2.00 (read_us_p50)";
        assert_eq!(notes, [&[growth][..], &PUBLISHED].concat());
    }
}
