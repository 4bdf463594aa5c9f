//! Study `far`: pages that go to another ramfold over NBD, beside `nbdcopy` between the two.
//!
//! ```text
//!   nbdcopy   near, filled --- nbdcopy ---------------------> copy
//!   asked     near, filled --- set near writeback idle -----> far, its backing disk
//!   target    near, filled --- set near memory_target 4K ---> the same
//! ```
//!
//! Three servers are on this machine, with Unix sockets between them. The ways take turns in a
//! run, and the first one changes from run to run. Before each way the disk is filled anew, so all
//! of its pages are in memory. After it, every page is read back and compared. Pages of one
//! repeated word are left out, because a write-back has nothing to write of them.
//!
//! Rates are of pages before they are compressed. `asked` and `nbdcopy` are timed from the start of
//! a command to its end. `target` is looked at until nothing more is written. Its rate is that of
//! the first look at which a twentieth or less was left, because the thread that holds a target
//! rests for a second before it takes what is left then.
//!
//! Rows are medians over the runs, with minimum and maximum; `vs_nbdcopy` is of the ways of a run.
//!
//! These figures do not show a network.

use crate::apparatus::served::{self, Served};
use crate::frame::{Lab, Report, Study, note};
use crate::ground::stats::paired;
use crate::ground::{Cleanup, LabError, PrivateDirectory};
use crate::pages::{Corpus, PAGE_SIZE};
use crate::rows::{Field, Format, Row, fields};
use clap::{ArgMatches, Args, FromArgMatches};
use codec::Codec;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(super) const STUDY: Study = Study {
    name: "far",
    about: "Write-back to another ramfold over NBD beside nbdcopy between the two",
    options: Options::augment_args,
    fields: &FIELDS,
    vs_kernel: false,
    run,
};

/// Options of `lab far`.
#[derive(Args, Debug)]
struct Options {
    /// Algorithm of the disks, optionally with a level: zstd:7
    #[arg(long, value_name = "NAME", default_value = "lz4")]
    algorithm: Codec,
    /// The server to measure [default: ramfold beside this program]
    #[arg(long, value_name = "PATH")]
    ramfold: Option<PathBuf>,
}

const SYNTHETIC_BYTES: u64 = 256 << 20;
const QUICK_BYTES: u64 = 4 << 20;
const NBDCOPY: &str = "nbdcopy";
const WAYS: [&str; 3] = [NBDCOPY, "asked", "target"];
/// Between two looks at a server that holds its target. Each is a process.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// For so long nothing may be written before the target is taken for reached.
const QUIET: Duration = Duration::from_secs(3);
/// One page of so many may be left.
const LEFT_PART: u64 = 20;
const LONGEST: Duration = Duration::from_secs(600);

fn run(matches: &ArgMatches, lab: &Lab) -> Result<Report, LabError> {
    let options = Options::from_arg_matches(matches).map_err(LabError::usage)?;
    let synthetic = if lab.quick() { QUICK_BYTES } else { SYNTHETIC_BYTES };
    let corpus = Corpus::open(lab.corpus_file(), synthetic)?;
    let most = if lab.quick() { QUICK_BYTES as usize } else { usize::MAX };
    let pages = of_several_words(&corpus.bytes()[..corpus.bytes().len().min(most)]);
    if pages.is_empty() {
        return Err(LabError::Usage("the corpus has no page of more than one word".into()));
    }
    let house = House::new(&options, &pages, &lab.cleanup)?;
    let measure = |(): &(), run| house.measure(run);
    let mut runs = lab.interleaved(&[()], |()| "three ways".into(), measure)?;
    for row in &mut runs {
        row.set("algorithm", options.algorithm.to_string());
        row.set("corpus", corpus.name.as_str()).set("corpus_bytes", pages.len());
    }
    let mut notes = Vec::new();
    say(&runs, &mut notes);
    let rows = fields::medians(&FIELDS, &runs);
    Ok(Report { corpus: Some(corpus), rows, runs, notes })
}

/// The pages that are not one word repeated.
fn of_several_words(bytes: &[u8]) -> Vec<u8> {
    const WORD: usize = size_of::<u64>();
    let is_one_word = |page: &&[u8]| page[WORD..] == page[..PAGE_SIZE - WORD];
    let pages = bytes.chunks_exact(PAGE_SIZE).filter(|page| !is_one_word(page));
    pages.flatten().copied().collect()
}

/// Three servers.
struct House<'a> {
    pages: &'a [u8],
    program: PathBuf,
    near: Served,
    copy: Served,
    cleanup: &'a Cleanup,
    /// It ends after the one that has it for its backing disk.
    _far: Served,
    directory: PrivateDirectory,
}

impl House<'_> {
    fn new<'a>(
        options: &Options,
        pages: &'a [u8],
        cleanup: &'a Cleanup,
    ) -> Result<House<'a>, LabError> {
        let program = served::program(options.ramfold.as_deref())?;
        let directory = PrivateDirectory::new(cleanup)?;
        let start = |name: &'static str, bytes: usize, backing: Option<&Served>| {
            let socket = directory.path().join(name).with_extension("sock");
            let mut command = Command::new(&program);
            command.env("XDG_RUNTIME_DIR", directory.path());
            command.args(["serve", "--name", name, "--size", &bytes.to_string()]);
            command.args(["--algorithm", &options.algorithm.to_string()]);
            command.arg("--unix").arg(&socket);
            command.args(backing.iter().flat_map(|far| ["--backing".into(), far.uri()]));
            Served::start(name, options.algorithm.to_string(), socket, command, cleanup)
        };
        // Blocks that are freed by the next filling may be in use still.
        let far = start("far", pages.len() * 2, None)?;
        let copy = start("copy", pages.len(), None)?;
        let near = start("near", pages.len(), Some(&far))?;
        Ok(House { pages, program, near, copy, cleanup, _far: far, directory })
    }

    /// Every way, one after the other.
    fn measure(&self, run: u32) -> Result<Vec<Row>, LabError> {
        let mut ways = WAYS;
        ways.rotate_left(run as usize % WAYS.len());
        let mut rows = Vec::new();
        for way in ways {
            self.near.fill(self.pages, self.cleanup)?;
            let pages_per_s = match way {
                NBDCOPY => self.copied()?,
                "asked" => self.asked()?,
                _ => self.held()?,
            };
            let mut row = Row::default();
            row.set("way", way).set("run", run);
            row.set("mib_per_s", pages_per_s * PAGE_SIZE as f64 / f64::from(1 << 20));
            rows.push(row);
        }
        let rate = |row: &Row| row.number("mib_per_s");
        let copied = rows.iter().find(|row| row.is("way", NBDCOPY)).and_then(rate);
        for row in rows.iter_mut().filter(|row| !row.is("way", NBDCOPY)) {
            let ratio = rate(row).zip(copied).map(|(ours, copied)| ours / copied);
            row.set("vs_nbdcopy", ratio);
        }
        Ok(rows)
    }

    fn count(&self) -> u64 {
        (self.pages.len() / PAGE_SIZE) as u64
    }

    fn copied(&self) -> Result<f64, LabError> {
        let start = Instant::now();
        let mut command = Command::new(NBDCOPY);
        command.args([self.near.uri(), self.copy.uri()]).stdin(Stdio::null());
        let missing = |error| LabError::missing(NBDCOPY, format!("{error}; Debian: libnbd-bin"));
        let child = self.cleanup.spawn(&mut command).map_err(missing)?;
        let status = child.wait(LONGEST)?;
        let rate = self.count() as f64 / start.elapsed().as_secs_f64();
        let why = || format!("ended with {status}");
        let failed = || LabError::Store { what: NBDCOPY.into(), why: why() };
        status.success().then_some(()).ok_or_else(failed)?;
        self.copy.verify(self.pages, self.cleanup)?;
        Ok(rate)
    }

    fn asked(&self) -> Result<f64, LabError> {
        self.command(&["set", "idle", "all"])?;
        let start = Instant::now();
        self.command(&["set", "writeback", "idle"])?;
        let rate = self.count() as f64 / start.elapsed().as_secs_f64();
        let (written, count) = (self.written()?, self.count());
        let wrong = || LabError::Wrong(format!("{written} of {count} pages were written back"));
        (written == count).then_some(()).ok_or_else(wrong)?;
        self.near.verify(self.pages, self.cleanup)?;
        Ok(rate)
    }

    fn held(&self) -> Result<f64, LabError> {
        let start = Instant::now();
        self.command(&["set", "memory_target", "4K"])?;
        let (mut most, mut rate, mut rose) = (0, None, start);
        while most < self.count() && rose.elapsed() < QUIET {
            let (written, elapsed) = (self.written()?, start.elapsed());
            if written > most {
                (most, rose) = (written, Instant::now());
            }
            if rate.is_none() && self.is_nearly_all(most) {
                rate = Some(written as f64 / elapsed.as_secs_f64());
            }
            std::thread::sleep(LOOK_EVERY);
        }
        self.command(&["set", "memory_target", "0"])?;
        // The pages of a frame are not above the target, and may stay.
        let left = self.count() - most;
        let wrong = || LabError::Wrong(format!("{left} pages are above the target"));
        let rate = rate.ok_or_else(wrong)?;
        self.near.verify(self.pages, self.cleanup)?;
        Ok(rate)
    }

    fn is_nearly_all(&self, written: u64) -> bool {
        (self.count() - written) * LEFT_PART <= self.count()
    }

    /// Pages of the near server that the far one has.
    fn written(&self) -> Result<u64, LabError> {
        let text = self.command(&["get", "bd_stat"])?;
        let blocks = text.split_ascii_whitespace().next().and_then(|word| word.parse().ok());
        blocks.ok_or_else(|| LabError::Wrong(format!("bd_stat is {text:?}")))
    }

    /// Asks the near server something.
    fn command(&self, words: &[&str]) -> Result<String, LabError> {
        let (verb, rest) = (words[0], &words[1..]);
        let mut command = Command::new(&self.program);
        command.env("XDG_RUNTIME_DIR", self.directory.path()).stdin(Stdio::null());
        answer(command.arg(verb).arg(self.near.socket()).args(rest), verb)
    }
}

/// What a command prints, if it ends well.
fn answer(command: &mut Command, verb: &str) -> Result<String, LabError> {
    let output = command.output().map_err(LabError::io(verb))?;
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    let failed = || LabError::Store { what: verb.into(), why: said(&output.stderr) };
    output.status.success().then(|| said(&output.stdout)).ok_or_else(failed)
}

/// Says how each way compares with nbdcopy, with the interval of its mean.
fn say(runs: &[Row], notes: &mut Vec<String>) {
    for way in WAYS {
        let of_way = runs.iter().filter(|row| row.is("way", way));
        let ratios: Vec<f64> = of_way.filter_map(|row| row.number("vs_nbdcopy")).collect();
        let Some(found) = paired(&vec![0.0; ratios.len()], &ratios) else { continue };
        let half = found.ci95.map_or(String::new(), |half| format!(" +- {half:.2}"));
        let (mean, count) = (found.mean, ratios.len());
        note(notes, format!("{way} / nbdcopy = {mean:.2}{half} (MiB/s, mean of {count} runs)"));
    }
}

const FIELDS: [Field; 6] = [
    Field::key("way").shown("way", Format::Plain),
    Field::key("algorithm").shown("algorithm", Format::Plain),
    Field::key("corpus"),
    Field::key("corpus_bytes"),
    Field::measured("mib_per_s").shown("MiB/s", Format::Fixed(0)),
    Field::measured("vs_nbdcopy").shown("vs nbdcopy", Format::Fixed(2)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_one_word_are_left_out() {
        let mut bytes = vec![0; PAGE_SIZE];
        bytes.extend([1, 2, 3, 4, 5, 6, 7, 8].repeat(PAGE_SIZE / 8));
        bytes.extend([1, 2, 3, 4, 5, 6, 7, 8, 9].iter().cycle().take(PAGE_SIZE));
        bytes.extend([7; 100]);
        assert_eq!(of_several_words(&bytes), bytes[2 * PAGE_SIZE..3 * PAGE_SIZE]);
    }

    #[test]
    fn a_ratio_is_that_of_its_run() {
        let row = |way: &str, ratio: Option<f64>| {
            let mut row = Row::default();
            row.set("way", way).set("vs_nbdcopy", ratio);
            row
        };
        let runs = [row(NBDCOPY, None), row("asked", Some(0.9)), row("asked", Some(1.0))];
        let mut notes = Vec::new();
        say(&runs, &mut notes);
        assert_eq!(notes.len(), 1, "nbdcopy has none, and no run has a target: {notes:?}");
        assert!(notes[0].starts_with("asked / nbdcopy = 0.95 +- "), "{notes:?}");
    }
}
